"""Best piecewise-constant schedules, by exact gradients.

The derivative of a run is a run: with x' = A x + b eps, dx moves as ``dx' = A dx + dA x + db eps``, so (x, dx) is a linear
optimizer with twice the slots and `MomentMap` powers give the derivative of t steps in O(log t). Pieces are chained
forwards, and backwards by their adjoints::

    lambda <- A' lambda,    Lambda <- A' Lambda A,    dL = lambda . dA x + 2 <Lambda, dA N A'> + <Lambda, dQ>

Batch sizes need no search: a piece of n steps whose noise adds kappa / B to the loss is best served, for E examples in
all, by ``B = E sqrt(kappa / n) / sum sqrt(kappa n)`` (Cauchy and Schwarz).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..engine.basis import balance
from ..engine.kernels.compiled import kernels
from ..engine.moments import MomentMap
from ..engine.run import Outcome, number
from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer, Parameter, fill, free, free_parameters, parameters
from ..problems.base import MAX_STEPS, check_batch_size, check_target
from ..problems.quadratic import Quadratic
from ..types import Array, Wrong
from .answer import Tuned
from .exact.family import Family
from .exact.losses import CEILING
from .exact.minimise import minimise
from .exact.tuning import Tuner

FEW = 8  # pieces of the first, coarse schedule
STEP = 1e-40j  # complex step: no difference is taken, so it may be as small as one likes


@dataclass(frozen=True)
class Scheduled:
    """Answer of `optimal_schedule`: multipliers on the optimizer's learning rate, or on the batch size."""

    schedule: Schedule
    steps: int
    loss: float
    optimizer: Optimizer
    batch_size: float
    outcome: Outcome
    message: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "optimizer": str(self.optimizer),
            "batch_size": number(self.batch_size),
            "steps": self.steps,
            "loss": number(self.loss),
            "outcome": self.outcome.name,
            "message": self.message,
            "schedule": self.schedule.to_dict(),
        }

    def plot(self, path: str | None = None) -> Any:
        """The schedule over steps; a matplotlib figure, written to ``path`` if given."""
        from ..show.plots import plot_schedule

        return plot_schedule(self, path)


