"""Trials of a study on real networks: the lab's worker, ``nqm.nets.training.worker:run_trials``.

Training starts from the workload's fresh model. Weights at the start and the order of examples depend on the trial's seed alone,
so that a trial ends the same, to rounding, whether it is trained alone or in a stack with others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cache
from typing import Literal, get_args

import torch

from ...text.imports import UserCodeError, user_failure
from ...types import Wrong
from .groups import Group
from .rules import method_of
from .tasks import task_of
from .trial import METRICS, Result, Trial

HELD_BYTES = 2**30  # freed memory that a process keeps for its next step
NEVER_BELOW_ZERO = ("categorical", "gaussian", "bernoulli")  # likelihoods whose loss is never below zero
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # as malloc.h numbers them
Stacking = Literal["auto", "always", "never"]


def run_trials(trials: Sequence[Trial], *, stacking: Stacking = "auto") -> list[Result]:
    """Train each trial until its read-outs reach the target, or it diverges or is out of steps; results in the same order.

    Parameters
    ----------
    trials : of one cell, that differ in settings and seed; others are trained in groups of their own.
    stacking : "always" takes the gradients of a group in one vectorised pass where their optimizer allows it, "never" one after
        another, "auto" whichever is faster by the clock.

    Trials that go in step race: once some trial of the same seed has come to the target with each read-out, those that are
    not there half as many steps later stop.

    An exception in a trial is its outcome "failed", with a message. PyTorch runs on one thread from here on: many processes with
    one thread each are faster than one with many, and more threads than free cores are slower by far. Memory that a step has freed
    is kept for the next (`keep_memory`).
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


run_trials.races = True  # type: ignore[attr-defined]  # the lab need not


@cache
def keep_memory() -> None:
    """Tell glibc to hold on to freed memory: giving it back after every step and fetching it anew costs up to half the time.

    Elsewhere than on glibc nothing is done.
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
    """Refuse, before any training, what a trial asks for and cannot have: each with a sentence."""
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
    if not task.replacement and trial.batch_size > task.network.examples:
        given = f"batch_size is {trial.batch_size:,} and there are {task.network.examples:,} examples"
        advice = "take smaller ones, or draw with replacement"
        raise Wrong(f"{given}: shuffled epochs have no such batch; {advice}", argument="batch_size")
    task.metric(trial.metric)


def _groups(trials: Sequence[Trial]) -> dict[str, list[int]]:
    """Places of the trials that can go in step: alike in all but settings and seed; one by one where they cannot."""
    found: dict[str, list[int]] = {}
    for place, trial in enumerate(trials):
        try:
            method = method_of(trial.optimizer)
        except Wrong:  # which the trial will say by itself
            method = None
        likeness = str(place)
        if method and method.stacks:
            alike = {name: trial.settings.get(name) for name in method.alike}
            likeness = repr(trial.to_dict() | {"settings": alike, "seed": None})
        found.setdefault(likeness, []).append(place)
    return found


def _trained(trials: list[Trial], stacking: str) -> list[Result]:
    """Results of trials that go in step; where that fails they are tried one by one, and those that fail say why."""
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
