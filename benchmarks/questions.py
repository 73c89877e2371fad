"""The questions that `record` asks of nqm, in groups; each group yields names and answers.

The optimizers are the rows of ``tests/catalogue.py``. The calls of the command line are in ``record_data/calls.toml``.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

import nqm
from nqm import (
    EMA,
    SGD,
    Adam,
    Axis,
    Clipped,
    HeavyBall,
    LeastSquares,
    Lookahead,
    Nesterov,
    Optimizer,
    Polyak,
    Preconditioned,
    Problem,
    Quadratic,
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from catalogue import ROWS, SAMPLED

Answers = Iterator[tuple[str, Any]]
"""Names and answers; an answer is a number, a text, or lists and mappings of them, however deep."""

DATA = Path(__file__).parent / "record_data"
CALLS: dict[str, dict[str, str]] = tomllib.loads((DATA / "calls.toml").read_text())

PAPER = Quadratic(Spectrum.power_law(10_000))
THOUSAND = Quadratic(Spectrum.power_law(1000))
FOUR = Spectrum([0.8, 0.5, 0.2, 0.05], c=[0.3, 1.0, 0.1, 0.7], s=[1.0, 2.0, 0.5, 3.0], count=[1, 2, 1, 10])
UNEVEN = Quadratic(FOUR)

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
"""Linear optimizers that are stable on least squares at small batches."""

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


def attempt(ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a function answers, or the kind of error that it raises instead."""
    try:
        return ask(*arguments, **options)
    except (ValueError, TypeError) as error:
        return {"raises": type(error).__name__, "error": str(error)}


def fields_of(found: object, *names: str) -> dict[str, Any]:
    """The named fields of a result."""
    return {name: getattr(found, name) for name in names}


def points_of(run: Run) -> dict[str, Any]:
    """A run by its steps, with the columns that it has."""
    points = {f"t={row.pop('steps')}": row for row in run.table()}
    return points | fields_of(run, "floor", "outcome", "message")


def hit_of(problem: Problem, optimizer: Optimizer, batch_size: float, target: float, **options: Any) -> dict[str, Any]:
    """The first hit of an optimizer."""
    hit = steps_to_target(problem, optimizer, batch_size=batch_size, target=target, **options)
    return fields_of(hit, "steps", "outcome", "loss", "message")


def schedule_of(found: Any) -> dict[str, Any]:
    """The answer of `optimal_schedule`."""
    pieces = {"schedule": fields_of(found.schedule, "lengths", "lr", "batch_size")}
    return fields_of(found, "optimizer", "batch_size", "steps", "loss", "outcome", "message") | pieces


def sweep_of(found: Sweep) -> dict[str, Any]:
    """A sweep with all that it can say."""
    asked = {name: getattr(found, name)() for name in ("table", "regimes", "perfect_scaling", "bounds")}
    critical = {name: found.critical_batch_size(name) for name in ("20%", "2x", "ratio", "knee")}
    return {**asked, "critical": critical, "smallest_steps": found.smallest_steps}


def map_of(found: Any) -> dict[str, Any]:
    """A map cell by cell."""
    cells = {
        f"y={j}/x={i}": {"steps": found.steps[j, i], "outcome": found.outcomes[j][i]}
        for j, i in np.ndindex(found.steps.shape)
    }
    axes = {"x": found.x.values, "y": found.y.values}
    return {"cells": cells, "best": found.best(), "boundary": found.boundary, "axes": axes}


def sampled(problem: Problem, optimizer: Optimizer, **options: Any) -> dict[str, Any]:
    """A short sampled run of a few replicas."""
    return points_of(problem.sample(optimizer, batch_size=4, steps=[1, 10, 40], replicas=48, **options))


