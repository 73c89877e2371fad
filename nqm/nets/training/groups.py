"""Trials of one cell, trained in lockstep, each until it is done."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from .reports import report
from .rules import Method
from .stacks import Draws, Plain, Slopes, Stacked
from .tasks import Task
from .trial import RAW, SLACK, Result, Trial

DIVERGED_TRIAL = 1e3  # a trial has diverged when its loss is this many times the initial loss
TIMED_STEPS = 2  # number of steps that are timed to choose between stacked and plain training
TIMED_EXAMPLES = 512  # larger batches are timed with this number of examples


def evaluation_steps(growth: float, last: int) -> Iterator[int]:
    """Steps at which the metric is evaluated: 1, 2, ..., then each later by the fraction ``growth``; and the last step.

    >>> list(evaluation_steps(0.3, 20))
    [1, 2, 3, 4, 6, 8, 11, 15, 20]
    """
    t = 1
    while t < last:
        yield t
        t = max(t + 1, math.ceil(t * (1 + growth) - 1e-9))
    yield last


class Record:
    """The curves and the outcome of one trial so far."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.times, self.seconds, self.initial = trial, list[int](), 0.0, math.nan
        self.steps: dict[str, int | None] = dict.fromkeys(trial.readouts)
        self.curves: dict[str, list[float]] = {name: [] for name in trial.readouts}
        self.outcome, self.message = "", ""

    @property
    def waiting(self) -> list[str]:
        """The read-outs that have not reached the target yet."""
        return [name for name, steps in self.steps.items() if steps is None]

    def see(self, t: int, found: dict[str, tuple[float, float]]) -> None:
        """Record the metric and the loss after t steps of each read-out that was waiting, and whether the trial ends."""
        if t == 0:
            self.initial = found[RAW][1]
        self.times.append(t)
        for name, curve in self.curves.items():
            curve.append(found[name][0] if name in found else math.nan)
        grown = [loss for _, loss in found.values() if not loss <= DIVERGED_TRIAL * self.initial]
        for name, (value, _) in found.items():
            if value <= self.trial.target and not grown:
                self.steps[name] = t
        trial, waiting = self.trial, ", ".join(self.waiting)
        reached = " and ".join(name for name, steps in self.steps.items() if steps is not None)
        above = f"{waiting} above {trial.metric} {trial.target:g}"
        if not waiting:
            self.end("reached", f"reached {trial.metric} {trial.target:g} in {t:,} steps")
        elif grown and reached:
            self.end("out_of_steps", f"{reached} reached the target, then the loss grew to {grown[0]:.3g}")
        elif grown:
            self.end("diverged", f"the loss is {grown[0]:.3g} at step {t:,}, from {self.initial:.3g} at the start")
        elif t >= trial.max_steps:
            self.end("out_of_steps", f"{above} after {t:,} steps, the most allowed")
        elif t >= trial.steps_allowed:
            self.end("stopped", f"{above} at step {t:,}, well behind a better trial")

    def end(self, outcome: str, message: str) -> None:
        """Set how the trial ended."""
        self.outcome, self.message = outcome, message

    def result(self, how: str) -> Result:
        """What is sent back to the lab."""
        key, seen = self.trial.key, (self.steps, self.curves, self.times)
        return Result(key, self.outcome, *seen, self.seconds, self.message, how)


