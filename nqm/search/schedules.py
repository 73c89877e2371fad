"""Best piecewise-constant schedules: of the learning rate by exact gradients (`Chain`), of the batch size in closed form.

A piece of n steps whose noise adds kappa / B to the loss is best served, for E examples in all, by
``B = E sqrt(kappa / n) / sum sqrt(kappa n)`` (Cauchy and Schwarz).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import Outcome, number
from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer, fill, free, free_parameters, parameters
from ..problems.base import MAX_STEPS, Problem, check_batch_size, check_target, require_separable
from ..types import Array, Wrong
from .answer import Tuned
from .chain import Chain, split
from .exact.family import Family
from .exact.losses import CEILING
from .exact.minimise import minimise
from .exact.tuning import Tuner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PIECES = 1000  # that a schedule may be asked to have


@dataclass(frozen=True, repr=False)
class Scheduled(Tabular):
    """Answer of `optimal_schedule`: multipliers on the optimizer's learning rate, or on the batch size."""

    schedule: Schedule
    steps: int
    loss: float
    optimizer: Optimizer
    batch_size: float
    outcome: Outcome
    message: str

    def _brief(self) -> str:
        size = f"batch_size={self.batch_size:,.10g}"
        return f"{self.optimizer}, {size}: {self.message}, loss {self.loss:.4g}; {self.schedule!r}"

    def table(self) -> list[dict[str, Any]]:
        """One row for each piece: where it begins, and the settings themselves, not their multipliers."""
        schedule, lr = self.schedule, parameters(self.optimizer)["lr"].value
        return [
            {"start": int(end - n), "steps": int(n), "lr": float(lr * a), "batch_size": self.batch_size * float(b)}
            for end, n, a, b in zip(schedule.ends, schedule.lengths, schedule.lr, schedule.batch_size, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        asked = {"optimizer": str(self.optimizer), "batch_size": number(self.batch_size)}
        found = {"steps": self.steps, "loss": number(self.loss), "outcome": self.outcome.name, "message": self.message}
        return {**asked, **found, "schedule": self.schedule.to_dict()}

    def plot(self, path: str | None = None) -> Figure:
        """The schedule over steps; a matplotlib figure, written to ``path`` if given."""
        from ..show.plots import plot_schedule

        return plot_schedule(self, path)


def optimal_schedule(
    problem: Problem,
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
    _check(problem, optimizer, pieces)
    batch_size = check_batch_size(batch_size)
    if sum(goal is not None for goal in (target, steps, examples)) != 1:
        raise Wrong("optimal_schedule needs exactly one goal: target=, steps= or examples=", argument="target")
    if on == "batch_size":
        if examples is None or not math.isfinite(examples) or examples < pieces:
            raise Wrong(
                f"on='batch_size' needs a budget, examples=, of at least one for each piece, got {examples!r}",
                argument="examples",
            )
        return _best_batches(problem, optimizer, batch_size, float(examples), int(pieces))
    if on != "lr":
        raise Wrong(f"on must be 'lr' or 'batch_size', got {on!r}", argument="on")
    if examples is not None:
        steps = int(examples // batch_size)
    if steps is None:
        return _best_rates(problem, optimizer, batch_size, int(pieces), check_target(target), None)
    if steps != int(steps) or not pieces <= steps <= MAX_STEPS:
        raise Wrong(
            f"steps must be a whole number from {pieces} (one for each piece) to 10^9, got {steps!r}", argument="steps"
        )
    return _best_rates(problem, optimizer, batch_size, int(pieces), None, int(steps))


def _check(problem: Problem, optimizer: Optimizer, pieces: int) -> None:
    """Refuse what cannot be scheduled."""
    require_separable(problem, "optimal_schedule")
    if isinstance(pieces, bool) or pieces != int(pieces) or not 1 <= pieces <= MOST_PIECES:
        raise Wrong(f"pieces must be a whole number from 1 to {MOST_PIECES}, got {pieces!r}", argument="pieces")
    if not isinstance(optimizer, Optimizer) or "lr" not in parameters(optimizer):
        raise Wrong(
            f"optimal_schedule needs an optimizer with one learning rate, got {optimizer!r}", argument="optimizer"
        )
    family = Family(optimizer, problem.spectrum)
    member = family.at((family.low + family.high) / 2)
    if member.cycle != 1 or not member.steady or member.averages:
        raise Wrong(
            f"optimal_schedule needs an optimizer whose steps are all alike, and those of {optimizer} are not",
            argument="optimizer",
        )


def _best_rates(
    problem: Problem, optimizer: Optimizer, batch_size: float, pieces: int, target: float | None, steps: int | None
) -> Scheduled:
    """Fewest steps to a target, or the least loss after so many steps."""
    search = RateSearch(problem, optimizer, batch_size)
    found = search.fewest_steps(target, pieces) if target else search.least_loss(steps or pieces, pieces)
    if isinstance(found, Tuned):  # There is nothing to divide.
        T, few = found.steps or 0, f", fewer than {pieces} pieces: constant" if found.steps else ""
        schedule, message = Schedule([max(T, 1)]), found.message + few
        return Scheduled(schedule, T, found.loss, found.optimizer, batch_size, found.outcome, message)
    lr = parameters(optimizer)["lr"].value
    base = float(found.rates.max() if lr is free else lr)
    outcome = Outcome.reached if target else Outcome.finished
    message = outcome.value.format(steps=found.steps, target=target) + f" with {pieces} pieces"
    schedule = Schedule(split(found.steps, pieces), found.rates / base)
    return Scheduled(schedule, found.steps, found.loss, search.at(found, base), batch_size, outcome, message)


def _best_batches(problem: Problem, optimizer: Optimizer, unit: float, examples: float, pieces: int) -> Scheduled:
    """Least loss for a budget of examples: batch sizes in closed form, rate and steps by search around them."""
    nodes = problem.nodes.searched(optimizer)
    family, tuner = Family(optimizer, nodes.spectrum), Tuner(problem, optimizer)
    start = tuner.solve(unit, examples=max(examples, unit))

    def settle(point: Array, where: Problem) -> tuple[float, Array, int, Optimizer]:
        """Loss and batch sizes at a point (log2 of the steps, coordinates of the family), with its steps and optimizer."""
        T = max(pieces, round(2.0 ** float(point[0])))
        chosen = family.at(point[1:])
        lengths = split(T, pieces)
        rates = np.full(pieces, parameters(chosen)["lr"].value)
        signal, shares = Chain(where, chosen, [], lengths).noise_shares(rates, np.zeros(0))
        batches = share_batches(shares, lengths, examples)
        return signal + float((shares / batches).sum()), batches, T, chosen

    def values(points: Array) -> Array:
        losses = np.array([settle(point, nodes)[0] for point in points])
        return np.log(np.clip(np.where(np.isfinite(losses), losses, CEILING), 1e-300, CEILING))

    low = np.append(math.log2(pieces), family.low)
    high = np.append(math.log2(min(examples, MAX_STEPS)), family.high)
    first = np.append(
        math.log2(max(start.steps or pieces, pieces)), family.point(start.optimizer) if len(family) else []
    )
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


@dataclass(frozen=True)
class RateSettings:
    """The numbers that steer the search for learning rates. A tolerance is the last gain in log loss, relative to it."""

    first_pieces: int = 8  # A schedule of so many pieces finds the horizon cheaply; more pieces only refine it.
    rough: float = 1e-5  # This is the tolerance of the descents that choose among first guesses.
    good: float = 1e-7  # This is the tolerance of the descents that look for the horizon.
    sharp: float = 1e-9  # This is the tolerance of the last descent at a horizon.
    near: float = 3e-3  # The first pieces have their horizon once the log loss is so little below that of the target.
    close: float = 1e-4  # All pieces have their horizon once the log loss is so little below that of the target.
    horizons: int = 30  # Newton's method tries so many horizons at most.
    flattest: float = -0.2  # A flatter slope of log loss over log steps is not believed: Newton would jump too far.
    furthest: float = 1.2  # The log of the horizon moves by this much at a time at most.
    top: float = 0.9  # The falling first guesses begin at this fraction of the edge of stability.
    bottoms: tuple[float, ...] = (1.0, 0.1)  # They end at these multiples of the best constant rate.
    first_cut: float = 0.004  # Horizons beyond the edge are first cut by this: passing the edge saves 0.2% to 2%.
    last_cut: float = 5e-4  # Horizons are not cut by less than this fraction.
    growth: float = 1e6  # A piece may pass the edge of stability as far as a mode grows by this factor in it.
    beyond: float = 64.0  # A rate may be so many times the edge at most, however short its piece is.
    short: int = 8  # Pieces of fewer steps may pass the edge at once: they are over before anything blows up.
    depth: float = 60.0  # The log of a rate may lie so far below that of the largest rate allowed.
    iterations: int = 300  # L-BFGS takes so many iterations at most.
    iterations_beyond: int = 60  # So many at most beyond the edge, where ten horizons are tried.
    corrections: int = 20  # L-BFGS remembers so many of its past steps.


RATE_SETTINGS = RateSettings()


class Rates(NamedTuple):
    """A schedule: its steps, the rates of its pieces, coordinates u of the shared parameters, and the loss at the end."""

    steps: int
    rates: Array
    u: Array
    loss: float = math.inf

    def on(self, pieces: int) -> Rates:
        """The same rates on more pieces, and at least one step for each."""
        rates = self.rates[(np.arange(pieces) * len(self.rates)) // pieces]
        return self._replace(steps=max(self.steps, pieces), rates=rates)


class RateSearch:
    """Rates by L-BFGS at a horizon T, and the horizon by Newton's method as in `tune`."""

    def __init__(self, problem: Problem, optimizer: Optimizer, batch_size: float) -> None:
        self.problem, self.batch_size = problem, batch_size
        self.optimizer = fill(optimizer, {"lr": free})
        self.nodes, self.tuner = problem.nodes.searched(optimizer), Tuner(problem, self.optimizer)
        self.shared = [p for p in free_parameters(self.optimizer).values() if p.path[-1] != "lr"]

    def least_loss(self, steps: int, pieces: int) -> Rates:
        """The rates of least loss after so many steps."""
        constant = self.tuner.solve(self.batch_size, steps=steps)
        start = self._first(steps, constant, min(pieces, RATE_SETTINGS.first_pieces))
        return self._confirmed(self._descend(start.on(pieces), RATE_SETTINGS.sharp), math.inf)

    def fewest_steps(self, target: float, pieces: int) -> Rates | Tuned:
        """The rates that reach a target soonest; the constant answer if that has too few steps to be divided, or none."""
        constant = self.tuner.solve(self.batch_size, target)
        if not constant.steps or constant.steps < pieces:
            return constant
        few = min(pieces, RATE_SETTINGS.first_pieces)
        found = self._first(max(few, constant.steps // 2), constant, few)
        for count in sorted({few, pieces}):
            close = RATE_SETTINGS.close if count == pieces else RATE_SETTINGS.near
            found = self._horizon(target, found.on(count), close)
        return self._confirmed(self._beyond_edge(target, found), target)

    def at(self, rates: Rates, lr: float) -> Optimizer:
        """The optimizer with the shared parameters of a schedule, at a learning rate."""
        values = {p.name: float(p.kind.value(x)) for p, x in zip(self.shared, rates.u, strict=True)}
        return fill(self.optimizer, {**values, "lr": lr})

    def _horizon(self, target: float, found: Rates, close: float) -> Rates:
        """Newton's method on log T against log of the least loss; the slope is that of the current schedule stretched."""
        goal, T = math.log(target), found.steps
        lo, hi, at = len(found.rates) - 1, MAX_STEPS, math.inf
        for _ in range(RATE_SETTINGS.horizons):
            found = self._descend(found._replace(steps=T), RATE_SETTINGS.good)
            at = math.log(found.loss)
            lo, hi = (lo, T) if at <= goal else (T, hi)
            if (0 <= goal - at < close) or hi - lo <= 1:
                break
            further = T + max(1, T // 50)
            slope = (math.log(self._loss(found._replace(steps=further), self.nodes)) - at) / math.log(further / T)
            move = (goal - close / 2 - at) / min(slope, RATE_SETTINGS.flattest)
            guess = T * math.exp(np.clip(move, -RATE_SETTINGS.furthest, RATE_SETTINGS.furthest))
            T = int(np.clip(round(guess), lo + 1, max(hi - 1, lo + 1)))
        return found if at <= goal else self._descend(found._replace(steps=hi), RATE_SETTINGS.sharp)

    def _beyond_edge(self, target: float, found: Rates) -> Rates:
        """Let early pieces pass the edge of stability a little, as later ones repair it: some tenths of a percent.

        Every trial starts from the longer run that reached the target. The other way round, more steps beyond the edge
        would blow up before the search has moved.
        """
        cut = RATE_SETTINGS.first_cut
        for _ in range(10):
            trial = min(found.steps - 1, int(found.steps * (1 - cut)))
            if cut < RATE_SETTINGS.last_cut or trial < 4 * len(found.rates):
                break
            shorter = self._descend(found._replace(steps=trial), RATE_SETTINGS.good, beyond=True)
            if shorter.loss > target:
                cut /= 3
            else:
                found, cut = shorter, max(cut, 0.7 * math.log(target / shorter.loss))
        return found

    def _first(self, steps: int, constant: Tuned, pieces: int) -> Rates:
        """Rates to start from: constant, or falling from the edge of stability; whichever descends further."""
        known = parameters(constant.optimizer)
        lr, u = float(known["lr"].value), np.array([p.kind.coordinate(known[p.name].value) for p in self.shared])
        guesses = [Rates(steps, np.full(pieces, lr), u.astype(float))]
        if pieces > 1:
            top = max(lr, RATE_SETTINGS.top * self._chain(guesses[0]).edge(u))
            falling = [np.geomspace(top, end * lr, pieces) for end in RATE_SETTINGS.bottoms]
            guesses += [guesses[0]._replace(rates=rates) for rates in falling]
        best = min((self._descend(guess, RATE_SETTINGS.rough) for guess in guesses), key=lambda found: found.loss)
        # A piece whose rate has collapsed has no slope left to come back by; try it at the level of those after it.
        envelope = np.maximum.accumulate(best.rates[::-1])[::-1]
        again = self._descend(best._replace(rates=envelope), RATE_SETTINGS.rough)
        return again if again.loss < best.loss else best

    def _chain(self, at: Rates, problem: Problem | None = None) -> Chain:
        return Chain(problem or self.nodes, self.optimizer, self.shared, split(at.steps, len(at.rates)))

    def _loss(self, at: Rates, problem: Problem) -> float:
        signal, noise = self._chain(at, problem).losses(at.rates, at.u)
        loss = signal + noise / self.batch_size
        return loss if math.isfinite(loss) else CEILING

    def _confirmed(self, found: Rates, target: float) -> Rates:
        """The rates with their loss on all modes, and a few more steps where the nodes of the search were a little off."""
        T, loss = found.steps, self._loss(found, self.problem)
        for _ in range(100):
            if loss <= target:
                break
            T += max(1, T // 100_000)
            loss = self._loss(found._replace(steps=T), self.problem)
        return found._replace(steps=T, loss=loss)

    def _descend(self, start: Rates, tolerance: float, beyond: bool = False) -> Rates:
        """The least loss that is found from a start, at its horizon."""
        from scipy.optimize import minimize
        from threadpoolctl import threadpool_limits

        count, chain = len(start.rates), self._chain(start)

        def objective(z: Array) -> tuple[float, Array]:
            loss, slope = chain.gradient(np.exp(z[:count]), z[count:], self.batch_size)
            if not (0 < loss < CEILING) or not np.all(np.isfinite(slope)):
                return math.log(CEILING), np.zeros_like(z)
            return math.log(loss), slope / loss

        shortest = int(chain.lengths.min())
        passes = beyond or shortest < RATE_SETTINGS.short
        most = min(RATE_SETTINGS.beyond, (1 + RATE_SETTINGS.growth ** (1 / shortest)) / 2) if passes else 1.0
        top = math.log(chain.edge(start.u) * most)
        bounds = [(top - RATE_SETTINGS.depth, top)] * count + [(p.kind.low, p.kind.high) for p in self.shared]
        iterations = RATE_SETTINGS.iterations_beyond if beyond else RATE_SETTINGS.iterations
        options = {"maxiter": iterations, "ftol": tolerance, "gtol": 1e-8, "maxcor": RATE_SETTINGS.corrections}
        first = np.append(np.minimum(np.log(start.rates), top), start.u)
        with threadpool_limits(1, "blas"):  # The systems of L-BFGS are tiny: more threads only spin.
            result = minimize(objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return Rates(start.steps, np.exp(result.x[:count]), result.x[count:], math.exp(float(result.fun)))
