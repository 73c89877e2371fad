"""K-FAC (Martens and Grosse, 2015) as an optimizer of the lab."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ....engine.schedule import warmup
from ....optimizers.base import parameters
from ....types import Wrong
from ...network import Network
from ...trees import indexed
from ..foreign import DESCENT_OF
from ..kronecker import KroneckerLayer, dampings, layers_of, others, statistics
from ..stacks import Slopes
from .base import Column, Method, Rule, Settings, check_settings
from .flat import Flat
from .ratio import followed, reduction_ratio

NAME = "KFAC"
PERIODS: dict[str, float] = {"factor_period": 1, "factor_examples": 512, "inverse_period": 10}
COUNTS: dict[str, float] = {"damping_period": 0, "warmup": 0}
DEFAULTS: dict[str, float] = {
    "momentum": 0.0, "damping": 0.01, "decay": 0.95, "kl_clip": 0.01, "weight_decay": 0.0, **PERIODS, **COUNTS,
    "staleness": 0.05, "empirical": 0,
}  # fmt: skip
KFAC_RANGES = {
    "lr": "positive", "damping": "positive", "momentum": "in [0, 1)", "decay": "in [0, 1)", "staleness": "in [0, 1)",
    "kl_clip": "0 or more", "weight_decay": "0 or more", "empirical": "true or false",
    **dict.fromkeys(PERIODS, "a whole number, 1 or more"), **dict.fromkeys(COUNTS, "a whole number, 0 or more"),
}  # fmt: skip
OWN = ("lr", "damping", "decay", "kl_clip", "weight_decay")  # settings in which the trials of a stack may differ
ALIKE = (*PERIODS, *COUNTS, "staleness", "empirical")  # settings in which the trials of a stack must agree
TARGET_STREAM = 0xFA << 40  # stream of the targets that the model draws, separate from all others


class KFACRule(Rule):
    """Natural gradient descent with Kronecker-factored curvature and momentum.

    ::

        A <- e A + (1 - e) A_batch,   G likewise,          e = min(1 - 1/k, decay) at the k-th update of the factors
        d  = (G + sqrt(damping) / pi I)^-1  g  (A + pi sqrt(damping) I)^-1,       pi^2 = (tr A / dim A) / (tr G / dim G)
        d <- min(1, sqrt(kl_clip / (lr^2 d'g))) d
        v <- momentum v + d
        W <- W - lr weight_decay W - lr v

    for the gradient g of each linear, convolutional and embedding layer as a matrix (`training.kronecker`). The gradients of
    other parameters are divided by ``f + damping``, where f is the running mean of ``B drawn^2``. Here ``drawn`` is the gradient
    of a batch of B examples with targets drawn from the model; its mean is zero, so f estimates the diagonal of the Fisher matrix.

    ``kl_clip`` bounds ``lr^2 d'g``, which is twice the Kullback-Leibler divergence between the model before and after a step
    without momentum; ``d'g`` sums over all parameters, and ``kl_clip = 0`` means no bound. Over the first ``warmup`` steps lr
    rises linearly. Every ``damping_period`` steps the damping follows the ratio test (`rules.ratio`); with 0 it stays.

    Factors are updated every ``factor_period`` steps, from at most ``factor_examples`` examples of the batch. At step t inverses
    are computed again once they are ``min(inverse_period, max(1, staleness t))`` steps old. A running mean over t batches moves by
    about 1/t in a step, so inverses of young factors are wrong by about ``staleness``.

    References
    ----------
    Martens and Grosse (2015), Optimizing neural networks with Kronecker-factored approximate curvature, sections 5 to 6.5; Ba,
    Grosse and Martens (2017), Distributed second-order optimization using Kronecker-factored approximations, on the clip;
    Loshchilov and Hutter (2019), Decoupled weight decay regularization.
    """

    def __init__(self, network: Network, theta: Tensor, settings: Sequence[Settings], seeds: Sequence[int]) -> None:
        full = [{**DEFAULTS, **one} for one in settings]
        self.network, self.layers = network, layers_of(network)
        self.others = others(network, self.layers)
        self.own = {name: Column([one[name] for one in full]) for name in OWN}
        self.alike = {name: full[0][name] for name in ALIKE}
        rising = int(self.alike["warmup"])
        self.warmup, descent = warmup(rising) if rising else None, DESCENT_OF[NAME]
        plain = [{name: one[name] for name in parameters(descent())} for one in full]
        self.descent = Flat(descent, theta, plain, self.warmup)
        drawn = None if self.alike["empirical"] else [torch.Generator().manual_seed(TARGET_STREAM + s) for s in seeds]
        self.generators = drawn
        self.factors: dict[str, tuple[Tensor, Tensor]] = {}
        self.inverses: dict[str, tuple[Tensor, Tensor]] = {}
        self.diagonal: Tensor | None = None
        self.seen, self.inverted = 0, 0

    @property
    def theta(self) -> Tensor:
        return self.descent.theta

    def step(self, slopes: Slopes, index: Tensor, t: int) -> None:
        g = self.gather(slopes, index) if t % self.alike["factor_period"] == 0 else slopes(self.theta, index)
        if not self.inverses or self.stale(t):
            self.inverses, self.inverted = {layer.name: self.inverse(layer) for layer in self.layers}, t
        lr, before = self.own["lr"] * (self.warmup.at(t)[0] if self.warmup else 1.0), self.theta
        d = clipped(self.precondition(g), g, lr, self.own["kl_clip"])
        self.descent.shrink(1 - lr * self.own["weight_decay"])
        self.descent.advance(d, t)
        if self.alike["damping_period"] and (t + 1) % self.alike["damping_period"] == 0:
            self.follow_ratio(slopes, before, index)

    def stale(self, t: int) -> bool:
        """Whether the inverses are too old at step t."""
        return t - self.inverted >= min(self.alike["inverse_period"], max(1, self.alike["staleness"] * t))

    def follow_ratio(self, slopes: Slopes, before: Tensor, index: Tensor) -> None:
        """Adjust the damping to the ratio of the last step, on as many examples of its batch as the factors take."""
        part = index[:, : int(self.alike["factor_examples"])]
        ratio = reduction_ratio(slopes, before, self.theta - before, part, self.own["damping"])
        self.own["damping"] = Column(followed(self.own["damping"].values, ratio, int(self.alike["damping_period"])))

    def keep(self, rows: Sequence[int]) -> None:
        chosen = list(rows)
        self.descent.keep(chosen)
        self.own = {name: column.keep(chosen) for name, column in self.own.items()}
        self.factors, self.inverses = indexed((self.factors, self.inverses), chosen)
        self.diagonal = None if self.diagonal is None else self.diagonal[chosen]
        self.generators = None if self.generators is None else [self.generators[row] for row in chosen]

    def gather(self, slopes: Slopes, index: Tensor) -> Tensor:
        """Update the running factors from a batch, and return its gradients."""
        part = index[:, : int(self.alike["factor_examples"])]  # a fair sample, because the batch is in random order
        found = statistics(slopes, self.layers, self.theta, part, self.generators)
        self.seen += 1
        taken = 1 - Column(self.own["decay"].values.clamp(max=1 - 1 / self.seen))
        for name, pair in found.factors.items():
            A, G = self.factors.get(name, pair)
            self.factors[name] = (_mixed(A, pair[0], taken), _mixed(G, pair[1], taken))
        if self.others:
            new = part.shape[1] * found.drawn**2
            self.diagonal = _mixed(new if self.diagonal is None else self.diagonal, new, taken)
        return found.g if part.shape == index.shape else slopes(self.theta, index)

    def inverse(self, layer: KroneckerLayer) -> tuple[Tensor, Tensor]:
        """Inverses of the damped factors of a layer."""
        A, G = self.factors[layer.name]
        into_a, into_g = dampings(layer, A, G, (self.own["damping"] ** 0.5).like(A).reshape(-1))
        inverted = 1 / (A + into_a[:, None]) if layer.diagonal else inverse(A + _eye(A, into_a))
        return inverted, inverse(G + _eye(G, into_g))

    def precondition(self, g: Tensor) -> Tensor:
        """The preconditioned gradient d of each trial."""
        parts = self.network.unflatten(g)
        found: dict[str, Tensor] = {}
        for layer in self.layers:
            A, G = self.inverses[layer.name]
            V = G @ layer.matrix(parts)
            found |= layer.parts(V * A[:, None] if layer.diagonal else V @ A, self.network.shapes)
        if self.others:
            assert self.diagonal is not None
            around = self.network.unflatten(self.own["damping"] + self.diagonal)
            found |= {name: parts[name] / around[name] for name in self.others}
        return torch.cat([found[name].flatten(1) for name in self.network.shapes], dim=1)


def clipped(d: Tensor, g: Tensor, lr: Column, kl_clip: Column) -> Tensor:
    """Preconditioned gradients, shortened where ``lr^2 d'g`` exceeds kl_clip; 0 means no bound."""
    bound = torch.where(kl_clip.values > 0, kl_clip.values, torch.inf)
    length = lr.values**2 * (d.double() * g).sum(1).clamp_min(0)
    return Column((bound / length).sqrt().clamp(max=1)) * d


def _mixed(old: Tensor, new: Tensor, taken: Column) -> Tensor:
    """The running mean, updated in place because factors are the largest tensors of a step."""
    return old.lerp_(new, taken.like(new))


def _eye(M: Tensor, scale: Tensor) -> Tensor:
    return scale[:, None, None] * torch.eye(M.shape[-1], dtype=M.dtype, device=M.device)


def inverse(M: Tensor) -> Tensor:
    """Inverses of positive definite matrices, in float64 if float32 fails for any of them; NaN for a matrix without inverse."""
    L, info = torch.linalg.cholesky_ex(M)
    if bool(info.any()) and M.dtype != torch.float64:
        return inverse(M.double()).to(M.dtype)
    return torch.where((info == 0)[:, None, None], torch.cholesky_inverse(L), torch.nan)


def kfac() -> Method:
    """K-FAC as a method of the lab."""
    known = ["lr", *DEFAULTS]

    def check(settings: Settings, network: Network | None = None) -> None:
        check_settings(NAME, settings, known, KFAC_RANGES)
        if network is None:
            return
        if network.of == "model":
            got = f"that of {network.name} is a function of the model"
            raise Wrong(f"{NAME} needs a loss of (output, target); {got}", argument="workload")
        if network.likelihood is None and not settings.get("empirical"):
            why = (
                f"{NAME} draws targets from the model, and the distribution for the loss of {network.name} is not known"
            )
            raise Wrong(f"{why}: give the Network a likelihood, or set empirical = 1", argument="workload")
        if not layers_of(network):
            needed = "linear, convolutional or embedding layers"
            raise Wrong(f"{NAME} needs {needed}, and {network.name} has none", argument="workload")

    return Method(NAME, check, KFACRule, stacks=True, alike=ALIKE)
