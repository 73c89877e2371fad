"""A study: what is trained, at which batch sizes, with which optimizers, and how hard to look for their best settings.

A study is data. It is written as a TOML file, or made in Python; either way every part of it is checked when it is
built, and an error names the key.
"""

from __future__ import annotations

import datetime
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..nets.training.trial import Trial, digest
from ..text.values import parse_batch_sizes, parse_number
from ..types import Wrong, unknown
from .space import Space

WORKER = "nqm.nets.training.worker:run_trials"
POINTS = ("same", "fresh")
MOST = 10**6  # trials, seeds and other counts: more of them were never meant
LARGEST = 10**15  # of other whole numbers
TRIES = 5  # trials of a cell, feasible or not, for each feasible one that is wanted
BUDGETS = ("name", "trials", "max_trials", "seeds", "batch_sizes")  # these say how many trials, not which


@dataclass(frozen=True)
class Entry:
    """An optimizer of a study: the settings that are searched, those that are fixed, and averages of its weights."""

    optimizer: str
    box: Mapping[str, Space]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    averages: tuple[float, ...] = ()

    @classmethod
    def of(cls, label: str, table: Mapping[str, Any]) -> Entry:
        """From a table such as ``{"lr": {"low": 0.01, "high": 10}, "momentum": 0.9, "averages": [0.99]}``."""
        where = f"optimizers.{label}"
        if not label.strip():
            raise Wrong(f"an optimizer needs a label, as in [optimizers.SGD], got {label!r}")
        if label.startswith("EMA("):
            raise Wrong(f"{where}: rows called EMA(...) are those of averages; give the optimizer another label")
        if not isinstance(table, Mapping):
            raise Wrong(f"{where} must be a table of settings, got {shown(table)}")
        optimizer = table.get("optimizer", label)
        if not isinstance(optimizer, str) or not optimizer:
            raise Wrong(f"{where}.optimizer must be the name of an optimizer, got {shown(optimizer)}")
        box: dict[str, Space] = {}
        fixed: dict[str, Any] = {}
        for name, value in table.items():
            if name in ("optimizer", "averages"):
                continue
            if isinstance(value, Mapping | Space):
                box[name] = _space(f"{where}.{name}", name, value)
            elif isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value)):
                fixed[name] = value
            else:
                raise Wrong(
                    f"{where}.{name} must be a range {{low = ..., high = ...}}, or a finite number, text, true or false; "
                    f"got {shown(value)}"
                )
        return cls(optimizer, box, fixed, _averages(f"{where}.averages", table.get("averages", ())))

    def to_dict(self) -> dict[str, Any]:
        searched = {name: space.to_dict() for name, space in self.box.items()}
        return {"optimizer": self.optimizer, **searched, **self.fixed, "averages": list(self.averages)}


