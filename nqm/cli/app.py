"""The command line: each verb parses, calls and prints; the maths is elsewhere.

Everything heavy is imported inside the verbs, so that ``nqm --help`` and shell completion are quick.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from ..show.tables import with_folder
from . import comparison as compareverbs
from . import nets as netverbs
from . import options, output
from . import serve as webverbs
from .options import FAILED, NUMBER, PICTURE, WHOLE, OutputFile, Parsed, Verbs
from .output import Sink, progress, show_pairs, wrote

if TYPE_CHECKING:
    from ..engine.run import Outcome
    from ..engine.schedule import Schedule
    from ..engine.spectrum import Spectrum
    from ..optimizers import Optimizer
    from ..problems.least_squares import LeastSquares
    from ..problems.quadratic import Quadratic
    from ..search.sweeps import Sweep

TOUR = """\
nqm tells you what batch size, momentum, averaging, preconditioning and learning-rate schedules
do to training: exactly and in milliseconds, on a noisy quadratic model.

Six to try:

  nqm demo
      SGD, heavy ball and averaging tuned over batch sizes; a table and a picture
  nqm tune HeavyBall -b 1024 --target 0.01
      the best learning rate and momentum at one batch size
  nqm curve 'SGD(0.5)' -b 256 --steps 1e5 --plot curve.png
      expected loss over steps, and what is signal and what is noise in it
  nqm schedule SGD -b 1024 --target 0.01 --pieces 10
      the best piecewise-constant learning-rate schedule
  nqm sweep 'EMA(SGD)' --target 0.01
      tuned steps against batch size, and the critical batch size
  nqm serve
      all of this in the browser, on a page where every control moves exact curves

