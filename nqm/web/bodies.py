"""What each endpoint's body holds: fields, kinds, bounds and defaults. The schema and the readers both come from here."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..engine.schedule import Schedule
from ..engine.spectrum import Spectrum
from ..nets.fitting.model import Fit
from ..optimizers import Optimizer
from ..problems.least_squares import MUCH, LeastSquares
from ..problems.quadratic import Quadratic
from ..search import Axis
from ..search.sweeps import DEFAULT_BATCH_SIZES
from ..text.objects import parse_optimizer, parse_schedule, parse_spectrum
from ..text.values import parse_batch_sizes
from ..types import Wrong
from . import limits
from .fields import Any_, Choice, Either, Field, Flag, Items, Number, Object, Refused, Text
from .files import SHELF, Opened

PAPER = "power_law(10000)"
HUGE = 1e300
PROBLEMS = 8  # kept with their nodes, which take a tenth of a second to find


@dataclass(frozen=True)
class Source:
    """Where a spectrum comes from: constructor text, or a file that was opened."""

    text: str
    opened: Opened | None = None

    @property
    def key(self) -> str:
        return self.opened.id if self.opened else self.text

    def spectrum(self) -> Spectrum:
        return self.opened.spectrum if self.opened else parse_spectrum(self.text, allow_files=False)


@dataclass(frozen=True)
class Given:
    """A problem as a body gives it."""

    spectrum: Source = Source(PAPER)
    kind: str = "quadratic"
    label_noise: float | None = None

    def __post_init__(self) -> None:
        if self.label_noise is not None and self.kind != "least_squares":
            raise Refused("label_noise needs the kind least_squares", "problem.label_noise")
        try:
            self.problem  # noqa: B018 - refused here, where the field is known
        except ValueError as error:
            what, _, remedy = str(error).partition("; ")
            if "label_noise" in remedy:
                raise Refused(f"{what}; set label_noise", "problem.label_noise") from None
            raise Refused(str(error), "problem.spectrum") from None

    @property
    def problem(self) -> Quadratic | LeastSquares:
        return _kept((self.spectrum.key, self.kind, self.label_noise), self._build)

    @property
    def quick(self) -> Quadratic | LeastSquares:
        """The same on quadrature nodes good to 1e-9."""
        return self.problem.fine

    def takes_long(self, steps: int) -> bool:
        """Whether so many steps on every mode take seconds: a regression has to walk them one by one."""
        return isinstance(self.problem, LeastSquares) and steps * len(self.problem.spectrum) > MUCH

    @property
    def fit(self) -> Fit | None:
        return self.spectrum.opened.fit if self.spectrum.opened else None

    def _build(self) -> Quadratic | LeastSquares:
        spectrum = self.spectrum.spectrum()
        if len(spectrum) > limits.NODES:
            raise Refused(f"a spectrum may have {limits.NODES:,} nodes, this one has {len(spectrum):,}; compress it")
        return LeastSquares(spectrum, self.label_noise) if self.kind == "least_squares" else Quadratic(spectrum)


_problems: OrderedDict[Any, Any] = OrderedDict()


def _kept(key: Any, build: Callable[[], Any]) -> Any:
    """A problem that was built before, or a new one; the one not asked for longest is forgotten."""
    if key not in _problems:
        _problems[key] = build()
    _problems.move_to_end(key)
    while len(_problems) > PROBLEMS:
        _problems.popitem(last=False)
    return _problems[key]


@dataclass(frozen=True)
class Scheduled:
    """A schedule with the text that makes it."""

    text: str
    schedule: Schedule


def _spectrum_text(text: str) -> Source:
    return Source(" ".join(text.split()))


def _spectrum_file(upload: str | None, file: dict[str, Any] | None, name: str) -> Source:
    if (upload is None) == (file is None):
        raise Wrong("a spectrum is text, or has exactly one of upload and file")
    opened = SHELF.get(upload) if upload is not None else SHELF.opened(json.dumps(file, sort_keys=True).encode(), name)
    return Source(opened.name, opened)


def _optimizer(text: str) -> Optimizer:
    found = parse_optimizer(text, allow_import=False)
    slots = _slots(found)
    if slots > limits.SLOTS:
        raise Wrong(
            f"an optimizer may have {limits.SLOTS} slots here, one for each thing it remembers; this has {slots}"
        )
    return found


def _slots(optimizer: Optimizer) -> int:
    """What it remembers: exactly for a linear one, its layers for another."""
    if optimizer.linear:
        return len(optimizer.initial())
    inner = getattr(optimizer, "inner", None)
    return 1 + (_slots(inner) if isinstance(inner, Optimizer) else 0)


def _schedule_text(text: str) -> Scheduled:
    return Scheduled(text, parse_schedule(text))


def _schedule_pieces(lengths: list[int], **multipliers: list[float] | None) -> Scheduled:
    given = {name: values for name, values in multipliers.items() if values is not None}
    text = ", ".join([str(lengths), *(f"{name}={values}" for name, values in given.items())])
    return Scheduled(f"Schedule({text})", Schedule(lengths, **given))


def _batch_sizes(text: str) -> list[float]:
    sizes = parse_batch_sizes(text)
    if len(sizes) > limits.BATCH_SIZES:
        raise Wrong(f"{text!r:.60} are {len(sizes)} batch sizes; ask for {limits.BATCH_SIZES} at most")
    return sizes


positive = Number(1e-300, HUGE)
batch_size = Number(1e-12, HUGE, infinite=True)
steps = Number(0, limits.STEPS, whole=True)
seed = Field(Number(0, 2**31, whole=True), 0)
multipliers = Field(Items(Number(0, HUGE), limits.SCHEDULE_PIECES), None)

modes = {
    "spectrum": Field(
        Either(
            Text(_spectrum_text),
            Object(
                {
                    "upload": Field(Text(str, 64), None),
                    "file": Field(Any_(), None),
                    "name": Field(Text(str, 200), ""),
                },
                _spectrum_file,
            ),
        ),
        Source(PAPER),
    )
}
problem = Object(
    {
        **modes,
        "kind": Field(Choice(("quadratic", "least_squares")), "quadratic"),
        "label_noise": Field(Number(0, HUGE), None),
    },
    Given,
)
measured = Object(modes, Given)  # where the noise is the spectrum's own
schedule = Either(
    Text(_schedule_text),
    Object(
        {
            "lengths": Field(Items(Number(1, limits.STEPS, whole=True), limits.SCHEDULE_PIECES)),
            "lr": multipliers,
            "momentum": multipliers,
            "batch_size": multipliers,
        },
        _schedule_pieces,
    ),
)
axis = Object(
    {
        "name": Field(Text(str, 60)),
        "low": Field(Number(0, HUGE)),
        "high": Field(Number(0, HUGE)),
        "n": Field(Number(2, limits.SETTINGS, whole=True), 32),
    },
    Axis,
)

given = {"problem": Field(problem, Given())}
as_it_is = {"problem": Field(measured, Given())}
optimizer = {"optimizer": Field(Text(_optimizer))}
at = {"batch_size": Field(batch_size)}
planned = {"schedule": Field(schedule, None)}
target = {"target": Field(positive)}
goals = {
    "target": Field(positive, None),
    "steps": Field(Number(1, limits.STEPS, whole=True), None),
    "examples": Field(positive, None),
}
quick = {"quick": Field(Flag(), False)}

BODIES: dict[str, Object] = {
    "curve": Object(
        {
            **given, **optimizer, **at, "steps": Field(steps), **planned, **quick, "seed": seed,
            "grid": Field(Choice(("log", "linear")), "log"),
            "points": Field(Number(2, limits.POINTS, whole=True), 200),
            "replicas": Field(Number(2, limits.REPLICAS, whole=True), 64),
        }
    ),
    "steps": Object(
        {**given, **optimizer, **at, **target, **planned, **quick, "until": Field(Choice(("first", "settled")), "first")}
    ),
    "tune": Object({**given, **optimizer, **at, **goals, "seed": seed}),
    "sweep": Object(
        {
            **given, **target, "seed": seed,
            "optimizers": Field(Items(Text(_optimizer), limits.OPTIMIZERS)),
            "batch_sizes": Field(
                Either(Text(_batch_sizes), Items(batch_size, limits.BATCH_SIZES)), list(DEFAULT_BATCH_SIZES)
            ),
        }
    ),
    "schedule": Object(
        {
            **given, **optimizer, **at, **goals,
            "pieces": Field(Number(1, limits.PIECES, whole=True), 10),
            "on": Field(Choice(("lr", "batch_size")), "lr"),
        }
    ),
    "map": Object({**given, **optimizer, **target, "batch_size": Field(batch_size, None), "x": Field(axis), "y": Field(axis)}),
    "spectrum": Object({**as_it_is}),
    "predict": Object(
        {
            **as_it_is, **optimizer, **at, "steps": Field(steps), **planned,
            "epochs": Field(Flag(), False), "quadratic": Field(Flag(), False),
        }
    ),
}  # fmt: skip


def schemas() -> dict[str, Any]:
    """The JSON schema of every body, by path."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {f"/api/{name}": {**dialect, **body.schema()} for name, body in BODIES.items()}
