"""How the search of one cell goes on: which trials come next, given those that have ended.

A *cell* is one search for the best settings of an optimizer at a batch size. Its trials come in rounds: first quasi-random
points all over the box, then points around the minimum of a fit to the trials so far (`refine`). The trials of a round stop at
1.5 times the best steps of earlier rounds. A round follows from the results of the rounds before it and from nothing
else. So a study has the same table on one process, on a cluster, and after any number of interruptions.

When the best setting lies at an end of its range, the range is widened there, and the search goes on. It ends once the best lies
inside, or once fresh seeds show that steps no longer fall towards that end by more than their scatter (`seeds.fell`).

A study repeats each search with other points and other seeds (`Study.searches`). What repeated searches differ by is how far
a measured curve can be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import median

import numpy as np

from ..nets.training.trial import RAW, SLACK, Result, Trial, averaged
from ..types import Array
from .refine import cloud, valley
from .seeds import fell
from .space import Box, edges, points, volume
from .study import SEED_STRIDE, Study


@dataclass(frozen=True)
class StudySearchSettings:
    """Numbers that steer the search of a cell; stored trials depend on them, so a change needs new stores.

    Those that were chosen by measurement were measured on ``examples/studies/digits.toml``: 32 cells, 40 rows.
    """

    candidates: int = 3
    """At most this many settings of a cell are tried with fresh seeds. With 1, the medians of 5 of the 40 rows are worse by a
    factor of 1.26 to 2.7, or infinite. With 2, the medians of 3 rows are worse. With 6, all medians are the same."""
    luck: float = 1.5
    """The next setting is tried if the median over fresh seeds is more than this many times the steps of the search. With 2, the
    medians of 2 of the 40 rows are worse, by factors of 1.26 and 1.62. With 1.2, the medians of 4 rows are better by 6% to 11%,
    at the cost of 50 trainings with fresh seeds besides the 240."""
    confirm_steps: int = 4
    """A training with a fresh seed ends after this many times the steps of the search. With 2 and with 8 all of the 40 rows
    are the same. A larger number would measure the steps of slower seeds; a smaller one would save steps of trainings that
    never reach the target."""
    inset: float = 1e-3
    """The worker is asked to check trials this share of a range inside its ends: an end may be a value that is not allowed, such
    as a momentum of 1, and no trial lies at an end. With a larger share, a range that is slightly too wide would pass."""
    widenings: int = 6
    """A box is widened at most this many times. On a log scale a range has then grown by a factor of up to 4^6 = 4,096. A range
    that is still too narrow was probably mistyped, and a larger number would make a hopeless search longer."""
    first_steps: int = 32
    """The first race of a search without a known limit gives each trial this many steps. The first rounds of the 32 cells then
    take at most 1.9 times the steps that they would take with a known limit. With 8 the factor is 1.9 too, with 128 it is 2.9."""
    more_steps: int = 4
    """A race in which no trial reaches the target is repeated with this many times the steps. The first rounds of the 32 cells
    take at most 1.7 times the steps of a known limit with 2, 1.9 times with 4 and 2.6 times with 8. The worker is started half
    as often with 4 as with 2."""


SEARCH = StudySearchSettings()

Rounds = Generator[list[Trial], list[Result], None]
Confirmed = list[tuple[Trial, Result]]
"""The trainings of a setting with fresh seeds."""


@dataclass(frozen=True)
class Best:
    """The trial of a cell in which a read-out reached the target in the fewest steps, and that read-out."""

    trial: Trial
    readout: str
    decay: float | None
    steps: int


class Cell:
    """One search for an optimizer at a batch size: its trials so far and those to come; ``repeat`` counts searches from 0.

    ``boxes`` are its search space and the wider ones that followed, and ``flat`` has for each row the ends beyond which its steps
    no longer fell. Both follow from the results alone, so that a stored search is repeated exactly.
    """

    def __init__(self, study: Study, label: str, batch_size: int, repeat: int = 0) -> None:
        self.study, self.label, self.batch_size = study, label, batch_size
        self.boxes: list[Box] = [dict(study.optimizers[label].box)]
        self.flat: dict[str, set[tuple[str, str]]] = {}
        self.repeat, self.seed = repeat, study.seed + SEED_STRIDE * repeat
        self.entry, self._trial = study.optimizers[label], partial(study.trial, label, batch_size)
        self.first, self.refined = study.first_trials(label), study.refined_trials(label)
        self.done: list[tuple[Trial, Result]] = []
        self.best: dict[str, Best] = {}  # The best of each row, by its name.
        self.arrived: dict[str, list[Best]] = {}  # Every trial that reached the target.
        self.fitted: dict[str, str] = {}  # The key of the trial at the minimum of the last fit.
        self.confirmed: dict[str, Confirmed] = {}
        self.fresh: dict[
            str, Trial
        ] = {}  # All trials with fresh seeds, by key; some are of settings that did not stand.
        self.quota = self.first
        self.phase = "search"
        self._rounds = self._all_rounds()
        self.round: list[Trial] | None = next(self._rounds, None)

    @property
    def names(self) -> tuple[str, ...]:
        """The rows of the cell, each tuned by itself: the weights, and the best of their averages if there are any."""
        return (self.label, f"EMA({self.label})") if self.entry.averages else (self.label,)

    @property
    def feasible(self) -> int:
        return sum(result.feasible for _, result in self.done)

    def trials(self) -> Iterator[Trial]:
        """All trials that have ended, in search and confirmation."""
        yield from (trial for trial, _ in self.done)
        yield from self.fresh.values()

    def count(self, outcome: str) -> int:
        return sum(result.outcome == outcome for _, result in self.done)

    @property
    def broken(self) -> str | None:
        """The message of a round that failed as a whole, which ends the cell."""
        return next((r.message for _, r in self.done[-1:] if self.phase == "broken"), None)

    def advance(self, known: Mapping[str, Result]) -> None:
        """Continue the search as far as results are known."""
        while self.round is not None and all(trial.key in known for trial in self.round):
            try:
                self.round = self._rounds.send([known[trial.key] for trial in self.round])
            except StopIteration:
                self.round = None

    def at_edge(self, name: str) -> dict[str, str]:
        """Settings of the best trial that lie at an end of their range towards which steps may fall, and at which end."""
        best, flat = self.best.get(name), self.flat.get(name, ())
        found = edges(best.trial.settings, self.boxes[-1], self.first) if best else {}
        return {setting: end for setting, end in found.items() if (setting, end) not in flat}

    def extremes(self) -> Iterator[Trial]:
        """Trials just inside the ends of the search space, which a worker refuses if a range is too wide."""
        for u in (SEARCH.inset, 1 - SEARCH.inset):
            yield self._trial({name: space.at(u) for name, space in self.boxes[-1].items()})

    def wider(self) -> Box | None:
        """The search space, widened at the ends at which best trials lie, or where `_unreached` says; None if there are none.

        >>> from nqm.lab import Entry, Space, Study
        >>> study = Study("small", "digits", 0.1, (8,), {"SGD": Entry("SGD", {"lr": Space(0.01, 1)})})
        >>> Cell(study, "SGD", 8).wider() is None  # no trial has ended
        True
        """
        ends: dict[str, set[str]] = {}
        for at in [self.at_edge(name) for name in self.best] or [self._unreached()]:
            for setting, end in at.items():
                ends.setdefault(setting, set()).add(end)
        if not ends or not self.study.widen or len(self.boxes) > SEARCH.widenings:
            return None
        return {name: space.widened(ends.get(name, ())) for name, space in self.boxes[-1].items()}

    def _unreached(self) -> dict[str, str]:
        """Where the learning rate may reach the target if no trial did: below if all diverged, above if none did."""
        diverged = self.count("diverged")
        if "lr" not in self.boxes[-1] or not self.done or 0 < diverged < len(self.done):
            return {}
        return {"lr": "low" if diverged else "high"}

    def _all_rounds(self) -> Rounds:
        """Search the box, refine, confirm the best settings, and start again with a wider box if one lies at an end.

        Ranges are widened only after the confirmation. Otherwise one lucky trial at the edge of stability would widen them to
        where nearly all trials diverge.
        """
        stood: dict[str, tuple[Best, Confirmed]] = {}
        asked: dict[str, dict[str, str]] = {}
        while True:
            generation = len(self.boxes) - 1
            yield from self._search(generation)
            if self.phase == "broken":
                return
            self.phase = "refine"
            for name in self.names:
                if name in self.best and self.refined and self.entry.box:
                    yield from self._refine(name, generation + 1)
            self.phase = "confirm"
            for name in self.names:
                if name in self.best:
                    yield from self._confirm(name, stood.get(name))
            for name, ends in asked.items():
                self._judge(name, ends, stood[name])
            if (box := self.wider()) is None:
                break
            asked = {name: ends for name in self.best if (ends := self.at_edge(name))}
            stood = {name: (best, self.confirmed.get(name, [])) for name, best in self.best.items()}
            self.boxes.append(box)  # The search continues as if nothing had been confirmed.
            self.phase, self.confirmed = "search", {}
            self.best = {name: min(found, key=lambda best: best.steps) for name, found in self.arrived.items()}
        self.phase = "done"

    def _judge(self, name: str, ends: Mapping[str, str], before: tuple[Best, Confirmed]) -> None:
        """Record whether a wider box brought fewer steps; if so, ends that were flat before are open again."""
        after = self.best[name], self.confirmed.get(name, [])
        then, now = (
            [result.steps.get(best.readout) for _, result in pairs] or [best.steps] for best, pairs in (before, after)
        )
        flat = self.flat.setdefault(name, set())
        if fell(then, now, self.study.growth):
            flat.clear()
        else:
            flat.update(ends.items())

    def _search(self, generation: int) -> Rounds:
        """Rounds in one box, until enough trials are feasible or `Study.max_trials` have been tried."""
        wanted = self._wanted(generation)
        self.quota = wanted + self.feasible
        left = math.ceil(self.study.most_trials(self.label) * wanted / self.first)
        source = points(self.boxes[: generation + 1], self._stream(generation))
        while self.feasible < self.quota and left > 0:
            settings = list(islice(source, min(self.study.round, self.quota - self.feasible, left)))
            if not settings:
                return
            results = yield from self._round(settings)
            left -= len(settings)
            if not self.feasible and all(result.outcome == "failed" for result in results):
                self.phase = "broken"
                return

    def _round(self, settings: list[dict[str, float]]) -> Generator[list[Trial], list[Result], list[Result]]:
        """Try settings with the seed of the search, and return their results."""
        trials = [self._trial(s, seed=self.seed, limit=self._limit()) for s in settings]
        results = yield trials
        for trial, result in zip(trials, results, strict=True):
            self._record(trial, result)
        return results

    def _stream(self, *numbers: int) -> tuple[int, ...]:
        """The seed of a sequence of quasi-random points."""
        return (self.seed, *numbers, *((self.batch_size,) if self.study.points == "fresh" else ()))

    def _refine(self, name: str, generation: int) -> Rounds:
        """The second stage: rounds around the minimum of a fit to the trials so far; the last is that minimum alone."""
        size, left, turn = len(self.entry.box), self.refined, 0
        while left > 0:
            centre, covariance = valley(*self._landscape(name))
            count = min(2 * size + 2, left - 1) if left > 1 else 1
            found = cloud(centre, covariance, count, self._stream(generation, self.names.index(name) + 1, turn))
            yield from self._round([self._at(u) for u in np.clip(found, SEARCH.inset, 1 - SEARCH.inset)])
            left, turn = left - count, turn + 1
        self.fitted[name] = self.done[-1][0].key

    def _landscape(self, name: str) -> tuple[Array, Array, float]:
        """The trials as `valley` takes them: places in the box, logarithms of the steps of one row, and of the limit."""
        box, steps = self.boxes[-1], {best.trial.key: best.steps for best in reversed(self.ranked(name))}
        places = [[space.where(trial.settings[s]) for s, space in box.items()] for trial, _ in self.done]
        logs = [math.log(max(1, steps[t.key])) if t.key in steps else math.inf for t, _ in self.done]
        return np.array(places), np.array(logs), math.log(SLACK * max(1, self.best[name].steps))

    def _at(self, u: Array) -> dict[str, float]:
        return {name: space.at(float(x)) for (name, space), x in zip(self.boxes[-1].items(), u, strict=True)}

    def _wanted(self, generation: int) -> int:
        """Number of feasible trials wanted in a box: the new part is searched as densely as the first box, and by a round or more."""
        if generation == 0:
            return self.first
        before, now = volume(self.boxes[generation - 1]), volume(self.boxes[generation])
        dense = math.ceil(self.first * (now - before) / volume(self.boxes[0]))
        return max(dense, min(self.study.round, self.first))

    def _limit(self) -> int | None:
        """The steps after which a trial is stopped: `SLACK` times the largest of the best steps, once every row has one."""
        if len(self.best) < len(self.names):
            return None
        return math.ceil(SLACK * max(1, *(best.steps for best in self.best.values())))

    def _record(self, trial: Trial, result: Result) -> None:
        self.done.append((trial, result))
        for decay in (None, *trial.averages):
            name = self.label if decay is None else self.names[1]
            readout = RAW if decay is None else averaged(decay)
            steps = result.steps.get(readout) if result.outcome != "failed" else None
            if steps is None:
                continue
            found = Best(trial, readout, decay, steps)
            self.arrived.setdefault(name, []).append(found)
            if name not in self.best or steps < self.best[name].steps:
                self.best[name] = found

    def _confirm(self, name: str, stood: tuple[Best, Confirmed] | None) -> Rounds:
        """Train the best settings with fresh seeds, and keep the one with the smallest median.

        The best of many trials with one seed may have been lucky: at the edge of stability one training converges at once and
        the next diverges. The first setting is the minimum of the fit, and without a second stage the best trial. The next
        best trial is tried only if fresh seeds take far longer than the search did. ``stood`` is what was confirmed in a
        narrower box: it stands if none of these is better.
        """
        least = math.inf
        if stood is not None and stood[1]:
            self.best[name], self.confirmed[name] = stood
            least = _middle(*stood)
        for best in self._candidates(name):
            trials = self._fresh(best)
            if not trials:
                return
            pairs = list(zip(trials, (yield trials), strict=True))
            self.fresh |= {trial.key: trial for trial in trials}
            middle = _middle(best, pairs)
            if middle < least or name not in self.confirmed:
                least, self.best[name], self.confirmed[name] = middle, best, pairs
            if least <= SEARCH.luck * best.steps:
                return

    def ahead(self) -> float:
        """The number of trials that are still to be expected, if the share of infeasible ones stays as it is."""
        if self.round is None:
            return 0.0
        if self.phase == "confirm":
            return self.confirmations() / len(self.names) * (len(self.best) - len(self.confirmed))
        after = self.refined * (len(self.names) - len(self.fitted)) + self.confirmations()
        share = max(self.feasible / len(self.done), 0.2) if self.done else 1.0
        return after + (max(self.quota - self.feasible, 0) / share if self.phase == "search" else 0.0)

    def most_ahead(self) -> int:
        """The steps that one of the trials to come takes at most."""
        limit, most = self._limit(), self.study.steps_at(self.batch_size)
        if limit is None:
            return most
        return min(most, math.ceil(limit * SEARCH.confirm_steps / SLACK) if self.phase == "confirm" else limit)

    def confirmations(self) -> int:
        """The number of trainings with fresh seeds that are to be expected."""
        return self.study.seeds * len(self.names)

    def _candidates(self, name: str) -> list[Best]:
        """The minimum of the last fit, if it arrived, and the best trials."""
        found = self.ranked(name)
        fitted = [best for best in found if best.trial.key == self.fitted.get(name)]
        return [*fitted, *(best for best in found if best not in fitted)][: SEARCH.candidates]

    def ranked(self, name: str) -> list[Best]:
        """The trials that arrived, each with its best read-out, the fewest steps first."""
        found: dict[str, Best] = {}
        for best in sorted(self.arrived.get(name, ()), key=lambda best: best.steps):
            found.setdefault(best.trial.key, best)
        return list(found.values())

    def _fresh(self, best: Best) -> list[Trial]:
        """Trials of a setting with fresh seeds, with its read-out alone."""
        limit, averages = SEARCH.confirm_steps * max(1, best.steps), () if best.decay is None else (best.decay,)
        seeds = range(self.seed + 1, self.seed + self.study.seeds + 1)
        return [self._trial(best.trial.settings, seed=seed, averages=averages, limit=limit) for seed in seeds]


def _middle(best: Best, pairs: Confirmed) -> float:
    """The median of steps over fresh seeds; a training that fails takes for ever."""
    steps = (result.steps.get(best.readout) for _, result in pairs)
    return median(math.inf if s is None else s for s in steps)


def cells(study: Study) -> list[Cell]:
    """The cells of a study, batch size by batch size; the smallest comes first, because it takes longest."""
    return [
        Cell(study, label, size, repeat)
        for size in study.batch_sizes
        for label in study.optimizers
        for repeat in range(study.searches)
    ]
