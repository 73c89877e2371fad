"""Record what nqm answers, through its public names and its command line, and compare two such records.

``python record.py write OUT.json`` asks thousands of questions of the version of nqm that is imported, and writes
down every answer under a name such as ``loss/heavy_ball/t=100/signal``. ``python record.py compare OLD.json NEW.json``
prints what differs beyond rounding. The script is meant to run unchanged before and after the library is restructured,
so it imports nothing but public names, and passes arguments by keyword wherever their order may change.

Nothing that depends on the clock or on a path is recorded. Sentences are kept in a group of their own, ``message``:
their wording may change, so differences are printed and do not count.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # Sums that several threads share are rounded in another order.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import contextlib
import enum
import inspect
import json
import math
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

import nqm
from nqm import (
    EMA,
    SGD,
    Adam,
    AdamW,
    Axis,
    Clipped,
    DiagonalPreconditioned,
    DriftingPreconditioned,
    EstimatedPreconditioned,
    HeavyBall,
    LeastSquares,
    Lookahead,
    Nesterov,
    NormalisedSGD,
    Optimizer,
    Polyak,
    Preconditioned,
    Quadratic,
    RMSProp,
    Run,
    Schedule,
    ScheduleFree,
    Sign,
    Spectrum,
    Sweep,
    constant,
    cosine,
    exponential,
    free,
    linear,
    optimal_schedule,
    phase_map,
    step,
    steps_to_target,
    sweep,
    tune,
    warmup,
    wsd,
)
from nqm.cli import main as program

Value = bool | int | float | str | None
Values = dict[str, Value]

MESSAGE = "message"
WORDS = frozenset(
    {
        "message",
        "messages",
        "sentence",
        "sentences",
        "notes",
        "statement",
        "source",
        "measured",
        "what",
        "reason",
        "error",
    }
)
"""Keys whose text is a sentence for a reader."""
CLOCK = frozenset({"seconds", "gradient_seconds", "product_cost", "product_cost_together", "store", "runner"})
"""Keys whose values depend on the clock, on a path or on the process that ran."""
MOST = 12  # Entries of a list that are kept: the first, the last, and others evenly between them.
NOTHING = 1e-30  # What is left of a signal after many steps, and the rounding of so many products with it.
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

LINEAR: dict[str, Optimizer] = {
    "sgd": SGD(0.7),
    "heavy_ball": HeavyBall(0.3, 0.9),
    "heavy_ball_plain": HeavyBall(0.6, 0.0),
    "nesterov": Nesterov(0.25, 0.85),
    "schedule_free": ScheduleFree(0.8, 0.9),
    "preconditioned_sgd": Preconditioned(SGD(0.6), 0.5),
    "preconditioned_heavy_ball": Preconditioned(HeavyBall(0.2, 0.8), 0.75),
    "preconditioned_preconditioned": Preconditioned(Preconditioned(SGD(0.4), 0.5), 0.25),
    "ema_sgd": EMA(SGD(0.6), 0.9),
    "ema_heavy_ball": EMA(HeavyBall(0.15, 0.9), 0.8),
    "ema_nesterov": EMA(Nesterov(0.2, 0.7), 0.95),
    "ema_ema": EMA(EMA(SGD(0.5), 0.7), 0.8),
    "ema_preconditioned": EMA(Preconditioned(HeavyBall(0.1, 0.6), 0.5), 0.75),
    "ema_lookahead": EMA(Lookahead(SGD(0.5), 0.6, 4), 0.8),
    "ema_schedule_free": EMA(ScheduleFree(0.5, 0.8), 0.7),
    "ema_polyak": EMA(Polyak(SGD(0.5), 6), 0.6),
    "polyak_step": Polyak(SGD(0.4), 10),
    "polyak_all": Polyak(HeavyBall(0.2, 0.7), 0),
    "polyak_fraction": Polyak(SGD(0.9), 0.5),
    "polyak_fraction_momentum": Polyak(Nesterov(0.2, 0.8), 0.3),
    "polyak_lookahead": Polyak(Lookahead(SGD(0.6), 0.5, 3), 5),
    "polyak_schedule_free": Polyak(ScheduleFree(0.6, 0.7), 4),
    "polyak_polyak": Polyak(Polyak(SGD(0.5), 2), 5),
    "lookahead_sgd": Lookahead(SGD(0.6), 0.5, 5),
    "lookahead_heavy_ball": Lookahead(HeavyBall(0.1, 0.8), 0.7, 6),
    "lookahead_nesterov": Lookahead(Nesterov(0.2, 0.8), 0.5, 5),
    "lookahead_lookahead": Lookahead(Lookahead(SGD(0.4), 0.6, 2), 0.8, 3),
    "lookahead_ema": Lookahead(EMA(HeavyBall(0.2, 0.5), 0.5), 0.6, 4),
    "lookahead_every_step": Lookahead(SGD(0.8), 0.4, 1),
    "lookahead_polyak": Lookahead(Polyak(SGD(0.5), 3), 0.6, 4),
    "lookahead_schedule_free": Lookahead(ScheduleFree(0.5, 0.6), 0.5, 3),
    "preconditioned_ema": Preconditioned(EMA(Nesterov(0.2, 0.6), 0.8), 0.5),
    "preconditioned_lookahead": Preconditioned(Lookahead(HeavyBall(0.1, 0.7), 0.6, 4), 0.25),
    "preconditioned_polyak": Preconditioned(Polyak(HeavyBall(0.1, 0.6), 0.4), 0.5),
    "preconditioned_schedule_free": Preconditioned(ScheduleFree(0.4, 0.8), 0.5),
}
"""Every linear optimizer once, nested ones too; all are stable for curvatures up to 1."""

SLOW: dict[str, Optimizer] = {
    "sgd": SGD(0.2),
    "heavy_ball": HeavyBall(0.05, 0.8),
    "nesterov": Nesterov(0.05, 0.7),
    "ema": EMA(SGD(0.2), 0.9),
    "lookahead": Lookahead(SGD(0.2), 0.5, 4),
    "preconditioned": Preconditioned(SGD(0.05), 0.5),
    "polyak_step": Polyak(SGD(0.2), 5),
    "polyak_fraction": Polyak(SGD(0.2), 0.5),
}
"""Linear optimizers that stay stable on least squares at small batches."""

SAMPLED: dict[str, Optimizer] = {
    "adam": Adam(0.05, 0.9),
    "adam_short_memory": Adam(0.02, 0.5, 0.9, 1e-3),
    "adamw": AdamW(0.04, 0.8, 0.99, 1e-6, 0.1),
    "rmsprop": RMSProp(0.02, 0.95),
    "rmsprop_momentum": RMSProp(0.01, 0.9, 1e-4, 0.7),
    "sign": Sign(0.03),
    "signum": Sign(0.02, 0.9),
    "normalised_sgd": NormalisedSGD(0.2),
    "normalised_momentum": NormalisedSGD(0.1, 0.8),
    "clipped_sgd": Clipped(SGD(0.5), 0.7),
    "clipped_heavy_ball": Clipped(HeavyBall(0.2, 0.8), 1.1),
    "clipped_adam": Clipped(Adam(0.03, 0.9), 0.5),
    "diagonal_heavy_ball": DiagonalPreconditioned(HeavyBall(0.2, 0.7), 0.5),
    "drifting_before": DriftingPreconditioned(HeavyBall(0.2, 0.8), 0.5, 0.5, 7),
    "drifting_after": DriftingPreconditioned(HeavyBall(0.2, 0.8), 0.5, 0.5, 7, "after"),
    "estimated_sgd": EstimatedPreconditioned(SGD(0.3), 0.5, 4),
    "ema_adam": EMA(Adam(0.05, 0.9), 0.8),
    "polyak_sign": Polyak(Sign(0.05), 4),
    "lookahead_adam": Lookahead(Adam(0.05, 0.8), 0.5, 3),
    "preconditioned_sign": Preconditioned(Sign(0.05, 0.5), 0.5),
    "polyak_fraction_rmsprop": Polyak(RMSProp(0.02), 0.4),
}
"""Optimizers that are not linear systems, and are sampled."""

SCHEDULES: dict[str, Schedule] = {
    "cosine": cosine(300),
    "cosine_end": cosine(200, end=0.1),
    "step": step(300, 0.3, at=[100, 200]),
    "wsd": wsd(300, warmup_steps=30, decay_steps=90),
    "exponential": exponential(300, end=0.01),
    "warmup_linear": warmup(50) + linear(250),
    "batch_size": step(300, 2.0, at=[100, 200]).on("batch_size"),
    "momentum": linear(300, start=0.5, end=1.0).on("momentum"),
    "lr_and_batch_size": constant(300, 0.5) & step(300, 4.0, at=[150]).on("batch_size"),
}

STUDY = """\
[study]
workload = "digits"
options = {start = 300}
metric = "train_loss"
target = 0.1
batch_sizes = [32, 256]
trials = 4
round = 2
seeds = 3
max_steps = 400

