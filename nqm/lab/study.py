"""A study: what is trained, at which batch sizes, with which optimizers, and how hard the lab searches their best settings.

A study is data. `Study.load` reads a TOML file and `Study.from_dict` reads the tables of one; both accept every way to
write a value. `Study` itself holds values in one form. An error names the key that it is about.
"""

from __future__ import annotations

import datetime
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from ..engine.readable import Listed
from ..nets.training.trial import Trial, digest
from ..text.values import parse_batch_sizes, parse_number
from ..types import Wrong, unknown
from .space import Setting, Space, scale_of

WORKER = "nqm.nets.training.worker:run_trials"
POINT_SETS = ("same", "fresh")
MAX_COUNT = 10**6  # The largest number of trials or of a round that a study may ask for.
SEED_STRIDE = 1000  # The seeds of repeated searches begin this far apart, so that no two of them share a seed.
MAX_SEEDS = SEED_STRIDE - 1  # The largest number of fresh seeds of a search.
MAX_SEARCHES = 1000  # The largest number of repeated searches.
MAX_WHOLE = 10**15  # The largest value of any other whole number in a study.
TRIALS_PER_FEASIBLE = 5  # A cell may try this many trials, feasible or not, for each feasible trial that is wanted.
FIRST = (10, 30, 30)
"""Feasible trials of the first stage for 1, 2 and 3 searched settings."""
REFINED = (12, 60, 108)
"""Trials of the second stage for 1, 2 and 3 searched settings. `docs/lab.md` has what they give, and what they cost."""
BUDGETS = ("name", "trials", "max_trials", "refine", "searches", "seeds", "batch_sizes", "widen")
"""Keys that decide how many trials there are, but not which ones. They are not part of a study's hash."""


@dataclass(frozen=True)
class Entry(metaclass=Listed):
    """An optimizer of a study: the settings that are searched, those that are fixed, and averages of its weights."""

    optimizer: str
    box: Mapping[str, Space]
    fixed: Mapping[str, Setting] = field(default_factory=dict)
    averages: tuple[float, ...] = ()
    version: str = ""  # A hash of the source of the optimizer's rule, or what the study says.

    @classmethod
    def of(cls, label: str, table: object) -> Entry:
        """From a table such as ``{"lr": {"low": 0.01, "high": 10}, "momentum": 0.9, "averages": [0.99]}``."""
        where = f"optimizers.{label}"
        if not isinstance(table, Mapping):
            raise Wrong(f"{where} must be a table of settings, got {as_written(table)}", where)
        optimizer = table.get("optimizer", label)
        if not isinstance(optimizer, str) or not optimizer:
            key = f"{where}.optimizer"
            raise Wrong(f"{key} must be the name of an optimizer, got {as_written(optimizer)}", key)
        box: dict[str, Space] = {}
        fixed: dict[str, Setting] = {}
        for name, value in table.items():
            key = f"{where}.{name}"
            if name in ("optimizer", "averages", "version"):
                continue
            if isinstance(value, Mapping | Space):
                box[name] = value if isinstance(value, Space) else _space(key, value, scale_of(name, optimizer))
            elif isinstance(value, str) or math.isfinite(_float(value)):
                fixed[name] = value
            else:
                must = f"{key} must be a range {{low = ..., high = ...}}, or a finite number, text, true or false"
                raise Wrong(f"{must}; got {as_written(value)}", key)
        averages = _averages(f"{where}.averages", table.get("averages", ()))
        return cls(optimizer, box, fixed, averages, _version(f"{where}.version", table.get("version", "")))

    def to_dict(self) -> dict[str, object]:
        searched = {name: space.to_dict() for name, space in self.box.items()}
        version = {"version": self.version} if self.version else {}
        return {"optimizer": self.optimizer, **searched, **self.fixed, "averages": list(self.averages), **version}


