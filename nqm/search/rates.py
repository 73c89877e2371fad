"""The best learning rates of a schedule in pieces: by descent along exact gradients, from coarse schedules to fine ones.

At a horizon T the loss is a smooth function of the rates with many basins, the more of them the fewer the steps and the less
the noise. So schedules of few pieces are found first, from several first guesses, and each is the start of a finer one.
The horizon that reaches a target is found around that by Newton's method, as in `tune`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..optimizers.base import Optimizer, fill, free, free_parameters, parameters
from ..problems.base import MAX_STEPS, Problem
from ..types import Array
from .answer import Tuned
from .chain import Chain, split
from .exact.losses import CEILING
from .exact.tuning import Tuner


@dataclass(frozen=True)
class RateSettings:
    """The numbers that steer the search for learning rates. A tolerance is the last gain in log loss, relative to it."""

    seed: int = (
        20190704  # Seed of the first guesses drawn at random, so that a search gives the same answer every time.
    )
    first_pieces: int = (
        8  # Schedules of up to so many pieces have first guesses of their own; finer ones start from coarser.
    )
    patience: int = 4  # First guesses are drawn until so many in a row have led to no lower loss.
    lower: float = 1e-3  # A loss is lower if it is so by this fraction.
    kept: int = 2  # So many of the best schedules are followed to the next finer one.
    rough: float = 1e-5  # This is the tolerance of the descents that choose among first guesses.
    good: float = 1e-7  # This is the tolerance of the descents that look for the horizon.
    sharp: float = 1e-9  # This is the tolerance of the last descent at a horizon.
    near: float = 3e-3  # Coarse schedules have their horizon once the log loss is so little below that of the target.
    close: float = 1e-4  # The finest schedule has its horizon once the log loss is so little below that of the target.
    shorter: float = 0.02  # Other basins are looked for at a horizon that is shorter by this fraction.
    horizons: int = 30  # Newton's method tries so many horizons at most.
    flattest: float = -0.2  # A flatter slope of log loss over log steps is not believed: Newton would jump too far.
    furthest: float = 1.2  # The log of the horizon moves by this much at a time at most.
    top: float = 0.9  # The falling first guesses begin at this fraction of the edge of stability.
    bottoms: tuple[float, ...] = (1.0, 0.1)  # They end at these multiples of the best constant rate.
    spread: float = (
        2.0  # Standard deviation of the shared parameters of random first guesses, in their search coordinate.
    )
    tops: tuple[float, float] = (0.05, 1.0)  # Random first guesses begin at a fraction of the edge between these,
    ends: tuple[float, float] = (0.01, 2.0)  # end at a multiple of the best constant rate between these,
    jitter: float = 0.3  # and have the logs of their rates moved by this standard deviation.
    first_cut: float = 0.004  # Horizons beyond the edge are first cut by this: passing the edge saves 0.2% to 2%.
    last_cut: float = 5e-4  # Horizons are not cut by less than this fraction.
    cuts: int = 20  # So many horizons beyond the edge are tried at most.
    growth: float = 1e6  # A piece may pass the edge of stability as far as a mode grows by this factor in it.
    beyond: float = 64.0  # A rate may be so many times the edge at most, however short its piece is.
    short: int = 8  # Pieces of fewer steps may pass the edge at once: they are over before anything blows up.
    depth: float = 60.0  # The log of a rate may lie so far below that of the largest rate allowed.
    iterations: int = 300  # L-BFGS takes so many iterations at most.
    iterations_beyond: int = 60  # So many at most beyond the edge, where a dozen horizons are tried.
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
    """The best rates of a schedule for one problem, optimizer and batch size."""

    def __init__(self, problem: Problem, optimizer: Optimizer, batch_size: float) -> None:
        self.problem, self.batch_size = problem, batch_size
        self.optimizer = fill(optimizer, {"lr": free})
        self.nodes, self.tuner = problem.nodes.searched(optimizer), Tuner(problem, self.optimizer)
        self.shared = [p for p in free_parameters(self.optimizer).values() if p.path[-1] != "lr"]

    def least_loss(self, steps: int, pieces: int) -> Rates:
        """The rates of least loss after so many steps."""
        best = self._refined(self._constant(self.tuner.solve(self.batch_size, steps=steps), steps), pieces)
        return self._confirmed(self._descend(best, RATE_SETTINGS.sharp, beyond=True), math.inf)

    def fewest_steps(self, target: float, pieces: int) -> Rates | Tuned:
        """The rates that reach a target soonest; the constant answer if that has too few steps to be divided, or none."""
        tuned = self.tuner.solve(self.batch_size, target)
        if not tuned.steps or tuned.steps < pieces:
            return tuned
        constant = self._constant(tuned, tuned.steps)
        few, *finer = [level for level in levels(pieces) if level > RATE_SETTINGS.first_pieces // 2 or level == pieces]
        start = self._refined(constant._replace(steps=max(few, tuned.steps // 2)), few)
        best = self._shortened(target, self._sooner(target, constant.on(few), start), constant)
        for level in finer or [pieces]:
            best = self._sooner(target, best.on(level), best.on(level), close=level == pieces)
        return self._confirmed(self._beyond_edge(target, best), target)

    def at(self, rates: Rates, lr: float) -> Optimizer:
        """The optimizer with the shared parameters of a schedule, at a learning rate."""
        values = {p.name: float(p.kind.value(x)) for p, x in zip(self.shared, rates.u, strict=True)}
        return fill(self.optimizer, {**values, "lr": lr})

    def _constant(self, tuned: Tuned, steps: int) -> Rates:
        """A tuned optimizer as a schedule of one piece."""
        known = parameters(tuned.optimizer)
        u = np.array([p.kind.coordinate(known[p.name].value) for p in self.shared], dtype=float)
        return Rates(steps, np.array([float(known["lr"].value)]), u, tuned.loss)

    def _refined(self, constant: Rates, pieces: int) -> Rates:
        """The best rates at a horizon, from a constant one over finer and finer schedules."""
        best, guessed = [constant], False
        for level in levels(pieces)[1:]:
            starts = [at.on(level) for at in best]
            ends = [self._descend(start, RATE_SETTINGS.rough) for start in starts]
            if level <= RATE_SETTINGS.first_pieces or not guessed or constant.steps // level < RATE_SETTINGS.short:
                ends, guessed = self._explored(ends, self._guesses(constant, level)), True
            best = sorted(ends, key=lambda end: end.loss)[: RATE_SETTINGS.kept]
        return best[0]

    def _explored(self, ends: list[Rates], guesses: Iterator[Rates], goal: float = 0.0) -> list[Rates]:
        """These schedules and those that guesses lead to, until some in a row have led to no lower loss, or one to the goal."""
        ends, idle = list(ends), 0
        for guess in guesses:
            if min(end.loss for end in ends) <= goal:
                return ends
            end = self._descend(guess, RATE_SETTINGS.rough)
            idle = 0 if end.loss < (1 - RATE_SETTINGS.lower) * min(known.loss for known in ends) else idle + 1
            ends.append(end)
            if idle == RATE_SETTINGS.patience:
                break
        # A piece whose rate has collapsed has no slope left to come back by; try it at the level of those after it.
        best = min(ends, key=lambda end: end.loss)
        envelope = np.maximum.accumulate(best.rates[::-1])[::-1]
        return [*ends, self._descend(best._replace(rates=envelope), RATE_SETTINGS.rough)]

    def _guesses(self, constant: Rates, pieces: int) -> Iterator[Rates]:
        """First guesses without end: falling from the edge of stability, then drawn at random around such."""
        lr, u, chain = float(constant.rates[0]), constant.u, self._chain(constant)
        flat, edge = constant.on(pieces), chain.edge(u)
        for end in RATE_SETTINGS.bottoms:
            yield flat._replace(rates=np.geomspace(max(lr, RATE_SETTINGS.top * edge), end * lr, pieces))
        low, high = (np.array([getattr(p.kind, side) for p in self.shared]) for side in ("low", "high"))
        if self.shared:  # without any momentum
            yield flat._replace(rates=np.geomspace(max(lr, RATE_SETTINGS.top * chain.edge(low)), lr, pieces), u=low)
        rng = np.random.default_rng(RATE_SETTINGS.seed)
        while True:
            at = np.clip(u + RATE_SETTINGS.spread * rng.normal(size=len(u)), low, high)
            top = chain.edge(at)
            first, last = top * rng.uniform(*RATE_SETTINGS.tops), lr * np.exp(rng.uniform(*np.log(RATE_SETTINGS.ends)))
            rates = np.geomspace(first, last, pieces) * np.exp(RATE_SETTINGS.jitter * rng.normal(size=pieces))
            yield flat._replace(rates=np.minimum(rates, top), u=at)

    def _sooner(self, target: float, best: Rates, start: Rates, close: bool = False) -> Rates:
        """The shortest horizon that is found from a start, or the best so far where that is no longer."""
        found = self._horizon(target, start, RATE_SETTINGS.close if close else RATE_SETTINGS.near)
        return found if found.loss <= target and found.steps < best.steps else best

    def _shortened(self, target: float, best: Rates, constant: Rates) -> Rates:
        """Look for other basins at shorter horizons, further down the more was gained, until guesses lead to none just below."""
        cut = RATE_SETTINGS.shorter
        while len(best.rates) > 1 and (trial := int(best.steps * (1 - cut))) >= len(best.rates):
            start = best._replace(steps=trial)
            ends = self._explored(
                [self._descend(start, RATE_SETTINGS.rough)], self._guesses(start, len(best.rates)), target
            )
            found = min(ends, key=lambda end: end.loss)
            if found.loss <= target:
                best, cut = found, 2 * cut
            elif cut > RATE_SETTINGS.shorter:
                cut = RATE_SETTINGS.shorter
            else:
                break
        return best

    def _horizon(self, target: float, found: Rates, close: float) -> Rates:
        """Newton's method on log T against log of the least loss; the slope is that of the current schedule stretched."""
        goal, T, reached = math.log(target), found.steps, found
        lo, hi = len(found.rates) - 1, MAX_STEPS
        for turn in range(RATE_SETTINGS.horizons):
            found = self._descend(found._replace(steps=T), RATE_SETTINGS.good)
            at = math.log(found.loss)
            if at <= goal:
                reached, hi = found, T
            else:
                lo = T
            if (0 <= goal - at < close) or hi - lo <= 1:
                break
            further = T + max(1, T // 50)
            slope = (math.log(self._loss(found._replace(steps=further), self.nodes)) - at) / math.log(further / T)
            move = (goal - close / 2 - at) / min(slope, RATE_SETTINGS.flattest)
            guess = T * math.exp(np.clip(move, -RATE_SETTINGS.furthest, RATE_SETTINGS.furthest))
            if turn % 3 == 2 and hi < MAX_STEPS:
                guess = (lo + hi) / 2  # Basins differ from horizon to horizon, and Newton's method may creep.
            T = int(np.clip(round(guess), lo + 1, max(hi - 1, lo + 1)))
        return reached

    def _beyond_edge(self, target: float, found: Rates) -> Rates:
        """Let early pieces pass the edge of stability, as later ones repair it: some tenths of a percent, and more of Nesterov.

        Every trial starts from the longer run that reached the target. The other way round, more steps beyond the edge
        would blow up before the search has moved.
        """
        cut = RATE_SETTINGS.first_cut
        for _ in range(RATE_SETTINGS.cuts):
            trial = min(found.steps - 1, int(found.steps * (1 - cut)))
            if cut < RATE_SETTINGS.last_cut or trial < len(found.rates):
                break
            shorter = self._descend(
                found._replace(steps=trial), RATE_SETTINGS.good, True, RATE_SETTINGS.iterations_beyond
            )
            if shorter.loss > target:
                cut /= 3
            else:
                found, cut = shorter, max(cut, 0.7 * math.log(target / shorter.loss))
        return found

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

    def _descend(
        self, start: Rates, tolerance: float, beyond: bool = False, iterations: int = RATE_SETTINGS.iterations
    ) -> Rates:
        """The least loss that is found from a start, at its horizon: up to the edge of stability, or beyond it."""
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
        options = {
            "maxiter": iterations,
            "ftol": tolerance,
            "gtol": 1e-8,
            "maxcor": RATE_SETTINGS.corrections,
        }
        first = np.append(np.minimum(np.log(start.rates), top), start.u)
        with threadpool_limits(1, "blas"):  # The systems of L-BFGS are tiny: more threads only spin.
            result = minimize(objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return Rates(start.steps, np.exp(result.x[:count]), result.x[count:], math.exp(float(result.fun)))


def levels(pieces: int) -> list[int]:
    """Numbers of pieces from 1 to ``pieces``, each a multiple of the one before: a finer schedule can be the coarser one."""
    found = [pieces]
    while found[-1] > 1:
        found.append(found[-1] // next(p for p in range(2, found[-1] + 1) if found[-1] % p == 0))
    return found[::-1]