def optimal_schedule(
    problem: Quadratic,
    optimizer: Optimizer,
    batch_size: float,
    target: float | None = None,
    *,
    steps: int | None = None,
    examples: float | None = None,
    pieces: int = 10,
    on: Literal["lr", "batch_size"] = "lr",
) -> Scheduled:
    """Best schedule of ``pieces`` equal stretches: of the learning rate, or of the batch size.

    Parameters
    ----------
    optimizer : its learning rate is scheduled; other free parameters (momentum, decay) are tuned along with it.
    batch_size : positive. For ``on="batch_size"`` the unit of the multipliers.
    target, steps, examples : reach a loss in the fewest steps, or the least loss in so many steps or examples.
    on : ``"batch_size"`` needs ``examples``, the budget; learning rate and number of steps are tuned along with it.

    >>> from nqm import SGD, Quadratic, Spectrum
    >>> problem = Quadratic(Spectrum.power_law(10_000))
    >>> 28100 < optimal_schedule(problem, SGD(), batch_size=64, target=0.01, pieces=2).steps < 28300
    True
    """
    if not isinstance(problem, Quadratic):
        raise Wrong(
            f"optimal_schedule needs a Quadratic problem, got {type(problem).__name__}; the quadratic next to a "
            "LeastSquares is its .additive"
        )
    batch_size = check_batch_size(batch_size)
    if sum(goal is not None for goal in (target, steps, examples)) != 1:
        raise Wrong("optimal_schedule needs exactly one goal: target=, steps= or examples=")
    if isinstance(pieces, bool) or pieces != int(pieces) or not 1 <= pieces <= 1000:
        raise Wrong(f"pieces must be a whole number from 1 to 1000, got {pieces!r}", argument="pieces")
    if not isinstance(optimizer, Optimizer) or "lr" not in parameters(optimizer):
        raise Wrong(f"optimal_schedule needs an optimizer with one learning rate, got {optimizer!r}")
    family = Family(optimizer, problem.spectrum)
    member = family.at((family.low + family.high) / 2)
    if member.cycle != 1 or not member.steady or member.averages:
        raise Wrong(f"optimal_schedule needs an optimizer whose steps are all alike, and those of {optimizer} are not")
    if on == "batch_size":
        if examples is None or not math.isfinite(examples) or examples < pieces:
            raise Wrong(
                f"on='batch_size' needs a budget, examples=, of at least one for each piece, got {examples!r}",
                argument="on",
            )
        return _best_batches(problem, optimizer, batch_size, float(examples), int(pieces))
    if on != "lr":
        raise Wrong(f"on must be 'lr' or 'batch_size', got {on!r}", argument="on")
    if examples is not None:
        steps = int(examples // batch_size)
    search = _RateSearch(problem, optimizer, batch_size)
    if steps is not None:
        if steps != int(steps) or not pieces <= steps <= MAX_STEPS:
            raise Wrong(
                f"steps must be a whole number from {pieces} (one for each piece) to 10^9, got {steps!r}",
                argument="steps",
            )
        return search.least_loss(int(steps), int(pieces))
    return search.fewest_steps(check_target(target), int(pieces))


def split(steps: int, pieces: int) -> Array:
    """Lengths of ``pieces`` stretches as equal as whole steps allow, longer ones first."""
    lengths = np.full(pieces, steps // pieces)
    lengths[: steps % pieces] += 1
    return lengths


class Chain:
    """A run in pieces, each at its own learning rate, with the derivative of its loss by every rate and shared parameter.

    The maps of all pieces are powers of one batch; only passing the state along, and its adjoint back, goes piece by piece.
    """

    def __init__(self, problem: Quadratic, optimizer: Optimizer, shared: list[Parameter], lengths: Array) -> None:
        self.h = problem.spectrum.h
        self.ws, self.wn = problem.spectrum.signal_mass, problem.spectrum.noise_mass
        self.optimizer, self.shared, self.lengths = optimizer, shared, lengths

    def losses(self, rates: Array, u: Array) -> tuple[float, float]:
        """(signal, noise) at the end."""
        with np.errstate(all="ignore"):
            scale = self.scale(u)
            x, N = self.states(*self.maps(rates, u, scale, None), scale)
            y, noise = self._read(x[-1], N[-1], self.row(scale))
            return float(y**2 @ self.ws), float(noise @ self.wn)

    def gradient(self, rates: Array, u: Array, batch_size: float) -> tuple[float, Array]:
        """Loss at the end, and its derivatives by the log of each rate and by each shared parameter."""
        with np.errstate(all="ignore"):
            k, scale = len(self.optimizer.initial()), self.scale(u)
            tangents = [self.maps(rates, u, scale, direction) for direction in range(-1, len(u))]
            A, Q = (np.ascontiguousarray(a[:, :k, :k]) for a in tangents[0])
            (x, N), r = self.states(A, Q, scale), self.row(scale)
            y, noise = self._read(x[-1], N[-1], r)
            loss = float(y**2 @ self.ws + noise @ self.wn / batch_size)
            lam, Lam = self._adjoints(A, 2 * self.ws * y * r, self.wn / batch_size * r[:, None] * r[None])
            NA = np.einsum("pilx,pjlx->pijx", N[:-1], A)
            slopes = []
            for dA, dQ in ((a[:, k:, :k], q[:, k:, :k]) for a, q in tangents):
                change = 2 * (np.einsum("pilx,pljx->pijx", dA, NA) + dQ)
                slopes.append(np.einsum("pix,pilx,plx->p", lam, dA, x[:-1]) + np.einsum("pijx,pijx->p", Lam, change))
            return loss, np.append(slopes[0], [slope.sum() for slope in slopes[1:]])

    def noise_shares(self, rates: Array, u: Array) -> tuple[float, Array]:
        """The signal at the end, and what each piece's noise adds to the loss there per unit 1 / B."""
        with np.errstate(all="ignore"):
            scale = self.scale(u)
            (A, Q), r = self.maps(rates, u, scale, None), self.row(scale)
            signal, _ = self.losses(rates, u)
            _, Lam = self._adjoints(A, r, self.wn * r[:, None] * r[None])
            return signal, np.einsum("pijx,pijx->p", Lam, Q)

    def scale(self, u: Array) -> Array:
        """One balance of the slots for all the pieces, so that states pass from each to the next."""
        values = {p.name: p.kind.value(x) for p, x in zip(self.shared, u, strict=True)}
        plain = fill(self.optimizer, {**values, "lr": 1.0})
        G, _ = fill(plain, {"lr": float(np.min(plain.edge(self.h)))}).system(self.h, 0)
        return balance(np.array([[np.broadcast_to(e, self.h.shape) for e in row] for row in G], dtype=float))

    def maps(self, rates: Array, u: Array, scale: Array, direction: int | None) -> tuple[Array, Array]:
        """A and Q of each piece, pieces first; with a direction (-1 for log lr, i for shared parameter i) that of (x, dx)."""
        nudge = np.zeros(len(u), dtype=complex)
        lr = rates[:, None].astype(complex)
        if direction is not None and direction >= 0:
            nudge[direction] = STEP
        elif direction is not None:
            lr = lr * (1 + STEP)
        values = {p.name: p.kind.value(x + d) for p, x, d in zip(self.shared, u, nudge, strict=True)}
        rows, column = fill(self.optimizer, {**values, "lr": lr}).system(self.h, 0)
        k, shape = len(column), (len(rates), len(self.h))
        G: Array
        b: Array
        G, b = np.empty((k, k, *shape), dtype=complex), np.empty((k, *shape), dtype=complex)
        for i in range(k):
            b[i] = column[i] / scale[i]
            for j in range(k):
                G[i, j] = rows[i][j] * (scale[j] / scale[i])
        G, b = G.reshape(k, k, -1), b.reshape(k, -1)
        if direction is None:
            return self._powers(MomentMap.step(np.real(G), np.real(b)))
        tangent = _twice(np.real(G), np.imag(G) / STEP.imag)
        return self._powers(MomentMap.step(tangent, np.concatenate([np.real(b), np.imag(b) / STEP.imag])))

    def _powers(self, step: MomentMap) -> tuple[Array, Array]:
        """Each piece's power of the step, cut out of the batch."""
        short, pieces = int(self.lengths.min()), len(self.lengths)
        power = step**short
        A, Q = power.A, power.Q
        if self.lengths.max() > short:
            one_more = np.repeat(self.lengths > short, len(self.h))
            longer = step @ power
            A, Q = np.where(one_more, longer.A, A), np.where(one_more, longer.Q, Q)
        A, Q = (np.moveaxis(a.reshape(*a.shape[:-1], pieces, len(self.h)), -2, 0) for a in (A, Q))
        return np.ascontiguousarray(A), np.ascontiguousarray(Q)

    def states(self, A: Array, Q: Array, scale: Array) -> tuple[Array, Array]:
        """The state before each piece and after the last."""
        first = np.asarray(self.optimizer.initial(), dtype=float)[:, None] / scale
        return kernels().chain(A, Q, first, np.zeros(Q.shape[1:]))

    def row(self, scale: Array) -> Array:
        return np.asarray(self.optimizer.readout(int(self.lengths.sum())), dtype=float)[:, None] * scale

    @staticmethod
    def _read(x: Array, N: Array, r: Array) -> tuple[Array, Array]:
        return np.einsum("ix,ix->x", r, x), np.einsum("ix,ijx,jx->x", r, N, r)

    @staticmethod
    def _adjoints(A: Array, lam: Array, Lam: Array) -> tuple[Array, Array]:
        """Derivatives of the loss by the state after each piece: ``A' lambda`` and ``A' Lambda A`` compose as moments do."""
        turned = np.ascontiguousarray(A[:0:-1].transpose(0, 2, 1, 3))
        lams, Lams = kernels().chain(turned, np.zeros_like(turned), lam, Lam)
        return lams[::-1], Lams[::-1]


def _twice(G: Array, dG: Array) -> Array:
    """The system of (x, dx)."""
    return np.concatenate([np.concatenate([G, np.zeros_like(G)], axis=1), np.concatenate([dG, G], axis=1)], axis=0)


def _refine(rates: Array, pieces: int) -> Array:
    """The same rates on more pieces."""
    return rates[(np.arange(pieces) * len(rates)) // pieces]


class _RateSearch:
    """Learning rates by L-BFGS at a horizon, and the horizon by Newton's method as in `tune`."""

    def __init__(self, problem: Quadratic, optimizer: Optimizer, batch_size: float) -> None:
        self.problem, self.batch_size = problem, batch_size
        self.base = parameters(optimizer)["lr"].value
        self.optimizer = fill(optimizer, {"lr": free})
        self.tuner = Tuner(problem, self.optimizer)
        self.shared = [p for p in free_parameters(self.optimizer).values() if p.path[-1] != "lr"]

    def least_loss(self, steps: int, pieces: int) -> Scheduled:
        rates, u = self._first(steps, self.tuner.solve(self.batch_size, steps=steps), min(pieces, FEW))
        rates, u, _ = self._descend(steps, _refine(rates, pieces), u, 1e-9)
        return self._answer(rates, u, steps, None)

    def fewest_steps(self, target: float, pieces: int) -> Scheduled:
        constant = self.tuner.solve(self.batch_size, target)
        if not constant.steps or constant.steps < pieces:
            return self._not_better(constant, target, pieces)
        few = min(pieces, FEW)
        T = max(few, constant.steps // 2)
        rates, u = self._first(T, constant, few)
        # Few pieces first: they find the horizon cheaply, and more pieces only refine it.
        for count in sorted({few, pieces}):
            T, rates, u = self._horizon(
                target, max(T, count), _refine(rates, count), u, 1e-4 if count == pieces else 3e-3
            )
        T, rates, u = self._beyond_edge(target, T, rates, u)
        return self._answer(rates, u, T, target)

    def _horizon(self, target: float, T: int, rates: Array, u: Array, close: float) -> tuple[int, Array, Array]:
        """Newton's method on log T against log of the least loss; the slope is that of the current schedule stretched."""
        goal = math.log(target)
        lo, hi, at = len(rates) - 1, MAX_STEPS, math.inf
        for _ in range(30):
            rates, u, loss = self._descend(T, rates, u, 1e-7)
            at = math.log(loss)
            lo, hi = (lo, T) if at <= goal else (T, hi)
            if (0 <= goal - at < close) or hi - lo <= 1:
                break
            further = T + max(1, T // 50)
            slope = (math.log(self._loss(further, rates, u)) - at) / math.log(further / T)
            guess = T * math.exp(np.clip((goal - close / 2 - at) / min(slope, -0.2), -1.2, 1.2))
            T = int(np.clip(round(guess), lo + 1, max(hi - 1, lo + 1)))
        if at > goal:
            T, (rates, u, _) = hi, self._descend(hi, rates, u, 1e-9)
        return T, rates, u

    def _beyond_edge(self, target: float, T: int, rates: Array, u: Array) -> tuple[int, Array, Array]:
        """Let early pieces pass the edge of stability a little, as later ones repair it: some tenths of a percent.

        Every trial starts from the longer run that reached the target. The other way round, more steps beyond the edge
        would blow up before the search has moved.
        """
        cut = 0.004
        for _ in range(10):
            trial = min(T - 1, int(T * (1 - cut)))
            if cut < 5e-4 or trial < 4 * len(rates):
                break
            found = self._descend(trial, rates, u, 1e-7, beyond=True)
            if found[2] > target:
                cut /= 3
            else:
                T, (rates, u, loss) = trial, found
                cut = max(cut, 0.7 * math.log(target / loss))
        return T, rates, u

    def _first(self, T: int, constant: Tuned, pieces: int) -> tuple[Array, Array]:
        """Rates to start from: constant, or falling from the edge of stability; whichever descends further."""
        known = parameters(constant.optimizer)
        u = np.array([float(p.kind.coordinate(known[p.name].value)) for p in self.shared])
        lr, top = float(known["lr"].value), 0.9 * self._edge(u)
        falls = [np.full(pieces, lr)] + [np.geomspace(max(top, lr), end * lr, pieces) for end in (1.0, 0.1)]
        found = [self._descend(T, rates, u, 1e-5) for rates in (falls if pieces > 1 else falls[:1])]
        rates, u, loss = min(found, key=lambda answer: answer[2])
        # A piece whose rate has collapsed has no slope left to come back by; try it at the level of those after it.
        envelope = np.maximum.accumulate(rates[::-1])[::-1]
        again = self._descend(T, envelope, u, 1e-5)
        return again[:2] if again[2] < loss else (rates, u)

    def _edge(self, u: Array) -> float:
        values = {p.name: p.kind.value(x) for p, x in zip(self.shared, u, strict=True)}
        return float(np.min(fill(self.optimizer, {**values, "lr": 1.0}).edge(self.problem.spectrum.h)))

    def _chain(self, T: int, pieces: int, problem: Quadratic | None = None) -> Chain:
        return Chain(
            problem or self.problem.nodes.searched(self.optimizer), self.optimizer, self.shared, split(T, pieces)
        )

    def _loss(self, T: int, rates: Array, u: Array, problem: Quadratic | None = None) -> float:
        signal, noise = self._chain(T, len(rates), problem).losses(rates, u)
        loss = signal + noise / self.batch_size
        return loss if math.isfinite(loss) else CEILING

    def _descend(
        self, T: int, rates: Array, u: Array, sharp: float, beyond: bool = False
    ) -> tuple[Array, Array, float]:
        from scipy.optimize import minimize
        from threadpoolctl import threadpool_limits

        chain, count = self._chain(T, len(rates)), len(rates)

        def objective(z: Array) -> tuple[float, Array]:
            loss, slope = chain.gradient(np.exp(z[:count]), z[count:], self.batch_size)
            if not (0 < loss < CEILING) or not np.all(np.isfinite(slope)):
                return math.log(CEILING), np.zeros_like(z)
            return math.log(loss), slope / loss

        low = [p.kind.low for p in self.shared]
        high = [p.kind.high for p in self.shared]
        # Up to the edge of stability; beyond, as far as a mode grows a million times in a piece at most.
        shortest = int(chain.lengths.min())
        passing = min(64.0, (1 + 10 ** (6 / shortest)) / 2)
        top = math.log(self._edge(u) * (passing if beyond or shortest < 8 else 1.0))
        bounds = [(top - 60.0, top)] * count + list(zip(low, high, strict=True))
        with threadpool_limits(1, "blas"):  # its systems are tiny: more threads only spin
            result: Any = minimize(
                objective, np.append(np.minimum(np.log(rates), top), u), jac=True, method="L-BFGS-B", bounds=bounds,
                options={"maxiter": 60 if beyond else 300, "ftol": sharp, "gtol": 1e-8, "maxcor": 20},
            )  # fmt: skip
        return np.exp(result.x[:count]), result.x[count:], math.exp(float(result.fun))

    def _answer(self, rates: Array, u: Array, T: int, target: float | None) -> Scheduled:
        loss = self._loss(T, rates, u, self.problem)
        for _ in range(100):  # the search's nodes were a little off
            if target is None or loss <= target:
                break
            T += max(1, T // 100_000)
            loss = self._loss(T, rates, u, self.problem)
        base = float(self.base) if self.base is not free else float(rates.max())
        values = {p.name: float(p.kind.value(x)) for p, x in zip(self.shared, u, strict=True)}
        schedule = Schedule(split(T, len(rates)), rates / base)
        outcome = Outcome.finished if target is None else Outcome.reached
        message = outcome.value.format(steps=T, target=target) + f" with {len(rates)} pieces"
        optimizer = fill(self.optimizer, {**values, "lr": base})
        return Scheduled(schedule, T, loss, optimizer, self.batch_size, outcome, message)

    def _not_better(self, constant: Tuned, target: float, pieces: int) -> Scheduled:
        """Nothing to divide: the constant answer, whatever it is."""
        T = constant.steps or 0
        message = (
            constant.message if not constant.steps else f"{constant.message}, fewer than {pieces} pieces: constant"
        )
        schedule = Schedule([max(T, 1)])
        return Scheduled(schedule, T, constant.loss, constant.optimizer, self.batch_size, constant.outcome, message)


def _best_batches(problem: Quadratic, optimizer: Optimizer, unit: float, examples: float, pieces: int) -> Scheduled:
    """Least loss for a budget of examples: batch sizes in closed form, rate and steps by search around them."""
    coarse = problem.nodes.searched(optimizer)
    family = Family(optimizer, coarse.spectrum)
    start = Tuner(problem, optimizer).solve(unit, examples=max(examples, unit))
    tuner_point = Tuner(problem, optimizer).family.point(start.optimizer) if len(family) else np.zeros(0)

    def settle(point: Array, where: Quadratic) -> tuple[float, Array, int, Optimizer]:
        T = max(pieces, round(2.0 ** float(point[0])))
        chosen = family.at(point[1:])
        lengths = split(T, pieces)
        chain = Chain(where, chosen, [], lengths)
        signal, shares = chain.noise_shares(np.full(pieces, parameters(chosen)["lr"].value), np.zeros(0))
        batches = share_batches(shares, lengths, examples)
        return signal + float((shares / batches).sum()), batches, T, chosen

    def values(points: Array) -> Array:
        losses = np.array([settle(point, coarse)[0] for point in points])
        return np.log(np.clip(np.where(np.isfinite(losses), losses, CEILING), 1e-300, CEILING))

    low = np.append(math.log2(pieces), family.low)
    high = np.append(math.log2(min(examples, MAX_STEPS)), family.high)
    first = np.append(math.log2(max(start.steps or pieces, pieces)), tuner_point)
    best = minimise(values, [np.clip(first, low, high)], 2.0, low, high)[0].u
    loss, batches, T, chosen = settle(best, problem)
    schedule = Schedule(split(T, pieces), batch_size=batches / unit)
    message = f"least loss for {examples:g} examples is {loss:.4g}, in {T:,} steps with {pieces} pieces"
    return Scheduled(schedule, T, loss, chosen, unit, Outcome.finished, message)


def share_batches(shares: Array, lengths: Array, examples: float) -> Array:
    """Batch sizes of at least 1 that minimise ``sum shares / B`` for ``sum lengths B = examples``."""
    want = np.sqrt(np.maximum(shares, 0) / lengths)
    batches = np.ones(len(lengths))
    open_ = np.ones(len(lengths), dtype=bool)
    while open_.any():
        left = examples - lengths[~open_].sum()
        weight = (want * lengths)[open_].sum()
        batches[open_] = want[open_] * left / weight if weight > 0 else left / lengths[open_].sum()
        small = open_ & (batches < 1)
        if not small.any():
            break
        batches[small] = 1.0
        open_ &= ~small
    return batches
