"""What runs in a worker process: the function that trains is found by its name and called with plain data."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from ..nets.training.trial import Result, Trial
from ..types import Wrong

EXTRAS = {"torch": "nets", "sklearn": "nets"}
FIRST = 32  # steps of a race at first
FURTHER = 4  # times as many if no one arrives


def call(worker: str, trials: list[dict[str, Any]], stacking: str, race: bool = False) -> list[dict[str, Any]]:
    """Run trials; both ways only dictionaries travel, so that two versions of the package may meet."""
    function, asked = load(worker), [Trial.from_dict(trial) for trial in trials]

    def run(some: Sequence[Trial]) -> list[Result]:
        return _answered(worker, some, function(some, stacking=stacking))

    open_ended = race and not getattr(function, "races", False) and all(trial.limit is None for trial in asked)
    return [result.to_dict() for result in (raced(run, asked) if open_ended else run(asked))]


def _answered(worker: str, trials: Sequence[Trial], results: Any) -> list[Result]:
    """What a worker returned, if it is what it should be."""
    results = list(results)
    if not all(isinstance(result, Result) for result in results):
        raise Wrong(f"the worker {worker} must return nqm.lab.Result objects, not {results!r:.60}")
    if [result.key for result in results] != [trial.key for trial in trials]:
        raise Wrong(f"the worker {worker} must return one result for each trial, in order, with its key")
    return results


def raced(run: Callable[[Sequence[Trial]], list[Result]], trials: Sequence[Trial]) -> list[Result]:
    """Run the first trials of a search, when no one knows how many steps are worth while.

    A worker that trains them in step, and stops those behind by itself, has an attribute ``races`` that is true. Others
    are raced here: trials get few steps, and as long as no trial has arrived, those that are still on their way begin
    again with four times as many. This costs a third more than knowing beforehand, and often a tenth of going on to the
    last step allowed.
    """
    ended: dict[str, Result] = {}
    seconds = dict.fromkeys((trial.key for trial in trials), 0.0)
    limit = FIRST
    while True:
        most = trials[0].max_steps
        asked = [
            replace(trial, limit=limit if limit < most else None)
            for trial in trials
            if trial.key not in ended or ended[trial.key].outcome == "stopped"
        ]
        for trial, result in zip(asked, run(asked), strict=True):
            seconds[trial.key] += result.seconds
            ended[trial.key] = replace(result, seconds=seconds[trial.key])
        found = list(ended.values())
        if _arrived(trials[0], found) or limit >= most or not any(result.outcome == "stopped" for result in found):
            return [ended[trial.key] for trial in trials]
        limit *= FURTHER


def _arrived(trial: Trial, results: Sequence[Result]) -> bool:
    """Whether some trial came to the target, and if there are averages, one of these did."""
    groups = [trial.readouts[:1], trial.readouts[1:]] if trial.averages else [trial.readouts]
    return all(any(r.steps.get(name) is not None for r in results for name in group) for group in groups)


def check(worker: str, trials: list[dict[str, Any]]) -> None:
    """Raise what is wrong with trials before any is run, if the worker's module has a ``check_trial`` that can tell."""
    function = load(worker)
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    checker: Any = getattr(home, "check_trial", None)
    for trial in trials if checker else ():
        checker(Trial.from_dict(trial))


def load(worker: str) -> Callable[..., list[Result]]:
    """The function called ``module:function``; modules of the current directory count, as with ``python -m``."""
    module_name, _, name = worker.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        hint = f"; pip install 'nqm[{EXTRAS[missing]}]'" if missing in EXTRAS else ""
        raise Wrong(f"cannot import the worker {worker}: {error}{hint}") from None
    function: Any = getattr(module, name, None)
    if function is None:
        raise Wrong(f"the worker {worker} does not exist: {module_name} has no function {name}")
    if callable(function):
        return cast(Callable[..., list[Result]], function)
    raise Wrong(f"the worker {worker} must be a function, and is {function!r:.60}")
