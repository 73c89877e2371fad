"""Verbs for real networks: fit, predict, check. Each parses, calls and prints; torch is imported inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..show.tables import with_folder
from . import options
from .options import FAILED, NUMBER, OPTIMIZER, WHOLE, OutputFile, Parsed, Verb
from .output import Sink, progress, show_pairs, show_table, wrote

if TYPE_CHECKING:
    from ..engine.schedule import Schedule
    from ..nets.fitting.model import Fit
    from ..nets.fitting.prediction import Prediction
    from ..nets.fitting.validation import Check
    from ..optimizers import Optimizer

SHOWN = 12  # rows of a prediction on the screen

workload = click.argument("workload", metavar="WORKLOAD|MODULE:FUNCTION")
train_steps = click.option(
    "--train-steps",
    type=WHOLE,
    metavar="N",
    help="Steps from the start to the checkpoint; the workload's own if left out.",
)
examples = click.option("--examples", type=WHOLE, metavar="N", help="Use so many examples of the workload's data.")
seed = click.option("--seed", type=WHOLE, metavar="N", default=0, show_default=True, help="Of every random number.")


@click.command(
    "fit", cls=Verb, short_help="read a noisy quadratic off a real network",
    examples=["nqm fit digits --out digits.json", "nqm fit mine:network --noise-vectors 16 --plot fit.png --json"],
)  # fmt: skip
@workload
@train_steps
@examples
@seed
@click.option(
    "--lanczos-steps", type=click.IntRange(2), default=40, show_default=True, help="Products from the gradient."
)
@click.option("--noise-vectors", type=click.IntRange(1), default=6, show_default=True, help="Random noise vectors.")
@click.option("--probes", type=click.IntRange(0), default=0, show_default=True, help="Random vectors for the density.")
@click.option(
    "--descent", type=click.IntRange(0), default=150, show_default=True,
    help="Full gradients along which the real loss is followed; 0 for the plain quadratic.",
)  # fmt: skip
@click.option(
    "--curvature", type=click.Choice(["gauss_newton", "hessian", "fisher", "empirical_fisher"]),
    help="Which curvature; Gauss-Newton if left out.",
)  # fmt: skip
@click.option("--out", type=OutputFile((".json", ".npz")), metavar="FILE", help="Write the fit, for nqm predict.")
@options.as_json
@options.plot
def fit(
    workload: str, train_steps: int | None, examples: int | None, seed: int, lanczos_steps: int, noise_vectors: int,
    probes: int, descent: int, curvature: str | None, out: str | None, as_json: bool, plot: str | None,
) -> None:  # fmt: skip
    """Measure where gradient signal and noise of a network sit over its curvature.

    WORKLOAD is digits, fashion_mlp, fashion_cnn, mnist_cnn, cifar_resnet8 or moby_transformer, trained to its checkpoint
    first; or MODULE:FUNCTION, a function of your own, in the current directory too, that returns an nqm.nets.Network.
    """
    _needs_torch()
    from ..nets.fitting.model import fit as measure

    sink = Sink(as_json, plot=plot)
    network = _network(workload, train_steps, examples, seed)
    with progress(f"fitting {workload}") as report:
        found = measure(
            network, steps=lanczos_steps, noise_vectors=noise_vectors, probes=probes, descent=descent, curvature=curvature,
            seed=seed, progress=report,
        )  # fmt: skip
    if out:
        found.save(with_folder(out))
        wrote(out)
    sink.deliver(found.to_dict, lambda: _show_fit(found), draw=found.plot)


@click.command(
    "predict", cls=Verb, short_help="what a fitted network will do next",
    examples=[
        "nqm predict digits.json 'HeavyBall(0.01, momentum=0.9)' -b 64 --steps 1000",
        "nqm predict digits.json 'SGD(0.1)' -b 256 --steps 500 --schedule 'linear(500)' --csv -",
        "nqm predict digits.json -b 64 --target 0.08",
    ],
)  # fmt: skip
@click.argument("file", metavar="FIT", type=click.Path(exists=True, dir_okay=False))
@click.argument("optimizer", type=OPTIMIZER, required=False)
@options.batch_size
@click.option("--steps", type=WHOLE, metavar="N", help="Predict the loss of OPTIMIZER over so many steps.")
@click.option("--target", type=NUMBER, metavar="LOSS", help="Or, without an OPTIMIZER: how to reach this loss soonest.")
@options.schedule
@click.option("--epochs", is_flag=True, help="Batches come from shuffled epochs, not drawn independently.")
@click.option("--quadratic", is_flag=True, help="The plain quadratic, without the bend that the fit's descent gives.")
@options.as_json
@options.csv
@options.plot
def predict(
    file: str, optimizer: Optimizer | None, batch_size: float, steps: int | None, target: float | None,
    schedule: Schedule | None, epochs: bool, quadratic: bool, as_json: bool, csv: str | None, plot: str | None,
) -> None:  # fmt: skip
    """Predict training loss from a fit: over the next steps of one setting, or the way to a target on one page."""
    from ..nets.fitting.model import Fit

    sink, found = Sink(as_json, csv, plot), Fit.load(file)
    if (optimizer is None) == (target is None) or (optimizer is None) != (steps is None):
        raise click.UsageError("give an OPTIMIZER with --steps, or --target alone", click.get_current_context())
    if optimizer is None or steps is None:
        _advise(found, target or 0.0, batch_size, sink)
        return
    prediction = found.predict(optimizer, batch_size, steps, schedule, replacement=not epochs, bent=not quadratic)
    sink.deliver(prediction.to_dict, lambda: _show_prediction(prediction), prediction.rows, prediction.plot)
    if not prediction.run.outcome.ok:
        raise click.exceptions.Exit(FAILED)


@click.command(
    "check", cls=Verb, short_help="predictions against real training",
    examples=[
        "nqm check digits 'SGD(0.05)' 'HeavyBall(0.01, 0.9)' --fit digits.json --batch-sizes 64 --steps 100 --plot check.png",
        "nqm check fashion_mlp --seeds 3 --store trainings.jsonl --out fashion.json",
    ],
)  # fmt: skip
@workload
@click.argument("optimizers", metavar="[OPTIMIZER]...", type=OPTIMIZER, nargs=-1)
@click.option(
    "--fit",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Check this fit, of the same checkpoint.",
)
@train_steps
@examples
@seed
@click.option(
    "--batch-sizes", type=Parsed("sizes", "values.parse_batch_sizes"), metavar="SIZES", default="16..4096", show_default=True,
    help="With each OPTIMIZER all of them; without any, in turn.",
)  # fmt: skip
@click.option(
    "--rates", type=Parsed("rates", "values.parse_rates"), metavar="RATES", default="0.03,0.1,0.3", show_default=True,
    help="Without OPTIMIZERs, SGD, heavy ball, Nesterov and EMA at these effective learning rates x largest curvature.",
)  # fmt: skip
@click.option("--steps", type=WHOLE, metavar="N", default=1000, show_default=True, help="Train so many steps.")
@click.option(
    "--seeds", type=click.IntRange(1), default=2, show_default=True,
    help="Trainings of each setting; above batches of 2,048 fewer, down to one.",
)  # fmt: skip
@click.option("--store", type=OutputFile(), metavar="FILE", help="Keep every training here, and make none twice.")
@click.option("--out", type=OutputFile((".json", ".npz")), metavar="FILE", help="Write the fit with the horizon found.")
@options.as_json
@options.csv
@options.plot
def check(
    workload: str, optimizers: tuple[Optimizer, ...], file: str | None, train_steps: int | None, examples: int | None,
    seed: int, batch_sizes: list[float], rates: list[float], steps: int, seeds: int, store: str | None, out: str | None,
    as_json: bool, csv: str | None, plot: str | None,
) -> None:  # fmt: skip
    """Branch real training from a checkpoint over settings and seeds, and set it beside what was predicted."""
    _needs_torch()
    from ..nets.fitting.model import Fit
    from ..nets.fitting.model import fit as measure
    from ..nets.fitting.validation import STEPS, settings
    from ..nets.fitting.validation import check as run

    sink = Sink(as_json, csv, plot)
    network = _network(workload, train_steps, examples, seed)
    with progress(f"fitting {workload}") as report:
        fitted = Fit.load(file) if file else measure(network, seed=seed, progress=report)
    chosen = [(o, b) for o in optimizers for b in batch_sizes] or settings(fitted, rates, batch_sizes)
    times = sorted({*(t for t in STEPS if t < steps), steps})
    with progress("training") as report:
        found = run(
            network,
            fitted,
            chosen,
            steps=times,
            seeds=seeds,
            seed=seed,
            store=store and with_folder(store),
            progress=report,
        )
    if out:
        found.checked().save(with_folder(out))
        wrote(out)
    sink.deliver(found.to_dict, lambda: _show_check(found), found.table, found.plot)


def _needs_torch() -> None:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise click.ClickException("real networks need torch: pip install 'nqm[nets]'") from None


def _network(text: str, steps: int | None, examples: int | None, seed: int) -> Any:
    from ..nets.workloads import network_of

    with progress(f"training {text} to its checkpoint") as report:
        return network_of(text, steps=steps, examples=examples, seed=seed, progress=report)


def _advise(fit: Fit, target: float, batch_size: float, sink: Sink) -> None:
    from ..nets.fitting.advice import advise

    with progress("tuning") as report:
        advice = advise(fit, target, batch_size, progress=report)

    def show() -> None:
        if advice.tuned:
            show_table(advice.table(), f"From {fit.loss:.4g} to {target:g} at batch {batch_size:g}")
        click.echo("\n".join(f"- {sentence}" for sentence in advice.sentences))

    sink.deliver(advice.to_dict, show, advice.table)
    if not advice.reachable:
        raise click.exceptions.Exit(FAILED)


def _show_fit(fit: Fit) -> None:
    about = fit.to_dict()
    names = ("network", "step", "parameters", "examples", "loss", "offset", "largest_curvature", "gradient_norm")
    pairs = {name: about[name] for name in names}
    pairs |= {"noise_scale": str(fit.noise_scale), "curvature_noise_scale": str(fit.curvature_noise_scale)}
    pairs |= {"noise_exponent": about["noise_exponent"], "adam_power": about["adam_power"]}
    pairs |= {"products": about["products"], "seconds": about["seconds"]}
    show_pairs(pairs)
    if "product_cost" in about:
        click.echo(
            f"- a full gradient takes {about['gradient_seconds']:.2g} s; a product costs {about['product_cost']:.2g} of them "
            f"alone and {about['product_cost_together']:.2g} with {about['noise_vectors'] + about['probes']} together"
        )
        click.echo(f"- memory is that of passes over {about['chunk']:,} examples, and fewer with several vectors")
    for note in about["notes"]:
        click.echo(f"- {note}")


def _show_prediction(prediction: Prediction) -> None:
    rows = prediction.rows()
    shown = rows if len(rows) <= SHOWN else [rows[round(i * (len(rows) - 1) / (SHOWN - 1))] for i in range(SHOWN)]
    show_table(shown, f"{prediction.run.optimizer}, batch size {prediction.run.batch_size:g}")
    click.echo(prediction.message)


def _show_check(check: Check) -> None:
    last = [row for row in check.table() if row["steps"] == check.steps[-1]]
    show_table(last, f"Predicted and trained loss after {check.steps[-1]:,} steps")
    shares = [{k: v if k == "steps" else f"{100 * v:.2g}%" for k, v in row.items()} for row in check.summary()]
    show_table([{k.replace("_", " "): v for k, v in row.items()} for row in shares], f"Over {len(check.rows)} settings")
    horizon = check.horizon()
    click.echo(
        f"within 2% up to lr x steps x curvature = {horizon.within_2:.3g}, within 5% up to {horizon.within_5:.3g}"
    )
