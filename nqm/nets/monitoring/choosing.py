"""Which batch size to use: time against cost of a training, from its noise scale and the seconds of a step.

With the noise scale b as critical batch size, a training that takes S steps and E examples at best takes

    S (1 + b / B)  steps  and  E (1 + B / b)  examples   at batch size B

(McCandlish et al., 2018). A step of n devices with m examples each has B = n m and takes ``overhead + per_example m`` seconds.
The time of a training is steps times seconds, and its cost is devices times time. The batch size of choice has the smallest
product of time and cost: beyond it, 1% less time costs more than 1% more money. There are two cases.

- Seconds at one batch size: devices are added, m stays, and so do the seconds of a step. The product is smallest at B = b.
- Seconds at two batch sizes: devices stay, and m changes. Time and cost are smallest at B = sqrt(n b overhead / per_example).

This module does not need torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...engine.readable import Listed
from ...show.numbers import brief
from ...types import Array, Wrong

HALVINGS, DOUBLINGS = 40, 60  # The batch sizes to choose from are the present one times powers of two from -40 to 60.
CURVE_POINTS = 97  # A curve of time against cost has this many points.
CURVE_ROOM = 16.0  # A curve goes beyond the present and the best setting by this factor on either side.
SECONDS_PER_HOUR = 3600.0
SMALLEST_SCALE = 1e-6  # Lower bound on a noise scale, and on the ends of its interval.


def steps_ratio(noise_scale: float, batch_size: float, reference: float) -> float:
    """Steps at a batch size, as a multiple of those at a reference.

    >>> steps_ratio(100, batch_size=100, reference=50)
    0.6666666666666666
    """
    if math.isinf(noise_scale):
        return reference / batch_size
    return (1 + noise_scale / batch_size) / (1 + noise_scale / reference)


@dataclass(frozen=True)
class Setting:
    """Devices, the batch on each of them, and the time and cost of a whole training."""

    devices: float
    per_device: float
    hours: float

    @property
    def batch_size(self) -> float:
        return self.devices * self.per_device

    @property
    def device_hours(self) -> float:
        return self.devices * self.hours

    def gains(self, over: Setting) -> tuple[float, float]:
        """How many times as fast as another setting, and how many times its cost."""
        return over.hours / self.hours, self.device_hours / over.device_hours

    def to_dict(self) -> dict[str, float]:
        names = ("devices", "per_device", "batch_size", "hours", "device_hours")
        return {name: float(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class BatchChoice(metaclass=Listed):
    """What is known about a training, and the batch size that follows from it.

    ``training_steps`` and ``seconds`` per step are those of the training on ``devices`` with ``per_device`` examples each.
    ``low`` and ``high`` are the interval of the noise scale, and ``other`` is another batch per device with its seconds per step.
    ``steps`` are the first and last step of the training over which the noise scale was measured.
    """

    noise_scale: float
    devices: int
    per_device: int
    seconds: float
    training_steps: float
    low: float | None = None
    high: float | None = None
    other: tuple[float, float] | None = None
    steps: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("noise_scale", "devices", "per_device", "seconds", "training_steps"):
            if not getattr(self, name) > 0:
                raise Wrong(f"{name.replace('_', ' ')} must be positive, got {getattr(self, name):g}", argument=name)
        if self.low is None and self.high is not None:
            raise Wrong("the upper end of the noise scale's interval needs the lower end", argument="low")
        low, high = self.low or 0.0, self.high or math.inf
        if not low <= self.noise_scale <= high:
            told = f"the noise scale {self.noise_scale:g} is not between the ends {low:g} and {high:g} of its interval"
            raise Wrong(told, argument="noise_scale")
        if self.other is None:
            return
        m, seconds = self.other
        if m == self.per_device:
            raise Wrong(
                f"the second batch per device is the first one, {m:g}; time another", argument="other_per_device"
            )
        if not (seconds - self.seconds) * (m - self.per_device) > 0:
            told = f"{self.seconds:g} s at {self.per_device} examples on a device and {seconds:g} s at {m:g}"
            raise Wrong(
                f"a step with more examples should take longer, but it takes {told}; time batches that are further apart",
                argument="other_seconds",
            )

    @property
    def per_example(self) -> float:
        """Seconds that each further example on a device adds to a step; 0 if seconds are known at one batch size."""
        if self.other is None:
            return 0.0
        m, seconds = self.other
        return (seconds - self.seconds) / (m - self.per_device)

    @property
    def overhead(self) -> float:
        """Seconds of a step that do not depend on the batch on a device; at least 0."""
        return max(0.0, self.seconds - self.per_example * self.per_device)

    def at(self, devices: float, per_device: float) -> Setting:
        """Time and cost of the training with other devices, or another batch on each."""
        reference = self.devices * self.per_device
        steps = self.training_steps * steps_ratio(self.noise_scale, devices * per_device, reference)
        seconds = self.overhead + self.per_example * per_device
        return Setting(devices, per_device, steps * seconds / SECONDS_PER_HOUR)

    @property
    def present(self) -> Setting:
        return self.at(self.devices, self.per_device)

    def best_batch_size(self, noise_scale: float) -> float:
        """The batch size with the smallest product of time and cost, if it need not be a round number."""
        if self.other is None:
            return max(noise_scale, self.per_device)  # one device, at least
        best = math.sqrt(self.devices * noise_scale * self.overhead / self.per_example)
        return max(best, self.devices)  # one example on each device, at least

    @property
    def chosen(self) -> Setting:
        return self.best_setting(self.noise_scale)

    def best_setting(self, noise_scale: float) -> Setting:
        """Among the present batch size times powers of two, the one with the smallest product of time and cost."""
        known = replace(self, noise_scale=noise_scale, low=None, high=None)
        scaled = self.devices if self.other is None else self.per_device
        sizes = [scaled * 2.0**k for k in range(-HALVINGS, DOUBLINGS + 1)]
        whole = [size for size in sizes if size >= 1 and size == int(size)]
        settings = [known._scaled(size) for size in whole]
        return min(settings, key=lambda one: one.hours * one.device_hours)

    def _scaled(self, size: float) -> Setting:
        """The setting with another number of what is scaled: devices, or examples on each."""
        return self.at(size, self.per_device) if self.other is None else self.at(self.devices, size)

    def by_devices(self) -> list[Setting]:
        """Time and cost over numbers of devices. If seconds are known at two batch sizes, each has its best batch per device."""
        if self.other is None:
            return [self.at(n, self.per_device) for n in self._around(self.devices, self.chosen.devices)]
        found = []
        for n in self._around(self.devices, self.devices):
            best = math.sqrt(self.noise_scale * self.overhead / (n * self.per_example))
            found.append(self.at(n, max(1.0, best)))
        return found

    def by_batch(self) -> list[Setting]:
        """Time and cost over batch sizes on the same devices; empty if seconds are known at one batch size."""
        if self.other is None:
            return []
        return [self.at(self.devices, m) for m in self._around(self.per_device, self.chosen.per_device)]

    @staticmethod
    def _around(*values: float) -> Array:
        return np.geomspace(max(1.0, min(values) / CURVE_ROOM), max(values) * CURVE_ROOM, CURVE_POINTS)

    def interval(self) -> tuple[float | None, float | None]:
        """The batch sizes that are chosen at the two ends of the interval of the noise scale.

        A larger noise scale never chooses a smaller batch size. So these cover the choice at the true noise scale at least as
        often as the interval covers that noise scale.
        """
        low, high = (None if end is None else self.best_setting(end).batch_size for end in (self.low, self.high))
        return low, high

    def table(self) -> list[dict[str, float]]:
        """Time and cost over batch sizes on the same devices, if seconds are known at two; otherwise over numbers of devices."""
        return [one.to_dict() for one in self.by_batch() or self.by_devices()]

    def sentence(self) -> str:
        """The batch size to use, and what it gains and costs against the present one."""
        chosen, present = self.chosen, self.present
        size, now = (f"{one.batch_size:,.0f}" for one in (chosen, present))
        ends = f" ({self._interval()})" if self.low is not None else ""
        if chosen.batch_size == present.batch_size:
            twice = self._scaled(2 * (self.devices if self.other is None else self.per_device))
            speed, cost = twice.gains(present)
            keep = f"Keep batch size {size}{ends} on {_devices(chosen)}"
            return f"{keep}: {twice.batch_size:,.0f} would be {brief(speed, 2)} times as fast for {brief(cost, 2)} times the cost."
        same = "the same " if self.other is not None else ""
        speed, cost = chosen.gains(present)
        use = f"Use batch size {size}{ends} on {same}{_devices(chosen)}"
        if speed < 1:
            return f"{use}: {brief(cost, 2)} times the cost of {now} for {brief(1 / speed, 2)} times the time."
        return f"{use}: {brief(speed, 2)} times as fast as {now} for {brief(cost, 2)} times the cost."

    def _interval(self) -> str:
        low, high = (None if end is None else f"{end:,.0f}" for end in self.interval())
        if low == high:
            return "the same over the whole interval"
        return f"interval {low} to {high or 'no upper end'}"

    def rests_on(self) -> list[str]:
        """What the choice assumes, and what its interval does not cover; one thing a sentence."""
        b = brief(self.noise_scale)
        said = [
            f"At batch size B a training takes 1 + {b} / B times the fewest steps, with {b} as noise scale (McCandlish et al., "
            "2018).",
            "On the paper's model the noise scale is within a factor of three of the critical batch size on average over a run, "
            "and far below it at the start.",
            "The batch size is the present one times a power of two; the exact optimum is "
            f"{brief(self.best_batch_size(self.noise_scale))}.",
            "The learning rate has to be tuned again at the new batch size.",
        ]
        if self.steps is not None:
            said.append(
                "The noise scale is that of the steps {:,} to {:,}; it changes during a training.".format(*self.steps)
            )
        if self.low is None:
            said.append("The noise scale has no interval here, so the batch size has none.")
        else:
            said.append(
                "The interval is that of the noise scale alone. It does not cover errors of the law or of the seconds."
            )
        return [*said, *(self._one_time() if self.other is None else self._two_times(self.other))]

    def _one_time(self) -> list[str]:
        said = [
            f"Devices are added or removed with {self.per_device:,} examples on each. A step then takes {brief(self.seconds)} s "
            "as before: slower communication is not counted."
        ]
        if self.noise_scale < self.per_device and self.chosen.devices == 1:
            said.append("A smaller batch on one device may cost less still; seconds at a second batch size would tell.")
        return said

    def _two_times(self, other: tuple[float, float]) -> list[str]:
        said = [
            f"A step takes {brief(self.overhead)} s and {brief(self.per_example)} s more for each example on a device, by the "
            "seconds at two batch sizes."
        ]
        if self.seconds < self.per_example * self.per_device:
            said.append("The seconds grow faster than the batch, so a step is taken to have no overhead.")
        measured, used = sorted((self.per_device, other[0])), self.chosen.per_device
        if not measured[0] <= used <= measured[1]:
            said.append(
                f"{used:,.0f} examples on a device lie outside the range that was timed, {measured[0]:,.0f} to {measured[1]:,.0f}; "
                "see that they fit into memory."
            )
        return said

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, with ``sentence`` and ``rests_on`` in words."""
        low, high = self.interval()
        chosen, present = self.chosen, self.present
        speed, cost = chosen.gains(present)
        return {
            "batch_size": chosen.batch_size, "best_batch_size": self.best_batch_size(self.noise_scale), "low": low, "high": high,
            "speed": speed, "cost": cost,
            "chosen": chosen.to_dict(), "present": present.to_dict(),
            "by_devices": _columns(self.by_devices()), "by_batch": _columns(self.by_batch()),
            "method": "law", "sentence": self.sentence(), "rests_on": self.rests_on(),
        }  # fmt: skip


def _columns(settings: list[Setting]) -> dict[str, list[float]] | None:
    rows = [one.to_dict() for one in settings]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else None


def _devices(setting: Setting) -> str:
    return "1 device" if setting.devices == 1 else f"{setting.devices:,.0f} devices"
