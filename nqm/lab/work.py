"""What runs in a worker process: the function that trains is found by its name and called with plain data."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, cast

from ..nets.training.trial import Result, Trial
from ..text.imports import imported, user_code
from ..types import Wrong
from .plan import SEARCH
from .study import WORKER

Data = dict[str, Any]
"""A trial or a result as JSON holds it."""


def call(worker: str, trials: Sequence[Data], stacking: str, race: bool = False, folder: str = "") -> list[Data]:
    """Run trials and return their results, both as dictionaries: runner and worker may have different versions of nqm.

    ``folder`` is that of the study's file, in which modules are looked for first.
    """
    look_in(folder)
    function, asked = load(worker), [Trial.from_dict(trial) for trial in trials]

    def run(some: Sequence[Trial]) -> list[Result]:
        with _theirs(worker, f"the worker {worker}"):
            results = list(function(some, stacking=stacking))
        if not all(isinstance(result, Result) for result in results):
            raise Wrong(f"the worker {worker} must return nqm.lab.Result objects, not {results!r:.60}", "worker")
        if [result.key for result in results] != [trial.key for trial in some]:
            raise Wrong(f"the worker {worker} must return one result for each trial, in order, with its key", "worker")
        return results

    open_ended = race and not getattr(function, "races", False) and all(trial.limit is None for trial in asked)
    return [result.to_dict() for result in (raced(run, asked) if open_ended else run(asked))]


def _theirs(worker: str, doing: str) -> AbstractContextManager[None]:
    """Report an exception in a user's worker as the user's own; an exception in the package's own worker is a bug."""
    return nullcontext() if worker == WORKER else user_code(doing)


def raced(run: Callable[[Sequence[Trial]], list[Result]], trials: Sequence[Trial]) -> list[Result]:
    """Run the first trials of a search, for which no limit on the steps is known yet.

    A worker whose attribute ``races`` is true trains such trials in lockstep and stops those that are behind. The trials of
    other workers are raced here: they get few steps, and as long as no trial reaches the target, the trials that were
    stopped start again with four times as many. `StudySearchSettings.first_steps` says what this costs.
    """
    ended: dict[str, Result] = {}
    seconds = dict.fromkeys((trial.key for trial in trials), 0.0)
    limit, most = SEARCH.first_steps, trials[0].max_steps
    while True:
        on_their_way = [t for t in trials if t.key not in ended or ended[t.key].outcome == "stopped"]
        asked = [replace(trial, limit=limit if limit < most else None) for trial in on_their_way]
        for trial, result in zip(asked, run(asked), strict=True):
            seconds[trial.key] += result.seconds
            ended[trial.key] = replace(result, seconds=seconds[trial.key])
        found = list(ended.values())
        if _arrived(trials[0], found) or limit >= most or not any(result.outcome == "stopped" for result in found):
            return [ended[trial.key] for trial in trials]
        limit *= SEARCH.more_steps


def _arrived(trial: Trial, results: Sequence[Result]) -> bool:
    """Whether the weights of some trial reached the target and, if there are averages, an average of some trial did."""
    groups = [trial.readouts[:1], trial.readouts[1:]] if trial.averages else [trial.readouts]
    return all(any(r.steps.get(name) is not None for r in results for name in group) for group in groups)


def look_in(folder: str) -> None:
    """Let modules be imported from a folder, and then from the current one, before all others."""
    first = [place for place in (folder, os.getcwd()) if place]
    sys.path[:] = [*first, *(place for place in sys.path if place not in first)]


def check_trials(worker: str, trials: Sequence[Mapping[str, Any]], folder: str = "") -> None:
    """Let the worker refuse trials before any is run: its module may have a ``check_trial`` that raises `Wrong`."""
    look_in(folder)
    function = load(worker)
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    checker = getattr(home, "check_trial", lambda trial: None)
    with _theirs(worker, f"check_trial of the worker {worker}"):
        for trial in trials:
            checker(Trial.from_dict(trial))


def step_costs(worker: str, trials: Sequence[Trial]) -> list[tuple[float, float]]:
    """For each trial the CPU seconds of a step and the megabytes of the process; NaN if the worker's module has no ``cost``."""
    home = sys.modules.get(getattr(load(worker), "__module__", None) or "")
    cost = getattr(home, "cost", lambda trial: (math.nan, math.nan))
    with _theirs(worker, f"cost of the worker {worker}"):
        return [cost(trial) for trial in trials]


def load(worker: str) -> Callable[..., list[Result]]:
    """The function called ``module:function``; its module may be beside the study's file or in the current folder."""
    function = imported(worker, "a worker, a function that trains")
    if not callable(function):
        raise Wrong(f"the worker {worker} must be a function, and is {function!r:.60}", "worker")
    return cast(Callable[..., list[Result]], function)