@dataclass(frozen=True)
class Study(metaclass=Listed):
    """A search for the best settings of each optimizer at each batch size, and their confirmation with other seeds.

    Parameters
    ----------
    name : name of the study.
    workload : what is trained: a name that the worker knows, or ``module:function``.
    target : value of the metric that trainings must reach.
    batch_sizes : in increasing order; a file may also write text such as ``8..1024..2``.
    optimizers : an `Entry` for each label; in a file, a table of ranges, values, ``averages``, and ``optimizer`` where the
        label is not its name.
    metric : such as ``train_loss``, ``val_loss``, ``train_error`` or ``val_error``.
    options : options of the workload.
    trials : number of feasible trials in the first stage of a search; by default 10 for one setting, and 30 for more.
    max_trials : number of trials, feasible or not, after which the first stage ends; by default five times ``trials``.
    refine : number of trials in the second stage, around the best; by default 12, 60 or 108 for 1, 2 or 3 settings.
    searches : how often a search is repeated with other points and other seeds.
    widen : whether a range is widened where the best setting lies at its end; without it such a cell decides nothing.
    seeds : number of trainings of a best setting with fresh seeds.
    version : version of the workload and of the training loop; by default a hash of their source.
    max_steps, max_examples : limits on the steps and on the examples of one training; 0 examples mean no limit.
    growth : the metric is evaluated each time the steps have grown by this fraction, which is the resolution of steps.
    points : ``same`` tries the same settings at every batch size, ``fresh`` tries new ones at each.
    round : number of trials that start together; trials of later rounds stop at 1.5 times the best steps so far.
    seed : seed of the search: of its points and of its trainings.
    worker : the function that trains, as ``module:function``.

    >>> rates = {"SGD": {"lr": {"low": 0.01, "high": 10}}}
    >>> table = {"workload": "digits", "target": 0.1, "batch_sizes": "8..32..2"}
    >>> study = Study.from_dict({"study": table, "optimizers": rates}, "small")
    >>> study == Study("small", "digits", 0.1, (8, 16, 32), {"SGD": Entry("SGD", {"lr": Space(0.01, 10)})})
    True
    >>> rates["SGD"]["lr"]["high"] = 0.001
    >>> Study.from_dict({"study": table, "optimizers": rates})
    Traceback (most recent call last):
    nqm.types.Wrong: optimizers.SGD.lr: low must be below high and both finite, got low = 0.01 and high = 0.001
    """

    name: str
    workload: str
    target: float
    batch_sizes: tuple[int, ...]
    optimizers: Mapping[str, Entry]
    metric: str = "train_loss"
    options: Mapping[str, Any] = field(default_factory=dict)
    trials: int | None = None
    max_trials: int | None = None
    refine: int | None = None
    searches: int = 3
    seeds: int = 5
    widen: bool = True
    max_steps: int = 10_000
    max_examples: int = 0
    growth: float = 0.02
    points: str = "same"
    round: int = 10
    seed: int = 0
    worker: str = WORKER
    version: str = ""

    def __post_init__(self) -> None:
        for name, read in READERS.items():
            key, value = _key(name), getattr(self, name)
            if (expected := read(key, value)) != value:
                raise Wrong(f"{key} must be {expected!r:.200}, got {value!r:.80}; Study.from_dict reads both", key)
        if self.max_trials is not None and self.max_trials < (self.trials or 1):
            key = "study.max_trials"
            raise Wrong(f"{key} must be at least trials = {self.trials or 1}, got {self.max_trials}", key)

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read a TOML file; a study without a name has that of its file."""
        path = Path(path)
        try:
            return cls.from_dict(tomllib.loads(path.read_text(encoding="utf-8-sig")), path.stem)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise Wrong(f"{path} is not a TOML file: {error}", "path") from None
        except Wrong as error:
            raise Wrong(f"{path}: {error}", error.argument) from None

    @classmethod
    def from_dict(cls, data: Mapping[str, object], name: str = "study") -> Study:
        """From the tables ``study`` and ``optimizers``, as a TOML file has them."""
        _check_known("table", data, ("study", "optimizers"))
        table = data.get("study")
        if not isinstance(table, Mapping):
            raise Wrong("a study needs a table [study] with workload, target and batch_sizes", "study")
        _check_known("key in [study] called", table, [key for key in READERS if key != "optimizers"], "study.")
        for key in ("workload", "target", "batch_sizes"):
            if key not in table:
                raise Wrong(f"[study] needs {key}", f"study.{key}")
        given = {"name": name, **table, "optimizers": data.get("optimizers", {})}
        read: dict[str, Any] = {key: READERS[key](_key(key), value) for key, value in given.items()}
        read["max_trials"] = read.get("max_trials") or None  # In a file, 0 is the default.
        return cls(**read)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The tables that `from_dict` reads."""
        table = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "optimizers"}
        table |= {"batch_sizes": list(self.batch_sizes), "options": dict(self.options)}
        return {"study": table, "optimizers": {label: entry.to_dict() for label, entry in self.optimizers.items()}}

    def first_trials(self, label: str) -> int:
        """The number of feasible trials in the first stage of a search for one optimizer."""
        return self._default(FIRST, label) if self.trials is None else self.trials

    def most_trials(self, label: str) -> int:
        """The number of trials, feasible or not, after which the first stage ends."""
        return self.max_trials or TRIALS_PER_FEASIBLE * self.first_trials(label)

    def refined_trials(self, label: str) -> int:
        """The number of trials in the second stage of a search for one optimizer."""
        if self.refine is not None:
            return self.refine
        return self._default(REFINED, label) if self.optimizers[label].box else 0

    def _default(self, counts: Sequence[int], label: str) -> int:
        """The default number of trials for as many settings as one optimizer has in the search."""
        searched = max(1, len(self.optimizers[label].box))
        more = max(0, searched - len(counts))  # Settings beyond the last count add as much as the last one does.
        return counts[min(searched, len(counts)) - 1] + more * (counts[-1] - counts[-2])

    @property
    def key(self) -> str:
        """Hash of what decides which trials there are; more trials, or other batch sizes, leave it as it is."""
        return digest({label: self.key_of(label) for label in self.optimizers})[:12]

    def key_of(self, label: str) -> str:
        """Hash of what decides which trials one optimizer has; the study's other optimizers do not matter."""
        tables = self.to_dict()
        decisive = {name: value for name, value in tables["study"].items() if name not in BUDGETS}
        return digest({"study": decisive, label: tables["optimizers"][label]})[:12]

    def steps_at(self, batch_size: int) -> int:
        """The largest number of steps that a training at a batch size may take."""
        return min(self.max_steps, max(1, self.max_examples // batch_size)) if self.max_examples else self.max_steps

    def trial(
        self, label: str, batch_size: int, settings: Mapping[str, Setting], *,
        seed: int | None = None, averages: Sequence[float] | None = None, limit: int | None = None,
    ) -> Trial:  # fmt: skip
        """One trial of this study, with the fixed settings of its optimizer."""
        entry, most = self.optimizers[label], self.steps_at(batch_size)
        return Trial(
            workload=self.workload, options=self.options, optimizer=entry.optimizer, settings={**entry.fixed, **settings},
            averages=tuple(entry.averages if averages is None else averages), batch_size=batch_size, metric=self.metric,
            target=self.target, max_steps=most, growth=self.growth, seed=self.seed if seed is None else seed,
            limit=None if limit is None or limit >= most else limit,
            version=", ".join(filter(None, (self.version, entry.version))),
        )  # fmt: skip


# Readers: each takes the key and what was written there, and returns the value in the form that a study holds.


def _check_known(what: str, table: Mapping[str, object], known: Sequence[str], where: str = "") -> None:
    for key in table:
        if key not in known:
            raise unknown(what, key, known, argument=where + key)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Wrong(f"{where} must be text, got {as_written(value)}", where)
    return value


def _worker(where: str, value: object) -> str:
    worker = _text(where, value)
    module, _, function = worker.partition(":")
    if not all(part.isidentifier() for part in (function, *module.split("."))):
        raise Wrong(f"{where} must be module:function, got {worker!r:.60}", where)
    return worker


def _point_set(where: str, value: object) -> str:
    if not isinstance(value, str) or value not in POINT_SETS:
        raise Wrong(f"{where} must be one of {', '.join(POINT_SETS)}, got {as_written(value)}", where)
    return value


def _options(where: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise Wrong(f"{where} must be a table, got {as_written(value)}", where)
    _check_plain(where, value)
    return dict(sorted(value.items()))


def _truth(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"{where} must be true or false, got {as_written(value)}", where)
    return value


def _check_plain(where: str, value: object) -> None:
    """Refuse a value that JSON cannot hold, by its name: trials are sent and stored as JSON."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_plain(f"{where}.{name}", part)
    elif isinstance(value, list | tuple):
        for part in value:
            _check_plain(where, part)
    elif not isinstance(value, str) and not math.isfinite(_float(value)):
        raise Wrong(f"{where} must be a finite number, text, true or false, got {as_written(value)}", where)


def _entries(where: str, value: object) -> dict[str, Entry]:
    if not isinstance(value, Mapping) or not value:
        raise Wrong("a study needs a table [optimizers.NAME] for each optimizer, and has none", where)
    for label in value:
        if not label.strip():
            raise Wrong(f"an optimizer needs a label, as in [optimizers.SGD], got {label!r}", where)
        if label.startswith("EMA("):
            taken = "rows called EMA(...) are those of averages; give the optimizer another label"
            raise Wrong(f"{where}.{label}: {taken}", where)
    return {label: table if isinstance(table, Entry) else Entry.of(label, table) for label, table in value.items()}


def _space(where: str, table: Mapping[str, object], scale: str) -> Space:
    _check_known(f"key in {where} called", table, ("low", "high", "scale"), f"{where}.")
    if "low" not in table or "high" not in table:
        raise Wrong(f"{where} needs low and high", where)
    low, high = (_number(f"{where}.{key}", table[key]) for key in ("low", "high"))
    try:
        return Space(low, high, str(table.get("scale", scale)))
    except Wrong as error:
        raise Wrong(f"{where}: {error}", where) from None


def _averages(where: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise Wrong(f"{where} must be a list of decays such as [0.9, 0.99], got {as_written(value)}", where)
    decays = [_number(where, decay) for decay in value]
    if any(not 0 <= decay < 1 for decay in decays) or len(set(decays)) < len(decays):
        raise Wrong(f"{where} must be different decays from 0 to below 1, got {decays}", where)
    return tuple(sorted(decays))


def _batch_sizes(where: str, value: object) -> tuple[int, ...]:
    try:
        sizes = parse_batch_sizes(value) if isinstance(value, str) else value
    except Wrong as error:
        raise Wrong(f"{where}: {error}", where) from None
    if not isinstance(sizes, list | tuple) or not sizes:
        must = f"{where} must be a list such as [8, 64], or text such as '8..1024..2'"
        raise Wrong(f"{must}, got {as_written(value)}", where)
    whole = tuple(sorted(_whole(where, size, 1) for size in sizes))
    if len(set(whole)) < len(whole):
        raise Wrong(f"{where} must differ, got {', '.join(map(str, whole))}: remove the duplicates", where)
    return whole


def _whole(where: str, value: object, least: int, most: int = MAX_WHOLE) -> int:
    number = _number(where, value, least, most, "a whole number")
    if number != int(number):
        raise Wrong(f"{where} must be a whole number, got {as_written(value)}", where)
    return int(number)


def _perhaps(where: str, value: object, least: int, most: int) -> int | None:
    """A whole number, or None where the default is wanted."""
    return None if value is None else _whole(where, value, least, most)


def _version(where: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value:g}"  # A file may write version = 2.
    return "" if value == "" else _text(where, value)


def _number(
    where: str, value: object, least: float = -math.inf, most: float = math.inf, what: str = "a finite number"
) -> float:
    """A number within bounds, which may be written as text such as ``2^10``."""
    if isinstance(value, str):
        try:
            value = parse_number(value)
        except Wrong as error:
            raise Wrong(f"{where}: {error}", where) from None
    number = math.nan if isinstance(value, bool) else _float(value)
    if not math.isfinite(number) or not least <= number <= most:
        low = f" of {least:g} or more" if math.isfinite(least) else ""
        high = f", {most:,.0f} at most" if number > most else ""
        raise Wrong(f"{where} must be {what}{low}{high}, got {as_written(value)}", where)
    return number


def _float(value: object) -> float:
    """The value as a float: NaN if it is not a number, infinity if it is too large for a float."""
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.inf


def as_written(value: object) -> str:
    """A value as the file has it, cut where it is long.

    >>> as_written(True), as_written(datetime.date(2026, 1, 2)), as_written("x")
    ('true', '2026-01-02', "'x'")
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return f"{value!r:.60}"


def _key(name: str) -> str:
    """The name of a field of `Study` in a file."""
    return name if name == "optimizers" else f"study.{name}"


READERS: dict[str, Callable[[str, object], object]] = {
    "name": _text, "workload": _text, "target": _number, "batch_sizes": _batch_sizes, "optimizers": _entries,
    "metric": _text, "options": _options, "trials": partial(_perhaps, least=1, most=MAX_COUNT),
    "max_trials": partial(_perhaps, least=0, most=TRIALS_PER_FEASIBLE * MAX_COUNT),
    "refine": partial(_perhaps, least=0, most=MAX_COUNT), "searches": partial(_whole, least=1, most=MAX_SEARCHES),
    "seeds": partial(_whole, least=0, most=MAX_SEEDS), "widen": _truth,
    "max_steps": partial(_whole, least=1), "max_examples": partial(_whole, least=0),
    "growth": partial(_number, least=0, most=MAX_COUNT), "points": _point_set,
    "round": partial(_whole, least=1, most=MAX_COUNT), "seed": partial(_whole, least=0), "worker": _worker, "version": _version,
}  # fmt: skip
"""The reader of each key of a study."""
