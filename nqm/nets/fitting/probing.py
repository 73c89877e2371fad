"""Fit a network: how its gradient signal and noise are distributed over curvature, by Gauss quadrature with Lanczos.

With the curvature matrix G, the full gradient g, the gradient g_j of example j and C = mean (g_j - g)(g_j - g)':

    signal   f -> g' f(G) g            Lanczos from g
    noise    f -> tr f(G) C            Lanczos from n = N^-1/2 sum_j e_j (g_j - g), e_j standard normal: E n n' = C
    density  f -> tr f(G)              Lanczos from standard normal vectors

The last two are means over random probes. The result of each probe is kept (`estimates.Measure`), so that resampling gives
every number an interval. Most of the scatter of the noise comes from the few largest curvatures h with vectors y. There y'Cy
is computed exactly, by a forward-mode pass over the examples, and the probes measure the rest: for eigenvectors y of G,

    tr f(G) C = sum f(h) y'Cy + tr f(G) (1 - YY') C (1 - YY').
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from ...optimizers.base import Optimizer
from ...sampling.replicas import check_whole
from ...show.numbers import brief
from ...types import Array, Progress, Wrong
from ..curvature import Curvature, curvature_of
from ..estimates import Measure
from ..krylov import SPENT, Krylov, Store, lanczos, standard_normal
from ..natural import KFAC
from ..network import Network
from ..preflight import check_measurable
from ..rescaled import DiagonalRoot, Rescaled
from .adam_state import AdamState, Brought, brought_along, metric_of, read_state
from .budget import give_back, in_small_pieces, planned, together, vectors_in_group
from .descent import NOISELESS, descend, steps_to
from .kfac_state import KFACState
from .metric import AdamMetric
from .model import Fit, Provenance
from .noise_vectors import VECTORS_TOGETHER, noise_draws, random_noise
from .sampled import Subsample
from .subsampling import SPANNING_VECTORS, sample_of, sampling_errors
from .testing import with_test

USUAL_DESCENT = (
    165  # full gradients of a descent without a horizon; predictions then hold to lr x steps x curvature = 300
)
SQUARED_EXAMPLES = 512  # number of examples whose gradients are squared for Adam's second moment
ADAM_EPS = 1e-8  # the eps of Adam, which bounds its preconditioner
RITZ_RESIDUAL = 0.02  # a Ritz vector with a residual below this share of its curvature counts as an eigenvector
TOP_VECTORS = 16  # number of largest curvatures along which signal and noise are computed exactly
WITHOUT_NOISE = (
    "the gradients of all examples are equal, so there is no gradient noise, and the batch size makes no difference"
)
TIMED_GRADIENTS = 3  # number of full gradients that are timed, to report the cost of a product


@dataclass(frozen=True, eq=False)
class Signal:
    """What Lanczos from the gradient found: its Krylov space, and the ``vectors`` of the largest curvatures.

    ``top`` has for each vector the curvature h, the noise variance c, the gradient g, Adam's preconditioner and the residual. The
    vectors have taken the place of the basis in memory; ``spare`` are the rows that they left free.
    """

    krylov: Krylov
    top: dict[str, Array]
    vectors: Tensor
    spare: Tensor
    brought: Brought | None = None

    @property
    def converged(self) -> Array:
        """Which of the vectors count as eigenvectors."""
        return self.top["residual"] <= RITZ_RESIDUAL * self.top["h"]

    def release(self) -> None:
        """Free the memory of the basis, once the noise along the vectors is known."""
        for name in ("vectors", "spare"):
            object.__setattr__(self, name, self.vectors[:0].clone())


def fit(
    network: Network, *, steps: int = 40, noise_vectors: int = 6, noise_steps: int = 12, probes: int = 0,
    descent: int | None = None, horizon: tuple[int, float] | None = None, test: bool = True, curvature: str | None = None,
    optimizer: object = None, batch_size: float | None = None, seed: int = 0, memory: int | None = None,
    basis: Store = "working", sample: int | None = None, announce: Callable[[str], object] | None = None,
    progress: Progress | None = None,
) -> Fit:  # fmt: skip
    """Measure signal and noise of a network at its checkpoint, and return them as a `Fit`.

    Parameters
    ----------
    steps : Lanczos steps from the gradient, each a product with the curvature.
    noise_vectors : number of random combinations of per-example gradients. They measure the noise except along the largest
        curvatures, where it is computed exactly; their scatter gives the intervals.
    noise_steps : Lanczos steps from each noise vector, and from each probe.
    probes : number of random vectors for the density of eigenvalues; predictions do not need them.
    descent : number of full gradients along which the real loss is followed; 0 for none, 165 if omitted. After the first 20
        each adds 2 / largest curvature to effective learning rate x steps, and predictions hold about as far: see `descent`.
    horizon : (steps, lr) up to which predictions should hold, with the effective learning rate lr / (1 - momentum) of heavy
        ball. The descent is as long as that needs.
    test : whether the fit tests itself by short real trainings, from which the intervals of its predictions come.
    curvature : "gauss_newton" (default), "hessian", "fisher" or "empirical_fisher".
    optimizer : a ``torch.optim.AdamW`` or ``Adam`` that has trained the network up to here, or its ``state_dict()``; then
        everything is measured in the metric of its preconditioner, and `Fit.predict` predicts AdamW or Adam. An nqm optimizer such
        as ``AdamW(1e-3)`` stands for one that starts here, at the given ``batch_size``. ``KFAC()`` of `nqm.nets` is the lab's K-FAC,
        which starts here too; its factors are measured on the data, for all batch sizes.
    memory : bytes that the fit may take, beside the activations of a pass; if need be, fewer Lanczos steps are taken, and a note
        says so.
    basis : where the one copy of the Lanczos basis is kept: "working" beside the network, "host" in host memory, in "bf16", or
        "host-bf16". A note says how far the vectors that were kept elsewhere are from orthonormal.
    sample : number of examples on which everything is measured, drawn at random without replacement; all of them if omitted.
        `Fit.sampled` then has the loss, |g|^2, tr C, the noise scale and the largest curvature of all the data, with intervals.
    announce : called with a sentence on memory, passes and time before the measurement starts, measured on one product.
    progress : called with (done, total). Ctrl-C keeps the Lanczos steps made so far, and the provenance says how many.
    """
    counts = {"steps": (steps, 2), "noise_vectors": (noise_vectors, 1), "noise_steps": (noise_steps, 2)}
    for name, (value, least) in {**counts, "probes": (probes, 0), "descent": (descent or 0, 0)}.items():
        check_whole(name, value, least)
    if horizon is not None:
        _check_horizon(horizon, descent)
    if batch_size is not None and (not isinstance(optimizer, Optimizer) or isinstance(optimizer, KFAC)):
        only = "an optimizer that starts here, such as AdamW(1e-3), whose second moments depend on it"
        raise Wrong(f"a fit is for every batch size; batch_size is for {only}", argument="batch_size")
    began, population = perf_counter(), network.examples
    if sample is not None:
        network = sample_of(network, sample, seed)
    loss = check_measurable(network, lambda few: _tried(few, curvature, seed))
    plain, state, natural = network, None, None
    if isinstance(optimizer, KFAC):
        natural = KFACState(network, optimizer)
        network = natural.rescaled
    elif optimizer is not None:
        state = read_state(network, optimizer, batch_size)
        network = Rescaled(network, DiagonalRoot(network, state.preconditioner.sqrt()))
    operator = curvature_of(network, curvature, vectors=VECTORS_TOGETHER)
    generator = torch.Generator().manual_seed(seed)

    def show(done: int, _: int) -> None:
        if progress:
            progress(operator.products, budget.products)

    draws, g = noise_draws(network, noise_vectors, generator), network.gradient()
    if not bool((g != 0).any()):
        raise Wrong("the gradient is zero at this checkpoint: there is nothing to train", argument="network")
    if not bool(torch.linalg.vector_norm(g, dtype=torch.float64).isfinite()):
        raise Wrong("the gradient is not finite at this checkpoint; scale the inputs, or load a sound one", "network")
    sizes = {"noise_vectors": noise_vectors, "noise_steps": noise_steps, "probes": probes}
    budget = planned(
        operator,
        g,
        steps=steps,
        **sizes,
        descent=USUAL_DESCENT if descent is None else descent,
        memory=memory,
        basis=basis,
    )
    operator.products, operator.seconds = 0, 0.0  # without the product that was timed
    if announce:
        announce(str(budget))
    adam = (plain.theta, state) if state else None
    signal = signal_of(network, operator, g, budget.steps, generator, show, adam, store=basis)
    made, alone = operator.products, operator.seconds
    sampled = None
    if sample is not None:
        sampled = sampling_errors(
            network, population, g, signal.vectors[:SPANNING_VECTORS].to(g), curvature=curvature, seed=seed
        )
    noise, density, noise_made = noise_of(
        operator,
        signal,
        draws,
        g,
        probes,
        noise_steps,
        generator,
        show,
        budget.group_bytes,
        basis,
    )
    noiseless = noise.integral(np.ones_like) <= NOISELESS * float(g @ g)
    if noiseless:
        noise, signal.top["c"] = replace(noise, weight=np.zeros_like(noise.weight)), np.zeros_like(signal.top["c"])
    start = perf_counter()
    for _ in range(TIMED_GRADIENTS):
        network.gradient()
    gradient = (perf_counter() - start) / TIMED_GRADIENTS
    gradients = descent_steps(float(signal.top["h"].max()), descent, horizon)
    rate, reach = 1 / float(signal.top["h"].max()), horizon[0] * horizon[1] if horizon else 0.0
    # Adam trains at its own edge of stability, so in its metric the descent is not braked either.
    extra = {"braked": state is None, "watch": None if natural is None else natural.see}
    path = descend(network, rate, gradients, progress, curvature, reach, **extra) if gradients else None
    about = Provenance(
        network=network.name, step=network.step, parameters=network.dim, curvature=operator.name, seed=seed,
        lanczos_steps=len(signal.krylov), noise_vectors=noise.probes, noise_steps=noise_made,
        noise_eigenvectors=int(signal.converged.sum()), probes=density.probes if density else 0,
        products=operator.products, full_gradients=0 if path is None else int(path.steps[-1]), chunk=network.chunk,
        gradient_seconds=gradient, product_cost=alone / made / gradient,
        product_cost_together=(operator.seconds - alone) / max(operator.products - made, 1) / gradient,
        notes=(*network.notes, *budget.notes, *_told(signal, basis, sampled, noiseless)), seconds=round(perf_counter() - began, 2),
    )  # fmt: skip
    nodes = Measure.of([signal.krylov.quadrature()])
    found = Fit(nodes, noise, loss, network.examples, signal.top, density, path, about, sampled=sampled)
    if natural is not None:
        found = replace(found, metric=natural.metric())
    if test and path is not None:
        trained = network if natural is None else plain  # that of Adam is trained by SGD in the units of the metric
        found = with_test(trained, found, seed=seed, progress=progress)
    if state is not None and signal.brought is not None:
        found = replace(found, metric=_metric(plain, state, operator, signal.brought, noise_steps, generator))
    return replace(found, provenance=replace(about, seconds=round(perf_counter() - began, 2)))


def descent_steps(largest_curvature: float, descent: int | None, horizon: tuple[int, float] | None) -> int:
    """The number of full gradients of a descent: as given, as many as a horizon (steps, lr) needs, or `USUAL_DESCENT`.

    >>> descent_steps(5.0, None, (1000, 0.1))
    265
    """
    if horizon is None:
        return USUAL_DESCENT if descent is None else descent
    steps, lr = horizon
    return steps_to(steps * lr * largest_curvature)


def _check_horizon(horizon: tuple[int, float], descent: int | None) -> None:
    """Refuse a horizon that is not (steps, lr), or that comes with a length of the descent."""
    if descent is not None:
        raise Wrong(f"horizon {horizon} decides how long the descent is; omit descent or horizon", argument="horizon")
    steps, lr = horizon
    check_whole("horizon", steps, 1)
    if not 0 < lr < math.inf:
        raise Wrong(f"the learning rate of a horizon (steps, lr) must be positive and finite, got {lr!r}", "horizon")


def _metric(
    network: Network, state: AdamState, operator: Curvature, brought: Brought, steps: int, generator: torch.Generator
) -> AdamMetric:  # fmt: skip
    """The metric of an optimizer's state, whose momentum has a part outside of the gradient's Krylov space."""
    spaces = [] if brought.outside is None else krylov_spaces(operator, brought.outside[None], steps)
    return metric_of(network, state, brought, spaces[0] if spaces else None, generator)


def signal_of(
    network: Network, operator: Curvature, g: Tensor, steps: int, generator: torch.Generator, progress: Progress,
    adam: tuple[Tensor, AdamState] | None = None, *, store: Store = "working",
) -> Signal:  # fmt: skip
    """Run Lanczos from the gradient, and measure signal and noise along the vectors of the largest curvatures.

    ``adam`` are the weights in their own units and the state of Adam, if that is the metric.
    """
    (found,) = krylov_spaces(operator, g[None], steps, keep=True, progress=progress, store=store)
    brought = brought_along(*adam, found, g) if adam else None
    top, vectors = _along_top(network, found, g, generator)
    if not top["h"].max() > 0:
        largest = f"the largest curvature along the gradient is {top['h'].max():g}, as if every softmax were saturated"
        raise Wrong(f"{largest}; scale the inputs, or take another checkpoint", argument="network")
    assert found.basis is not None
    return Signal(replace(found, basis=None), top, vectors, found.basis[len(vectors) :], brought)


def noise_of(
    operator: Curvature, signal: Signal, draws: Tensor, g: Tensor, probes: int, steps: int, generator: torch.Generator,
    progress: Progress, memory: int | None = None, store: Store = "working",
) -> tuple[Measure, Measure | None, int]:  # fmt: skip
    """Gradient noise over curvature, the density of curvatures if there are probes, and the number of Lanczos steps.

    Lanczos starts at the noise vectors, without their parts along eigenvectors, and at random probes.
    """
    exact, vectors = signal.converged, random_noise(operator.network, draws, g, signal.spare)
    whole = vectors.norm()
    vectors = _without(vectors, signal.vectors, exact)
    if vectors.norm() <= SPENT.get(vectors.dtype, 1e-3) * whole:  # the eigenvectors span all of the noise
        vectors = vectors[:0]
    left, borrowed = len(vectors), vectors.untyped_storage().data_ptr() == signal.spare.untyped_storage().data_ptr()
    if probes:
        random = standard_normal((probes, vectors.shape[1]), generator, vectors.dtype, vectors.device)
        vectors = torch.cat([vectors, random])
    elif borrowed:  # the basis, in which these rows are, is freed next
        give_back()
        vectors = vectors.clone()
    signal.release()
    spaces = krylov_spaces(operator, vectors, steps, progress=progress, memory=memory, store=store)
    parts = [space.quadrature() for space in spaces]
    apart = parts[:left] if left else [(np.empty(0), np.empty(0))] * len(draws)
    h, c = signal.top["h"][exact], np.maximum(signal.top["c"][exact], 0)
    measure = Measure.of([(np.append(h, nodes), np.append(c, weights)) for nodes, weights in apart])
    density = parts[left:]
    return measure, Measure.of(density) if density else None, max(map(len, spaces), default=0)


def _without(rows: Tensor, vectors: Tensor, which: Array) -> Tensor:
    """The rows, in their own memory, without their parts along some orthonormal vectors."""
    for vector, known in zip(vectors, which, strict=True):
        if known:
            along = vector.to(rows)
            rows.addr_(rows @ along, along, alpha=-1)
    return rows


def _told(signal: Signal, basis: Store, sampled: Subsample | None, noiseless: bool) -> Iterator[str]:
    """What is to be said of where the basis was kept, of a sample, and of gradients without noise."""
    if basis != "working":
        kept = {"host": "in host memory", "bf16": "in bfloat16", "host-bf16": "in bfloat16 in host memory"}[basis]
        off = f"its vectors are orthonormal to {brief(signal.krylov.error)}"
        yield f"the Lanczos basis was kept {kept}; {off}, by their largest inner product"
    if sampled:
        yield sampled.sentence()
    if noiseless:
        yield WITHOUT_NOISE


def _tried(few: Network, curvature: str | None, seed: int) -> None:
    """Pass a few examples through every derivative that a fit computes."""
    generator = torch.Generator().manual_seed(seed)
    random_noise(few, noise_draws(few, 1, generator), g := few.gradient())
    start = standard_normal((1, few.dim), generator, g.dtype, g.device)
    (found,) = krylov_spaces(curvature_of(few, curvature), start, 2, keep=True)
    _along_top(few, found, g, generator)


def _along_top(
    network: Network, found: Krylov, g: Tensor, generator: torch.Generator
) -> tuple[dict[str, Array], Tensor]:
    """Signal, noise variance and Adam's preconditioner along the largest Ritz vectors, and these vectors."""
    give_back()
    k = min(TOP_VECTORS, len(found))
    (values, y), second = found.into_ritz(k), np.zeros(k)
    for batch, share in network.batches(k):
        pieces = y.split(together(g, k))
        pushed = [network.ways.pushed(lambda t, b=batch: network.losses(t, b), network.theta, p.to(g)) for p in pieces]
        second += share * (torch.cat(pushed) ** 2).mean(1).cpu().double().numpy()
    slope = np.array([float((row.to(g) * g).sum()) for row in y])
    some = torch.randperm(network.examples, generator=generator, device="cpu")[:SQUARED_EXAMPLES]
    squares = torch.zeros_like(g)
    for rows in in_small_pieces(network).example_gradients(index=some.to(g.device)):
        squares += torch.linalg.vector_norm(rows, dim=0) ** 2 / len(some)
    scale = 1 / (squares.sqrt_() + ADAM_EPS)
    adam = np.array([float((row.to(g) ** 2 * scale).sum()) for row in y])
    columns = {"h": values[:k], "c": second - slope**2, "g": slope, "adam": adam, "residual": found.residuals()[:k]}
    return columns, y


def krylov_spaces(
    curvature: Curvature, starts: Tensor, steps: int, *, keep: bool = False, progress: Progress | None = None,
    memory: int | None = None, store: Store = "working",
) -> list[Krylov]:  # fmt: skip
    """Run Lanczos from every row, in groups whose bases fit in ``memory`` bytes; an interrupt keeps the groups that are done."""
    if len(starts) == 0:
        return []
    give_back()
    group = vectors_in_group(starts[0], steps, memory, store)
    found: list[Krylov] = []
    try:
        for rows in starts.split(group):
            found += lanczos(curvature, rows, steps, keep=keep, progress=progress, store=store)
    except KeyboardInterrupt:
        if not found:
            raise
    return found
