"""The best learning rates of a schedule in pieces: by descent along exact gradients, from coarse schedules to fine ones.

At a horizon T the loss is a smooth function of the rates, with many basins where steps are few or noise is small. Schedules of
few pieces are therefore found first, from several first guesses, and finer schedules start from them. Newton's method finds
the horizon that reaches a target.

The bound on the loss on the way (`limits.LossBound`) enters a descent as an augmented Lagrangian: each descent passes on the
multipliers with which the next one meets the bound more exactly. The last schedule is walked step by step (`peaks`). A step
above the bound becomes one more step at which descents read the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..engine.schedule import Schedule
from ..optimizers.base import Optimizer, fill, free, free_parameters, parameters
from ..problems.base import MAX_STEPS, Problem
from ..types import Array
from .answer import Goal, Tuned
from .chain import Chain, split
from .exact.losses import CEILING, log_loss
from .exact.tuning import Tuner
from .limits import Limit, LossBound, free_end
from .peaks import CLOSE, Peaks, peaks
from .settings import RATE_SETTINGS

UNHELD = np.zeros((0, 0))  # no multipliers of the bound yet
EDGE_STEP = 1e-5  # Step of the difference that tells how the edge of stability moves with shared parameters.


class Rates(NamedTuple):
    """A schedule: its steps, the rates of its pieces, coordinates u of the shared parameters, and the loss at the end.

    ``held`` has the multipliers of the bound on the loss, for each loss that the last descent read, or is empty.
    """

    steps: int
    rates: Array
    u: Array
    loss: float = math.inf
    held: Array = UNHELD

    def on(self, pieces: int, steps: int | None = None) -> Rates:
        """The same rates on ``pieces`` pieces, or on one for each step if steps are fewer."""
        steps = self.steps if steps is None else steps
        pieces = min(pieces, steps)
        if pieces == len(self.rates):
            return self._replace(steps=steps)
        return self._replace(steps=steps, rates=self.rates[(np.arange(pieces) * len(self.rates)) // pieces])


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

    def __init__(self, problem: Problem, optimizer: Optimizer, batch_size: float, limit: Limit) -> None:
        super().__init__(problem, optimizer, batch_size)
        self.limit = limit
        self.nodes, self.tuner = problem.nodes.searched(optimizer), Tuner(problem, self.optimizer)
        # Steps of a piece after which its loss is read. A loss that oscillates is read more often.
        self.inside = {4**i for i in range(MAX_STEPS.bit_length() // 2)}
        if len(optimizer.initial()) > 1:
            self.inside |= {n << i for n in (1, 3) for i in range(MAX_STEPS.bit_length() - 1)}
        self.strict = (
            False  # whether descents keep the bound on the loss, or else the edge of stability, which is cheaper
        )
        self.slack = RATE_SETTINGS.slack

    @property
    def bounds(self) -> bool:
        """Whether descents keep the bound on the loss."""
        return self.limit.bounded and self.strict

    def least_loss(self, steps: int, pieces: int) -> Rates:
        """The rates of least loss after ``steps`` steps."""
        self._look(steps, pieces)
        best = self._refined(self._constant(self.tuner.solve(Goal.of(self.batch_size, steps=steps)), steps), pieces)
        return self._confirmed(best, math.inf)

    def fewest_steps(self, target: float, pieces: int) -> Rates | Tuned:
        """The rates that reach a target soonest; the best constant rate if that does not reach it."""
        tuned = self.tuner.solve(Goal.of(self.batch_size, target))
        if not tuned.steps:
            return tuned
        self._look(tuned.steps, pieces)
        constant = self._constant(tuned, tuned.steps)
        few, *finer = [level for level in levels(pieces) if level > RATE_SETTINGS.first_pieces // 2 or level == pieces]
        part = constant.on(1, max(1, int(RATE_SETTINGS.first_part * tuned.steps)))
        best = self._horizon(target, self._refined(part, few), few, RATE_SETTINGS.near)
        best = self._shortened(target, best, few)
        for level in finer or [pieces]:
            close = RATE_SETTINGS.close if level == pieces else RATE_SETTINGS.near
            self.strict |= level == pieces
            best = self._horizon(target, best, level, close)
        return self._confirmed(best, target)

    def _look(self, steps: int, pieces: int) -> None:
        """Decide whether basins beyond the edge of stability are worth looking for: in long pieces they gain next to nothing."""
        self.strict = steps // pieces < RATE_SETTINGS.long or len(self.optimizer.initial()) > 1

    def _refined(self, constant: Rates, pieces: int) -> Rates:
        """The best rates at the horizon of a constant schedule, found over finer and finer schedules."""
        best, guessed = [constant], False
        for level in levels(min(pieces, constant.steps)):
            starts = [at.on(level) for at in best]
            ends = [self._descend(start, RATE_SETTINGS.rough) for start in starts]
            if level > 1 and (
                level <= RATE_SETTINGS.first_pieces or not guessed or constant.steps // level < RATE_SETTINGS.short
            ):
                ends, guessed = self._explored(ends, self._guesses(constant, level)), True
            best = sorted(ends, key=lambda end: end.loss)[: RATE_SETTINGS.kept]
        return best[0]

    def _explored(self, ends: list[Rates], guesses: Iterator[Rates], goal: float = 0.0) -> list[Rates]:
        """These schedules and those to which guesses lead, until one is at the goal or ``patience`` in a row were no better."""
        ends, idle = list(ends), 0
        short = self.bounds and ends[0].steps // len(ends[0].rates) < RATE_SETTINGS.swinging
        patience = RATE_SETTINGS.patience_short if short else RATE_SETTINGS.patience
        for guess in guesses:
            if min(end.loss for end in ends) <= goal:
                return ends
            end = self._descend(guess, RATE_SETTINGS.rough)
            idle = 0 if end.loss < (1 - RATE_SETTINGS.lower) * min(known.loss for known in ends) else idle + 1
            ends.append(end)
            if idle == patience:
                break
        # A piece whose rate has collapsed has no slope left. Start it again from the largest rate of the pieces after it.
        best = min(ends, key=lambda end: end.loss)
        envelope = np.maximum.accumulate(best.rates[::-1])[::-1]
        return [*ends, self._descend(best._replace(rates=envelope), RATE_SETTINGS.rough)]

    def _guesses(self, constant: Rates, pieces: int) -> Iterator[Rates]:
        """An endless sequence of first guesses: rates that fall from the edge of stability, then random variations."""
        lr, u, chain = float(constant.rates[0]), constant.u, self._chain(constant)
        flat, edge = constant.on(pieces)._replace(held=UNHELD), chain.edge(u)
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

    def _shortened(self, target: float, best: Rates, pieces: int) -> Rates:
        """The schedule after a search for other basins at shorter horizons; the steps taken down grow with each success."""
        cut = RATE_SETTINGS.shorter
        while len(best.rates) > 1 and (trial := int(best.steps * (1 - cut))) >= 2:
            start = self._moved(best, pieces, trial)
            ends = self._explored(
                [self._descend(start, RATE_SETTINGS.rough)], self._guesses(start, len(start.rates)), target
            )
            found = min(ends, key=lambda end: end.loss)
            if found.loss <= target:
                best, cut = found, RATE_SETTINGS.bolder * cut
            elif cut > RATE_SETTINGS.shorter:
                cut = RATE_SETTINGS.shorter
            else:
                break
        return best

    def _moved(self, at: Rates, pieces: int, steps: int) -> Rates:
        """The schedule on other pieces and steps; where a rate is above the edge, modes grow as much in its piece as before."""
        moved = at.on(pieces, steps)
        edge, longer = self._chain(at).edge(at.u), (steps / len(moved.rates)) / (at.steps / len(at.rates))
        return moved._replace(
            rates=np.where(moved.rates > edge, edge * (moved.rates / edge) ** (1 / longer), moved.rates)
        )

    def _horizon(self, target: float, found: Rates, pieces: int, close: float) -> Rates:
        """Newton's method for the horizon T, on log loss over log T; the slope is that of the current schedule when stretched."""
        goal, T, reached = math.log(target), found.steps, None
        lo, hi = 0, MAX_STEPS
        for turn in range(RATE_SETTINGS.horizons):
            found = self._descend(self._moved(found, pieces, T), RATE_SETTINGS.good)
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
            if (turn + 1) % RATE_SETTINGS.bisect == 0 and lo > 0 and hi < MAX_STEPS:
                guess = (lo + hi) / 2  # Newton's method may creep, because basins differ between horizons.
            T = int(np.clip(round(guess), lo + 1, max(hi - 1, lo + 1)))
        return reached or found

    def _chain(self, at: Rates, problem: Problem | None = None) -> Chain:
        lengths = split(at.steps, len(at.rates))
        inside = sorted(step for step in self.inside if step < lengths.min()) if self.bounds and not problem else []
        return Chain(problem or self.nodes, self.optimizer, self.shared, lengths, inside)

    def _loss(self, at: Rates, problem: Problem) -> float:
        loss = self._chain(at, problem).losses(at.rates, at.u, self.batch_size)[-1, -1]
        return float(loss) if math.isfinite(loss) else CEILING

    def _confirmed(self, found: Rates, target: float) -> Rates:
        """The rates with their loss on all modes, at the target and at no step above the bound.

        More steps are added where the nodes of the search were slightly off, and more readings where a step was missed.
        """
        for _ in range(RATE_SETTINGS.most_added):
            found = self._kept(found)
            found = found._replace(loss=self._loss(found, self.problem))
            if found.loss <= target:
                break
            lacks = min(log_loss(found.loss).item() - math.log(target), 1.0)
            more = max(RATE_SETTINGS.added, lacks if lacks > RATE_SETTINGS.close else 0.0)
            found = found._replace(steps=min(MAX_STEPS, found.steps + max(1, int(more * found.steps))))
        return found

    def _kept(self, found: Rates) -> Rates:
        """The schedule after descents that keep the loss of every step within its bound."""
        self.strict = True
        for turn in range(RATE_SETTINGS.rounds if self.limit.bounded else 1):
            found = self._descend(found, RATE_SETTINGS.sharp)
            if not self.limit.bounded:
                return found
            over, inside = self._excess(found)
            if over.max() <= 0 and turn >= 1:
                return found
            missed = set(inside[(over > 0) & (inside < found.steps // len(found.rates))].tolist()) - self.inside
            self.inside |= missed
            if not missed and turn >= RATE_SETTINGS.rounds // 3:
                self.slack += float(np.clip(over.max(), 0, RATE_SETTINGS.tighter))
        return self._shrunk(found)

    def _shrunk(self, found: Rates) -> Rates:
        """The schedule with all rates lowered by as little as keeps the loss of every step within its bound."""
        for shrink in (0.0, *(1e-5 * 2.0**i for i in range(40))):
            lower = found._replace(rates=found.rates * math.exp(-shrink))
            if self._excess(lower)[0].max() <= 0:
                return lower
        return found

    def _excess(self, found: Rates) -> tuple[Array, Array]:
        """For each piece, log of its largest loss over the bound on it, and how many steps of the piece are taken then."""
        seen = self.peaks(found)
        return np.log((1 + CLOSE) * seen.over), seen.steps - seen.starts

    def peaks(self, found: Rates) -> Peaks:
        """The largest loss of each piece."""
        lengths, base = split(found.steps, len(found.rates)), float(found.rates.max())
        schedule = Schedule(lengths, found.rates / base)
        return peaks(self.problem, self.at(found, base), self.batch_size, schedule, lengths)

    def _descend(self, start: Rates, tolerance: float) -> Rates:
        """The best schedule of a descent, and of another one where a rate has collapsed and has no slope left."""
        found = self._descended(start, tolerance)
        later = np.maximum.accumulate(found.rates[::-1])[::-1]
        if np.all(found.rates >= RATE_SETTINGS.collapsed * later):
            return found
        again = self._descended(found._replace(rates=later, held=UNHELD), tolerance)
        return min(found, again, key=lambda end: end.loss)

    def _descended(self, start: Rates, tolerance: float) -> Rates:
        """The schedule of least loss that L-BFGS meets from a start, at its horizon, and the multipliers for the next descent."""
        from scipy.optimize import minimize
        from threadpoolctl import threadpool_limits

        count, chain, scale = len(start.rates), self._chain(start), NearEdge(start.steps // len(start.rates))
        cap = self.limit.cap(self.at(start, 1.0), self.problem.spectrum)
        held = start.held if start.held.shape == (count, len(chain.links)) else np.zeros((count, len(chain.links)))
        weigh = (
            LossBound(self.nodes.initial_loss, held, self.slack, RATE_SETTINGS.stiffness) if self.bounds else free_end
        )
        best, least = start._replace(loss=CEILING), math.inf

        def unit(u: Array) -> float:
            """The rate in units of which rates are searched: the edge, which moves with u unless a cap holds it."""
            return chain.edge(u if math.isinf(cap) else start.u)

        def objective(z: Array) -> tuple[float, Array]:
            nonlocal best, least
            u = z[count:]
            logs, slope = scale.logs(z[:count])
            rates, chain_rule = unit(u) * np.exp(logs), np.zeros(len(u))
            value, by = chain.gradient(rates, u, self.batch_size, weigh)
            if not math.isfinite(value) or not np.all(np.isfinite(by)):
                return CEILING, np.zeros_like(z)
            if value < least:
                best, least = Rates(start.steps, rates, u.copy(), math.exp(min(value, math.log(CEILING)))), value
            for i, step in enumerate(np.eye(len(u)) * EDGE_STEP):
                chain_rule[i] = math.log(unit(u + step) / unit(u - step)) / (2 * EDGE_STEP)
            return value, np.append(by[:count] * slope, by[count:] + by[:count].sum() * chain_rule)

        shortest, edge = int(chain.lengths.min()), unit(start.u)
        growth = min(RATE_SETTINGS.growth, RATE_SETTINGS.all_growth ** (1 / count))
        most = min(RATE_SETTINGS.beyond, (1 + growth ** (1 / shortest)) / 2, cap / edge)
        most = min(most, 1.0) if self.limit.bounded and not self.strict else most
        top = float(scale.coordinates(np.log(most)))
        bottom = float(scale.coordinates(math.log(most) - RATE_SETTINGS.depth))
        bounds = [(bottom, top)] * count + [(p.kind.low, p.kind.high) for p in self.shared]
        options = {"maxiter": RATE_SETTINGS.iterations, "maxcor": RATE_SETTINGS.corrections}
        options |= {"ftol": tolerance, "gtol": RATE_SETTINGS.slope}
        logs = np.log(start.rates / edge)

        def point(most: float) -> Array:
            return np.append(np.clip(scale.coordinates(np.minimum(logs, most)), bottom, top), start.u)

        first, end = point(math.inf), log_loss(self._loss(start, self.nodes)).item()
        if objective(first)[0] > min(end + RATE_SETTINGS.charged, math.log(self.nodes.initial_loss)):
            # The slope would set these rates to 0, where they stay.
            tops = [*(-below / shortest for below in RATE_SETTINGS.below), *RATE_SETTINGS.far_below]
            first = min(map(point, tops), key=lambda z: objective(z)[0])
        with threadpool_limits(1, "blas"):  # The systems of L-BFGS are tiny, and more threads only spin.
            minimize(objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if isinstance(weigh, LossBound):
            read = chain.losses(best.rates, best.u, self.batch_size)
            best = best._replace(held=weigh.multipliers(read), loss=min(weigh.charged(read), CEILING))
        return best


class NearEdge:
    """Coordinates w of log rates y (over the edge of stability) in which a descent moves on safely near the edge.

    A piece of n steps multiplies the second moment of the first mode by about ``exp(4 n y)``, so that steps must be of size 1 / n
    there, and of size 1 far below. So ``y = sinh(w) / n`` up to ``|y| = 1``, and a straight line further out.
    """

    def __init__(self, steps: int) -> None:
        self.steps, self.turn, self.slope = steps, math.asinh(steps), math.hypot(1, steps) / steps

    def logs(self, w: Array) -> tuple[Array, Array]:
        """The log rates at some coordinates, and their derivatives."""
        near = np.clip(w, -self.turn, self.turn)
        return np.sinh(near) / self.steps + (w - near) * self.slope, np.cosh(near) / self.steps

    def coordinates(self, y: Array | float) -> Array:
        """The coordinates of log rates."""
        near = np.clip(y, -1, 1)
        return np.arcsinh(near * self.steps) + (y - near) / self.slope


def levels(pieces: int) -> list[int]:
    """Numbers of pieces from 1 to ``pieces``, each a multiple of the one before, so that a finer schedule can equal a coarser one."""
    found = [pieces]
    while found[-1] > 1:
        found.append(found[-1] // next(p for p in range(2, found[-1] + 1) if found[-1] % p == 0))
    return found[::-1]