An optimizer is written as its constructor; what you leave out is tuned. The default problem is
that of Zhang et al. (2019); --spectrum takes your own. All verbs: nqm --help. Examples: nqm VERB --help
"""

COMPLETION_LINES = {
    "bash": ('eval "$(_NQM_COMPLETE=bash_source nqm)"', "~/.bashrc"),
    "zsh": ('eval "$(_NQM_COMPLETE=zsh_source nqm)"', "~/.zshrc"),
    "fish": ("_NQM_COMPLETE=fish_source nqm | source", "~/.config/fish/completions/nqm.fish"),
}
COMPLETION = "\b\nShell completion, one line in a start-up file:\n" + "\n".join(
    f"  {line}  in {file}" for line, file in COMPLETION_LINES.values()
)


@click.group(
    "nqm",
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]},
    epilog=COMPLETION,
)
@click.version_option(__version__, "-V", "--version", prog_name="nqm", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """What batch size, momentum, averaging, preconditioning and schedules do to training, on a noisy quadratic model.

    An OPTIMIZER is its constructor, such as HeavyBall(momentum=0.9) or 'EMA(SGD)', or module:Class for one of your own.
    Text with brackets needs quotes. Status is 0, or 1 if there is no answer (it diverges, the target is never reached),
    or 2 if the call is wrong.
    """
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # SciPy, loaded later, solves tiny systems: more threads only spin
    if ctx.invoked_subcommand is None:
        click.echo(TOUR, nl=False)


@main.command(
    short_help="expected loss over steps of one setting",
    examples=[
        "nqm curve 'HeavyBall(0.1, momentum=0.9)' -b 256 --steps 2000",
        "nqm curve 'SGD(1)' -b 1024 --steps 1000 --schedule 'warmup(100) + cosine(900)' --plot curve.png",
        "nqm curve 'EMA(SGD(0.5), decay=0.99)' -b 2^6 --steps 1e6 --csv curve.csv",
        "nqm curve 'SGD(0.5)' -b 4 --steps 100 --problem least_squares --label-noise 0.5",
        "nqm curve 'Adam(0.01, 0.9)' -b 256 --steps 500 --spectrum 'power_law(1000)' --noise 'student_t(5)'",
    ],
)
@options.optimizer
@options.batch_size
@click.option("--steps", type=WHOLE, metavar="N", required=True, help="Run so many steps.")
@options.schedule
@options.problem
@click.option(
    "--grid", type=click.Choice(["log", "linear"]), default="log", show_default=True, help="Spacing of the steps."
)
@click.option(
    "--points", type=click.IntRange(2, 10**6), default=200, show_default=True, help="How many steps to report."
)
@options.sampling
@options.as_json
@options.csv
@options.plot
def curve(
    optimizer: Optimizer, batch_size: float, steps: int, schedule: Schedule | None, problem: Quadratic | LeastSquares,
    grid: Any, points: int, replicas: int | None, noise: str, seed: int, rotation: int | None,
    as_json: bool, csv: str | None, plot: str | None,
) -> None:  # fmt: skip
    """Loss over steps of one setting: exact, split into signal and noise, or the mean over sampled replicas.

    An optimizer that is not linear, such as Adam, is always sampled.
    """
    sink, sampled = Sink(as_json, csv, plot), None
    with progress(f"{optimizer}") as report:
        asked = replicas is not None or rotation is not None or noise != "gaussian"  # the exact loss knows neither
        if asked or not optimizer.linear:
            sampled = problem.sample(
                optimizer, batch_size, steps, schedule, replicas=64 if replicas is None else replicas,
                noise=noise, seed=seed, rotation=rotation, grid=grid, points=points, progress=report,
            )  # fmt: skip
        exact = problem.run(optimizer, batch_size, steps, schedule, grid, points) if optimizer.linear else None
    run = exact or sampled
    assert run is not None
    beside = sampled if exact else None
    sink.deliver(
        lambda: run.to_dict() | ({"sampled": beside.to_dict()} if beside else {}),
        lambda: output.show_curve(run, beside),
        lambda: output.curve_rows(run, beside),
        lambda path: run.plot(path, beside),
    )
    _exit(run.outcome)


@main.command(
    short_help="steps that one setting needs to reach a loss",
    examples=[
        "nqm steps 'SGD(0.1)' -b 64 --target 0.1",
        "nqm steps 'HeavyBall(0.05, momentum=0.99)' -b inf --target 1e-3 --until settled --spectrum 'Spectrum([1])'",
        "nqm steps 'SGD(1)' -b 2^10 --target 0.1 --schedule 'warmup(100) + linear(4900)' --json",
    ],
)
@options.optimizer
@options.batch_size
@options.target
@click.option(
    "--until", type=click.Choice(["first", "settled"]), default="first", show_default=True,
    help="The first step at or below the target, or the step after the last one above it.",
)  # fmt: skip
@options.schedule
@options.problem
@options.max_steps
@options.as_json
def steps(
    optimizer: Optimizer, batch_size: float, target: float, until: Any, schedule: Schedule | None, problem: Quadratic | LeastSquares,
    max_steps: int, as_json: bool,
) -> None:  # fmt: skip
    """Steps that one setting needs to reach a target loss: the true first hit, also where the loss oscillates."""
    from ..search import steps_to_target

    with progress(f"{optimizer}"):
        hit = steps_to_target(problem, optimizer, batch_size, target, schedule, max_steps, until)

    def show() -> None:
        click.echo(hit.message)
        if hit.steps is not None:
            budget = {"examples": hit.steps * batch_size} if schedule is None and batch_size < float("inf") else {}
            show_pairs({"steps": hit.steps, **budget, "loss": hit.loss})

    Sink(as_json).deliver(hit.to_dict, show)
    _exit(hit.outcome)


@main.command(
    short_help="best learning rate, momentum, ... at one batch size",
    examples=[
        "nqm tune HeavyBall -b 1024 --target 0.01",
        "nqm tune 'HeavyBall(momentum=0.9)' -b 2^6 --steps 10000",
        "nqm tune 'EMA(SGD)' -b 64 --examples 1e6 --json",
        "nqm tune Adam -b 1024 --target 0.1 --spectrum 'power_law(100)'",
        "nqm tune SGD -b 64 --target 0.01 --problem least_squares",
    ],
)
@options.optimizer
@options.batch_size
@options.goals
@options.problem
@options.max_steps
@options.laws
@options.as_json
def tune(
    optimizer: Optimizer, batch_size: float, target: float | None, steps: int | None, examples: float | None,
    problem: Quadratic | LeastSquares, max_steps: int, noise: str, seed: int, rotation: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Best values of an optimizer's free parameters: fewest steps to a target, or least loss for a budget.

    --noise, --seed and --rotation are for optimizers that are sampled; the expected loss of the others feels none of them.
    """
    options.check_goals(target, steps, examples)
    from ..search import tune as search

    with progress(f"tuning {optimizer}"):
        found = search(
            problem, optimizer, batch_size, target, steps=steps, examples=examples, max_steps=max_steps,
            noise=noise, seed=seed, rotation=rotation,
        )  # fmt: skip
    Sink(as_json).deliver(found.to_dict, lambda: output.show_tuned(found))
    _exit(found.outcome)


