"""Verbs on a given problem: curves, first hits, tuning, sweeps, schedules, maps.

Heavy modules are imported inside the verbs, so that ``nqm --help`` and shell completion are quick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from ..show.numbers import shown
from ..types import Wrong
from . import options, output
from .options import (
    AXIS,
    FIT,
    INTEGER,
    NUMBER,
    PICTURE,
    SPECTRUM,
    GoalOptions,
    LawOptions,
    Parsed,
    Whole,
    option,
    verb,
)
from .output import Sink, answered, progress, show_pairs, write
from .screen import say

if TYPE_CHECKING:
    from ..engine.schedule import Schedule
    from ..engine.spectrum import Spectrum
    from ..optimizers import Optimizer
    from ..problems.base import Problem
    from ..search import Axis, PhaseMap
    from ..search.sweeps import Sweep

DEFAULT_REPLICAS = 64  # Number of replicas if sampling is needed and --replicas is not given.


@verb(
    "expected loss over steps of one setting",
    "nqm curve 'HeavyBall(0.1, momentum=0.9)' -b 256 --steps 2000",
    "nqm curve 'SGD(1)' -b 1024 --steps 1000 --schedule 'warmup(100) + cosine(900)' --plot curve.png",
    "nqm curve 'EMA(SGD(0.5), decay=0.99)' -b 2^6 --steps 1e6 --csv curve.csv",
    "nqm curve 'SGD(0.5)' -b 4 --steps 100 --problem least_squares --label-noise 0.5",
    "nqm curve 'Adam(0.01)' -b 256 --steps 500 --replicas 32 --spectrum 'power_law(1000)'",
    "nqm curve 'Adam(0.01, 0.9)' -b 256 --steps 500 --spectrum 'power_law(1000)' --noise 'student_t(5)'",
)
@options.optimizer
@options.batch_size
@option("--steps", "Number of steps to run.", INTEGER, required=True)
@options.schedule
@options.problem
@option("--grid", "Spacing of the reported steps.", ("log", "linear"))
@option("--points", "Number of steps to report.", Whole(2, 10**6), default=200)
@option("--replicas --sample replicas", f"Replicas to sample; {DEFAULT_REPLICAS} if needed and omitted.", INTEGER)
@options.laws
@options.sink(csv=True, plot=True)
def curve(
    optimizer: Optimizer, batch_size: float, steps: int, schedule: Schedule | None, problem: Problem,
    grid: Literal["log", "linear"], points: int, replicas: int | None, laws: LawOptions, sink: Sink,
) -> None:  # fmt: skip
    """Loss over steps of one setting: exact, or by mean field if the optimizer is not linear, such as Adam.

    --replicas adds the mean over sampled replicas. Other laws of noise and other bases are sampled.
    """
    sampled = None
    with progress(f"{optimizer}") as report:
        # The exact loss depends neither on the law of the noise nor on the basis. That of a mean field does.
        other = laws["rotation"] is not None or laws["noise"] != "gaussian"
        followed = optimizer.linear or (problem.follows(optimizer) and not other)
        if replicas is not None or other or not followed:
            count = DEFAULT_REPLICAS if replicas is None else replicas
            sampled = problem.sample(
                optimizer, batch_size, steps, schedule, replicas=count, grid=grid, points=points, progress=report,
                **laws,
            )  # fmt: skip
        exact = problem.run(optimizer, batch_size, steps, schedule, grid, points) if followed else None
    run, beside = (exact, sampled) if exact else (sampled, None)
    assert run is not None
    sink.deliver(
        lambda: run.to_dict() | ({"sampled": beside.to_dict()} if beside else {}),
        lambda: output.show_curve(run, beside),
        lambda: output.curve_rows(run, beside),
        lambda path: run.plot(path, beside),
    )
    answered(run.outcome.ok)


@verb(
    "steps that one setting needs to reach a loss",
    "nqm steps 'SGD(0.1)' -b 64 --target 0.1",
    "nqm steps 'Adam(0.003)' -b 256 --target 0.01",
    "nqm steps 'HeavyBall(0.05, momentum=0.99)' -b inf --target 1e-3 --until settled --spectrum 'Spectrum([1])'",
    "nqm steps 'SGD(1)' -b 2^10 --target 0.1 --schedule 'warmup(100) + linear(4900)' --json",
)
@options.optimizer
@options.batch_size
@options.target
@option("--until", "The first step at the target, or the step from which the loss stays there.", ("first", "settled"))
@options.schedule
@options.problem
@options.max_steps
@options.sink()
def steps(
    optimizer: Optimizer, batch_size: float, target: float, until: Literal["first", "settled"],
    schedule: Schedule | None, problem: Problem, max_steps: int, sink: Sink,
) -> None:  # fmt: skip
    """Steps that one setting needs to reach a target loss. This is the true first hit, also if the loss oscillates."""
    from ..search import steps_to_target

    with progress(f"{optimizer}"):
        hit = steps_to_target(problem, optimizer, batch_size, target, schedule, max_steps, until)

    def show() -> None:
        say(hit.message)
        if hit.steps is not None:
            counted = schedule is None and batch_size < float("inf") and problem.counts_examples
            budget = {"examples": hit.steps * batch_size} if counted else {}
            show_pairs({"steps": hit.steps, **budget, "loss": hit.loss})

    sink.deliver(hit.to_dict, show)
    answered(hit.outcome.ok)


@verb(
    "best learning rate, momentum, ... at one batch size",
    "nqm tune HeavyBall -b 1024 --target 0.01",
    "nqm tune 'HeavyBall(momentum=0.9)' -b 2^6 --steps 10000",
    "nqm tune 'EMA(SGD)' -b 64 --examples 1e6 --json",
    "nqm tune Adam -b 1024 --target 0.01",
    "nqm tune Adam -b 64 --target 0.3 --spectrum 'power_law(30)' --sampled",
    "nqm tune SGD -b 64 --target 0.01 --problem least_squares",
)
@options.optimizer
@options.batch_size
@options.goal
@options.problem
@options.max_steps
@options.laws
@options.sampled
@options.sink()
def tune(
    optimizer: Optimizer, batch_size: float, goal: GoalOptions, problem: Problem, max_steps: int, laws: LawOptions,
    sampled: bool, sink: Sink,
) -> None:  # fmt: skip
    """Best values of an optimizer's free parameters: fewest steps to a target, or smallest loss for a budget.

    An optimizer that is not linear, such as Adam, is tuned by its mean field. It is sampled with --sampled, and with --noise
    or --rotation, for which no mean field is known; --seed affects only sampled searches.
    """
    from ..search import tune as search

    with progress(f"tuning {optimizer}"):
        found = search(problem, optimizer, batch_size, max_steps=max_steps, sampled=sampled, **goal, **laws)
    sink.deliver(found.to_dict, lambda: output.show_tuned(found))
    answered(found.outcome.ok)


@verb(
    "best piecewise-constant schedule",
    "nqm schedule SGD -b 64 --target 0.01 --pieces 10 --plot schedule.png",
    "nqm schedule Adam -b 256 --target 0.05 --pieces 2 --spectrum 'power_law(100)'",
    "nqm schedule 'HeavyBall(momentum=0.9)' -b 1024 --steps 2000 --pieces 5",
    "nqm schedule SGD -b 1024 --target 0.01 --pieces 10 --max-rate paper",
    "nqm schedule SGD -b 1 --examples 1e5 --on batch_size --pieces 4",
)
@options.optimizer
@options.batch_size
@options.goal
@option("--pieces", "Number of pieces of equal length.", Whole(1, 1000), default=10)
@option("--on", "What to schedule; batch_size needs --examples, and is a multiple of -b.", ("lr", "batch_size"))
@option(
    "--max-rate MAX",
    "Limit the learning rate instead of the loss on the way: a number, paper (the paper's cap 2/(h_1 + h_d)), or inf (no limit).",
    Parsed("MAX", "nqm.text.values:parse_max_rate"),
)
@options.spectrum
@options.sink(csv=True, plot=True)
def schedule(
    optimizer: Optimizer, batch_size: float, goal: GoalOptions, pieces: int, on: Literal["lr", "batch_size"],
    max_rate: float | Literal["paper"] | None, spectrum: Spectrum, sink: Sink,
) -> None:  # fmt: skip
    """Best piecewise-constant schedule of the learning rate or of the batch size, by exact gradients.

    The expected loss of no step is above 1.05 times the lowest loss at the end of an earlier piece; the start counts as one. The
    last line says whether this bound holds the schedule back. --max-rate sets another limit.
    """
    if on == "batch_size" and goal["examples"] is None:
        raise click.UsageError("--on batch_size needs a budget: give --examples")
    from ..problems.quadratic import Quadratic
    from ..search import optimal_schedule

    with progress(f"{pieces} pieces for {optimizer}"):
        found = optimal_schedule(
            Quadratic(spectrum), optimizer, batch_size, pieces=pieces, on=on, max_rate=max_rate, **goal
        )
    sink.deliver(found.to_dict, lambda: output.show_schedule(found), found.table, found.plot)
    answered(found.outcome.ok)


@verb(
    "tuned steps against batch size, critical batch size",
    "nqm sweep SGD HeavyBall --target 0.01 --plot sweep.png",
    "nqm sweep 'EMA(SGD)' --target 0.1 --batch-sizes 16,64,256",
    "nqm sweep Adam SGD --target 0.01 --batch-sizes 2^8..2^16 --plot adam.png",
    "nqm sweep 'Adam(beta1=0.9)' SGD --target 0.3 --spectrum 'power_law(30)' --batch-sizes 16,64 --noise 'student_t(3)'",
    "nqm sweep 'Preconditioned(SGD, power=0.5)' --target 0.01 --batch-sizes 2^4..2^16 --csv sweep.csv",
    "nqm sweep SGD --target 0.1 --batch-sizes 1,4,16,64 --problem least_squares",
)
@options.optimizers
@options.target
@options.batch_sizes
@options.problem
@options.max_steps
@options.laws
@options.sampled
@option(
    "--most-added N",
    "Most batch sizes that the sweep adds for the critical batch size; 0 for none.",
    Whole(0, 100),
    default=10,
)
@options.sink(csv=True, plot=True)
@option("--plot-lr", "Write a picture of the best learning rates.", PICTURE)
def sweep(
    optimizers: tuple[Optimizer, ...], target: float, batch_sizes: list[float], problem: Problem, max_steps: int,
    laws: LawOptions, sampled: bool, most_added: int, sink: Sink, plot_lr: str | None,
) -> None:  # fmt: skip
    """Tuned steps to a target at each batch size for one or several optimizers, and their critical batch sizes.

    The sweep also tunes at up to ten batch sizes of its own, so that critical batch sizes are good to 1% whatever --batch-sizes
    are. Tables and files mark these points as added.
    """
    if math.inf in batch_sizes:
        sentence = (
            "batch sizes must be finite, got inf; a sweep computes its fewest steps, those without noise, in any case"
        )
        raise Wrong(sentence, argument="batch_sizes")
    from ..search.sweeps import sweep as search
    from ..show import plots

    with progress(f"sweeping {', '.join(map(str, optimizers))}") as report:
        sweeps = search(
            problem, optimizers, batch_sizes, target, max_steps=max_steps, progress=report, sampled=sampled,
            most_added=most_added, **laws,
        )  # fmt: skip
    _deliver(sweeps, sink)
    write(plot_lr, lambda path: plots.plot_lr(sweeps, path))
    answered(any((s.steps >= 0).any() for s in sweeps))


@verb(
    "steps to a target over two settings",
    "nqm map HeavyBall -b 1024 --target 0.01 --x lr=0.001..8 --y momentum=0..0.999",
    "nqm map SGD --target 0.01 --x lr=0.001..4..60 --y batch_size=2^2..2^20..10 --csv map.csv --plot map.png",
    "nqm map Adam -b 256 --target 0.05 --x lr=0.0005..0.1..12 --y beta1=0..0.99..6",
    "nqm map 'EMA(SGD(0.5))' --target 0.1 --x decay=0..0.9999 --y batch_size=4..4096 --json",
)
@options.optimizer
@option("--x", "A hyper-parameter or batch_size, as NAME=LOW..HIGH or NAME=LOW..HIGH..N.", AXIS, required=True)
@option("--y", "The other axis, written in the same way, such as lr=0.001..4..40.", AXIS, required=True)
@option("--batch-size -b B", "Batch size, unless it is an axis.", options.BATCH_SIZE)
@options.target
@options.spectrum
@options.sink(csv=True, plot=True)
def map_(
    optimizer: Optimizer, x: Axis, y: Axis, batch_size: float | None, target: float, spectrum: Spectrum, sink: Sink
) -> None:
    """Steps to a target over a grid of two settings, the best cell, and where stability ends.

    Values of learning rates and batch sizes are spaced by equal factors, those of momenta and decays by equal factors of
    1 - value.
    """
    if (batch_size is None) != ("batch_size" in (x.name, y.name)):
        raise click.UsageError("give --batch-size, or batch_size as an axis, but not both")
    from ..problems.quadratic import Quadratic
    from ..search import phase_map

    with progress(f"mapping {optimizer}"):
        found = phase_map(Quadratic(spectrum), optimizer, x, y, batch_size, target=target)
    sink.deliver(found.to_dict, lambda: _show_map(found), found.table, found.plot)
    answered(found.best() is not None)


def _show_map(found: PhaseMap) -> None:
    """Print some rows and columns of the map, and its best cell."""
    wide, high = max(1, len(found.x.values) // 8), max(1, len(found.y.values) // 16)
    names = [f"{found.x.name}={shown(float(x))}" for x in found.x.values[::wide]]
    taken = zip(found.y.values[::high], found.steps[::high], strict=True)
    rows = [{found.y.name: float(y), **dict(zip(names, row[::wide], strict=True))} for y, row in taken]
    output.show_table(rows, f"Steps to loss {found.target:g}")
    if (best := found.best()) is None:
        say(f"no cell reaches {found.target:g}")
        return
    show_pairs({"fewest steps": best["steps"], "at": best["optimizer"], "batch size": best["batch_size"]})


@verb(
    "describe, compress and save a problem",
    "nqm spectrum",
    "nqm spectrum 'power_law(1e12, exponent=1.2)' --save wide.npz",
    "nqm spectrum 'power_law(10000).binned(100)' --json",
    "nqm spectrum 'power_law(10000, noise_exponent=0.5)' --compress 1e-9 --csv -",
)
@click.argument("given", metavar="[SPECTRUM]", type=SPECTRUM, required=False)
@options.spectrum
@option("--compress tol TOL", "Replace the modes by fewer nodes, with at most this relative error in the loss.", NUMBER)
@option("--save", "Write the spectrum as .json or .npz, for --spectrum.", FIT)
@options.sink(csv=True)
def spectrum(given: Spectrum | None, spectrum: Spectrum, tol: float | None, save: str | None, sink: Sink) -> None:
    """Describe a problem by its modes, trace and initial loss, and compress or save it if asked to."""
    source = click.get_current_context().get_parameter_source("spectrum")
    if given is not None and source is ParameterSource.COMMANDLINE:
        raise click.UsageError("give a SPECTRUM or --spectrum, but not both")
    found = spectrum if given is None else given
    if tol is not None:
        from ..text.objects import compressed

        found = compressed(found, tol)
    about = found.summary()
    sink.deliver(lambda: about, lambda: show_pairs(about), found.table)
    write(save, found.save)


@verb("three optimizers over batch sizes, with a picture", "nqm demo", "nqm demo --plot demo.pdf")
@option("--plot", "Picture to write.", PICTURE, default="nqm-demo.png")
@options.JSON
def demo(plot: str, as_json: bool) -> None:
    """SGD, heavy ball and averaged SGD tuned over batch sizes on the paper's problem, to a loss of 0.01."""
    from ..engine.spectrum import Spectrum
    from ..optimizers import EMA, SGD, HeavyBall
    from ..problems.quadratic import Quadratic
    from ..search.sweeps import sweep as search

    with progress("sweeping SGD, heavy ball and averaged SGD") as report:
        problem = Quadratic(Spectrum.power_law(10_000))
        sweeps = search(problem, [SGD(), HeavyBall(), EMA(SGD())], target=0.01, progress=report)
    _deliver(sweeps, Sink(as_json, plot=plot), settings=False)


def _deliver(sweeps: Sequence[Sweep], sink: Sink, settings: bool = True) -> None:
    from ..show import plot_sweeps

    sink.deliver(
        lambda: {"sweeps": [s.to_dict() for s in sweeps]},
        lambda: output.show_sweeps(sweeps, settings),
        lambda: [{"label": s.label, **row} for s in sweeps for row in s.table()],
        lambda path: plot_sweeps(sweeps, path),
    )
