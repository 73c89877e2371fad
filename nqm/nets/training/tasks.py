"""A workload as trials see it: the network at the start for each seed, and the data of the metrics."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from ...types import Wrong
from ..network import Network
from ..trees import Tree, collect
from ..workloads import named
from ..workloads.base import Workload
from .metrics import Metric, shuffled
from .trial import JsonObject


def _whole(value: Any, least: int) -> bool:
    """Whether it is a whole number of at least ``least``; JSON may have it as a float."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and value >= least and float(value).is_integer()


WORKLOAD_OPTIONS: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "examples": ("a number of examples to train on", "a whole number of at least 2", lambda v: _whole(v, 2)),
    "replacement": ("true, or false for shuffled epochs", "true or false", lambda v: v in (True, False)),
    "start": (
        "steps of the workload's own optimizer before trials begin",
        "a whole number of steps",
        lambda v: _whole(v, 0),
    ),
}
"""What each option of a workload means, which values it may have, and the test for them."""


@dataclass
class Task:
    """A training task with its data in memory."""

    name: str
    options: JsonObject
    workload: Workload | None
    network: Network
    replacement: bool

    def start(self, seed: int) -> Tensor:
        """The weights before the first step, which depend on the seed alone.

        A user's own `Network` starts at its weights. With the option ``start``, a workload starts at the checkpoint that
        ``nqm fit`` measures, which is the same for every seed.
        """
        if self.workload is None or self.network.step:
            return self.network.theta
        weights = dict(self.workload.fresh_model(seed).named_parameters())
        return torch.cat([weights[name].detach().reshape(-1) for name in self.network.shapes])

    def metric(self, name: str) -> Metric:
        """The metric of this name: ``train_loss``, ``val_loss``, ``train_error`` or ``val_error``."""
        data = self.network.data if name.startswith("train") else self.held_out
        return Metric(self.network, data, name.endswith("error"))

    @cached_property
    def held_out(self) -> Tree:
        """The examples for validation, shuffled."""
        data = self.workload.held_out(self.network.examples) if self.workload else None
        if data is None:
            raise Wrong(f"{self.name} has no held-out examples; use train_loss, or give its Workload a val", "metric")
        return shuffled(collect(data)[0])


def task_of(name: str, options: JsonObject) -> Task:
    """The task of a workload by its name, or of ``module:function``, which returns a `Workload` or a `Network`."""
    for option, value in options.items():
        if option not in WORKLOAD_OPTIONS:
            known = ", ".join(f"{n} ({meaning})" for n, (meaning, _, _) in WORKLOAD_OPTIONS.items())
            raise Wrong(f"a workload has no option {option!r}; it has {known}", argument="options")
        _, allowed, valid = WORKLOAD_OPTIONS[option]
        if not valid(value):
            raise Wrong(f"options.{option} must be {allowed}, got {value!r}", argument="options")
    return _task(name, json.dumps(dict(sorted(options.items()))))


@lru_cache(maxsize=4)
def _task(name: str, text: str) -> Task:
    options = json.loads(text)
    found, start = named(name), int(options.get("start", 0))
    examples = int(options["examples"]) if "examples" in options else None
    own = found if isinstance(found, Workload) else None
    if isinstance(found, Workload):
        network = found.network(start, examples=examples)
    elif start:
        raise Wrong(f"start is for workloads; {name} returned a Network, at its own checkpoint", argument="options")
    else:
        network = found.first(examples or found.examples)
    network.data = shuffled(network.data)
    return Task(name, options, own, network, bool(options.get("replacement", True)))