@main.command(
    short_help="best piecewise-constant schedule",
    examples=[
        "nqm schedule SGD -b 64 --target 0.01 --pieces 10 --plot schedule.png",
        "nqm schedule 'HeavyBall(momentum=0.9)' -b 1024 --steps 2000 --pieces 5",
        "nqm schedule SGD -b 1 --examples 1e5 --on batch_size --pieces 4",
    ],
)
@options.optimizer
@options.batch_size
@options.goals
@click.option(
    "--pieces", type=click.IntRange(1, 1000), default=10, show_default=True, help="Stretches of equal length."
)
@click.option(
    "--on", type=click.Choice(["lr", "batch_size"]), default="lr", show_default=True,
    help="What to schedule; batch_size needs --examples, and -b is the unit of its multipliers.",
)  # fmt: skip
@options.spectrum
@options.as_json
@options.csv
@options.plot
def schedule(
    optimizer: Optimizer, batch_size: float, target: float | None, steps: int | None, examples: float | None,
    pieces: int, on: Any, spectrum: Spectrum, as_json: bool, csv: str | None, plot: str | None,
) -> None:  # fmt: skip
    """Best piecewise-constant schedule of the learning rate or of the batch size, by exact gradients."""
    options.check_goals(target, steps, examples)
    from ..problems.quadratic import Quadratic
    from ..search import optimal_schedule

    sink = Sink(as_json, csv, plot)
    with progress(f"{pieces} pieces for {optimizer}"):
        found = optimal_schedule(
            Quadratic(spectrum), optimizer, batch_size, target, steps=steps, examples=examples, pieces=pieces, on=on
        )
    sink.deliver(found.to_dict, lambda: output.show_schedule(found), lambda: output.schedule_rows(found), found.plot)
    _exit(found.outcome)


@main.command(
    short_help="tuned steps against batch size, critical batch size",
    examples=[
        "nqm sweep SGD HeavyBall --target 0.01 --plot sweep.png",
        "nqm sweep 'EMA(SGD)' --target 0.1 --batch-sizes 16,64,256",
        "nqm sweep 'Adam(beta1=0.9)' SGD --target 0.1 --spectrum 'power_law(100)' --batch-sizes 64,512 --plot adam.png",
        "nqm sweep 'Adam(beta1=0.9)' SGD --target 0.3 --spectrum 'power_law(30)' --batch-sizes 16,64 --noise 'student_t(3)'",
        "nqm sweep 'Preconditioned(SGD, power=0.5)' --target 0.01 --batch-sizes 2^4..2^16 --csv sweep.csv",
        "nqm sweep SGD --target 0.1 --batch-sizes 1,4,16,64 --problem least_squares",
    ],
)
@options.optimizers
@options.target
@click.option(
    "--batch-sizes", type=Parsed("sizes", "values.parse_batch_sizes"), metavar="SIZES", default="2^2..2^20", show_default=True,
    help="A list 4,16,64, or a range by factors of 4, or of another: 2^2..2^20..2.",
)  # fmt: skip
@options.problem
@options.max_steps
@options.laws
@options.as_json
@options.csv
@options.plot
@click.option("--plot-lr", type=PICTURE, metavar="FILE", help="Write a picture of the best learning rates.")
def sweep(
    optimizers: tuple[Optimizer, ...], target: float, batch_sizes: list[float], problem: Quadratic | LeastSquares,
    max_steps: int, noise: str, seed: int, rotation: int | None,
    as_json: bool, csv: str | None, plot: str | None, plot_lr: str | None,
) -> None:  # fmt: skip
    """Tuned steps to a target at each batch size, for one or several optimizers, and where returns diminish."""
    from ..show import plots as pictures

    sink = Sink(as_json, csv, plot)
    sweeps = _sweeps(
        problem, optimizers, target, batch_sizes, max_steps=max_steps, noise=noise, seed=seed, rotation=rotation
    )
    sink.deliver(
        lambda: {"sweeps": [s.to_dict() for s in sweeps]},
        lambda: output.show_sweeps(sweeps),
        lambda: [{"label": s.label, **row} for s in sweeps for row in s.table()],
        lambda path: pictures.plot_sweeps(sweeps, path),
    )
    if plot_lr:
        pictures.plot_lr(sweeps, plot_lr)
        wrote(plot_lr)
    if not any((s.steps >= 0).any() for s in sweeps):
        raise click.exceptions.Exit(FAILED)


