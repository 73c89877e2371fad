"""The bodies of the endpoints: fields, kinds, bounds and defaults. Both the schema and the readers come from here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache, partial

from ..engine.schedule import Schedule
from ..nets.monitoring.choosing import SMALLEST_SCALE, BatchChoice
from ..optimizers import Optimizer, Wrapper, free
from ..optimizers.base import assign, parameters
from ..problems.base import Problem
from ..problems.least_squares import LeastSquares
from ..problems.quadratic import Quadratic
from ..search import Axis
from ..search.sweeps import DEFAULT_BATCH_SIZES
from ..text.objects import parse_optimizer, parse_schedule, parse_spectrum
from ..text.values import parse_batch_sizes, parse_max_rate
from ..types import Wrong
from .fields import FLAG, RAW_OBJECT, ChoiceValue, EitherValue, Field, ListValue, NumberValue, ObjectValue, TextValue
from .files import SHELF, SpectrumSource
from .limits import REQUEST

PAPER = "power_law(10000)"
LARGEST_NUMBER = 1e300  # Upper bound on every number of a body, far enough from overflow for most arithmetic.
SMALLEST_NUMBER = 1e-300  # Lower bound on a number of a body that must be positive.
PROBLEMS_KEPT = 8  # A process keeps this many problems, whose quadrature nodes take a tenth of a second to find.


@dataclass(frozen=True)
class Given:
    """A problem as a body gives it."""

    spectrum: SpectrumSource
    kind: str = "quadratic"
    label_noise: float | None = None

    def __post_init__(self) -> None:
        if self.label_noise is not None and self.kind != "least_squares":
            raise Wrong("label_noise needs the kind least_squares", argument="label_noise")
        self.problem  # noqa: B018 - an error is raised here, while the reader knows the field

    @property
    def problem(self) -> Problem:
        return _problem(self.spectrum, self.kind, self.label_noise)

    @property
    def quick(self) -> Problem:
        """The same problem on quadrature nodes, accurate to 1e-9 of the loss."""
        return self.problem.nodes.fine


@lru_cache(PROBLEMS_KEPT)
def _problem(source: SpectrumSource, kind: str, label_noise: float | None) -> Problem:
    if source.forecast is not None:
        if kind != "quadratic":
            raise Wrong("a forecast has the noise of its logs; leave the kind of gradient noise at quadratic", "kind")
        return source.forecast.problem
    return LeastSquares(source.spectrum, label_noise) if kind == "least_squares" else Quadratic(source.spectrum)


@dataclass(frozen=True)
class PlannedSchedule:
    """A schedule with the text that makes it."""

    text: str
    schedule: Schedule


@lru_cache(PROBLEMS_KEPT)
def _spectrum_text(text: str) -> SpectrumSource:
    text = " ".join(text.split())
    spectrum = parse_spectrum(text, allow_files=False)
    if len(spectrum) > REQUEST.nodes:
        raise Wrong(f"a spectrum may have at most {REQUEST.nodes:,} nodes, this one has {len(spectrum):,}; compress it")
    return SpectrumSource(text, spectrum)


def _spectrum_file(upload: str | None, file: dict[str, object] | None, name: str) -> SpectrumSource:
    if (upload is None) == (file is None):
        raise Wrong("a spectrum is text, or has exactly one of upload and file")
    return SHELF.get(upload) if upload is not None else SHELF.opened(json.dumps(file, sort_keys=True).encode(), name)


def _optimizer(text: str) -> Optimizer:
    found = parse_optimizer(text, allow_import=False)
    if (slots := _slots(found)) > REQUEST.slots:
        raise Wrong(f"an optimizer may have at most {REQUEST.slots} slots (arrays that it keeps), this one has {slots}")
    return found


def _slots(optimizer: Optimizer) -> int:
    """The number of slots of an optimizer; the number of nested optimizers if it has neither a system nor a mean field."""
    if optimizer.has_mean_field:
        return len(optimizer.initial())
    return 1 + (_slots(optimizer.inner) if isinstance(optimizer, Wrapper) else 0)


def _schedule_pieces(lengths: list[int], **multipliers: list[float] | None) -> PlannedSchedule:
    given = {name: values for name, values in multipliers.items() if values is not None}
    text = ", ".join([str(lengths), *(f"{name}={values}" for name, values in given.items())])
    return PlannedSchedule(f"Schedule({text})", Schedule(lengths, **given))


def _map(optimizer: Optimizer, x: Axis, y: Axis, **others: object) -> dict[str, object]:
    """Free the hyper-parameters on the axes: the page sends the optimizer with the values of the cell that was clicked."""
    for axis in (x, y):
        if axis.name in (known := parameters(optimizer)):
            optimizer = assign(optimizer, known[axis.name].path, free)
    return {"optimizer": optimizer, "x": x, "y": y, **others}


def _choice(other_per_device: int | None, other_seconds: float | None, **known: float) -> dict[str, object]:
    """What is known about a training; a second batch per device goes with its seconds."""
    if (other_per_device is None) != (other_seconds is None):
        missing = "other_per_device" if other_per_device is None else "other_seconds"
        raise Wrong("a second batch per device goes with its seconds per step; give both or neither", missing)
    other = None if other_per_device is None or other_seconds is None else (other_per_device, other_seconds)
    return {"training": BatchChoice(**known, other=other)}  # type: ignore[arg-type]


positive = NumberValue(SMALLEST_NUMBER, LARGEST_NUMBER)
batch_size = NumberValue(1e-12, LARGEST_NUMBER, infinite=True)
steps = NumberValue(0, REQUEST.steps, whole=True)
scale = NumberValue(SMALLEST_SCALE, 1e12)  # A noise scale, as a batch size.
examples = NumberValue(1, 10**9, whole=True)  # The batch on a device.
seconds = NumberValue(1e-9, 1e9)
seed = Field(NumberValue(0, 2**31, whole=True), 0)
multipliers = Field(ListValue(NumberValue(0, LARGEST_NUMBER), REQUEST.schedule_pieces), None)

file = ObjectValue({
    "upload": Field(TextValue(str, 64), None), "file": Field(RAW_OBJECT, None), "name": Field(TextValue(str, 200), ""),
}, _spectrum_file)  # fmt: skip
modes = {"spectrum": Field(EitherValue(TextValue(_spectrum_text), file), PAPER)}
problem = ObjectValue({
    **modes, "kind": Field(ChoiceValue(("quadratic", "least_squares")), "quadratic"),
    "label_noise": Field(NumberValue(0, LARGEST_NUMBER), None),
}, Given)  # fmt: skip
measured = ObjectValue(modes, Given)  # For endpoints that use the noise of the spectrum itself.
lengths = Field(ListValue(NumberValue(1, REQUEST.steps, whole=True), REQUEST.schedule_pieces))
scaled = dict.fromkeys(("lr", "momentum", "batch_size"), multipliers)
pieces = ObjectValue({"lengths": lengths, **scaled}, _schedule_pieces)
end = Field(NumberValue(0, LARGEST_NUMBER))
values = Field(NumberValue(2, REQUEST.settings, whole=True), 32)
axis = ObjectValue({"name": Field(TextValue(str, 60)), "low": end, "high": end, "n": values}, Axis)

given = {"problem": Field(problem, {})}
as_it_is = {"problem": Field(measured, {})}
optimizer = {"optimizer": Field(TextValue(_optimizer))}
at = {"batch_size": Field(batch_size)}
written = TextValue(lambda text: PlannedSchedule(text, parse_schedule(text)))
planned = {"schedule": Field(EitherValue(written, pieces), None)}
target = {"target": Field(positive)}
horizon = Field(NumberValue(1, REQUEST.steps, whole=True), None)
goals = {"target": Field(positive, None), "steps": horizon, "examples": Field(positive, None)}
quick = {"quick": Field(FLAG, False)}
sizes = EitherValue(
    TextValue(partial(parse_batch_sizes, most=REQUEST.batch_sizes)), ListValue(batch_size, REQUEST.batch_sizes)
)

BODIES: dict[str, ObjectValue] = {
    "curve": ObjectValue({
        **given, **optimizer, **at, "steps": Field(steps), **planned, **quick, "seed": seed,
        "grid": Field(ChoiceValue(("log", "linear")), "log"),
        "points": Field(NumberValue(2, REQUEST.points, whole=True), 200),
        "replicas": Field(NumberValue(2, REQUEST.replicas, whole=True), 64),
    }),
    "steps": ObjectValue({
        **given, **optimizer, **at, **target, **planned, **quick, "until": Field(ChoiceValue(("first", "settled")), "first"),
    }),
    "tune": ObjectValue({**given, **optimizer, **at, **goals, "seed": seed}),
    "sweep": ObjectValue({
        **given, **target, "seed": seed, "optimizers": Field(ListValue(TextValue(_optimizer), REQUEST.optimizers)),
        "batch_sizes": Field(sizes, list(DEFAULT_BATCH_SIZES)),
    }),
    "preview": ObjectValue({
        **given, **target, "optimizers": Field(ListValue(TextValue(_optimizer), REQUEST.optimizers)),
        "batch_sizes": Field(sizes, list(DEFAULT_BATCH_SIZES)),
        "added": Field(ListValue(batch_size, REQUEST.batch_sizes), []),
        "near": Field(ListValue(TextValue(_optimizer), REQUEST.batch_sizes + 1)),
        "near_steps": Field(ListValue(NumberValue(0, REQUEST.steps), REQUEST.batch_sizes + 1)),
    }),
    "schedule": ObjectValue({
        **given, **optimizer, **at, **goals, "pieces": Field(NumberValue(1, REQUEST.pieces, whole=True), 10),
        "on": Field(ChoiceValue(("lr", "batch_size")), "lr"),
        "max_rate": Field(EitherValue(TextValue(parse_max_rate, 40), positive), None),
    }),
    "map": ObjectValue(
        {**given, **optimizer, **target, "batch_size": Field(batch_size, None), "x": Field(axis), "y": Field(axis)}, _map
    ),
    "spectrum": ObjectValue(as_it_is),
    "outlook": ObjectValue({
        **as_it_is, **planned, "peak": Field(positive, None), "batch_size": Field(batch_size, None), "best": horizon,
        "extrapolate": Field(FLAG, False), "brief": Field(FLAG, False), "file": Field(FLAG, False),
    }),
    "batch": ObjectValue({
        "noise_scale": Field(scale), "low": Field(scale, None), "high": Field(scale, None),
        "devices": Field(NumberValue(1, REQUEST.devices, whole=True)), "per_device": Field(examples), "seconds": Field(seconds),
        "training_steps": Field(NumberValue(1, REQUEST.steps, whole=True)),
        "other_per_device": Field(examples, None), "other_seconds": Field(seconds, None),
    }, _choice),
    "noise": ObjectValue({
        "text": Field(TextValue(str, REQUEST.noise_file)), "name": Field(TextValue(str, 200), "run.jsonl"),
    }),
    "predict": ObjectValue({
        **as_it_is, **optimizer, **at, "steps": Field(steps), **planned,
        "epochs": Field(FLAG, False), "quadratic": Field(FLAG, False), "target": Field(positive, None),
    }),
    "advise": ObjectValue({**as_it_is, **at, **target, "optimizer": Field(TextValue(_optimizer), None)}),
}  # fmt: skip


def schemas() -> dict[str, dict[str, object]]:
    """The JSON schema of every body, by path."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {f"/api/{name}": {**dialect, **body.schema()} for name, body in BODIES.items()}