[optimizers.SGD]
lr = {low = 0.1, high = 2}

[optimizers.HeavyBall]
lr = {low = 0.01, high = 0.5}
momentum = {low = 0.5, high = 0.95}
averages = [0.8, 0.95]
"""
"""A study that begins at the checkpoint of the fit, so that predicted and measured steps can be compared."""

OTHERS = """\
[study]
workload = "digits"
options = {examples = 500}
metric = "val_error"
target = 0.2
batch_sizes = [64]
trials = 2
seeds = 1
max_steps = 60

[optimizers.Adam]
lr = {low = 0.003, high = 0.1}

[optimizers.KFAC]
lr = {low = 0.03, high = 1}
damping = {low = 3e-3, high = 0.3}
momentum = 0.5

[optimizers.Muon]
lr = {low = 0.003, high = 0.1}
momentum = 0.9

[optimizers.Adagrad]
lr = {low = 0.01, high = 0.3}
"""
"""A study of optimizers of every other kind: nqm's own, K-FAC, and those of PyTorch."""


class Record:
    """Values by name; sentences move into the group of messages, and what the clock decides is left out."""

    def __init__(self) -> None:
        self.values: Values = {}

    def add(self, name: str, data: Any) -> None:
        """Keep every number and every text in ``data``, however deep, under ``name``."""
        for full, value in flattened(name, data):
            spoken = isinstance(value, str) and not WORDS.isdisjoint(full.split("/"))
            self._keep(f"{MESSAGE}/{full}" if spoken else full, value)

    def attempt(self, name: str, ask: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Keep what a function answers, or the kind of error that it raises instead."""
        try:
            self.add(name, ask(*arguments, **options))
        except (ValueError, TypeError) as error:
            self.add(name, {"raises": type(error).__name__, "error": str(error)})

    def _keep(self, name: str, value: Value) -> None:
        if name in self.values:
            raise ValueError(f"two values are called {name!r}")
        self.values[name] = value


def flattened(name: str, data: Any) -> Iterator[tuple[str, Value]]:
    """Every leaf of nested data with its full name; a long list is thinned out, and its length is kept."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key not in CLOCK:
                yield from flattened(f"{name}/{key}", value)
    elif isinstance(data, list | tuple | np.ndarray):
        if len(data) > MOST:
            yield f"{name}/length", len(data)
        for i in kept(len(data)):
            yield from flattened(f"{name}/{i}", data[i])
    else:
        yield name, leaf(data)


def kept(length: int) -> list[int]:
    """The places of a list that are kept."""
    if length <= MOST:
        return list(range(length))
    return [round(i * (length - 1) / (MOST - 1)) for i in range(MOST)]


def leaf(value: Any) -> Value:
    """A value as JSON has it; what is not finite becomes text."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Optimizer):
        return str(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r:.80} is neither a number nor text")


def paper() -> Quadratic:
    """The problem of the paper, 10,000 modes."""
    return Quadratic(Spectrum.power_law(10_000))


def thousand() -> Quadratic:
    """The same with 1,000 modes, for questions that are asked of every optimizer."""
    return Quadratic(Spectrum.power_law(1000))


def uneven() -> Spectrum:
    """A small spectrum in which curvature, noise, start and multiplicity all differ."""
    return Spectrum([0.8, 0.5, 0.2, 0.05], c=[0.3, 1.0, 0.1, 0.7], s=[1.0, 2.0, 0.5, 3.0], count=[1, 2, 1, 10])


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name."""
    return name in inspect.signature(function).parameters


def stability_limit(problem: Any, optimizer: Optimizer, batch_size: float) -> float:
    """The largest stable learning rate; `Quadratic` used not to ask for a batch size."""
    if takes(problem.stability_limit, "batch_size"):
        return problem.stability_limit(optimizer, batch_size=batch_size)
    return problem.stability_limit(optimizer)


def total_loss(problem: Any, optimizer: Optimizer, t: int, batch_size: float) -> float:
    """The loss after t steps from `losses`, which used to take one time and, on `Quadratic`, no batch size."""
    if takes(problem.losses, "times"):
        found = problem.losses(optimizer, times=[t], batch_size=batch_size)
    elif takes(problem.losses, "batch_size"):
        found = problem.losses(optimizer, t=t, batch_size=batch_size)
    else:
        found = problem.losses(optimizer, t=t)
    total = found[0] + found[1] / batch_size if isinstance(found, tuple) else found
    return float(np.ravel(total)[-1])


def points_of(run: Run) -> dict[str, Any]:
    """A run by its steps: the parts of its loss, or the standard error where it is sampled."""
    names = ("loss", "signal", "noise", "noise_scale", "curvature_noise_scale", "stderr")
    columns = {name: getattr(run, name) for name in names if getattr(run, name) is not None}
    columns |= {f"quantile_{level:g}": band for level, band in (run.quantiles or {}).items()}
    points = {f"t={t}": {name: column[i] for name, column in columns.items()} for i, t in enumerate(run.steps)}
    return points | {"floor": run.floor, "outcome": run.outcome, "message": run.message}


def record_loss(record: Record) -> None:
    """Losses over steps and floors of every linear optimizer."""
    problem, large, odd = thousand(), paper(), Quadratic(uneven())
    for name, row in LINEAR.items():
        record.add(f"loss/{name}", points_of(problem.run(row, batch_size=64, steps=[1, 10, 100, 1000])))
        record.add(f"loss/uneven/{name}/losses", total_loss(odd, row, 37, 8))
        record.add(f"loss/uneven/{name}/floor", odd.floor(row, batch_size=8))
    for name in ("sgd", "heavy_ball", "ema_sgd", "lookahead_sgd"):
        run = large.run(LINEAR[name], batch_size=256, steps=[0, 1000, 10**5])
        record.add(f"loss/paper/{name}", points_of(run))
        record.add(
            f"loss/paper/{name}/bands", {"edges": run.band_edges, "signal": run.band_signal, "noise": run.band_noise}
        )
        run = large.run(LINEAR[name], batch_size=math.inf, steps=[0, 1000, 10**5])
        record.add(f"loss/no_noise/{name}", points_of(run))
    record.add("loss/diverges", points_of(problem.run(SGD(2.5), batch_size=64, steps=[1, 10, 100])))
    record.add("loss/grid/log", problem.run(SGD(0.5), batch_size=64, steps=5000, points=20).steps)
    record.add("loss/grid/linear", problem.run(SGD(0.5), batch_size=64, steps=5000, points=20, grid="linear").steps)


def record_scheduled(record: Record) -> None:
    """Losses and first hits under schedules of the learning rate, the momentum and the batch size."""
    problem = thousand()
    for name, schedule in SCHEDULES.items():
        record.add(f"scheduled/{name}/pieces", schedule.to_dict())
        for row in ("sgd", "heavy_ball", "nesterov", "ema_sgd", "lookahead_heavy_ball", "polyak_step", "schedule_free"):
            run = problem.run(LINEAR[row], batch_size=64, steps=[10, 150, 300, 500], schedule=schedule)
            record.add(f"scheduled/{name}/{row}", points_of(run))
            record.add(f"scheduled/{name}/{row}/hit", hit_of(problem, row, 64, 0.3, schedule=schedule, max_steps=2000))
    run = problem.run(SGD(0.5), batch_size=64, steps=[10, 100], schedule=lambda t: 1 / (1 + 0.1 * t))
    record.add("scheduled/function", points_of(run))


def hit_of(
    problem: Quadratic | LeastSquares, row: str | Optimizer, batch_size: float, target: float, **options: Any
) -> dict[str, Any]:
    """The first hit of an optimizer, or of the row of this name."""
    optimizer = LINEAR[row] if isinstance(row, str) else row
    hit = steps_to_target(problem, optimizer, batch_size=batch_size, target=target, **options)
    return {"steps": hit.steps, "outcome": hit.outcome, "loss": hit.loss, "message": hit.message}


def record_hits(record: Record) -> None:
    """First hits and settled ones, and every way in which there is none."""
    problem, large, one = thousand(), paper(), Quadratic(Spectrum([1.0]))
    for name in LINEAR:
        for target in (1.5, 0.1, 0.003):
            for until in ("first", "settled"):
                full = f"hit/{name}/target={target:g}/{until}"
                record.attempt(full, hit_of, problem, name, 256, target, until=until, max_steps=4000)
    swings = HeavyBall(0.05, 0.99)
    for target in (0.1, 1e-3, 1e-8):
        for until in ("first", "settled"):
            found = hit_of(one, swings, math.inf, target, until=until)
            record.add(f"hit/swings/target={target:g}/{until}", found)
    record.add("hit/paper/sgd", hit_of(large, SGD(0.1), 64, 0.1))
    record.add("hit/paper/two_steps", hit_of(large, SGD(1.99), 16, 4.2))
    record.add("hit/paper/ema", hit_of(large, EMA(SGD(0.5), 0.999), 64, 0.05))
    record.add("hit/paper/long", hit_of(large, SGD(0.001), 64, 0.01))
    record.add("hit/diverges", hit_of(problem, SGD(2.5), 64, 0.1))
    record.add("hit/above_floor", hit_of(problem, SGD(1.0), 4, 0.01))
    record.add("hit/out_of_steps", hit_of(problem, SGD(0.1), 1024, 0.01, max_steps=10))
    record.add("hit/at_once", hit_of(problem, SGD(0.1), 64, 100.0))


def record_stability(record: Record) -> None:
    """Largest stable learning rates of every linear optimizer."""
    problem, odd = thousand(), Quadratic(uneven())
    for name, row in LINEAR.items():
        record.attempt(f"stability/{name}", stability_limit, problem, row, 64)
        record.attempt(f"stability/uneven/{name}", stability_limit, odd, row, 64)
    record.add("stability/free", stability_limit(problem, HeavyBall(momentum=0.5), 64))


def record_tuned(record: Record) -> None:
    """Tuned settings at several batch sizes, for a target, for a number of steps and for a number of examples."""
    problem = paper()
    for name, optimizer in {
        "sgd": SGD(),
        "heavy_ball": HeavyBall(),
        "nesterov": Nesterov(),
        "ema_sgd": EMA(SGD()),
    }.items():
        for size in (16, 1024, 2**16, math.inf):
            found = tune(problem, optimizer, batch_size=size, target=0.01)
            record.add(f"tune/{name}/B={size:g}", found.to_dict())
        record.add(f"tune/{name}/steps", tune(problem, optimizer, batch_size=256, steps=2000).to_dict())
        record.add(f"tune/{name}/examples", tune(problem, optimizer, batch_size=256, examples=10**6).to_dict())
    others = {
        "preconditioned": Preconditioned(SGD(), power=0.5),
        "preconditioned_heavy_ball": Preconditioned(HeavyBall(momentum=0.9), power=0.25),
        "lookahead": Lookahead(SGD(), alpha=0.5, period=5),
        "fixed_momentum": HeavyBall(momentum=0.9),
    }
    for name, optimizer in others.items():
        for size in (64, 4096):
            record.add(f"tune/{name}/B={size:g}", tune(problem, optimizer, batch_size=size, target=0.01).to_dict())
    walked = {"polyak": Polyak(SGD(), start=0.5), "schedule_free": ScheduleFree(momentum=0.9)}
    for name, optimizer in walked.items():
        for size in (64, 1024):
            record.add(f"tune/{name}/B={size:g}", tune(thousand(), optimizer, batch_size=size, target=0.1).to_dict())
    record.add("tune/never", tune(thousand(), SGD(), batch_size=1, target=1e-6, max_steps=1000).to_dict())


def record_optimal(record: Record) -> None:
    """Best schedules of the learning rate and of the batch size."""
    problem = paper()
    for size in (64, 1024):
        for pieces in (2, 10, 50):
            for name, goal in {"target": {"target": 0.01}, "steps": {"steps": 2000}}.items():
                found = optimal_schedule(problem, SGD(), batch_size=size, pieces=pieces, **goal)
                record.add(f"optimal/sgd/B={size}/pieces={pieces}/{name}", schedule_of(found))
    for pieces in (2, 6):
        found = optimal_schedule(problem, SGD(), batch_size=1, examples=10**5, pieces=pieces, on="batch_size")
        record.add(f"optimal/batch_size/pieces={pieces}", schedule_of(found))
    found = optimal_schedule(problem, SGD(), batch_size=64, examples=10**5, pieces=4)
    record.add("optimal/sgd/examples", schedule_of(found))
    found = optimal_schedule(thousand(), HeavyBall(), batch_size=256, target=0.1, pieces=3)
    record.add("optimal/heavy_ball", schedule_of(found))


def schedule_of(found: Any) -> dict[str, Any]:
    """What `optimal_schedule` answers, whatever its class is called."""
    names = ("optimizer", "batch_size", "steps", "loss", "outcome", "message")
    pieces = {name: getattr(found.schedule, name) for name in ("lengths", "lr", "batch_size")}
    return {name: getattr(found, name) for name in names} | {"schedule": pieces}


def record_sweeps(record: Record) -> None:
    """Sweeps over batch size: tables, critical batch sizes, regimes and bounds."""
    sizes = [2.0**e for e in range(2, 21, 3)]
    for name, optimizer in {
        "sgd": SGD(),
        "heavy_ball": HeavyBall(),
        "ema_sgd": EMA(SGD()),
        "preconditioned": Preconditioned(SGD(), power=0.5),
    }.items():
        record.add(f"sweep/{name}", sweep_of(sweep(paper(), optimizer, target=0.01, batch_sizes=sizes)))
    record.add("sweep/uneven", sweep_of(sweep(Quadratic(uneven()), SGD(), target=0.05, batch_sizes=[1, 8, 64])))
    hard = sweep(thousand(), SGD(), target=1e-4, batch_sizes=[1, 4, 2**20], max_steps=10**5)
    record.add("sweep/some_fail", sweep_of(hard))


def sweep_of(found: Sweep) -> dict[str, Any]:
    """A sweep in full."""
    return {
        "table": found.table(),
        "smallest_steps": found.smallest_steps,
        "critical": {name: found.critical_batch_size(name) for name in ("20%", "2x", "ratio", "knee")},
        "regimes": found.regimes(),
        "perfect_scaling": found.perfect_scaling(),
        "bounds": found.bounds(),
    }


def record_maps(record: Record) -> None:
    """Maps of steps over two settings, and the edge of stability in them."""
    rate, momentum = Axis("lr", 0.01, 4, 7), Axis("momentum", 0, 0.99, 5)
    found = phase_map(paper(), HeavyBall(), x=rate, y=momentum, target=0.05, batch_size=1024)
    record.add("map/heavy_ball", map_of(found))
    found = phase_map(paper(), SGD(), x=rate, y=Axis("batch_size", 4, 2**16, 4), target=0.05)
    record.add("map/sgd", map_of(found))
    optimizer, period = Lookahead(SGD(), alpha=0.5), Axis("period", 1, 8, 4)
    found = phase_map(thousand(), optimizer, x=rate, y=period, target=0.1, batch_size=256)
    record.add("map/lookahead", map_of(found))


def map_of(found: Any) -> dict[str, Any]:
    """A map cell by cell."""
    cells = {
        f"y={j}/x={i}": {"steps": found.steps[j, i], "outcome": found.outcomes[j][i]}
        for j, i in np.ndindex(found.steps.shape)
    }
    axes = {"x": found.x.values, "y": found.y.values}
    return {"cells": cells, "best": found.best(), "boundary": found.boundary, "axes": axes}


def record_least_squares(record: Record) -> None:
    """The same questions on least squares, whose noise is that of minibatches."""
    problem, odd = LeastSquares(Spectrum.power_law(200), label_noise=1.0), LeastSquares(uneven(), label_noise=0.25)
    for name, row in SLOW.items():
        lead = f"least_squares/{name}"
        record.add(lead, points_of(problem.run(row, batch_size=8, steps=[1, 10, 100, 400])))
        record.add(f"{lead}/uneven", points_of(odd.run(row, batch_size=32, steps=[1, 10, 100])))
        record.add(f"{lead}/losses", total_loss(problem, row, 50, 8))
        for size in (2, 8, 64):
            record.attempt(f"{lead}/stability/B={size}", stability_limit, problem, row, size)
        for until in ("first", "settled"):
            record.attempt(f"{lead}/hit/{until}", hit_of, problem, row, 64, 0.5, until=until, max_steps=20_000)
    record.add("least_squares/diverges", hit_of(problem, SGD(1.5), 2, 0.5))
    run = problem.run(SGD(0.5), batch_size=8, steps=[50, 300], schedule=warmup(50) + cosine(250))
    record.add("least_squares/scheduled", points_of(run))
    record.add("least_squares/tune/sgd", tune(problem, SGD(), batch_size=16, target=0.1).to_dict())
    record.add("least_squares/tune/heavy_ball", tune(problem, HeavyBall(), batch_size=64, target=0.1).to_dict())
    record.add("least_squares/sweep", sweep_of(sweep(problem, SGD(), target=0.1, batch_sizes=[4, 64, 1024])))


def record_samples(record: Record) -> None:
    """Sampled runs by seed: every optimizer that needs it, laws of noise, rotations, fixed starts, minibatches."""
    problem, rows = Quadratic(Spectrum.power_law(30)), LINEAR | SAMPLED
    for name in (*SAMPLED, "sgd", "ema_nesterov", "polyak_fraction"):
        record.add(f"sample/{name}", sampled(problem, rows[name]))
    for law in ("gaussian", "rademacher", "laplace", "exponential", "student_t(5)", "cauchy"):
        record.add(f"sample/noise/{law}", sampled(problem, HeavyBall(0.2, 0.8), noise=law, seed=3))
    for name in ("sgd", "heavy_ball", "preconditioned_sgd"):
        record.add(f"sample/rotation/{name}", sampled(problem, rows[name], rotation=5, seed=1))
    for name in ("adam", "sign", "diagonal_heavy_ball", "estimated_sgd"):
        record.add(f"sample/rotation/{name}", sampled(problem, rows[name], rotation="random", seed=2))
    record.add("sample/fixed", sampled(problem, Adam(0.05, 0.9), start="fixed", quantiles=(0.25, 0.75)))
    record.add("sample/scheduled", sampled(problem, Adam(0.05, 0.9), schedule=cosine(40)))
    record.add("sample/own_noise", sampled(problem, SGD(0.3), noise=lambda rng, shape: rng.standard_normal(shape)))
    squares = LeastSquares(Spectrum.power_law(30), label_noise=0.5)
    for name, row in {"sgd": SGD(0.1), "adam": Adam(0.05, 0.9), "heavy_ball": HeavyBall(0.03, 0.8)}.items():
        record.add(f"sample/least_squares/{name}", sampled(squares, row))
    record.add("sample/least_squares/features", sampled(squares, SGD(0.1), features="rademacher", rotation=1))
    record_sampled_searches(record)


def sampled(problem: Quadratic | LeastSquares, optimizer: Optimizer, **options: Any) -> dict[str, Any]:
    """A short sampled run of a few replicas."""
    return points_of(problem.sample(optimizer, batch_size=4, steps=[1, 10, 40], replicas=48, **options))


def record_sampled_searches(record: Record) -> None:
    """Quasi-random searches over optimizers that are not linear."""
    problem, small = Quadratic(Spectrum.power_law(100)), Quadratic(Spectrum.power_law(30))
    record.add("sample/tune/adam", tune(problem, Adam(beta1=free), batch_size=1024, target=0.1).to_dict())
    record.add("sample/tune/adam_seed", tune(problem, Adam(beta1=0.9), batch_size=256, target=0.2, seed=1).to_dict())
    found = tune(small, Sign(), batch_size=64, steps=50, noise="student_t(5)", seed=2)
    record.add("sample/tune/sign", found.to_dict())
    found = sweep(small, Clipped(SGD(), norm=1.0), target=0.3, batch_sizes=[16, 256])
    record.add("sample/sweep/clipped", sweep_of(found))


def record_spectra(record: Record) -> None:
    """Spectra as they are made, binned, compressed, saved and read."""
    spectra = {
        "power_law_1e4": Spectrum.power_law(10**4),
        "power_law_1e5": Spectrum.power_law(10**5),
        "power_law_1e12": Spectrum.power_law(10**12),
        "steep": Spectrum.power_law(10**12, exponent=1.2, noise_exponent=0.5, start_exponent=0.3),
        "scaled": Spectrum.power_law(500, scale=2.0, noise=0.5, start=3.0),
        "uneven": uneven(),
        "binned": Spectrum.power_law(10**4).binned(100),
        "compressed": Spectrum.power_law(10**4).compress(),
        "compressed_little": Spectrum.power_law(10**4).compress(1e-6),
        "compressed_smooth": Spectrum.power_law(10**4).compress(1e-6, swings=False, head=32),
        "compressed_wide": Spectrum.power_law(10**12).compress(1e-7),
    }
    for name, spectrum in spectra.items():
        record.add(f"spectrum/{name}", spectrum_of(spectrum))
    for file in ("spectrum.json", "spectrum.npz"):
        uneven().save(file)
        record.add(f"spectrum/read/{Path(file).suffix[1:]}", spectrum_of(Spectrum.load(file)))
    Path("spectrum.csv").write_text("h,c,count\n1.0,0.5,1\n0.25,0.1,3\n")
    record.add("spectrum/read/csv", spectrum_of(Spectrum.load("spectrum.csv")))


def spectrum_of(spectrum: Spectrum) -> dict[str, Any]:
    """A spectrum by its sums and by some of its modes."""
    columns = {name: getattr(spectrum, name) for name in ("h", "c", "s", "count")}
    about = {
        "dim": spectrum.dim,
        "trace": spectrum.trace,
        "initial_loss": spectrum.initial_loss,
        "nodes": len(spectrum),
    }
    return about | {"summary": spectrum.summary()} | columns


COMMANDS: dict[str, list[str]] = {
    "curve": ["curve", "HeavyBall(0.1, momentum=0.9)", "-b", "256", "--steps", "2000", "--points", "10"],
    "curve_scheduled": [
        *("curve", "SGD(1)", "-b", "1024", "--steps", "1000", "--schedule", "warmup(100) + cosine(900)"),
        *("--points", "8", "--grid", "linear"),
    ],
    "curve_least_squares": [
        *("curve", "SGD(0.5)", "-b", "4", "--steps", "100", "--problem", "least_squares", "--label-noise", "0.5"),
        *("--points", "6"),
    ],
    "curve_sampled": [
        *("curve", "Adam(0.01, 0.9)", "-b", "256", "--steps", "60", "--spectrum", "power_law(100)", "--points", "6"),
        *("--noise", "student_t(5)", "--seed", "4", "--replicas", "16"),
    ],
    "curve_beside": [
        *("curve", "SGD(0.5)", "-b", "16", "--steps", "50", "--spectrum", "power_law(50)", "--points", "5"),
        *("--rotation", "7", "--replicas", "16"),
    ],
    "curve_diverges": ["curve", "SGD(3)", "-b", "16", "--steps", "50", "--points", "4"],
    "steps": ["steps", "SGD(0.1)", "-b", "64", "--target", "0.1"],
    "steps_settled": [
        *("steps", "HeavyBall(0.05, momentum=0.99)", "-b", "inf", "--target", "1e-3", "--until", "settled"),
        *("--spectrum", "Spectrum([1])"),
    ],
    "steps_scheduled": ["steps", "SGD(1)", "-b", "2^10", "--target", "0.1", "--schedule", "warmup(100) + linear(4900)"],
    "steps_never": ["steps", "SGD(1)", "-b", "1", "--target", "1e-3"],
    "tune": ["tune", "HeavyBall", "-b", "1024", "--target", "0.01"],
    "tune_examples": ["tune", "EMA(SGD)", "-b", "64", "--examples", "1e6"],
    "tune_steps": ["tune", "HeavyBall(momentum=0.9)", "-b", "2^6", "--steps", "10000"],
    "tune_least_squares": [
        *("tune", "SGD", "-b", "64", "--target", "0.1", "--problem", "least_squares", "--spectrum", "power_law(100)"),
    ],
    "sweep": ["sweep", "SGD", "HeavyBall", "--target", "0.01", "--batch-sizes", "2^6..2^14"],
    "sweep_spectrum": [
        *("sweep", "Preconditioned(SGD, power=0.5)", "--target", "0.1", "--batch-sizes", "16,64,256"),
        *("--spectrum", "power_law(10000).binned(100)"),
    ],
    "schedule": ["schedule", "SGD", "-b", "64", "--target", "0.01", "--pieces", "4"],
    "schedule_batch_size": ["schedule", "SGD", "-b", "1", "--examples", "1e5", "--on", "batch_size", "--pieces", "4"],
    "spectrum": ["spectrum"],
    "spectrum_wide": ["spectrum", "power_law(1e12, exponent=1.2)"],
    "spectrum_compressed": ["spectrum", "power_law(10000, noise_exponent=0.5)", "--compress", "1e-9"],
    "map": [
        *("map", "HeavyBall", "-b", "1024", "--target", "0.05", "--x", "lr=0.01..4..6", "--y", "momentum=0..0.99..4"),
    ],
    "map_batch_size": ["map", "SGD", "--target", "0.05", "--x", "lr=0.01..4..4", "--y", "batch_size=2^2..2^14..3"],
    "claims": ["claims", "stationary_covariance", "ema_lowers_floor", "critical_batch_knee", "--turn"],
    "claims_premise": ["claims", "stationary_covariance", "--premise", "x=1.0"],
}
"""Calls whose answer is read from ``--json``."""

WRONG: dict[str, list[str]] = {
    "no_verb": ["tuna"],
    "no_option": ["tune", "SGD", "-b", "64", "--goal", "1"],
    "no_batch_size": ["tune", "SGD", "--target", "0.1"],
    "no_goal": ["tune", "SGD", "-b", "64"],
    "two_goals": ["tune", "SGD", "-b", "64", "--target", "0.1", "--steps", "10"],
    "unknown_optimizer": ["tune", "SGDD", "-b", "64", "--target", "0.1"],
    "unset_optimizer": ["curve", "SGD", "-b", "64", "--steps", "10"],
    "momentum_out_of_range": ["curve", "HeavyBall(0.1, 1.5)", "-b", "64", "--steps", "10"],
    "negative_target": ["steps", "SGD(0.1)", "-b", "64", "--target", "-1"],
    "zero_batch": ["steps", "SGD(0.1)", "-b", "0", "--target", "0.1"],
    "text_for_number": ["steps", "SGD(0.1)", "-b", "many", "--target", "0.1"],
    "bad_spectrum": ["spectrum", "power_law(-3)"],
    "no_spectrum_file": ["spectrum", "nowhere.json"],
    "bad_schedule": ["curve", "SGD(1)", "-b", "64", "--steps", "10", "--schedule", "cosin(10)"],
    "bad_axis": ["map", "SGD", "--target", "0.1", "--x", "lr=1", "--y", "batch_size=1..8"],
    "unknown_axis": ["map", "SGD", "-b", "8", "--target", "0.1", "--x", "lr=0.1..1", "--y", "momentum=0..0.9"],
    "bad_law": ["curve", "SGD(0.1)", "-b", "8", "--steps", "10", "--noise", "lorentz"],
    "unknown_claim": ["claims", "the_moon_is_cheese"],
    "json_and_csv": ["curve", "SGD(0.1)", "-b", "8", "--steps", "10", "--json", "--csv", "-"],
    "bad_picture": ["curve", "SGD(0.1)", "-b", "8", "--steps", "10", "--plot", "curve.gif"],
    "sweep_never_reaches": ["sweep", "SGD", "--target", "1e-9", "--batch-sizes", "1", "--max-steps", "10"],
    "no_workload": ["fit", "mnist"],
    "no_fit": ["predict", "nowhere.json", "SGD(0.1)", "-b", "8", "--steps", "10"],
    "no_study": ["lab", "run", "nowhere.toml"],
    "no_lab_verb": ["lab", "rum"],
    "help": ["--help"],
    "tour": [],
}
"""Calls of which the status is recorded, and what they say; most of them are wrong."""


def call(arguments: Sequence[str]) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(program, list(arguments))


def record_call(record: Record, name: str, arguments: Sequence[str]) -> None:
    """Keep the status of a call and all that it answers with ``--json``."""
    result = call([*arguments, "--json"])
    record.add(f"{name}/status", result.exit_code)
    if result.stdout.strip():
        record.add(name, json.loads(result.stdout))
    else:
        record.add(f"{name}/error", result.stderr.strip())


def record_commands(record: Record) -> None:
    """Answers of the command line, a few of them in a process of its own."""
    for name, arguments in COMMANDS.items():
        record_call(record, f"command/{name}", arguments)
    for name in ("steps", "spectrum"):
        environment = os.environ | {"PYTHONPATH": str(Path(nqm.__file__).parents[1])}
        line = [sys.executable, "-m", "nqm", *COMMANDS[name], "--json"]
        done = subprocess.run(line, capture_output=True, text=True, env=environment, check=True)
        record.add(f"command/process/{name}", json.loads(done.stdout))


def record_statuses(record: Record) -> None:
    """What wrong calls end with, and what they say."""
    for name, arguments in WRONG.items():
        result = call(arguments)
        record.add(f"status/{name}", result.exit_code)
        if result.exit_code == 2:
            record.add(f"status/{name}/error", result.stderr.strip())


def record_nets(record: Record) -> None:
    """A real network: its fits, predictions and advice from them, a check, and training by several optimizers."""
    record_fits(record)
    record_predictions(record)
    record_trainings(record)


def record_fits(record: Record) -> None:
    """The fit of digits at its checkpoint, and cheap ones that see other curvatures of fewer examples."""
    record_call(record, "nets/fit", ["fit", "digits", "--out", "digits.json", "--seed", "0"])
    record_call(record, "nets/spectrum", ["spectrum", "digits.json"])
    small = ["--train-steps", "60", "--examples", "400", "--lanczos-steps", "12", "--noise-vectors", "3", "--seed", "1"]
    for curvature in ("hessian", "fisher", "empirical_fisher"):
        arguments = ["fit", "digits", *small, "--probes", "2", "--descent", "20", "--curvature", curvature]
        record_call(record, f"nets/fit_{curvature}", [*arguments, "--out", f"{curvature}.npz"])


def record_predictions(record: Record) -> None:
    """What the fits say: losses over steps, advice for a target, and a check against real training."""
    rows = {"sgd": "SGD(0.1)", "heavy_ball": "HeavyBall(0.01, 0.9)", "ema": "EMA(SGD(0.1), 0.98)"}
    for name, optimizer in rows.items():
        arguments = ["predict", "digits.json", optimizer, "-b", "64", "--steps", "500"]
        record_call(record, f"nets/predict/{name}", arguments)
        record_call(record, f"nets/predict/{name}/quadratic", [*arguments, "--quadratic"])
        record_call(record, f"nets/predict/{name}/epochs", [*arguments, "--epochs", "--schedule", "linear(500)"])
    unstable = ["predict", "digits.json", "SGD(9)", "-b", "64", "--steps", "30"]
    record_call(record, "nets/predict/unstable", unstable)
    record_call(record, "nets/predict/other", ["predict", "hessian.npz", "SGD(0.05)", "-b", "32", "--steps", "100"])
    record_call(record, "nets/advice", ["advise", "digits.json", "-b", "64", "--target", "0.08"])
    record_call(record, "nets/advice_never", ["advise", "digits.json", "-b", "64", "--target", "1e-6"])
    arguments = ["check", "digits", "SGD(0.05)", "HeavyBall(0.01, 0.9)", "--fit", "digits.json"]
    record_call(record, "nets/check", [*arguments, "--batch-sizes", "64", "--steps", "50", "--seeds", "2"])


def record_trainings(record: Record) -> None:
    """Real training by the optimizers' own rules, curvature at checkpoints, and eigenvalues."""
    from nqm.nets import checkpoints, curvature_of, curvature_similarity, network_of, top_eigenpairs, train

    network = network_of("digits", steps=50, examples=500, seed=2)
    rows = {name: SAMPLED[name] for name in ("adam", "adamw", "sign", "clipped_sgd", "rmsprop")}
    rows |= {
        name: LINEAR[name] for name in ("sgd", "heavy_ball", "nesterov", "ema_sgd", "lookahead_sgd", "schedule_free")
    }
    for name, row in rows.items():
        run = train(network, row, batch_size=32, steps=[5, 40], seeds=2, seed=3)
        record.add(f"nets/train/{name}", points_of(run))
    run = train(network, SGD(0.1), batch_size=32, steps=[5, 40], schedule=cosine(40), replacement=False, seeds=2)
    record.add("nets/train/scheduled", points_of(run))
    found = curvature_similarity(
        checkpoints(network, SGD(0.1), batch_size=64, steps=[0, 28]), k=5, probes=3, lanczos_steps=5
    )
    record.add("nets/similarity", found.table())
    values, *_ = top_eigenpairs(curvature_of(network), dim=network.dim, k=3, dtype=network.theta.dtype)
    record.add("nets/eigenvalues", values)


def record_lab(record: Record) -> None:
    """Studies of real training, their tables, their trials and what the comparison says of them."""
    Path("tiny.toml").write_text(STUDY)
    Path("others.toml").write_text(OTHERS)
    if not Path("digits.json").exists():
        call(["fit", "digits", "--out", "digits.json", "--seed", "0"])
    record_call(record, "lab/run", ["lab", "run", "tiny.toml", "--on", "here", "--stacking", "never"])
    stacked = ["lab", "run", "tiny.toml", "--on", "here", "--stacking", "always", "--store", "stacked.db"]
    record_call(record, "lab/stacked", stacked)
    record_call(record, "lab/others", ["lab", "run", "others.toml", "--on", "here", "--stacking", "never"])
    record_call(record, "lab/status", ["lab", "status", "tiny.toml"])
    record_call(record, "lab/list", ["lab", "list", "tiny.toml"])
    record_call(record, "lab/curves", ["lab", "export", "tiny.toml", "--what", "curves"])
    record_call(record, "lab/compare", ["lab", beside(), "tiny.toml"])
    record_call(record, "lab/compare_fit", ["lab", beside(), "tiny.toml", "--fit", "digits.json"])


def beside() -> str:
    """The verb that sets a study beside a prediction; a later version may call it otherwise."""
    known = program.commands["lab"].commands  # pyright: ignore[reportAttributeAccessIssue]
    return "compare" if "compare" in known else "report"


GROUPS: dict[str, Callable[[Record], None]] = {
    "loss": record_loss,
    "scheduled": record_scheduled,
    "hit": record_hits,
    "stability": record_stability,
    "tune": record_tuned,
    "optimal": record_optimal,
    "sweep": record_sweeps,
    "map": record_maps,
    "least_squares": record_least_squares,
    "sample": record_samples,
    "spectrum": record_spectra,
    "command": record_commands,
    "status": record_statuses,
    "nets": record_nets,
    "lab": record_lab,
}


def write(out: Path, only: Sequence[str]) -> int:
    """Ask everything, in a folder that is gone afterwards, and write the answers; 1 if a group could not be asked."""
    record = Record()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        whole = [record_group(record, name) for name in only or GROUPS]
    out.write_text(json.dumps(record.values, indent=1, allow_nan=False) + "\n")
    print(f"{len(record.values)} values of {Path(nqm.__file__).parent} in {out}")
    return 0 if all(whole) else 1


def record_group(record: Record, name: str) -> bool:
    """Ask the questions of one group; whether that went through. What was answered before an error is kept."""
    began, before = time.process_time(), len(record.values)
    try:
        GROUPS[name](record)
    except Exception:
        traceback.print_exc()
        print(f"{name}: stopped by the error above", file=sys.stderr)
        return False
    took = time.process_time() - began
    print(f"{name}: {len(record.values) - before} values, {took:.1f} CPU seconds", file=sys.stderr, flush=True)
    return True


def relative(old: Value, new: Value) -> float:
    """How far apart two values are, beside the larger; infinite where they are not comparable.

    Texts are alike if their words are, and then their numbers count. Numbers below `NOTHING` are as good as zero.
    """
    if old == new and type(old) is type(new):
        return 0.0
    if isinstance(old, str) and isinstance(new, str):
        if NUMBER.sub("#", old) != NUMBER.sub("#", new):
            return math.inf
        pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
        return max(_apart(float(a), float(b)) for a, b in pairs)
    if _numeric(old) and _numeric(new):
        return _apart(float(old), float(new))  # type: ignore[arg-type]
    return math.inf


def _apart(old: float, new: float) -> float:
    largest = max(abs(old), abs(new))
    return 0.0 if largest < NOTHING else abs(old - new) / largest


def _numeric(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def group_of(name: str) -> str:
    return name.split("/", 1)[0]


def compare(old: Values, new: Values, rtol: float) -> int:
    """Print every difference and a line for each group; 1 if anything but wording differs."""
    apart = {name: relative(old[name], new[name]) for name in old if name in new}
    missing = [*_report_missing(old, new, "new"), *_report_missing(new, old, "old")]
    differing = [name for name, distance in apart.items() if distance > rtol]
    for name in differing:
        lead = "wording" if group_of(name) == MESSAGE else f"differs by {apart[name]:.3g}"
        print(f"{lead}: {name}\n    old {old[name]!r}\n    new {new[name]!r}")
    for group in dict.fromkeys(map(group_of, [*old, *new])):
        distances = [distance for name, distance in apart.items() if group_of(name) == group]
        absent = sum(group_of(name) == group for name in missing)
        beyond = sum(distance > rtol for distance in distances)
        largest = max(distances, default=0.0)
        print(f"{group}: {len(distances)} compared, largest {largest:.3g}, {beyond} differ, {absent} missing")
    failures = [name for name in [*differing, *missing] if group_of(name) != MESSAGE]
    print(f"{len(failures)} of {len(old | new)} values differ beyond {rtol:g} or are missing")
    return 1 if failures else 0


def _report_missing(there: Values, here: Values, side: str) -> list[str]:
    """Names that one record has and the other has not."""
    names = [name for name in there if name not in here]
    for name in names:
        print(f"missing in the {side} record: {name} (the other has {there[name]!r})")
    return names


def main() -> int:
    """Read the command line of this script."""
    parser = argparse.ArgumentParser(description="Record what nqm answers, and compare two records.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    writing = verbs.add_parser("write", help="ask everything and write the answers")
    writing.add_argument("out", type=Path)
    writing.add_argument("--only", nargs="+", choices=list(GROUPS), default=[], help="these groups alone")
    comparing = verbs.add_parser("compare", help="print what differs between two records")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--rtol", type=float, default=1e-9, help="relative difference that counts as rounding")
    given = parser.parse_args()
    if given.verb == "write":
        return write(given.out.absolute(), given.only)
    return compare(json.loads(given.old.read_text()), json.loads(given.new.read_text()), given.rtol)


if __name__ == "__main__":
    sys.exit(main())