class Group:
    """Trials in lockstep. Each leaves the stack when it is done."""

    def __init__(self, task: Task, method: Method, trials: Sequence[Trial], stacking: str) -> None:
        first = trials[0]
        self.task, self.method, self.stacking, self.size = task, method, stacking, first.batch_size
        self.records = [Record(trial) for trial in trials]
        self.active = list(self.records)
        theta = torch.stack([task.start(trial.seed) for trial in trials])
        self.rule = method.start(task.network, theta, [t.settings for t in trials], [t.seed for t in trials])
        self.draws = Draws(task.network.examples, [t.seed for t in trials], task.replacement)
        self.gains = torch.tensor([1 - d for d in first.averages], dtype=theta.dtype, device=theta.device)[
            :, None, None
        ]
        self.averages = theta.repeat(len(first.averages), 1, 1)  # the average starts where the weights do
        self.metric = task.metric(first.metric)
        self.slopes = self._choose()
        pieces = math.ceil(self.size / self.slopes.chunk)
        self.how = f"stacked({len(trials)})" if isinstance(self.slopes, Stacked) else "plain"
        self.how += f", accumulated({pieces})" if pieces > 1 else ""

    def run(self) -> list[Result]:
        """Train until every trial is done, and return their results in order."""
        first, t = self.records[0].trial, 0
        clock = time.process_time()
        for until in (0, *evaluation_steps(first.growth, first.steps_allowed)):
            while t < until:
                self.step(t)
                t += 1
            self._evaluate(t)
            self._race(t)
            now = time.process_time()
            for record in self.active:
                record.seconds += (now - clock) / len(self.active)
            clock = now
            report(t, first.steps_allowed)
            self._leave()
            if not self.active:
                break
        return [record.result(self.how) for record in self.records]

    def step(self, t: int) -> None:
        """Take step t of every active trial, and update the averages."""
        self.rule.step(self.slopes, self.draws(self.size), t)
        if len(self.averages):
            # The recursion of `EMA`. It is repeated here so that one training serves all decays.
            self.averages.lerp_(self.rule.theta, self.gains)

    def _evaluate(self, t: int) -> None:
        """Evaluate the metric of each read-out that has not reached the target."""
        weights = dict(zip(self.records[0].trial.readouts, (self.rule.theta, *self.averages), strict=True))
        asked = [(row, name) for row, record in enumerate(self.active) for name in record.waiting]
        stack = torch.stack([weights[name][row] for row, name in asked])
        target = self.records[0].trial.target
        found = self.metric(stack, target, together=len(asked) > 1 and isinstance(self.slopes, Stacked))
        seen: list[dict[str, tuple[float, float]]] = [{} for _ in self.active]
        for (row, name), pair in zip(asked, found, strict=True):
            seen[row][name] = pair
        for record, pairs in zip(self.active, seen, strict=True):
            record.see(t, pairs)

    def _race(self, t: int) -> None:
        """Stop trials that are well behind another of the same seed, which reached the target, in every read-out.

        Trials of one seed compete for the best settings. Trials of different seeds measure one setting, so all are needed.
        """
        for seed in {record.trial.seed for record in self.active}:
            rivals = [record for record in self.records if record.trial.seed == seed]
            first = [min(math.inf if (s := r.steps[name]) is None else s for r in rivals) for name in rivals[0].steps]
            if SLACK * max(first) <= t:
                for record in rivals:
                    if not record.outcome:
                        record.end("stopped", f"{', '.join(record.waiting)} well behind another trial at step {t:,}")

    def _leave(self) -> None:
        """Remove the trials that are done, and choose again between stacked and plain training for the others."""
        rows = [row for row, record in enumerate(self.active) if not record.outcome]
        some_left = 0 < len(rows) < len(self.active)
        self.active = [self.active[row] for row in rows]
        if some_left:
            self.rule.keep(rows)
            self.draws.keep(rows)
            self.averages = self.averages[:, rows]
            self.slopes = self._choose()

    def _choose(self) -> Slopes:
        """Choose between one vectorised pass and one pass after another."""
        stacked = len(self.active) > 1 and self.stacking != "never" and self.method.stacks
        if stacked and self.stacking == "auto":
            stacked = stack_pays(self.task, self.method, [record.trial for record in self.active])
        return (Stacked if stacked else Plain)(self.task.network)


_PAYS: dict[tuple[object, ...], bool] = {}


def stack_pays(task: Task, method: Method, trials: Sequence[Trial]) -> bool:
    """Whether a vectorised step of these trials takes less CPU time than one step after another.

    This is measured once per process for a workload, its options, the optimizer, the batch size and the number of trials, which
    is rounded up to a power of two. A network that cannot be vectorised is trained plainly.
    """
    power = 1 << (len(trials) - 1).bit_length()
    key = (task.name, str(task.options), method.name, trials[0].batch_size, power)
    if key not in _PAYS:
        size = min(trials[0].batch_size, TIMED_EXAMPLES)
        rows = [replace(trials[k % len(trials)], batch_size=size) for k in range(power)]
        try:
            _PAYS[key] = _seconds(task, method, rows, "always") < _seconds(task, method, rows, "never")
        except (RuntimeError, NotImplementedError, ValueError):  # torch cannot vectorise some operation
            _PAYS[key] = False
    return _PAYS[key]


def _seconds(task: Task, method: Method, trials: Sequence[Trial], stacking: str) -> float:
    """The shortest CPU time of a step of these trials."""
    group, times = Group(task, method, trials, stacking), []
    for t in range(1 + TIMED_STEPS):  # the first one warms up
        start = time.process_time()
        group.step(t)
        times.append(time.process_time() - start)
    return min(times[1:])