@main.command(
    short_help="describe, compress and save a problem",
    examples=[
        "nqm spectrum",
        "nqm spectrum 'power_law(1e12, exponent=1.2)' --save wide.npz",
        "nqm spectrum 'power_law(10000).binned(100)' --json",
        "nqm spectrum 'power_law(10000, noise_exponent=0.5)' --compress 1e-9 --csv -",
    ],
)
@click.argument("problem", metavar="[SPECTRUM]", type=options.SPECTRUM, required=False)
@options.spectrum
@click.option("--compress", type=NUMBER, metavar="TOL", help="Replace modes by fewer nodes, to this error in the loss.")
@click.option(
    "--save", type=OutputFile((".json", ".npz")), metavar="FILE", help="Write it as .json or .npz, for --spectrum."
)
@options.as_json
@options.csv
def spectrum(
    problem: Spectrum | None,
    spectrum: Spectrum,
    compress: float | None,
    save: str | None,
    as_json: bool,
    csv: str | None,
) -> None:
    """Describe a problem: its modes, trace and initial loss; compress it, save it."""
    sink = Sink(as_json, csv)
    found = spectrum if problem is None else problem
    if compress is not None:
        from ..text.objects import compressed

        found = compressed(found, compress)
    about = found.summary()
    sink.deliver(lambda: about, lambda: show_pairs(about), lambda: output.mode_rows(found))
    if save:
        found.save(with_folder(save))
        wrote(save)


for verb in (netverbs.fit, netverbs.predict, netverbs.check, compareverbs.lab, webverbs.map_, webverbs.serve):
    main.add_command(verb)


@main.command(
    short_help="redraw the figures of Zhang et al. (2019)",
    examples=["nqm paper", "nqm paper --out figures --only fig2 --only fig4a"],
)
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    metavar="DIR",
    default="nqm-paper",
    show_default=True,
    help="Folder to write into.",
)
@click.option("--only", metavar="NAME", multiple=True, help="Draw this figure only; may be repeated.")
@options.as_json
def paper(out: str, only: tuple[str, ...], as_json: bool) -> None:
    """Redraw every noisy-quadratic figure of Zhang et al. (2019), with data and a report that checks its statements."""
    from ..paper import run_all

    workers = 1 if only else min(4, os.cpu_count() or 1)
    with progress("figures") as report:
        written = [str(path) for path in run_all(out, only or None, report, workers=workers)]
    Sink(as_json).deliver(lambda: {"written": written}, lambda: click.echo("\n".join(written)))


