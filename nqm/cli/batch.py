"""The verb batch: which batch size to use, from the noise scale of a training and the seconds of a step. It does not need torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..types import Wrong
from . import options
from .options import INPUT, NUMBER, Whole, option, verb
from .output import Sink, show_table
from .screen import remark, say

if TYPE_CHECKING:
    from ..nets.monitoring.choosing import BatchChoice

COUNT = Whole(1, 10**9)


@verb(
    "which batch size to use, for time and cost",
    "nqm batch --noise-scale 1000 --devices 8 --per-device 32 --seconds 0.2 --training-steps 1e5",
    "nqm batch --noise-scale 1000 --low 600 --high 2200 --devices 8 --per-device 32 --seconds 0.2 --training-steps 1e5 --json",
    "nqm batch run.jsonl --devices 8 --per-device 32 --seconds 0.2 --training-steps 1e5",
)
@click.argument("path", metavar="[FILE]", type=INPUT, required=False)
@option("--noise-scale", "Noise scale of the training, if there is no FILE.", NUMBER)
@option("--low", "Lower end of its interval.", NUMBER)
@option("--high", "Upper end of its interval.", NUMBER)
@option("--devices", "Devices on which the training runs now.", COUNT, required=True)
@option("--per-device", "Examples of a step on each of them.", COUNT, required=True)
@option("--seconds", "Seconds of a step.", NUMBER, required=True)
@option("--training-steps", "Steps of the whole training.", NUMBER, required=True)
@option("--other-per-device", "Another batch on each device, whose seconds are known.", COUNT)
@option("--other-seconds", "Seconds of a step with it.", NUMBER)
@options.sink(csv=True)
def batch(
    path: str | None, noise_scale: float | None, low: float | None, high: float | None, devices: int, per_device: int,
    seconds: float, training_steps: float, other_per_device: int | None, other_seconds: float | None, sink: Sink,
) -> None:  # fmt: skip
    """Recommend the batch size with the smallest product of time and cost, and say what the recommendation rests on.

    FILE is what nqm.nets.Monitor writes, or a file of nqm fit: both have a noise scale with its interval. With seconds at one
    batch, devices are added or removed; with seconds at two, the devices stay and the batch on each changes.
    """
    from ..nets.monitoring.choosing import BatchChoice

    if (path is None) == (noise_scale is None):
        raise Wrong("give a file or --noise-scale, and not both", argument="noise_scale")
    if (other_per_device is None) != (other_seconds is None):
        raise Wrong("a second batch per device goes with its seconds per step; give both or neither", "other_seconds")
    other = None if other_per_device is None or other_seconds is None else (other_per_device, other_seconds)
    scale, low, high, steps = _read(path) if path is not None else (noise_scale, low, high, None)
    assert scale is not None
    found = BatchChoice(scale, devices, per_device, seconds, training_steps, low, high, other, steps)
    sink.deliver(found.to_dict, lambda: _show(found), found.table)


def _read(path: str) -> tuple[float, float | None, float | None, tuple[int, int] | None]:
    """The noise scale in a file, with the ends of its interval and the steps of the training over which it was measured."""
    from ..nets.fitting.model import Fit, is_fit
    from ..nets.monitoring.watching import known_scale, watch

    return known_scale(Fit.load(path) if is_fit(Path(path)) else watch(path))


def _show(found: BatchChoice) -> None:
    say(found.sentence())
    now, then = {"": "now", **found.present.to_dict()}, {"": "recommended", **found.chosen.to_dict()}
    show_table([now, then], "Time and cost of the whole training", apart=True)
    remark(found.rests_on())