@dataclass(frozen=True)
class Study:
    """A search for the best settings of each optimizer at each batch size, and their confirmation with other seeds.

    Parameters
    ----------
    name : of the study.
    workload : what is trained: a name that the worker knows, or ``module:function``.
    target : value of the metric at which a training has arrived.
    batch_sizes : a list, or text such as ``8..1024..2``.
    optimizers : for each label a table: ranges and values of settings, ``averages``, and ``optimizer`` if the label is not
        its name.
    metric : such as ``train_loss``, ``val_loss``, ``train_error`` or ``val_error``.
    options : of the workload.
    trials : feasible ones for each optimizer and batch size.
    max_trials : feasible or not; five times as many if left out.
    seeds : trainings of the best setting with fresh seeds.
    max_steps, max_examples : no training takes more steps, nor sees more examples.
    growth : each look at the metric is this fraction of the steps later than the last: the resolution of steps.
    points : ``same`` for every batch size, or ``fresh``.
    round : so many trials start together; later ones stop where the best so far arrived.
    seed : of the search: of its points and of its trainings.
    worker : the function that trains, as ``module:function``.

    >>> study = Study("small", "digits", 0.1, "8..32..2", {"SGD": {"lr": {"low": 0.01, "high": 10}}})
    >>> study.batch_sizes, study.optimizers["SGD"].box["lr"].scale
    ((8, 16, 32), 'log')
    >>> Study("small", "digits", 0.1, [8], {"SGD": {"lr": {"low": 1, "high": 0.1}}})
    Traceback (most recent call last):
    nqm.types.Wrong: optimizers.SGD.lr: low must be below high and both finite, got low = 1 and high = 0.1
    """

    name: str
    workload: str
    target: float
    batch_sizes: Any
    optimizers: Mapping[str, Any]
    metric: str = "train_loss"
    options: Mapping[str, Any] = field(default_factory=dict)
    trials: int = 20
    max_trials: int = 0
    seeds: int = 5
    max_steps: int = 10_000
    max_examples: int = 0
    growth: float = 0.02
    points: str = "same"
    round: int = 10
    seed: int = 0
    worker: str = WORKER

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        for name in ("name", "workload", "metric", "worker"):
            _check_text(name, getattr(self, name))
        _check_worker(self.worker)
        put("target", _number("target", self.target))
        put("growth", _number("growth", self.growth, 0, MOST))
        put("batch_sizes", _batch_sizes(self.batch_sizes))
        for name, least, most in (
            ("trials", 1, MOST), ("seeds", 0, MOST), ("round", 1, MOST),
            ("max_steps", 1, LARGEST), ("max_examples", 0, LARGEST), ("seed", 0, LARGEST),
        ):  # fmt: skip
            put(name, _whole(name, getattr(self, name), least, most))
        put("max_trials", _whole("max_trials", self.max_trials or TRIES * self.trials, self.trials, TRIES * MOST))
        if self.points not in POINTS:
            raise Wrong(f"study.points must be one of {', '.join(POINTS)}, got {shown(self.points)}")
        if not isinstance(self.options, Mapping):
            raise Wrong(f"study.options must be a table, got {shown(self.options)}")
        _check_plain("study.options", self.options)
        put("options", dict(sorted(self.options.items())))
        if not isinstance(self.optimizers, Mapping) or not self.optimizers:
            raise Wrong("a study needs a table [optimizers.NAME] for each optimizer, and has none")
        made = {label: v if isinstance(v, Entry) else Entry.of(label, v) for label, v in self.optimizers.items()}
        put("optimizers", made)

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read a TOML file; the name of the study is that of the file, if it has no other."""
        path = Path(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise Wrong(f"{path} is not a TOML file: {error}") from None
        try:
            return cls.from_dict(data, path.stem)
        except (ValueError, TypeError, OverflowError) as error:
            raise Wrong(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], name: str = "study") -> Study:
        """From the tables ``study`` and ``optimizers``, as a TOML file has them."""
        for key in data:
            if key not in ("study", "optimizers"):
                raise unknown("table", key, ("study", "optimizers"))
        table, known = data.get("study"), [f.name for f in fields(cls) if f.name != "optimizers"]
        if not isinstance(table, Mapping):
            raise Wrong("a study needs a table [study] with workload, target and batch_sizes")
        for key in table:
            if key not in known:
                raise unknown("key in [study] called", key, known)
        for key in ("workload", "target", "batch_sizes"):
            if key not in table:
                raise Wrong(f"[study] needs {key}")
        return cls(**{"name": name, **table, "optimizers": data.get("optimizers", {})})

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` reads."""
        table = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "optimizers"}
        table |= {"batch_sizes": list(self.batch_sizes), "options": dict(self.options)}
        return {"study": table, "optimizers": {label: entry.to_dict() for label, entry in self.optimizers.items()}}

    @property
    def key(self) -> str:
        """Hash of what decides which trials there are; more of them, or other batch sizes, are the same study."""
        return digest({label: self.key_of(label) for label in self.optimizers})[:12]

    def key_of(self, label: str) -> str:
        """Hash of what decides which trials one optimizer has, whatever others the study has."""
        decisive = {name: value for name, value in self.to_dict()["study"].items() if name not in BUDGETS}
        return digest({"study": decisive, label: self.optimizers[label].to_dict()})[:12]

    def steps_at(self, batch_size: int) -> int:
        """The budget of steps at a batch size."""
        return min(self.max_steps, max(1, self.max_examples // batch_size)) if self.max_examples else self.max_steps

    def trial(
        self, label: str, batch_size: int, settings: Mapping[str, Any], *,
        seed: int | None = None, averages: Sequence[float] | None = None, limit: int | None = None,
    ) -> Trial:  # fmt: skip
        """One trial of this study, with the fixed settings of its optimizer."""
        entry, most = self.optimizers[label], self.steps_at(batch_size)
        return Trial(
            workload=self.workload, options=self.options, optimizer=entry.optimizer, settings={**entry.fixed, **settings},
            averages=tuple(entry.averages if averages is None else averages), batch_size=batch_size, metric=self.metric,
            target=self.target, max_steps=most, growth=self.growth, seed=self.seed if seed is None else seed,
            limit=None if limit is None or limit >= most else limit,
        )  # fmt: skip


def _space(where: str, name: str, value: Mapping[str, Any] | Space) -> Space:
    if isinstance(value, Space):
        return value
    for key in value:
        if key not in ("low", "high", "scale"):
            raise unknown(f"key in {where} called", key, ("low", "high", "scale"))
    if "low" not in value or "high" not in value:
        raise Wrong(f"{where} needs low and high")
    low, high = (_number(f"{where}.{key}", value[key], study=False) for key in ("low", "high"))
    try:
        return Space(low, high, value.get("scale", Space.scale_of(name)))
    except ValueError as error:
        raise Wrong(f"{where}: {error}") from None


def _averages(where: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise Wrong(f"{where} must be a list of decays such as [0.9, 0.99], got {shown(value)}")
    decays = [_number(where, decay, study=False) for decay in value]
    if any(not 0 <= decay < 1 for decay in decays) or len(set(decays)) < len(decays):
        raise Wrong(f"{where} must be different decays from 0 to below 1, got {decays}")
    return tuple(sorted(decays))


def _batch_sizes(value: Any) -> tuple[int, ...]:
    try:
        sizes = parse_batch_sizes(value) if isinstance(value, str) else value
    except ValueError as error:
        raise Wrong(f"study.batch_sizes: {error}") from None
    if not isinstance(sizes, list | tuple) or not sizes:
        raise Wrong(
            f"study.batch_sizes must be a list such as [8, 64], or text such as '8..1024..2', got {shown(value)}"
        )
    whole = tuple(sorted(_whole("batch_sizes", size, 1, LARGEST) for size in sizes))
    if len(set(whole)) < len(whole):
        raise Wrong(f"study.batch_sizes must differ, got {', '.join(map(str, whole))}: leave one of each")
    return whole


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise Wrong(f"study.{name} must be text, got {shown(value)}")


def _check_worker(worker: str) -> None:
    module, _, function = worker.partition(":")
    if not (function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise Wrong(f"study.worker must be module:function, got {worker!r:.60}")


def _check_plain(where: str, value: Any) -> None:
    """Refuse what JSON cannot hold, by its name: a trial travels, and is kept, as JSON."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_plain(f"{where}.{name}", part)
    elif isinstance(value, list | tuple):
        for part in value:
            _check_plain(where, part)
    elif not isinstance(value, str) and not (isinstance(value, int | float) and math.isfinite(value)):
        raise Wrong(f"{where} must be a finite number, text, true or false, got {shown(value)}")


def _number(name: str, value: Any, least: float = -math.inf, most: float = math.inf, *, study: bool = True) -> float:
    where = f"study.{name}" if study else name
    return _bounded(where, value, "a finite number", least, most)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    number = _bounded(f"study.{name}", value, "a whole number", least, most)
    if number != int(number):
        raise Wrong(f"study.{name} must be a whole number, got {shown(value)}")
    return int(number)


def _bounded(where: str, value: Any, what: str, least: float, most: float) -> float:
    """A number within bounds, which may be written as text such as ``2^10``."""
    if isinstance(value, str):
        try:
            value = parse_number(value)
        except ValueError as error:
            raise Wrong(f"{where}: {error}") from None
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not least <= value <= most:
        low = f" of {least:g} or more" if math.isfinite(least) else ""
        high = f", {most:,.0f} at most" if good and value > most else ""
        raise Wrong(f"{where} must be {what}{low}{high}, got {shown(value)}")
    return float(value)


def shown(value: Any) -> str:
    """A value as the file has it, cut where it is long.

    >>> shown(True), shown(datetime.date(2026, 1, 2)), shown("x")
    ('true', '2026-01-02', "'x'")
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return f"{value!r:.60}"
