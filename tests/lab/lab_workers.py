"""Workers of the lab's tests, without torch: one curvature, whose steps to a target have a formula."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from waiting import eventually

from nqm.lab import Result, Trial
from nqm.nets.training.reports import report
from nqm.nets.training.trial import RAW, averaged
from nqm.types import Wrong


def check_trial(trial: Trial) -> None:
    if "dies_in_check" in trial.workload and not (mark := Path(os.environ["NQM_TEST_LOG"])).exists():
        mark.touch()
        os._exit(9)
    if trial.optimizer not in ("SGD", "HeavyBall"):
        raise Wrong(f"there is no optimizer {trial.optimizer!r} here")
    if not 0 <= trial.settings.get("momentum", 0) < 1:
        raise Wrong(f"momentum must be in [0, 1), got {trial.settings['momentum']}")


def run_trials(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    """Curvature 1: the loss after t steps of rate r is |1 - r|^t + r / B; an average has less noise and comes later."""
    return [train(trial) for trial in trials]


def logged(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    """The same, slower, with a line in a file for each trial that begins.

    ``NQM_TEST_PROCESSES`` is a number of processes: until as many have begun a trial, none goes on.
    """
    path, together = Path(os.environ["NQM_TEST_LOG"]), int(os.environ.get("NQM_TEST_PROCESSES", "1"))
    with path.open("a") as log:
        log.write("".join(f"{os.getpid()} {trial.key}\n" for trial in trials))
    eventually(lambda: len({line.split()[0] for line in path.read_text().splitlines()}) >= together, "other processes")
    time.sleep(0.05)
    return run_trials(trials, stacking=stacking)


def flat(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    """The same, with curves that stay where they are."""
    found = run_trials(trials, stacking=stacking)
    return [replace(r, curves={name: [7.0] * len(r.times) for name in r.curves}) for r in found]


def dies_once(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    """Takes its process along, the first time it is called."""
    mark = Path(os.environ["NQM_TEST_LOG"])
    if not mark.exists():
        mark.touch()
        os._exit(9)
    return run_trials(trials, stacking=stacking)


def dies_in_check(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    """The same; its process dies the first time that it is asked to check trials."""
    return run_trials(trials, stacking=stacking)


def reporting(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    """The same, and it says how far it has come before it goes on."""
    report(7, 4000)
    time.sleep(1.2)
    return run_trials(trials, stacking=stacking)


def dies_at_four(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    """Takes its process along whenever the batch size is 4."""
    if trials[0].batch_size == 4:
        os._exit(9)
    return run_trials(trials, stacking=stacking)


def raises(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    raise ZeroDivisionError("on purpose")


def interrupted(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    raise KeyError(trials[0].key[:4])


def short(trials: Sequence[Trial], *, stacking: str) -> list[Result]:
    return run_trials(trials[1:], stacking=stacking)


def train(trial: Trial) -> Result:
    rate = trial.settings["lr"] / (1 - trial.settings.get("momentum", 0.0))
    if trial.settings.get("broken"):
        return Result(trial.key, "failed", {}, {}, [], 0.0, "it broke", "plain")
    if rate >= 2:
        return Result(trial.key, "diverged", dict.fromkeys(trial.readouts), {}, [], 0.0, "too fast", "plain")
    luck = random.Random(f"{trial.seed} {trial.batch_size} {rate}").uniform(0.95, 1.05)
    steps = {RAW: hit(rate, luck, rate / trial.batch_size, trial)}
    for decay in trial.averages:
        later = luck * (1 + 0.1 / (1 - decay))
        steps[averaged(decay)] = hit(rate, later, rate * (1 - decay) / trial.batch_size, trial)
    reached = all(s is not None for s in steps.values())
    outcome = "reached" if reached else "out_of_steps" if trial.limit is None else "stopped"
    curves = {name: [1.0, trial.target] for name in steps}
    return Result(trial.key, outcome, steps, curves, [1, trial.steps_allowed], 0.001, outcome, "plain")


def hit(rate: float, luck: float, floor: float, trial: Trial) -> int | None:
    room = trial.target - floor
    if room <= 0 or rate == 1:
        return None
    steps = math.ceil(luck * math.log(room) / math.log(abs(1 - rate)))
    return steps if steps <= trial.steps_allowed else None