@main.command(
    short_help="measure the claims of Zhang et al. (2019)",
    examples=[
        "nqm claims --list",
        "nqm claims ema_lowers_floor stationary_covariance --turn",
        "nqm claims --out claims",
        "nqm claims lr_momentum_interchangeable --json",
        "nqm claims stationary_covariance --premise x=1.9 --csv covariance.csv",
    ],
)
@click.argument("names", metavar="[NAME]...", nargs=-1, type=options.CLAIM)
@click.option("--list", "listing", is_flag=True, help="List the claims and measure none.")
@click.option(
    "--out", type=click.Path(file_okay=False), metavar="DIR",
    help="Write a picture of each, and one page of all as claims.md and claims.html.",
)  # fmt: skip
@click.option("--turn", is_flag=True, help="Measure each again with the premise broken that turns its verdict.")
@click.option(
    "--premise", "given", metavar="NAME=VALUE", multiple=True,
    help="Measure one claim with this premise instead of its own; may be repeated.",
)  # fmt: skip
@options.as_json
@click.option(
    "--csv", type=options.OutputFile(), metavar="FILE", help="Write the table of one claim; - for standard output."
)
def claims(
    names: tuple[str, ...], listing: bool, out: str | None, turn: bool, given: tuple[str, ...], as_json: bool,
    csv: str | None,
) -> None:  # fmt: skip
    """Measure what Zhang et al. (2019) claim: the statement, what was measured, the number, the verdict.

    Without a NAME all of them, on as many processes as there are processors. A verdict follows from the number and a
    tolerance, for which a reason is given. Random numbers are seeded.
    """
    from ..paper.claims import CLAIMS, run_all

    sink = Sink(as_json, csv)
    if (given or csv) and len(names) != 1:
        raise click.UsageError("--premise and --csv are about one claim: give its NAME", click.get_current_context())
    premises = dict(CLAIMS[names[0]].read(text) for text in given)
    if listing:
        listed = [CLAIMS[name] for name in names or CLAIMS]
        sink.deliver(lambda: {"claims": [c.to_dict() for c in listed]}, lambda: output.show_claims(listed))
        return
    few = 0 < len(names) < 4  # done sooner than processes are started
    with progress("measuring claims") as report:
        workers = 1 if few else min(4, os.cpu_count() or 1)
        found = run_all(names, out, turn=turn, premises=premises, progress=report, workers=workers)
    sink.deliver(
        lambda: {"claims": [one.to_dict() for one in found]},
        lambda: output.show_checked(found),
        lambda: [row for one in found for row in one.measured.table],
    )
    for page in ("claims.md", "claims.html") if out else ():
        wrote(os.path.join(out or "", page))


@main.command(
    short_help="three optimizers over batch sizes, with a picture", examples=["nqm demo", "nqm demo --plot demo.pdf"]
)
@click.option(
    "--plot", type=PICTURE, metavar="FILE", default="nqm-demo.png", show_default=True, help="Where the picture goes."
)
@options.as_json
def demo(plot: str, as_json: bool) -> None:
    """SGD, heavy ball and averaged SGD tuned over batch sizes on the paper's problem, to a loss of 0.01."""
    from ..optimizers import EMA, SGD, HeavyBall
    from ..problems.quadratic import Quadratic
    from ..show.plots import plot_sweeps
    from ..text.objects import parse_spectrum
    from ..text.values import parse_batch_sizes

    problem, sizes = Quadratic(parse_spectrum("power_law(10000)")), parse_batch_sizes("2^2..2^20")
    sweeps = _sweeps(problem, (SGD(), HeavyBall(), EMA(SGD())), 0.01, sizes)
    Sink(as_json, plot=plot).deliver(
        lambda: {"sweeps": [s.to_dict() for s in sweeps]},
        lambda: output.show_sweeps(sweeps, settings=False),
        draw=lambda path: plot_sweeps(sweeps, path),
    )


def _exit(outcome: Outcome) -> None:
    """Status 1 for a computation that has no answer; its sentence has been printed."""
    if not outcome.ok:
        raise click.exceptions.Exit(FAILED)


def _sweeps(
    problem: Quadratic | LeastSquares,
    optimizers: tuple[Optimizer, ...],
    target: float,
    batch_sizes: list[float],
    *,
    max_steps: int = 10**9,
    noise: str = "gaussian",
    seed: int = 0,
    rotation: int | None = None,
) -> list[Sweep]:
    from ..search.sweeps import sweep as run

    found = []
    for optimizer in optimizers:
        with progress(f"sweeping {optimizer}") as report:
            one = run(
                problem, optimizer, batch_sizes, target=target, max_steps=max_steps,
                noise=noise, seed=seed, rotation=rotation, progress=report,
            )  # fmt: skip
            found.append(one)
    return found
