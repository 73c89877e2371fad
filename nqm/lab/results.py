"""What a study has found: for each optimizer and batch size the best trial, and its steps with other seeds.

A row is called ``HeavyBall``, or ``EMA(HeavyBall)`` for the best of its averages, whose decay is chosen at each batch size.

*Tuned* steps are those of the best of many trials with one seed. They are biased low, because the luckiest trial is
chosen. *Confirmed* steps are those of its setting with fresh seeds. Their median is given with an interval from order
statistics, which assumes nothing about their law: with n seeds the median lies between the k-th smallest and the k-th
largest with probability 1 - 2 P(Binomial(n, 1/2) < k). The largest k with at least 95% is taken. Below six seeds even the
minimum and maximum have less: 93.75% for five. A training that does not arrive counts as later than all others.

A study repeats each search. The row shows the search whose setting is fastest over fresh seeds, by their `midmean`; the seeds of
the other searches are kept beside it, because what searches differ by tells how far the row can be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..engine.readable import Readable, Tabular
from ..engine.run import number
from ..nets.estimates import Estimate
from ..nets.training.trial import Trial
from ..show.chart import Figure, OnAxes
from ..show.tables import Row, Table
from ..types import Wrong
from .plan import SEARCH, Cell, cells
from .seeds import midmean, over_seeds
from .source import unversioned
from .store import Kept, Store
from .study import Study


@dataclass(frozen=True, repr=False)
class Point(Readable):
    """One row of a study: an optimizer, or the average of one, at a batch size.

    ``trial`` is the best trial, None if no trial reached the target; ``steps`` are its steps. ``seeds`` are the steps of
    the same setting with fresh seeds, None where one did not arrive. ``at_edge`` names settings that a
    search left at an end of their range, towards which steps may fall; ``widened`` counts how often the box was widened.
    ``searches`` are the steps with fresh seeds at the best setting of each repeated search; a search that ended without a trial
    that arrived has the one value None. ``tuned`` are these best settings, empty for such a search. ``allowed`` are the steps that
    a training may take, 0 if all diverged.
    """

    name: str
    label: str
    batch_size: int
    trial: Trial | None
    readout: str
    decay: float | None
    steps: int | None
    seeds: tuple[int | None, ...]
    feasible: int
    infeasible: int
    failed: int
    at_edge: Mapping[str, str]
    widened: int
    state: str
    message: str
    searches: tuple[tuple[int | None, ...], ...] = ()
    tuned: tuple[Row, ...] = ()
    allowed: int = 0

    def _brief(self) -> str:
        return f"{self.name}, batch_size={self.batch_size:,}: {self.message}"

    @property
    def settings(self) -> Row:
        return dict(self.trial.settings) if self.trial else {}

    @property
    def examples(self) -> int | None:
        return None if self.steps is None else self.steps * self.batch_size

    @property
    def more_than(self) -> int | None:
        """The steps within which no training reached the target; None if one did, if all diverged, or if a search has not ended."""
        return self.allowed or None if self.steps is None and self.state == "done" else None

    @property
    def confirmed(self) -> Estimate | None:
        """Median of steps over fresh seeds with its interval; None if there are no seeds."""
        return over_seeds(self.seeds) if self.seeds else None

    def row(self) -> Row:
        """The point as a row of a table."""
        found = over_seeds(self.seeds)
        return {
            "optimizer": self.name, "batch_size": self.batch_size, "steps": self.steps, "more_than": self.more_than,
            "examples": self.examples,
            "confirmed": number(found.value), "low": number(found.low), "high": number(found.high),
            "coverage": number(found.coverage),
            "seeds": len(self.seeds), "arrived": sum(s is not None for s in self.seeds), "searches": len(self.searches),
            **self.settings, **({} if self.decay is None else {"ema_decay": self.decay}),
            "feasible": self.feasible, "infeasible": self.infeasible, "failed": self.failed,
            "at_edge": ", ".join(f"{name} {end}" for name, end in self.at_edge.items()), "state": self.state,
            "message": self.message, "key": self.trial.key if self.trial else "",
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class Results(Tabular):
    """A study and what has been found so far: a point for each row and batch size, in the study's order."""

    study: Study
    points: tuple[Point, ...]
    path: Path
    keys: frozenset[str]  # The keys of the trials of this study that have ended.
    ahead: Mapping[str, str]  # For the key of each trial of the rounds to come, the cell and the stage in words.

    def _brief(self) -> str:
        done, study = sum(p.state == "done" for p in self.points), self.study
        names = f"{', '.join(self.names)} to {study.metric} {study.target:g}"
        return f"{study.name}: {names}, {done} of {len(self.points)} points done after {len(self.keys):,} trials"

    @classmethod
    def open(cls, path: str | Path, study: str | None = None) -> Results:
        """From a store, or from the file of a study that has a store beside it.

        ``study`` is the name or the key of a study in the store; by default it is the latest.
        """
        path = Path(path)
        beside = path.with_suffix(".db")
        if path.suffix == ".toml" or (path != beside and beside.is_file()):
            made = Study.load(path)
            if study not in (None, made.name, made.key):
                told = f"{str(path)!r} is the study {made.name!r}, not {study!r}"
                raise Wrong(f"{told}; name the store to choose among its studies", argument="study")
            with Store.open(beside) as store:
                return cls.of(as_stored(made, store), store)
        with Store.open(path) as store:
            return cls.of(chosen(store, study), store)

    @classmethod
    def of(cls, study: Study, store: Store) -> Results:
        """From an open store: the search is repeated with the stored results, and nothing is trained."""
        known, _ = store.results(study.worker)
        found = cells(study)
        for cell in found:
            cell.advance(known)
        keys = frozenset(trial.key for cell in found for trial in cell.trials())
        ahead = {trial.key: _place(cell) for cell in found for trial in cell.round or ()}
        return cls(study, points_of(found), store.path, keys, ahead)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(point.name for point in self.points))

    @property
    def finished(self) -> bool:
        return all(point.state == "done" for point in self.points)

    def __getitem__(self, name: str) -> list[Point]:
        """The points of one row, by batch size."""
        found = [point for point in self.points if point.name == name]
        if not found:
            raise KeyError(f"no {name!r} in this study; there are {', '.join(self.names)}")
        return found

    def table(self) -> Table:
        """A row for each point; the table is the same for the same study, wherever it ran."""
        return [point.row() for point in self.points]

    def plot(self, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
        """Steps to the target against batch size; a matplotlib figure, written to ``path`` if given."""
        from .compare.curves import curves_of
        from .compare.plots import plot_steps

        return plot_steps(curves_of(self.points), f"{self.study.metric} {self.study.target:g}", path=path, ax=ax)

    def edges(self) -> list[str]:
        """A sentence for each best setting at an end of its range, with what to do about it."""
        widened = f"the box was widened {SEARCH.widenings} times: choose another range in the study"
        found = []
        for p in (point for point in self.points if point.state == "done"):
            advice = widened if p.widened >= SEARCH.widenings else "widen = true in the study extends it"
            found += [
                f"{p.name} at batch size {p.batch_size}: the best {name} lies at the {'lower' if end == 'low' else 'upper'} end "
                f"of its range; {advice}"
                for name, ends in p.at_edge.items()
                for end in ends.split(" and ")
            ]
        return found

    def trials(self) -> list[Kept]:
        """The trials that have ended, in the order in which they ended, including those that another study ran first."""
        with Store.open(self.path) as store:
            ours = (kept for kept in store.trials() if kept.worker == self.study.worker)
            return [kept for kept in ours if kept.trial.key in self.keys or kept.study == self.study.key]

    def uncounted(self) -> list[Kept]:
        """Stored trials of this study, at its batch sizes, that its search as it is planned now has no place for."""
        sizes, planned = self.study.batch_sizes, self.keys | set(self.ahead)
        return [one for one in self.trials() if one.trial.key not in planned and one.trial.batch_size in sizes]

    def curve(self, point: Point) -> tuple[list[int], list[float]]:
        """Steps, and the metric at them, of the best trial."""
        if point.trial is None:
            return [], []
        with Store.open(self.path) as store:
            times, curves = store.curve(store.find(point.trial.key, self.study.worker).id)
        return times, curves.get(point.readout, [])

    def to_dict(self) -> Row:
        """What ``--json`` prints."""
        return {"study": self.study.to_dict(), "key": self.study.key, "store": str(self.path), "table": self.table()}


def chosen(store: Store, study: str | None) -> Study:
    """The study of this name or key in a store; the latest study if it is None."""
    found = store.studies()
    matching = [s for s in found if study is None or study in (s.name, s.key)]
    if not found:
        raise Wrong(f"the store {str(store.path)!r} has no study yet", argument="store")
    if not matching:
        known = ", ".join(f"{s.name} ({s.key})" for s in found)
        raise Wrong(f"the store {str(store.path)!r} has no study {study!r}; there are {known}", argument="study")
    return matching[0]


def as_stored(study: Study, store: Store) -> Study:
    """The study of a file with the versions under which a store has it last, if the store has it."""
    plain = unversioned(study).key
    found = next((one for one in store.studies() if unversioned(one).key == plain), None)
    if found is None:
        return study
    entries = {name: replace(entry, version=found.optimizers[name].version) for name, entry in study.optimizers.items()}
    return replace(study, version=found.version, optimizers=entries)


def _place(cell: Cell) -> str:
    again = f", search {cell.repeat + 1} of {cell.study.searches}" if cell.study.searches > 1 else ""
    return f"{cell.label} at batch size {cell.batch_size}{again} ({cell.phase})"


def points_of(found: Sequence[Cell]) -> tuple[Point, ...]:
    """A point for each row and batch size, in the study's order."""
    alike: dict[tuple[str, int], list[Cell]] = {}
    for cell in found:
        alike.setdefault((cell.label, cell.batch_size), []).append(cell)
    names = dict.fromkeys(name for cell in found for name in cell.names)
    return tuple(point(own, name) for name in names for own in alike.values() if name in own[0].names)


def point(repeats: Sequence[Cell], name: str) -> Point:
    """One row of the repeated searches for an optimizer at a batch size, with what is known of it so far."""
    cell = min(repeats, key=lambda cell: standing(cell, name))
    best = cell.best.get(name)
    seeds = fresh_steps(cell, name)
    unfinished = [one.phase for one in repeats if one.phase != "done"]
    ended = [one for one in repeats if searched(one, name)]
    return Point(
        name=name, label=cell.label, batch_size=cell.batch_size, trial=best.trial if best else None,
        readout=best.readout if best else "", decay=best.decay if best else None, steps=best.steps if best else None,
        seeds=seeds, feasible=sum(one.feasible for one in repeats),
        infeasible=sum(one.count("diverged") for one in repeats), failed=sum(one.count("failed") for one in repeats),
        at_edge=left_at_edge(repeats, name), widened=max(len(one.boxes) - 1 for one in repeats),
        state=unfinished[0] if unfinished else "done", message=sentence(cell, name),
        searches=tuple(searched(one, name) for one in ended),
        tuned=tuple(dict(one.best[name].trial.settings) if name in one.best else {} for one in ended),
        allowed=cell.study.steps_at(cell.batch_size) if any(one.feasible for one in repeats) else 0,
    )  # fmt: skip


def left_at_edge(repeats: Sequence[Cell], name: str) -> dict[str, str]:
    """The ends at which any of repeated searches left a setting, since a measured curve rests on all of them."""
    found: dict[str, list[str]] = {}
    for setting, end in sorted({pair for cell in repeats for pair in cell.at_edge(name).items()}):
        found.setdefault(setting, []).append(end)
    return {setting: " and ".join(ends) for setting, ends in found.items()}


def standing(cell: Cell, name: str) -> tuple[float, float]:
    """What decides which of repeated searches is shown: the `midmean` over fresh seeds, then the steps of the search."""
    best = cell.best.get(name)
    if best is None:
        return math.inf, math.inf
    seeds = fresh_steps(cell, name)
    return midmean(seeds), best.steps


def fresh_steps(cell: Cell, name: str) -> tuple[int | None, ...]:
    """Steps of the best setting of a search with fresh seeds; None where one did not arrive."""
    best = cell.best.get(name)
    return tuple(result.steps.get(best.readout) for _, result in cell.confirmed.get(name, ())) if best else ()


def searched(cell: Cell, name: str) -> tuple[int | None, ...]:
    """`fresh_steps` of a search that has ended; the one value None if none of its trials arrived."""
    if cell.phase != "done":
        return ()
    return fresh_steps(cell, name) if name in cell.best else (None,)


def sentence(cell: Cell, name: str) -> str:
    """What a reader should know of a row."""
    target, best = cell.study.target, cell.best.get(name)
    if cell.broken:
        return f"every trial of a round failed: {cell.broken}"
    if not cell.done:
        return "not begun"
    if best is None:
        if cell.count("diverged") == len(cell.done):
            return f"all {len(cell.done)} trials diverged: search lower learning rates"
        tried = f"none of {len(cell.done)} trials" + (" so far" if cell.phase == "search" else "")
        return f"{tried} reached {target:g} within {cell.study.steps_at(cell.batch_size):,} steps"
    if best.steps == 0:
        return f"the metric is at {target:g} or below before the first step: choose a lower target"
    reached = f"reached {target:g} in {best.steps:,} steps"
    if cell.phase == "done" and cell.feasible < cell.quota:
        return f"{reached}; only {cell.feasible} of {len(cell.done)} trials were feasible"
    return f"{reached}, best of {cell.feasible} feasible trials"
