"""A workload as trials see it: its network at the start, by seed, and the data it is judged on. Kept for the whole process."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from ...types import Wrong
from ..network import Network
from ..trees import Tree, collect
from ..workloads import named
from ..workloads.base import Workload
from .metrics import Metric, shuffled
from .stacks import Slopes
from .trial import JsonObject

WORKLOAD_OPTIONS = {
    "examples": "a number of examples to train on",
    "replacement": "true, or false for shuffled epochs",
    "start": "steps of the workload's own optimizer to the checkpoint at which trials begin",
}


@dataclass
class Task:
    """A training task with its data in memory."""

    name: str
    options: JsonObject
    workload: Workload | None
    network: Network
    replacement: bool
    _metrics: dict[str, Metric] = field(default_factory=dict)
    _slopes: dict[type[Slopes], Slopes] = field(default_factory=dict)

    def start(self, seed: int) -> Tensor:
        """Weights before the first step: they depend on the seed alone.

        A network of the user's own starts where it is, and so does a workload that is taken from a checkpoint: that of
        ``nqm fit``, the same for every seed.
        """
        if self.workload is None or self.network.step:
            return self.network.theta
        weights = dict(self.workload.fresh_model(seed).named_parameters())
        return torch.cat([weights[name].detach().reshape(-1) for name in self.network.shapes])

    def metric(self, name: str) -> Metric:
        """What the trial is judged by: ``train_loss``, ``val_loss``, ``train_error`` or ``val_error``."""
        if name not in self._metrics:
            data, errors = self.network.data if name.startswith("train") else self.held_out(), name.endswith("error")
            self._metrics[name] = Metric(self.network, data, errors)
        return self._metrics[name]

    def slopes(self, kind: type[Slopes]) -> Slopes:
        """Gradients of stacks of trials, in one of the two ways; made once."""
        if kind not in self._slopes:
            self._slopes[kind] = kind(self.network)
        return self._slopes[kind]

    def held_out(self) -> Tree:
        """The examples for validation, shuffled."""
        data = self.workload.held_out(self.network.examples) if self.workload else None
        if data is None:
            raise Wrong(f"{self.name} has no held-out examples; use train_loss, or give its Workload a val", "metric")
        return shuffled(collect(data)[0])


def task_of(name: str, options: JsonObject) -> Task:
    """The task of a workload by name, or of ``module:function``, which returns a `Workload` or a `Network`."""
    for option in options:
        if option not in WORKLOAD_OPTIONS:
            known = ", ".join(f"{n} ({about})" for n, about in WORKLOAD_OPTIONS.items())
            raise Wrong(f"a workload has no option {option!r}; it has {known}", argument="options")
    examples, replacement = options.get("examples"), options.get("replacement", True)
    if examples is not None and not _whole(examples, 2):
        raise Wrong(f"options.examples must be a whole number of at least 2, got {examples!r}", argument="options")
    if not _whole(start := options.get("start", 0), 0):
        raise Wrong(f"options.start must be a whole number of steps, got {start!r}", argument="options")
    if replacement not in (True, False):
        raise Wrong(f"options.replacement must be true or false, got {replacement!r}", argument="options")
    return _task(name, json.dumps(dict(sorted(options.items()))))


def _whole(value: object, least: int) -> bool:
    """Whether it is a whole number; JSON may have it as a float."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    return math.isfinite(number) and number == int(number) and number >= least


@lru_cache(maxsize=4)
def _task(name: str, text: str) -> Task:
    options = json.loads(text)
    found, start = named(name), int(options.get("start", 0))
    examples = None if options.get("examples") is None else int(options["examples"])
    if isinstance(found, Workload):
        network = found.network(start, examples=examples)
    elif start:
        raise Wrong(f"start is for workloads; {name} returned a Network, at its own checkpoint", argument="options")
    else:
        network = found.first(examples or found.examples)
    network.data = shuffled(network.data)
    own = found if isinstance(found, Workload) else None
    return Task(name, options, own, network, bool(options.get("replacement", True)))
