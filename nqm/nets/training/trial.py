"""What the lab and a worker exchange: a trial, which is everything that decides how a training ends, and its result.

Both are plain data that JSON can hold, so a trial can be sent to another machine and a result can be kept in a file. A
worker is a function ``run_trials(trials, *, stacking) -> list[Result]``, named by text such as
``nqm.nets.training.worker:run_trials``. The trials of a call have the same workload, optimizer, batch size and metric, and
may be trained together.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

from ...types import Wrong

JsonObject = Mapping[str, Any]
"""Values by name, of types that JSON can hold."""

METRICS = ("train_loss", "val_loss", "train_error", "val_error")
OUTCOMES = {
    "reached": "every read-out reached the target",
    "out_of_steps": "a read-out was still above the target after all the steps that the study allows",
    "stopped": "a better trial of the same cell took far fewer steps",
    "diverged": "the loss grew beyond bounds: infeasible, and not counted",
    "failed": "an exception, which the message names; not counted",
}
FEASIBLE = ("reached", "out_of_steps", "stopped")
RAW = "raw"
SLACK = 1.5
"""Trials are stopped at this many times the steps of the best one: late enough for others to arrive, if it was lucky."""
KEY_LENGTH = 32  # hexadecimal digits of a key; at 128 bits, two trials will not have the same key


def averaged(decay: float) -> str:
    """The name of the read-out for an exponential moving average of the weights.

    >>> averaged(0.99)
    'ema(0.99)'
    """
    return f"ema({decay!r})"


@dataclass(frozen=True)
class JsonData:
    """A dataclass that JSON can hold and give back."""

    def to_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        """The object with these fields; unknown fields, of a later version, are ignored."""
        return cls(**{f.name: data[f.name] for f in fields(cls) if f.name in data})

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_dict(json.loads(text))


@dataclass(frozen=True)
class Trial(JsonData):
    """One training, whose outcome depends on these fields alone.

    Parameters
    ----------
    workload : name of a workload, or ``module:function`` for one of your own.
    options : options of the workload, such as ``{"examples": 10000}``.
    optimizer : name of the optimizer, such as ``HeavyBall``.
    settings : hyper-parameters by name.
    averages : decays of moving averages of the weights; each average is a read-out of the same run.
    batch_size : number of examples in a step.
    metric : the quantity that has to reach the target: one of `METRICS`, or another that the worker knows.
    target : a read-out has arrived when its metric is at or below this value.
    max_steps : the study's limit on steps at this batch size.
    growth : the metric is evaluated at steps 1, 2, ..., then each later by this fraction, which is the resolution of steps.
    seed : seed of the start and of the order of the examples.
    limit : stop after this many steps, because a better trial of the same cell took far fewer. Not part of the key.
    version : version of the workload, or a hash of its source; a trial without a version has the key of the first stores.

    >>> trial = Trial("digits", {}, "SGD", {"lr": 0.5}, (), 32, "train_loss", 0.1, 1000, 0.02, seed=0)
    >>> trial.key
    '0bc662f59d0120bd633b4bdd44e300bb'
    >>> trial.key == Trial.from_json(trial.to_json()).key
    True
    """

    workload: str
    options: JsonObject
    optimizer: str
    settings: JsonObject
    averages: tuple[float, ...]
    batch_size: int
    metric: str
    target: float
    max_steps: int
    growth: float
    seed: int
    limit: int | None = None
    version: str = ""

    def __post_init__(self) -> None:
        for name in ("options", "settings"):
            object.__setattr__(self, name, dict(sorted(getattr(self, name).items())))
        object.__setattr__(self, "averages", tuple(sorted(float(decay) for decay in self.averages)))
        for name in ("target", "growth"):
            object.__setattr__(self, name, float(getattr(self, name)))
        for name, least in (("batch_size", 1), ("max_steps", 1), ("growth", 0)):
            if not getattr(self, name) >= least:
                raise Wrong(f"a trial needs {name} of {least} or more, got {getattr(self, name)}", argument=name)
        if self.limit is not None and not 1 <= self.limit <= self.max_steps:
            raise Wrong(f"limit must lie between 1 and max_steps = {self.max_steps}, got {self.limit}", "limit")

    @cached_property
    def key(self) -> str:
        """Hexadecimal hash of the fields that decide the outcome; 10 and 10.0 have the same hash."""
        unused = ("limit",) if self.version else ("limit", "version")
        return digest({name: value for name, value in self.to_dict().items() if name not in unused})[:KEY_LENGTH]

    @property
    def readouts(self) -> tuple[str, ...]:
        """The names of what is measured: the weights themselves, and their averages."""
        return (RAW, *map(averaged, self.averages))

    @property
    def steps_allowed(self) -> int:
        """The step at which the training ends at the latest."""
        return self.max_steps if self.limit is None else self.limit

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"averages": list(self.averages)}


@dataclass(frozen=True)
class Result(JsonData):
    """How a trial ended.

    Parameters
    ----------
    key : key of the trial.
    outcome : one of `OUTCOMES`.
    steps : for each read-out the first step at which it was seen at or below the target, or None.
    curves : for each read-out the metric at ``times``; NaN if it is not finite.
    times : steps at which the metric was evaluated.
    seconds : CPU time of the trial, or its share of that of its group.
    message : the outcome in a sentence.
    how : how it was trained: ``plain``, ``stacked(16)``, ``plain, accumulated(4)``.
    """

    key: str
    outcome: str
    steps: Mapping[str, int | None]
    curves: Mapping[str, list[float]] = field(repr=False)
    times: list[int] = field(repr=False)
    seconds: float
    message: str
    how: str

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise Wrong(f"outcome must be one of {', '.join(OUTCOMES)}, got {self.outcome!r}", argument="outcome")
        for name, curve in self.curves.items():
            if len(curve) != len(self.times):
                raise Wrong(f"the curve of {name} has {len(curve)} points, and times {len(self.times)}", "curves")

    @property
    def feasible(self) -> bool:
        """Whether the trial counts towards the trials of a cell."""
        return self.outcome in FEASIBLE

    def to_dict(self) -> dict[str, Any]:
        curves = {name: [float(v) if math.isfinite(v) else None for v in curve] for name, curve in self.curves.items()}
        return super().to_dict() | {"curves": curves}

    @classmethod
    def from_dict(cls, data: JsonObject) -> Self:
        curves = {name: [math.nan if v is None else v for v in curve] for name, curve in data["curves"].items()}
        return super().from_dict({**data, "curves": curves})


def digest(data: object) -> str:
    """Hash of data that JSON can hold; the order of names does not matter."""
    text = json.dumps(_canonical(data), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: object) -> object:
    """The data with every number as a float, so that 10 and 10.0 are the same setting."""
    if isinstance(value, Mapping):
        return {str(name): _canonical(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(part) for part in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