def call(line: str, *more: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(program, [*shlex.split(line), *more])


def answers_of(group: str) -> Answers:
    """The status of each call of a group, and its answer to ``--json``."""
    for name, line in CALLS[group].items():
        result = call(line, "--json")
        yield f"{group}/{name}/status", result.exit_code
        if result.stdout.strip():
            yield f"{group}/{name}", json.loads(result.stdout)
        else:
            yield f"{group}/{name}/error", result.stderr.strip()


def record_loss() -> Answers:
    """Losses over steps and floors of every linear optimizer."""
    for name, row in ROWS.items():
        yield f"loss/{name}", points_of(THOUSAND.run(row, batch_size=64, steps=[1, 10, 100, 1000]))
        signal, noise = UNEVEN.losses(row, times=[37], batch_size=8)
        yield f"loss/uneven/{name}/losses", signal[0] + noise[0] / 8
        yield f"loss/uneven/{name}/floor", UNEVEN.floor(row, batch_size=8)
    for name in ("sgd", "heavy_ball", "ema_sgd", "lookahead_sgd"):
        run = PAPER.run(ROWS[name], batch_size=256, steps=[0, 1000, 10**5])
        yield f"loss/paper/{name}", points_of(run)
        bands = {"edges": run.band_edges, "signal": run.band_signal, "noise": run.band_noise}
        yield f"loss/paper/{name}/bands", bands
        yield f"loss/no_noise/{name}", points_of(PAPER.run(ROWS[name], batch_size=math.inf, steps=[0, 1000, 10**5]))
    yield "loss/diverges", points_of(THOUSAND.run(SGD(2.5), batch_size=64, steps=[1, 10, 100]))
    for grid in ("log", "linear"):
        yield f"loss/grid/{grid}", THOUSAND.run(SGD(0.5), batch_size=64, steps=5000, points=20, grid=grid).steps


def record_scheduled() -> Answers:
    """Losses and first hits under schedules of the learning rate, the momentum and the batch size."""
    for name, schedule in SCHEDULES.items():
        yield f"scheduled/{name}/pieces", schedule.to_dict()
        for row in ("sgd", "heavy_ball", "nesterov", "ema_sgd", "lookahead_heavy_ball", "polyak_step", "schedule_free"):
            run = THOUSAND.run(ROWS[row], batch_size=64, steps=[10, 150, 300, 500], schedule=schedule)
            yield f"scheduled/{name}/{row}", points_of(run)
            yield f"scheduled/{name}/{row}/hit", hit_of(THOUSAND, ROWS[row], 64, 0.3, schedule=schedule, max_steps=2000)
    run = THOUSAND.run(SGD(0.5), batch_size=64, steps=[10, 100], schedule=lambda t: 1 / (1 + 0.1 * t))
    yield "scheduled/function", points_of(run)


def record_hits() -> Answers:
    """First hits and settled ones, and every way in which there is none."""
    for until in ("first", "settled"):
        for name, row in ROWS.items():
            for target in (1.5, 0.1, 0.003):
                full = f"hit/{name}/target={target:g}/{until}"
                yield full, attempt(hit_of, THOUSAND, row, 256, target, until=until, max_steps=4000)
        for target in (0.1, 1e-3, 1e-8):
            found = hit_of(Quadratic(Spectrum([1.0])), HeavyBall(0.05, 0.99), math.inf, target, until=until)
            yield f"hit/swings/target={target:g}/{until}", found
    yield "hit/paper/sgd", hit_of(PAPER, SGD(0.1), 64, 0.1)
    yield "hit/paper/two_steps", hit_of(PAPER, SGD(1.99), 16, 4.2)
    yield "hit/paper/ema", hit_of(PAPER, EMA(SGD(0.5), 0.999), 64, 0.05)
    yield "hit/paper/long", hit_of(PAPER, SGD(0.001), 64, 0.01)
    yield "hit/diverges", hit_of(THOUSAND, SGD(2.5), 64, 0.1)
    yield "hit/above_floor", hit_of(THOUSAND, SGD(1.0), 4, 0.01)
    yield "hit/out_of_steps", hit_of(THOUSAND, SGD(0.1), 1024, 0.01, max_steps=10)
    yield "hit/at_once", hit_of(THOUSAND, SGD(0.1), 64, 100.0)


def record_stability() -> Answers:
    """Largest stable learning rates of every linear optimizer."""
    for name, row in ROWS.items():
        yield f"stability/{name}", attempt(THOUSAND.stability_limit, row, 64)
        yield f"stability/uneven/{name}", attempt(UNEVEN.stability_limit, row, 64)
    yield "stability/free", THOUSAND.stability_limit(HeavyBall(momentum=0.5), 64)


def record_tuned() -> Answers:
    """Tuned settings at several batch sizes, for a target, for a number of steps and for a number of examples."""
    usual = {"sgd": SGD(), "heavy_ball": HeavyBall(), "nesterov": Nesterov(), "ema_sgd": EMA(SGD())}
    others = {
        "preconditioned": Preconditioned(SGD(), power=0.5),
        "preconditioned_heavy_ball": Preconditioned(HeavyBall(momentum=0.9), power=0.25),
        "lookahead": Lookahead(SGD(), alpha=0.5, period=5),
        "fixed_momentum": HeavyBall(momentum=0.9),
    }
    for families, sizes in ((usual, (16, 1024, 2**16, math.inf)), (others, (64, 4096))):
        for name, size in product(families, sizes):
            yield f"tune/{name}/B={size:g}", tune(PAPER, families[name], batch_size=size, target=0.01).to_dict()
    for name, optimizer in usual.items():
        yield f"tune/{name}/steps", tune(PAPER, optimizer, batch_size=256, steps=2000).to_dict()
        yield f"tune/{name}/examples", tune(PAPER, optimizer, batch_size=256, examples=10**6).to_dict()
    walked = {"polyak": Polyak(SGD(), start=0.5), "schedule_free": ScheduleFree(momentum=0.9)}
    for name, size in product(walked, (64, 1024)):
        yield f"tune/{name}/B={size:g}", tune(THOUSAND, walked[name], batch_size=size, target=0.1).to_dict()
    yield "tune/never", tune(THOUSAND, SGD(), batch_size=1, target=1e-6, max_steps=1000).to_dict()


def record_optimal() -> Answers:
    """Best schedules of the learning rate and of the batch size."""
    for size, pieces, goal in product((64, 1024), (2, 10, 50), ({"target": 0.01}, {"steps": 2000})):
        found = optimal_schedule(PAPER, SGD(), batch_size=size, pieces=pieces, **goal)
        yield f"optimal/sgd/B={size}/pieces={pieces}/{next(iter(goal))}", schedule_of(found)
    for pieces in (2, 6):
        found = optimal_schedule(PAPER, SGD(), batch_size=1, examples=10**5, pieces=pieces, on="batch_size")
        yield f"optimal/batch_size/pieces={pieces}", schedule_of(found)
    found = optimal_schedule(PAPER, SGD(), batch_size=64, examples=10**5, pieces=4)
    yield "optimal/sgd/examples", schedule_of(found)
    found = optimal_schedule(THOUSAND, HeavyBall(), batch_size=256, target=0.1, pieces=3)
    yield "optimal/heavy_ball", schedule_of(found)


def record_sweeps() -> Answers:
    """Sweeps over batch size: tables, critical batch sizes, regimes and bounds."""
    preconditioned, sizes = Preconditioned(SGD(), power=0.5), [2.0**e for e in range(2, 21, 3)]
    families = {"sgd": SGD(), "heavy_ball": HeavyBall(), "ema_sgd": EMA(SGD()), "preconditioned": preconditioned}
    for name, optimizer in families.items():
        yield f"sweep/{name}", sweep_of(sweep(PAPER, optimizer, target=0.01, batch_sizes=sizes))
    yield "sweep/uneven", sweep_of(sweep(UNEVEN, SGD(), target=0.05, batch_sizes=[1, 8, 64]))
    hard = sweep(THOUSAND, SGD(), target=1e-4, batch_sizes=[1, 4, 2**20], max_steps=10**5)
    yield "sweep/some_fail", sweep_of(hard)


def record_maps() -> Answers:
    """Maps of steps over two settings, and the edge of stability in them."""
    rate, momentum, sizes = Axis("lr", 0.01, 4, 7), Axis("momentum", 0, 0.99, 5), Axis("batch_size", 4, 2**16, 4)
    found = phase_map(PAPER, HeavyBall(), x=rate, y=momentum, target=0.05, batch_size=1024)
    yield "map/heavy_ball", map_of(found)
    yield "map/sgd", map_of(phase_map(PAPER, SGD(), x=rate, y=sizes, target=0.05))
    optimizer, period = Lookahead(SGD(), alpha=0.5), Axis("period", 1, 8, 4)
    found = phase_map(THOUSAND, optimizer, x=rate, y=period, target=0.1, batch_size=256)
    yield "map/lookahead", map_of(found)


def record_least_squares() -> Answers:
    """The same questions on least squares, whose noise is that of minibatches."""
    problem, odd = LeastSquares(Spectrum.power_law(200), label_noise=1.0), LeastSquares(FOUR, label_noise=0.25)
    for name, row in SLOW.items():
        lead = f"least_squares/{name}"
        yield lead, points_of(problem.run(row, batch_size=8, steps=[1, 10, 100, 400]))
        yield f"{lead}/uneven", points_of(odd.run(row, batch_size=32, steps=[1, 10, 100]))
        signal, noise = problem.losses(row, times=[50], batch_size=8)
        yield f"{lead}/losses", signal[0] + noise[0] / 8
        for size in (2, 8, 64):
            yield f"{lead}/stability/B={size}", attempt(problem.stability_limit, row, size)
        for until in ("first", "settled"):
            yield f"{lead}/hit/{until}", attempt(hit_of, problem, row, 64, 0.5, until=until, max_steps=20_000)
    yield "least_squares/diverges", hit_of(problem, SGD(1.5), 2, 0.5)
    run = problem.run(SGD(0.5), batch_size=8, steps=[50, 300], schedule=warmup(50) + cosine(250))
    yield "least_squares/scheduled", points_of(run)
    yield "least_squares/tune/sgd", tune(problem, SGD(), batch_size=16, target=0.1).to_dict()
    yield "least_squares/tune/heavy_ball", tune(problem, HeavyBall(), batch_size=64, target=0.1).to_dict()
    yield "least_squares/sweep", sweep_of(sweep(problem, SGD(), target=0.1, batch_sizes=[4, 64, 1024]))


def record_samples() -> Answers:
    """Sampled runs by seed: every optimizer that needs it, laws of noise, rotations, fixed starts, minibatches."""
    problem, rows, adam = Quadratic(Spectrum.power_law(30)), ROWS | SAMPLED, Adam(0.05, 0.9)
    for name in (*SAMPLED, "sgd", "ema_nesterov", "polyak_fraction"):
        yield f"sample/{name}", sampled(problem, rows[name])
    for law in ("gaussian", "rademacher", "laplace", "exponential", "student_t(5)", "cauchy"):
        yield f"sample/noise/{law}", sampled(problem, HeavyBall(0.2, 0.8), noise=law, seed=3)
    for name in ("sgd", "heavy_ball", "preconditioned_sgd"):
        yield f"sample/rotation/{name}", sampled(problem, rows[name], rotation=5, seed=1)
    for name in ("adam", "sign", "diagonal_heavy_ball", "estimated_sgd"):
        yield f"sample/rotation/{name}", sampled(problem, rows[name], rotation="random", seed=2)
    yield "sample/fixed", sampled(problem, adam, start="fixed", quantiles=(0.25, 0.75))
    yield "sample/scheduled", sampled(problem, adam, schedule=cosine(40))
    yield "sample/own_noise", sampled(problem, SGD(0.3), noise=lambda rng, shape: rng.standard_normal(shape))
    squares = LeastSquares(Spectrum.power_law(30), label_noise=0.5)
    for name, row in {"sgd": SGD(0.1), "adam": adam, "heavy_ball": HeavyBall(0.03, 0.8)}.items():
        yield f"sample/least_squares/{name}", sampled(squares, row)
    yield "sample/least_squares/features", sampled(squares, SGD(0.1), features="rademacher", rotation=1)
    larger = Quadratic(Spectrum.power_law(100))
    yield "sample/tune/adam", tune(larger, Adam(beta1=free), batch_size=1024, target=0.1).to_dict()
    yield "sample/tune/adam_seed", tune(larger, Adam(beta1=0.9), batch_size=256, target=0.2, seed=1).to_dict()
    found = tune(problem, Sign(), batch_size=64, steps=50, noise="student_t(5)", seed=2)
    yield "sample/tune/sign", found.to_dict()
    found = sweep(problem, Clipped(SGD(), norm=1.0), target=0.3, batch_sizes=[16, 256])
    yield "sample/sweep/clipped", sweep_of(found)


def record_spectra() -> Answers:
    """Spectra as they are made, binned, compressed, saved and read."""
    law = Spectrum.power_law
    spectra = {
        "power_law_1e4": law(10**4),
        "power_law_1e5": law(10**5),
        "power_law_1e12": law(10**12),
        "steep": law(10**12, exponent=1.2, noise_exponent=0.5, start_exponent=0.3),
        "scaled": law(500, scale=2.0, noise=0.5, start=3.0),
        "uneven": FOUR,
        "binned": law(10**4).binned(100),
        "compressed": law(10**4).compress(),
        "compressed_little": law(10**4).compress(1e-6),
        "compressed_smooth": law(10**4).compress(1e-6, swings=False, head=32),
        "compressed_wide": law(10**12).compress(1e-7),
    }
    Path("spectrum.csv").write_text("h,c,count\n1.0,0.5,1\n0.25,0.1,3\n")
    FOUR.save("spectrum.json")
    FOUR.save("spectrum.npz")
    spectra |= {f"read/{ending}": Spectrum.load(f"spectrum.{ending}") for ending in ("json", "npz", "csv")}
    for name, spectrum in spectra.items():
        columns = {
            column: getattr(spectrum, column) for column in ("dim", "trace", "initial_loss", "h", "c", "s", "count")
        }
        yield f"spectrum/{name}", {**columns, "nodes": len(spectrum), "summary": spectrum.summary()}


def record_commands() -> Answers:
    """Answers of the command line, two of them in a process of their own."""
    yield from answers_of("command")
    for name in ("steps", "spectrum"):
        environment = os.environ | {"PYTHONPATH": str(Path(nqm.__file__).parents[1])}
        line = [sys.executable, "-m", "nqm", *shlex.split(CALLS["command"][name]), "--json"]
        done = subprocess.run(line, capture_output=True, text=True, env=environment, check=True)
        yield f"command/process/{name}", json.loads(done.stdout)


def record_statuses() -> Answers:
    """The statuses and sentences of wrong calls."""
    for name, line in CALLS["status"].items():
        result = call(line)
        yield f"status/{name}", result.exit_code
        if result.exit_code == 2:
            yield f"status/{name}/error", result.stderr.strip()


def record_nets() -> Answers:
    """A real network: its fits, predictions and advice; training by several optimizers; curvature and eigenvalues."""
    from nqm.nets import checkpoints, curvature_of, curvature_similarity, network_of, top_eigenpairs, train

    yield from answers_of("nets")
    network = network_of("digits", steps=50, examples=500, seed=2)
    rows = {name: SAMPLED[name] for name in ("adam", "adamw", "sign", "clipped_sgd", "rmsprop")}
    linear = ("sgd", "heavy_ball", "nesterov", "ema_sgd", "lookahead_sgd", "schedule_free")
    for name, row in (rows | {name: ROWS[name] for name in linear}).items():
        yield f"nets/train/{name}", points_of(train(network, row, batch_size=32, steps=[5, 40], seeds=2, seed=3))
    run = train(network, SGD(0.1), batch_size=32, steps=[5, 40], schedule=cosine(40), replacement=False, seeds=2)
    yield "nets/train/scheduled", points_of(run)
    stops = checkpoints(network, SGD(0.1), batch_size=64, steps=[0, 28])
    yield "nets/similarity", curvature_similarity(stops, k=5, probes=3, lanczos_steps=5).table()
    values, *_ = top_eigenpairs(curvature_of(network), dim=network.dim, k=3, dtype=network.theta.dtype)
    yield "nets/eigenvalues", values


def record_lab() -> Answers:
    """Studies of real training, their tables, their trials, and their comparison with predictions."""
    for study in ("tiny.toml", "others.toml"):
        shutil.copy(DATA / study, study)
    if not Path("digits.json").exists():
        call(CALLS["nets"]["fit"])
    yield from answers_of("lab")


GROUPS: dict[str, Callable[[], Answers]] = {
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
