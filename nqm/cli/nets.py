"""Verbs for real networks: fit, predict, advise, check. Torch is imported inside the verbs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click import Choice

from ..show.numbers import percent
from ..show.tables import some, with_folder
from ..text.values import parse_number
from ..types import Wrong, unknown
from . import options
from .options import FIT, INPUT, INTEGER, NUMBER, SIZES, STORE, Whole, flag, option, verb
from .output import TABLE_ROWS, Sink, answered, progress, show_pairs, show_table, write
from .screen import remark, say

if TYPE_CHECKING:
    from ..engine.schedule import Schedule
    from ..nets import Network
    from ..nets.fitting.model import Fit
    from ..nets.fitting.validation import Check
    from ..nets.krylov import Store
    from ..optimizers import Optimizer

CURVATURE_NAMES = ("gauss_newton", "hessian", "fisher", "empirical_fisher")
BASIS_STORES = ("working", "host", "bf16", "host-bf16")
WORKLOAD_NAMES = ("digits", "fashion_mlp", "fashion_cnn", "mnist_cnn", "cifar_resnet8", "moby_transformer")
FOUR = "SGD, heavy ball, Nesterov and EMA"  # `nqm check` checks these if no optimizer is given.


@dataclass(frozen=True)
class Source:
    """The network that a verb is called for; `load` builds it."""

    workload: str
    train_steps: int | None
    examples: int | None
    seed: int

    def load(self) -> Network:
        from ..nets.workloads import network_of

        with progress(f"training {self.workload} to its checkpoint") as report:
            try:
                return network_of(
                    self.workload, steps=self.train_steps, examples=self.examples, seed=self.seed, progress=report
                )
            except Wrong as error:
                # The argument steps of `network_of` is the option --train-steps here.
                raise Wrong(str(error), "train_steps" if error.argument == "steps" else error.argument) from None

    def fit_file(self) -> str:
        """The default file of a fit, such as ``digits.json``. It is refused if it exists and is not a fit."""
        from ..nets.fitting.model import is_fit

        path = Path(f"{self.workload.rpartition(':')[2]}.json")
        if path.is_file() and not is_fit(path):
            raise Wrong(f"{str(path)!r} exists and is not a fit; name another file", argument="out")
        options.check_writable(path)
        return str(path)


class Bytes(options.OptionType):
    """A number of bytes, with K, M, G or T for powers of 1,000."""

    name = metavar = "BYTES"

    def read(self, text: str) -> int:
        from ..text.values import parse_number

        units = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
        plain = text.strip().upper().removesuffix("B")
        try:
            number = parse_number(plain[:-1]) * units[plain[-1]] if plain[-1:] in units else parse_number(plain)
        except Wrong:
            number = math.nan
        if not 0 < number < math.inf:
            raise Wrong(f"it must be a number of bytes, such as 8G or 500M, got {text!r:.40}")
        return int(number)


BYTES = Bytes()


def _announced(sentence: str) -> None:
    """Say on standard error what a fit will take."""
    say(sentence, err=True)


class WorkloadText(options.OptionType):
    """The name of a workload, or MODULE:FUNCTION. A name that does not exist is refused before torch is imported."""

    name = metavar = "WORKLOAD|MODULE:FUNCTION"

    def read(self, text: str) -> str:
        if ":" not in text and text not in WORKLOAD_NAMES:
            raise unknown("workload", text, WORKLOAD_NAMES, ", or MODULE:FUNCTION for a network of your own")
        return text


class HorizonText(options.OptionType):
    """How far predictions should hold, as the number of steps and the learning rate: ``1000,0.1``."""

    name = metavar = "STEPS,LR"

    def read(self, text: str) -> tuple[int, float]:
        steps, comma, lr = text.partition(",")
        if not comma:
            raise Wrong(f"a horizon is a number of steps and a learning rate, such as 1000,0.1; got {text!r}")
        count = parse_number(steps, finite=True)
        if count < 1 or count != int(count):
            raise Wrong(f"a horizon needs a whole number of steps, got {steps!r}")
        return int(count), parse_number(lr, finite=True)


class SecondsText(options.OptionType):
    """Seconds per step: one number, or numbers by batch size such as ``64:0.1,1024:0.5``."""

    name = metavar = "SECONDS"

    def read(self, text: str) -> float | dict[float, float]:
        if ":" not in text:
            return parse_number(text, finite=True)
        pairs = [part.partition(":") for part in text.split(",")]
        return {parse_number(size, finite=True): parse_number(seconds, finite=True) for size, _, seconds in pairs}


HORIZON = HorizonText()
SECONDS = SecondsText()
_workload = click.argument("workload", metavar=WorkloadText.metavar, type=WorkloadText())
_train_steps = option("--train-steps", "Steps up to the checkpoint; the workload's own if omitted.", Whole(0))
_examples = option("--examples", "Use N examples of the data; all of them if omitted.", Whole(2))
network = options.bundle("source", Source, _workload, _train_steps, _examples, options.seed)


@verb(
    "read a noisy quadratic off a real network",
    "nqm fit digits",
    "nqm fit digits --examples 1k --out small.json --plot fit.png",
    "nqm fit digits --horizon 1000,0.1",
    "nqm fit mine:network --noise-vectors 16 --memory 8G --json",
    "nqm fit digits --sample 400 --descent 20 --out sampled.json",
    "nqm fit mine:network --optimizer adamw --state checkpoint.pt",
    "nqm fit digits --optimizer 'AdamW(1e-3)' -b 64 --out adamw.json",
    "nqm fit digits --optimizer 'KFAC(damping=0.01)' --out kfac.json",
)
@network
@option("--lanczos-steps", "Number of Lanczos steps from the gradient.", Whole(2), default=40)
@option("--noise-vectors", "Number of random noise vectors.", Whole(1), default=6)
@option("--probes", "Number of random vectors for the spectral density.", Whole(0), default=0)
@option("--descent", "Full gradients that follow the real loss; 165 if omitted, 0 for a plain quadratic.", Whole(0))
@option("--horizon", "Steps and rate STEPS,LR up to which predictions should hold; decides the descent.", HORIZON)
@flag("--no-test", "Omit the short real trainings by which the fit tests itself.")
@option("--curvature", "Curvature to measure; Gauss-Newton if omitted.", Choice(CURVATURE_NAMES))
@option(
    "--optimizer OPTIMIZER",
    "Measure in the metric of adamw or adam (with --state), AdamW(1e-3) (with -b) or KFAC(damping=0.01).",
)
@option(
    "--state FILE", "The state_dict() of the torch optimizer, or a checkpoint with one, as torch.save writes it.", INPUT
)
@option("-b --batch-size", "Batch size of an optimizer that has no state yet.", options.BATCH_SIZE)
@option(
    "--memory", "Memory of the fit beside activations, such as 8G; fewer Lanczos steps are taken if need be.", BYTES
)
@option(
    "--basis",
    "Where the Lanczos basis is kept: beside the network, in host memory, in bfloat16, or both.",
    Choice(BASIS_STORES),
    default="working",
)
@option("--sample", "Measure on N random examples, and state the sampling error.", Whole(2))
@option("--out", "File for the fit, .json or .npz; WORKLOAD.json or FUNCTION.json if omitted.", FIT)
@options.sink(plot=True)
def fit(
    source: Source, lanczos_steps: int, noise_vectors: int, probes: int, descent: int | None,
    horizon: tuple[int, float] | None, no_test: bool, curvature: str | None, optimizer: str | None, state: str | None,
    batch_size: float | None, memory: int | None, basis: Store, sample: int | None, out: str | None, sink: Sink,
) -> None:  # fmt: skip
    """Measure how the gradient's signal and noise are distributed over the curvature of a network.

    WORKLOAD is digits, fashion_mlp, fashion_cnn, mnist_cnn, cifar_resnet8 or moby_transformer, which is first trained to its
    checkpoint. Or it is MODULE:FUNCTION, a function of your own that returns an nqm.nets.Network; the module may be in the
    current directory.

    The fit is written to --out. If that is omitted, it is written to digits.json for digits and to network.json for
    mine:network, and replaces an earlier fit there. nqm predict, nqm advise, nqm check --fit and --spectrum read the file.

    AdamW, Adam and KFAC are predicted from a fit in the metric of their preconditioner. That of Adam comes from the state that
    training has brought about (--state), at the weights of that step, or is measured for an optimizer that starts here. KFAC always
    starts here.
    """
    from ..nets.fitting.probing import fit as fit_network

    file = out or source.fit_file()
    trained_by = _trained_by(optimizer, state)
    network = source.load()
    with progress("fitting") as report:
        found = fit_network(
            network, steps=lanczos_steps, noise_vectors=noise_vectors, probes=probes, descent=descent, horizon=horizon,
            test=not no_test, curvature=curvature, optimizer=trained_by, batch_size=batch_size, seed=source.seed,
            memory=memory, basis=basis, sample=sample, announce=_announced, progress=report,
        )  # fmt: skip
    write(file, found.save)
    sink.deliver(found.to_dict, lambda: _show_fit(found), draw=found.plot)


@verb(
    "what a fitted network will do next",
    "nqm predict digits.json 'HeavyBall(0.01, momentum=0.9)' -b 64 --steps 1000",
    "nqm predict digits.json 'SGD(0.3)' -b 32 --steps 200 --target 0.1 --cadence 10",
    "nqm predict digits.json 'SGD(0.1)' -b 256 --steps 500 --schedule 'linear(500)' --csv -",
)
@click.argument("path", metavar="FIT", type=INPUT)
@options.trained
@options.batch_size
@option("--steps", "Number of steps to predict.", INTEGER, required=True)
@options.schedule
@flag("--epochs", "Draw batches from shuffled epochs instead of independently.")
@option("--target LOSS", "Also say when a training's own loss first dips below LOSS.", NUMBER)
@option("--cadence", "Steps between two looks at the loss, for --target.", Whole(1), default=1)
@flag("--quadratic", "Predict with the plain quadratic, without the correction that the descent gave.")
@options.sink(csv=True, plot=True)
def predict(
    path: str, optimizer: Optimizer, batch_size: float, steps: int, schedule: Schedule | None, epochs: bool,
    target: float | None, cadence: int, quadratic: bool, sink: Sink,
) -> None:  # fmt: skip
    """Predict the training loss of a fitted network over the next steps of one setting, with an interval.

    nqm advise finds the setting that reaches a target soonest.
    """
    from ..nets.fitting.model import Fit

    found = Fit.load(path)
    with progress("predicting"):
        prediction = found.predict(optimizer, batch_size, steps, schedule, replacement=not epochs, bent=not quadratic)
        hits = None if target is None else found.first_hits(optimizer, batch_size, target, schedule, cadence=cadence)

    def show() -> None:
        say(prediction.message)
        if hits is not None:
            say(hits.message)
        show_table(some(prediction.table(), TABLE_ROWS), f"{optimizer}, batch size {batch_size:g}", apart=True)

    def plain() -> dict[str, object]:
        return prediction.to_dict() | ({} if hits is None else {"first_hits": hits.to_dict()})

    sink.deliver(plain, show, prediction.table, prediction.plot)
    answered(prediction.run.outcome.ok)


@verb(
    "how to train a fitted network to a target",
    "nqm advise digits.json -b 64 --target 0.08",
    "nqm advise digits.json -b 256 --target 0.1 --json",
    "nqm advise digits.json -b 64 --target 0.1 --optimizer 'HeavyBall(momentum=0.9)' --cadence 10",
    "nqm advise digits.json -b 64 --target 0.1 --optimizer SGD --seconds-per-step 64:0.02,1024:0.1",
    "nqm advise digits.json -b 64 --target 0.1 --optimizer SGD --verify digits",
)
@click.argument("path", metavar="FIT", type=INPUT)
@options.batch_size
@option("--target LOSS", "Training loss to reach, below that of the checkpoint.", NUMBER, required=True)
@option(
    "--optimizer",
    "Tune this one alone; what is set in it stays. The optimizer of a fit made for AdamW or KFAC, if omitted.",
    options.TRAINED,
)
@option("--batch-sizes", "Batch sizes to compare, up to the number of examples.", SIZES, default="4..16384")
@option("--cadence", "Steps between two looks at the loss of a training.", Whole(1), default=1)
@option("--seconds-per-step SECONDS", "Time of a step: 0.1, or by batch size 64:0.1,1024:0.5.", SECONDS)
@option(
    "--verify WORKLOAD",
    "Train the recommended setting of this network for real, and report; times its steps too.",
    WorkloadText(),
)
@option("--state FILE", "For --verify: the state of AdamW from which the fit was made.", INPUT)
@option("--seeds", "Trainings for --verify.", Whole(1), default=5)
@options.sink(csv=True)
def advise(
    path: str, batch_size: float, target: float, optimizer: Optimizer | None, batch_sizes: list[float], cadence: int,
    seconds_per_step: float | dict[float, float] | None, verify: str | None, state: str | None, seeds: int, sink: Sink,
) -> None:  # fmt: skip
    """Say which optimizer, learning rate, batch size and decay take a fitted network to a training loss soonest.

    A training arrives when its own loss, looked at every --cadence steps, first dips below the target. low and high are an 80%
    band over trainings; expected_steps is when the mean over trainings arrives. With --verify, the recommended setting is trained
    from the checkpoint of the fit, which is the workload or your MODULE:FUNCTION that was fitted.
    """
    from ..nets.fitting.model import Fit

    fit = Fit.load(path)
    network = None if verify is None else _same_network(fit, verify)
    if network is not None and seconds_per_step is None:
        from ..nets.fitting.verifying import measured_seconds

        seconds_per_step = measured_seconds(network, [*batch_sizes, batch_size])
    with progress("tuning") as report:
        asked = {"batch_sizes": batch_sizes, "cadence": cadence, "seconds_per_step": seconds_per_step}
        advice = fit.advise(batch_size, target, optimizer, **asked, progress=report)  # type: ignore[arg-type]
    verified = None
    if network is not None and advice.best is not None:
        from ..nets.fitting.adam_state import load_state
        from ..nets.fitting.verifying import verify as train

        name = "adamw" if fit.metric is None else type(fit.metric.optimizer).__name__
        with progress("training") as report:
            given = None if state is None else load_state(state, name)
            verified = train(network, fit, advice, seeds=seeds, state=given, progress=report)

    def show() -> None:
        remark(advice.sentences if verified is None else (*advice.sentences, verified.message))
        if advice.arrivals:
            show_table(advice.alternatives(), f"From {fit.loss:.4g} to {target:g} at batch {batch_size:g}", apart=True)
            show_table(advice.soonest(), "Soonest at each batch size")

    def plain() -> dict[str, object]:
        return advice.to_dict() | ({} if verified is None else {"verified": verified.to_dict()})

    sink.deliver(plain, show, advice.table)
    answered(advice.best is not None)


def _same_network(fit: Fit, text: str) -> Network:
    """The network that a fit was made of, at its checkpoint."""
    made = fit.provenance
    steps = made.step if ":" not in text else None
    return Source(text, steps, fit.examples, made.seed).load()


@verb(
    "predictions against real training",
    "nqm check digits 'SGD(0.05)' 'HeavyBall(0.01, 0.9)' --fit digits.json --batch-sizes 64 --steps 100 --plot check.png",
    "nqm check fashion_mlp --seeds 3 --store trainings.jsonl --out fashion.json",
)
@network
@click.argument("optimizers", metavar="[OPTIMIZER]...", type=options.TRAINED, nargs=-1)
@option("--fit path FILE", "Check this fit of the same checkpoint instead of making one.", INPUT)
@option("--batch-sizes", "For each OPTIMIZER all of them; without any, in turn.", SIZES, default="16..4096")
@option("--rates", f"Rates x curvature of {FOUR}, if no OPTIMIZER is given.", options.RATE_LIST, default="0.03,0.1,0.3")
@option("--steps", "Number of steps to train.", Whole(1), default=1000)
@option("--seeds", "Trainings of each setting; fewer for batches above 2,048, at least one.", Whole(1), default=2)
@option("--store", "Keep every training in this file, and do not repeat those in it.", STORE)
@option("--out", "Write the fit to this file, with the horizon that the check found.", FIT)
@options.sink(csv=True, plot=True)
def check(
    source: Source, optimizers: tuple[Optimizer, ...], path: str | None, batch_sizes: list[float],
    rates: list[float], steps: int, seeds: int, store: str | None, out: str | None, sink: Sink,
) -> None:  # fmt: skip
    """Train the network from its checkpoint with several settings and seeds, and compare the losses with the predictions."""
    from ..nets.fitting.model import Fit
    from ..nets.fitting.stepwise import check_metric, in_metric
    from ..optimizers.base import require_set

    given = Fit.load(path) if path else None
    for optimizer in optimizers:  # What is wrong with a setting is said before torch is imported and a network trained.
        require_set(optimizer, "check")
        if given is not None:
            check_metric(given, optimizer)
        elif not optimizer.linear:
            told = f"{optimizer} is not linear, so its loss is not predicted"
            if in_metric(optimizer):
                made = f"nqm fit {source.workload} --optimizer '{optimizer}' -b 64 --out FILE"
                raise Wrong(f"{told} without --fit FILE in its metric, which {made} makes", "optimizers")
            raise Wrong(f"{told}; check SGD, HeavyBall, Nesterov and averages of them", "optimizers")
    for size in batch_sizes:
        if size < 1 or not (math.isinf(size) or size == int(size)):
            raise Wrong(f"training needs whole batch sizes, or inf for full gradients, got {size:g}", "batch_sizes")
    from ..nets.fitting.probing import fit as fit_network
    from ..nets.fitting.validation import CHECKED_STEPS, kept_in, settings
    from ..nets.fitting.validation import check as run

    if store:
        kept_in(Path(store))
    network = source.load()
    with progress("fitting") as report:
        fitted = given or fit_network(network, seed=source.seed, progress=report)
    chosen = [(o, b) for o in optimizers for b in batch_sizes] or settings(fitted, rates, batch_sizes)
    times, kept = sorted({*(t for t in CHECKED_STEPS if t < steps), steps}), with_folder(store) if store else None
    with progress("training") as report:
        found = run(network, fitted, chosen, steps=times, seeds=seeds, seed=source.seed, store=kept, progress=report)
    write(out, lambda path: found.checked().save(path))
    sink.deliver(found.to_dict, lambda: _show_check(found), found.table, found.plot)


def _trained_by(optimizer: str | None, state: str | None) -> object:
    """What ``--optimizer`` and ``--state`` ask for: the state of a torch optimizer, an optimizer without one, or nothing."""
    if state is not None:
        from ..nets.fitting.adam_state import load_state

        return load_state(state, optimizer or "adamw")
    if optimizer is None:
        return None
    if optimizer.lower() in ("adam", "adamw"):
        advice = "give it with --state FILE, or write AdamW(1e-3) and -b for one that starts here"
        raise Wrong(f"the state of {optimizer} is missing; {advice}", argument="state")
    from ..nets.natural import parse_trained

    return parse_trained(optimizer)


def _show_fit(fit: Fit) -> None:
    made, about = fit.provenance, fit.to_dict()
    names = ("network", "step", "parameters", "examples", "loss", "offset", "largest_curvature", "gradient_norm")
    pairs = {name: about[name] for name in names}
    pairs |= {"noise_scale": str(fit.noise_scale), "curvature_noise_scale": str(fit.curvature_noise_scale)}
    if fit.metric is not None:
        pairs["plain_noise_scale"] = fit.metric.plain_noise_scale
    pairs |= {name: about[name] for name in ("noise_exponent", "adam_power", "products", "seconds")}
    show_pairs(pairs)
    say(
        f"- a full gradient takes {made.gradient_seconds:.2g} s; a product costs {made.product_cost:.2g} of them "
        f"alone and {made.product_cost_together:.2g} with {made.noise_vectors + made.probes} together"
    )
    say(f"- memory is that of passes over {made.chunk:,} examples, and fewer with several vectors")
    if fit.metric is not None:
        when = f"after {fit.metric.step:,} steps" if fit.metric.step else "at its first step"
        say(f"- measured in the metric of {fit.metric.optimizer} {when}; plain_noise_scale is in units of the weights")
    remark(made.notes)


def _show_check(check: Check) -> None:
    if any(row.prediction.run.outcome.ok for row in check.rows):
        say(f"in lr x steps x curvature, predictions {check.horizon().held()} in the median")
    else:
        say("nothing was predicted: every setting is outside the stable region of the measured curvature")
    last = [row for row in check.table() if row["steps"] == check.steps[-1]]
    show_table(last, f"Predicted and trained loss after {check.steps[-1]:,} steps", apart=True)
    shares = [
        {name.replace("_", " "): value if name == "steps" else percent(value) for name, value in row.items()}
        for row in check.summary()
    ]
    show_table(shares, f"Over {len(check.rows)} settings")
