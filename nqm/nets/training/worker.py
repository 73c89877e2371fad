"""The lab's worker for trials on real networks, ``nqm.nets.training.worker:run_trials``.

The initial weights and the order of examples depend on the trial's seed alone, so a trial ends the same, to rounding, whether
it is trained alone or in a stack with others.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, get_args

import torch

from ...text.imports import UserCodeError, user_failure
from ...types import Wrong
from .groups import TIMED_STEPS, Group, evaluation_steps
from .rules import method_of
from .tasks import task_of
from .trial import METRICS, Result, Trial

HELD_BYTES = 2**30  # bytes of freed memory that a process keeps for its next step
MOST_PASSES = (
    16  # The largest batch has this many times the examples; its noise is 1/16 of that of a batch of all of them.
)
NEVER_BELOW_ZERO = ("categorical", "gaussian", "bernoulli")  # likelihoods whose loss is never below zero
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # as malloc.h numbers them
Stacking = Literal["auto", "always", "never"]


def run_trials(trials: Sequence[Trial], *, stacking: Stacking = "auto") -> list[Result]:
    """Train each trial until its read-outs reach the target, it diverges or it is out of steps; results are in order.

    Parameters
    ----------
    trials : trials of one cell, which differ in settings and seed; trials that differ in more are trained in separate groups.
    stacking : "always" computes the gradients of a group in one vectorised pass if the optimizer allows it, "never" computes
        them one after another, and "auto" does what takes less time.

    Trials in lockstep race: once each read-out has reached the target in some trial of a seed, the other trials of that seed are
    stopped at 1.5 times the steps.

    An exception gives a trial the outcome "failed", with a message. PyTorch runs on one thread from here on, because many
    processes with one thread each are faster than one with many threads. Freed memory is kept (`keep_memory`).
    """
    if stacking not in get_args(Stacking):
        raise Wrong(f"stacking must be 'auto', 'always' or 'never', got {stacking!r}", argument="stacking")
    torch.set_num_threads(1)
    keep_memory()
    results: dict[int, Result] = {}
    for places in _groups(trials).values():
        for place, result in zip(places, _trained([trials[p] for p in places], stacking), strict=True):
            results[place] = result
    return [results[place] for place in range(len(trials))]


run_trials.races = True  # type: ignore[attr-defined]  # tells the lab that it need not race the trials itself


@cache
def keep_memory() -> None:
    """Tell glibc to keep freed memory: returning it after every step and requesting it again takes up to half the time.

    Other C libraries are left as they are.
    """
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_MMAP_THRESHOLD, HELD_BYTES)
    mallopt(M_TRIM_THRESHOLD, HELD_BYTES)
    mallopt(M_TOP_PAD, HELD_BYTES // 16)


def check_trial(trial: Trial) -> None:
    """Refuse a trial that cannot be trained, with a sentence, before any training."""
    if trial.metric not in METRICS:
        raise Wrong(f"metric must be one of {', '.join(METRICS)}, got {trial.metric!r}", argument="metric")
    if not math.isfinite(trial.target):
        raise Wrong(f"target must be a finite number, got {trial.target!r}", argument="target")
    if trial.metric.endswith("error") and not 0 <= trial.target < 1:
        raise Wrong(f"target of {trial.metric} is a share of errors, from 0 to 1, got {trial.target:g}", "target")
    for decay in trial.averages:
        if not 0 <= decay < 1:
            raise Wrong(f"averages must be decays in [0, 1), got {decay!r}", argument="averages")
    method = method_of(trial.optimizer)
    method.check_settings(trial.settings, None)
    task = task_of(trial.workload, trial.options)
    method.check_settings(trial.settings, task.network)
    if trial.target < 0 and trial.metric.endswith("loss") and task.network.likelihood in NEVER_BELOW_ZERO:
        never = f"the loss of {trial.workload} is never below 0"
        raise Wrong(f"target is {trial.target:g}, and {never}: raise it", argument="target")
    examples = task.network.examples
    given = f"batch_size is {trial.batch_size:,} and there are {examples:,} examples"
    if trial.batch_size > MOST_PASSES * examples:
        passes = f"each step would compute the gradient of every example {trial.batch_size / examples:,.0f} times"
        raise Wrong(f"{given}: {passes}; take a batch of at most {MOST_PASSES * examples:,}", argument="batch_size")
    if not task.replacement and trial.batch_size > examples:
        advice = "take a smaller batch, or draw with replacement"
        raise Wrong(f"{given}: shuffled epochs have no such batch; {advice}", argument="batch_size")
    task.metric(trial.metric)


def cost(trial: Trial) -> tuple[float, float]:
    """CPU seconds of a step of this trial, metric included, and the megabytes that the process then has in memory."""
    torch.set_num_threads(1)
    check_trial(trial)
    group = Group(task_of(trial.workload, trial.options), method_of(trial.optimizer), [trial], "never")
    times = [_timed(lambda t=t: group.step(t)) for t in range(1 + TIMED_STEPS)]
    evaluations = len(list(evaluation_steps(trial.growth, trial.max_steps))) / trial.max_steps
    return min(times) + evaluations * _timed(
        lambda: group.metric(group.rule.theta, trial.target, together=False)
    ), memory()


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def memory() -> float:
    """Megabytes that this process has had in memory at most; NaN where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows has none.
        return math.nan
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts bytes, Linux kilobytes.


def _groups(trials: Sequence[Trial]) -> dict[str, list[int]]:
    """The positions of trials that can be trained in lockstep, which differ only in settings and seed; else single ones."""
    found: dict[str, list[int]] = {}
    for place, trial in enumerate(trials):
        try:
            method = method_of(trial.optimizer)
        except Wrong:  # the trial's own message will say so
            method = None
        likeness = str(place)
        if method and method.stacks:
            alike = {name: trial.settings.get(name) for name in method.alike}
            likeness = repr(trial.to_dict() | {"settings": alike, "seed": None})
        found.setdefault(likeness, []).append(place)
    return found


def _trained(trials: list[Trial], stacking: str) -> list[Result]:
    """Results of trials in lockstep. If that fails, each is trained alone, and a trial that fails has the reason."""
    start = time.process_time()
    try:
        for trial in trials:
            check_trial(trial)
        first = trials[0]
        return Group(task_of(first.workload, first.options), method_of(first.optimizer), trials, stacking).run()
    except Exception as error:
        if len(trials) > 1:
            return [result for trial in trials for result in _trained([trial], stacking)]
        theirs = error if isinstance(error, (Wrong, UserCodeError)) else user_failure(error)
        told = str(theirs) if theirs else f"{type(error).__name__}: {error}"
        trial, took = trials[0], time.process_time() - start
        curves: dict[str, list[float]] = {name: [] for name in trial.readouts}
        return [Result(trial.key, "failed", dict.fromkeys(curves), curves, [], took, told, "plain")]
