"""The best learning rates of a schedule in pieces: by descent along exact gradients, from coarse schedules to fine ones.

At a horizon T the loss is a smooth function of the rates, with many basins where steps are few or noise is small. Schedules of
few pieces are therefore found first, from several first guesses, and finer schedules start from them. Newton's method finds
the horizon that reaches a target.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..optimizers.base import Optimizer, fill, free, free_parameters, parameters
from ..problems.base import MAX_STEPS, Problem
from ..types import Array
from .answer import Goal, Tuned
from .chain import Chain, split
from .exact.losses import CEILING, log_loss
from .exact.tuning import Tuner
from .settings import RATE_SETTINGS


class Rates(NamedTuple):
    """A schedule: its steps, the rates of its pieces, coordinates u of the shared parameters, and the loss at the end."""

    steps: int
    rates: Array
    u: Array
    loss: float = math.inf

    def on(self, pieces: int) -> Rates:
        """The same rates on more pieces, with at least one step for each piece."""
        rates = self.rates[(np.arange(pieces) * len(self.rates)) // pieces]
        return self._replace(steps=max(self.steps, pieces), rates=rates)


class RateFamily:
    """The schedules of one optimizer at one batch size: a learning rate for each piece, and what all pieces share."""

    def __init__(self, problem: Problem, optimizer: Optimizer, batch_size: float) -> None:
        self.problem, self.batch_size = problem, batch_size
        self.optimizer = fill(optimizer, {"lr": free})
        self.shared = [p for p in free_parameters(self.optimizer).values() if p.path[-1] != "lr"]

    def at(self, rates: Rates, lr: float) -> Optimizer:
        """The optimizer with the shared parameters of a schedule and the learning rate ``lr``."""
        values = {p.name: float(p.kind.value(x)) for p, x in zip(self.shared, rates.u, strict=True)}
        return fill(self.optimizer, {**values, "lr": lr})

    def _constant(self, tuned: Tuned, steps: int) -> Rates:
        """A tuned optimizer as a schedule of one piece."""
        known = parameters(tuned.optimizer)
        u = np.array([p.kind.coordinate(known[p.name].value) for p in self.shared], dtype=float)
        return Rates(steps, np.array([float(known["lr"].value)]), u, tuned.loss)


class RateSearch(RateFamily):
    """The best rates of a schedule for one problem, optimizer and batch size."""

    def __init__(self, problem: Problem, optimizer: Optimizer, batch_size: float, stable: bool = False) -> None:
        super().__init__(problem, optimizer, batch_size)
        self.stable = stable
        self.nodes, self.tuner = problem.nodes.searched(optimizer), Tuner(problem, self.optimizer)

    def least_loss(self, steps: int, pieces: int) -> Rates:
        """The rates of least loss after ``steps`` steps."""
        best = self._refined(self._constant(self.tuner.solve(Goal.of(self.batch_size, steps=steps)), steps), pieces)
        return self._confirmed(self._descend(self._nudged(best), RATE_SETTINGS.sharp, beyond=True), math.inf)

    def fewest_steps(self, target: float, pieces: int) -> Rates | Tuned:
        """The rates that reach a target soonest; the best constant rate if that has fewer steps than pieces, or does not reach it."""
        tuned = self.tuner.solve(Goal.of(self.batch_size, target))
        if not tuned.steps or tuned.steps < pieces:
            return tuned
        constant = self._constant(tuned, tuned.steps)
        few, *finer = [level for level in levels(pieces) if level > RATE_SETTINGS.first_pieces // 2 or level == pieces]
        start = self._refined(constant._replace(steps=max(few, int(RATE_SETTINGS.first_part * tuned.steps))), few)
        best = self._shortened(target, self._sooner(target, constant.on(few), start, RATE_SETTINGS.near))
        for level in finer or [pieces]:
            close = RATE_SETTINGS.close if level == pieces else RATE_SETTINGS.near
            best = self._sooner(target, best.on(level), best.on(level), close)
        return self._confirmed(best if self.stable else self._beyond_edge(target, best), target)

    def _refined(self, constant: Rates, pieces: int) -> Rates:
        """The best rates at the horizon of a constant schedule, found over finer and finer schedules."""
        best, guessed = [constant], False
        for level in levels(pieces)[1:]:
            starts = [at.on(level) for at in best]
            ends = [self._descend(start, RATE_SETTINGS.rough) for start in starts]
            if level <= RATE_SETTINGS.first_pieces or not guessed or constant.steps // level < RATE_SETTINGS.short:
                ends, guessed = self._explored(ends, self._guesses(constant, level)), True
            best = sorted(ends, key=lambda end: end.loss)[: RATE_SETTINGS.kept]
        return best[0]

    def _explored(self, ends: list[Rates], guesses: Iterator[Rates], goal: float = 0.0) -> list[Rates]:
        """These schedules and those to which guesses lead, until one is at the goal or ``patience`` in a row were no better."""
        ends, idle = list(ends), 0
        for guess in guesses:
            if min(end.loss for end in ends) <= goal:
                return ends
            end = self._descend(guess, RATE_SETTINGS.rough)
            idle = 0 if end.loss < (1 - RATE_SETTINGS.lower) * min(known.loss for known in ends) else idle + 1
            ends.append(end)
            if idle == RATE_SETTINGS.patience:
                break
        # A piece whose rate has collapsed has no slope left. Start it again from the largest rate of the pieces after it.
        best = min(ends, key=lambda end: end.loss)
        envelope = np.maximum.accumulate(best.rates[::-1])[::-1]
        return [*ends, self._descend(best._replace(rates=envelope), RATE_SETTINGS.rough)]

    def _guesses(self, constant: Rates, pieces: int) -> Iterator[Rates]:
        """An endless sequence of first guesses: rates that fall from the edge of stability, then random variations."""
        lr, u, chain = float(constant.rates[0]), constant.u, self._chain(constant)
        flat, edge = constant.on(pieces), chain.edge(u)
        for end in RATE_SETTINGS.bottoms:
            yield flat._replace(rates=np.geomspace(max(lr, RATE_SETTINGS.top * edge), end * lr, pieces))
        low, high = (np.array([getattr(p.kind, side) for p in self.shared]) for side in ("low", "high"))
        if self.shared:  # The lowest values of the shared parameters, such as a momentum of 0.
            yield flat._replace(rates=np.geomspace(max(lr, RATE_SETTINGS.top * chain.edge(low)), lr, pieces), u=low)
        rng = np.random.default_rng(RATE_SETTINGS.seed)
        while True:
            at = np.clip(u + RATE_SETTINGS.spread * rng.normal(size=len(u)), low, high)
            top = chain.edge(at)
            first, last = top * rng.uniform(*RATE_SETTINGS.tops), lr * np.exp(rng.uniform(*np.log(RATE_SETTINGS.ends)))
            rates = np.geomspace(first, last, pieces) * np.exp(RATE_SETTINGS.jitter * rng.normal(size=pieces))
            yield flat._replace(rates=np.minimum(rates, top), u=at)

    def _sooner(self, target: float, best: Rates, start: Rates, close: float) -> Rates:
        """The schedule at the shortest horizon that is found from a start, or the best so far if that is not longer."""
        found = self._horizon(target, start, close)
        return found if found.loss <= target and found.steps < best.steps else best

    def _shortened(self, target: float, best: Rates) -> Rates:
        """The schedule after a search for other basins at shorter horizons; the steps taken down grow with each success."""
        cut = RATE_SETTINGS.shorter
        while len(best.rates) > 1 and (trial := int(best.steps * (1 - cut))) >= len(best.rates):
            start = best._replace(steps=trial)
            ends = self._explored(
                [self._descend(start, RATE_SETTINGS.rough)], self._guesses(start, len(best.rates)), target
            )
            found = min(ends, key=lambda end: end.loss)
            if found.loss <= target:
                best, cut = found, RATE_SETTINGS.bolder * cut
            elif cut > RATE_SETTINGS.shorter:
                cut = RATE_SETTINGS.shorter
            else:
                break
        return best

    def _nudged(self, best: Rates, goal: float = 0.0) -> Rates:
        """The best of the basins near a schedule, by descents from the best so far, moved a little, until one is at the goal.

        Every other move is one of the shared parameters alone, which costs few iterations because the rates are good already.
        """
        rng, pieces, idle = np.random.default_rng(RATE_SETTINGS.seed), len(best.rates), 0
        low, high = (np.array([getattr(p.kind, side) for p in self.shared]) for side in ("low", "high"))
        patience = int(np.clip(RATE_SETTINGS.nudges // pieces, *RATE_SETTINGS.nudge_range))
        best = self._descend(best, RATE_SETTINGS.good, beyond=True)
        for move in range(RATE_SETTINGS.nudge_limit * patience if pieces > 1 else 0):
            if best.loss <= goal or idle == patience:
                break
            width = np.exp(rng.uniform(*np.log(RATE_SETTINGS.nudge_widths)))
            rates = (
                best.rates if self.shared and move % 2 == 0 else best.rates * np.exp(width * rng.normal(size=pieces))
            )
            moved = best._replace(rates=rates, u=np.clip(best.u + width * rng.normal(size=len(low)), low, high))
            end = self._descend(moved, RATE_SETTINGS.good, beyond=True)
            idle = 0 if end.loss < (1 - RATE_SETTINGS.lower) * best.loss else idle + 1
            best = min(best, end, key=lambda one: one.loss)
        return best

    def _horizon(self, target: float, found: Rates, close: float) -> Rates:
        """Newton's method for the horizon T, on log loss over log T; the slope is that of the current schedule when stretched."""
        goal, T, reached = math.log(target), found.steps, found
        lo, hi = len(found.rates) - 1, MAX_STEPS
        for turn in range(RATE_SETTINGS.horizons):
            found = self._descend(found._replace(steps=T), RATE_SETTINGS.good)
            at = log_loss(found.loss).item()
            if at <= goal:
                reached, hi = found, T
            else:
                lo = T
            if (0 <= goal - at < close) or hi - lo <= 1:
                break
            further = T + max(1, int(RATE_SETTINGS.stretch * T))
            longer = log_loss(self._loss(found._replace(steps=further), self.nodes)).item()
            slope = (longer - at) / math.log(further / T)
            move = (goal - close / 2 - at) / min(slope, RATE_SETTINGS.flattest)
            guess = T * math.exp(np.clip(move, -RATE_SETTINGS.furthest, RATE_SETTINGS.furthest))
            if (turn + 1) % RATE_SETTINGS.bisect == 0 and hi < MAX_STEPS:
                guess = (lo + hi) / 2  # Newton's method may creep, because basins differ between horizons.
            T = int(np.clip(round(guess), lo + 1, max(hi - 1, lo + 1)))
        return reached

    def _beyond_edge(self, target: float, found: Rates) -> Rates:
        """The schedule when early pieces may pass the edge of stability, which saves 0.2% to 2% of the steps.

        Later pieces undo the growth. Every trial starts from a longer run that reached the target, because adding steps to a
        piece beyond the edge would make the loss overflow before the search has moved.
        """
        cut = RATE_SETTINGS.first_cut
        for _ in range(RATE_SETTINGS.cuts):
            trial = min(found.steps - 1, int(found.steps * (1 - cut)))
            if cut < RATE_SETTINGS.last_cut or trial < len(found.rates):
                break
            shorter = self._descend(
                found._replace(steps=trial), RATE_SETTINGS.good, True, RATE_SETTINGS.iterations_beyond
            )
            if shorter.loss > target and cut >= RATE_SETTINGS.nudge_cut:
                shorter = self._nudged(shorter, target)
            if shorter.loss > target:
                cut /= RATE_SETTINGS.cut_shrink
            else:
                found, cut = (
                    shorter,
                    max(cut, RATE_SETTINGS.cut_share * (math.log(target) - log_loss(shorter.loss).item())),
                )
        return found

    def _chain(self, at: Rates, problem: Problem | None = None) -> Chain:
        return Chain(problem or self.nodes, self.optimizer, self.shared, split(at.steps, len(at.rates)))

    def _loss(self, at: Rates, problem: Problem) -> float:
        signal, shares = self._chain(at, problem).noise_shares(at.rates, at.u)
        loss = signal + shares.sum() / self.batch_size
        return float(loss) if math.isfinite(loss) else CEILING

    def _confirmed(self, found: Rates, target: float) -> Rates:
        """The rates with their loss on all modes, and with more steps where the nodes of the search were slightly off."""
        loss = self._loss(found, self.problem)
        for _ in range(RATE_SETTINGS.most_added):
            if loss <= target:
                break
            found = found._replace(steps=found.steps + max(1, int(RATE_SETTINGS.added * found.steps)))
            loss = self._loss(found, self.problem)
        return found._replace(loss=loss)

    def _descend(self, start: Rates, tolerance: float, beyond: bool = False, iterations: int | None = None) -> Rates:
        """The schedule of least loss that L-BFGS meets from a start, at its horizon; rates may pass the edge if ``beyond``.

        This need not be the one at which L-BFGS ends: beyond the edge it may end where a slope overflows. If rates must be
        stable, they are cut at the edge of the momentum that was found with them.
        """
        from scipy.optimize import minimize
        from threadpoolctl import threadpool_limits

        count, chain = len(start.rates), self._chain(start)
        best = start._replace(loss=CEILING)

        def objective(z: Array) -> tuple[float, Array]:
            nonlocal best
            loss, slope = chain.gradient(np.exp(z[:count]), z[count:], self.batch_size)
            if not (0 < loss < CEILING) or not np.all(np.isfinite(slope)):
                return math.log(CEILING), np.zeros_like(z)
            if loss < best.loss:
                best = Rates(start.steps, np.exp(z[:count]), z[count:].copy(), loss)
            return math.log(loss), slope / loss

        shortest = int(chain.lengths.min())
        passes = not self.stable and (beyond or shortest < RATE_SETTINGS.short)
        inside = RATE_SETTINGS.inside if self.stable else 1.0
        most = min(RATE_SETTINGS.beyond, (1 + RATE_SETTINGS.growth ** (1 / shortest)) / 2) if passes else inside
        top = math.log(chain.edge(start.u) * most)
        bounds = [(top - RATE_SETTINGS.depth, top)] * count + [(p.kind.low, p.kind.high) for p in self.shared]
        options = {"maxiter": iterations or RATE_SETTINGS.iterations, "maxcor": RATE_SETTINGS.corrections}
        options |= {"ftol": tolerance, "gtol": RATE_SETTINGS.slope}
        first = np.append(np.minimum(np.log(start.rates), top), start.u)
        with threadpool_limits(1, "blas"):  # The systems of L-BFGS are tiny, and more threads only spin.
            minimize(objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if self.stable and best.rates.max() > (most := RATE_SETTINGS.inside * chain.edge(best.u)):
            best = best._replace(rates=np.minimum(best.rates, most))
            best = best._replace(loss=self._loss(best, self.nodes))
        return best


def levels(pieces: int) -> list[int]:
    """Numbers of pieces from 1 to ``pieces``, each a multiple of the one before, so that a finer schedule can equal a coarser one."""
    found = [pieces]
    while found[-1] > 1:
        found.append(found[-1] // next(p for p in range(2, found[-1] + 1) if found[-1] % p == 0))
    return found[::-1]
