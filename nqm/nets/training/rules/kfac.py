"""K-FAC."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ....optimizers.base import parameters
from ....types import Wrong
from ...network import Network
from ...trees import indexed
from ..foreign import DESCENT_OF
from ..kronecker import KroneckerLayer, layers_of, others, statistics
from ..stacks import Slopes
from .base import Column, Method, Rule, Settings, check_names, check_number, check_switch
from .flat import Flat

NAME = "KFAC"
PERIODS: dict[str, float] = {"factor_period": 1, "factor_examples": 512, "inverse_period": 10}
DEFAULTS: dict[str, float] = {"momentum": 0.0, "damping": 0.01, "decay": 0.95, **PERIODS, "empirical": 0}
ALIKE = (*PERIODS, "empirical")  # settings in which the trials of a stack must agree
TARGET_STREAM = 0xFA << 40  # seeds of the targets that the model draws, apart from all others
LEAST_TRACE = 1e-30  # mean diagonal of a factor from below, so that the ratio of two can be taken


class KFAC(Rule):
    """Natural gradient with Kronecker-factored curvature, then momentum.

    ::

        A <- e A + (1 - e) A_batch,   G likewise,          e = min(1 - 1/k, decay) at the k-th batch that is used
        d  = (G + sqrt(damping) / pi I)^-1  g  (A + pi sqrt(damping) I)^-1,       pi^2 = (tr A / dim A) / (tr G / dim G)
        v <- momentum v + d
        W <- W - lr v

    for the gradient g of each linear, convolutional and embedding layer as a matrix (`training.kronecker`). Other parameters are
    divided by ``f + damping``, where f is the running mean of ``B drawn^2``: the gradient ``drawn`` of a batch whose targets the
    model draws has mean zero, so that this estimates their diagonal of the Fisher matrix.

    Factors are renewed every ``factor_period`` steps, from ``factor_examples`` of the batch at most; inverses every
    ``inverse_period`` steps and before that at steps 1, 2, 4, ..., while the factors are young.

    References
    ----------
    Martens and Grosse (2015), Optimizing neural networks with Kronecker-factored approximate curvature, sections 5 and 6.3.
    """

    def __init__(self, network: Network, theta: Tensor, settings: Sequence[Settings], seeds: Sequence[int]) -> None:
        full = [{**DEFAULTS, **one} for one in settings]
        self.network, self.layers = network, layers_of(network)
        self.others = others(network, self.layers)
        descent = DESCENT_OF[NAME]
        self.descent = Flat(descent, theta, [{name: one[name] for name in parameters(descent())} for one in full])
        self.damping, self.decay = (Column([one[name] for one in full]) for name in ("damping", "decay"))
        self.factor_period, self.factor_examples, self.inverse_period, empirical = (int(full[0][n]) for n in ALIKE)
        self.generators = None if empirical else [torch.Generator().manual_seed(TARGET_STREAM + seed) for seed in seeds]
        self.factors: dict[str, tuple[Tensor, Tensor]] = {}
        self.inverses: dict[str, tuple[Tensor, Tensor]] = {}
        self.diagonal: Tensor | None = None
        self.seen = 0

    @property
    def theta(self) -> Tensor:
        return self.descent.theta

    def step(self, slopes: Slopes, index: Tensor, t: int) -> None:
        g = self.gather(slopes, index) if t % self.factor_period == 0 else slopes(self.theta, index)
        if t % self.inverse_period == 0 or (t < self.inverse_period and t & (t - 1) == 0):
            self.inverses = {layer.name: self.inverse(layer) for layer in self.layers}
        self.descent.advance(self.precondition(g), t)

    def keep(self, rows: Sequence[int]) -> None:
        chosen = list(rows)
        self.descent.keep(chosen)
        self.damping, self.decay = self.damping.keep(chosen), self.decay.keep(chosen)
        self.factors, self.inverses = indexed((self.factors, self.inverses), chosen)
        self.diagonal = None if self.diagonal is None else self.diagonal[chosen]
        self.generators = None if self.generators is None else [self.generators[row] for row in chosen]

    def gather(self, slopes: Slopes, index: Tensor) -> Tensor:
        """The gradients, while the running factors take in what this batch says."""
        part = index[:, : self.factor_examples]  # the batch is in random order
        found = statistics(slopes, self.layers, self.theta, part, self.generators)
        self.seen += 1
        taken = 1 - Column(self.decay.values.clamp(max=1 - 1 / self.seen))
        for name, pair in found.factors.items():
            A, G = self.factors.get(name, pair)
            self.factors[name] = (_mixed(A, pair[0], taken), _mixed(G, pair[1], taken))
        if self.others:
            new = part.shape[1] * found.drawn**2
            self.diagonal = _mixed(new if self.diagonal is None else self.diagonal, new, taken)
        return found.g if part.shape == index.shape else slopes(self.theta, index)

    def inverse(self, layer: KroneckerLayer) -> tuple[Tensor, Tensor]:
        """Inverses of the damped factors of a layer."""
        (A, G), root = self.factors[layer.name], self.damping**0.5
        mean_a = A.mean(-1) if layer.diagonal else _mean_diagonal(A)
        pi = (mean_a.clamp_min(LEAST_TRACE) / _mean_diagonal(G).clamp_min(LEAST_TRACE)).sqrt()
        into = root * pi
        inverted = 1 / (A + into[:, None]) if layer.diagonal else inverse(A + _eye(A, into))
        return inverted, inverse(G + _eye(G, root / pi))

    def precondition(self, g: Tensor) -> Tensor:
        """The direction d of each trial."""
        parts = self.network.unflatten(g)
        found: dict[str, Tensor] = {}
        for layer in self.layers:
            A, G = self.inverses[layer.name]
            V = G @ layer.matrix(parts)
            found |= layer.parts(V * A[:, None] if layer.diagonal else V @ A, self.network.shapes)
        if self.others:
            assert self.diagonal is not None
            around = self.network.unflatten(self.damping + self.diagonal)
            found |= {name: parts[name] / around[name] for name in self.others}
        return torch.cat([found[name].flatten(1) for name in self.network.shapes], dim=1)


def _mixed(old: Tensor, new: Tensor, taken: Column) -> Tensor:
    """The running mean, renewed in place: factors are the largest tensors of a step."""
    return old.lerp_(new, taken.like(new))


def _mean_diagonal(M: Tensor) -> Tensor:
    return M.diagonal(dim1=-2, dim2=-1).mean(-1)


def _eye(M: Tensor, scale: Tensor) -> Tensor:
    return scale[:, None, None] * torch.eye(M.shape[-1], dtype=M.dtype)


def inverse(M: Tensor) -> Tensor:
    """Inverses of a stack of positive definite matrices, in float64 where float32 does not do; NaN where there is none."""
    L, info = torch.linalg.cholesky_ex(M)
    if bool(info.any()) and M.dtype != torch.float64:
        return inverse(M.double()).to(M.dtype)
    return torch.where((info == 0)[:, None, None], torch.cholesky_inverse(L), torch.nan)


def kfac() -> Method:
    """K-FAC as a method of the lab."""
    known = ["lr", *DEFAULTS]

    def check_settings(settings: Settings, network: Network | None = None) -> None:
        check_names(NAME, settings, known)
        full = {**DEFAULTS, **settings}
        for name in ("lr", "damping"):
            check_number(NAME, name, full[name], "positive", lambda v: v > 0)
        for name in ("momentum", "decay"):
            check_number(NAME, name, full[name], "in [0, 1)", lambda v: 0 <= v < 1)
        for name in PERIODS:
            check_number(NAME, name, full[name], "a whole number, 1 or more", lambda v: v >= 1 and v == int(v))
        check_switch(NAME, "empirical", full["empirical"])
        if network is None:
            return
        if network.of == "model":
            got = f"that of {network.name} is a function of the model"
            raise Wrong(f"{NAME} needs a loss of (output, target); {got}", argument="workload")
        if network.likelihood is None and not full["empirical"]:
            why = f"{NAME} draws targets from the model, and the loss of {network.name} names no distribution"
            raise Wrong(f"{why}: give the Network a likelihood, or set empirical = 1", argument="workload")
        if not layers_of(network):
            needed = "linear, convolutional or embedding layers"
            raise Wrong(f"{NAME} needs {needed}, and {network.name} has none", argument="workload")

    return Method(NAME, check_settings, KFAC, stacks=True, alike=ALIKE)
