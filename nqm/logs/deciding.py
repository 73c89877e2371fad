"""What logs cannot decide, and the run to make next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.readable import Tabular
from ..types import Array
from .allowance import Gaps
from .course import Course
from .fitting import DECIDING_POINTS, INTERVAL_90, SETTINGS_OF_FIT, independent_points
from .reach import SAME_SHARE

if TYPE_CHECKING:
    from .forecasting import Forecast

CONSTANT_SHARE = 0.9  # A log whose rate never falls below this share of its largest after the warm-up has no decay.
CANDIDATE_POINTS = 40  # logged points that a candidate for the next run would have
SPEAKS_OF = {
    "floor": "the loss of an endless run", "alpha": "how fast longer training pays", "N": "how much noise the learning rate adds",
    "C": "how fast noise goes when the rate falls", "k": "how noise grows at larger rates",
    "r0": "how the weight norm begins",
}  # fmt: skip


def undecided(forecast: Forecast) -> tuple[str, ...]:
    """Sentences on what the logs of a forecast cannot decide."""
    said = []
    open_ = [row["parameter"] for row in forecast.table() if not row["decided"] and row["parameter"] in SPEAKS_OF]
    if not any(decays(log.rates) for log in forecast.logs) and {"N", "C"} & set(open_):
        said.append(
            "All logs keep their learning rate after the warm-up, so they cannot tell what a decay brings: signal and noise "
            "fall together. Forecasts of decays rest on what other training runs had."
        )
    low, high = forecast.peaks
    if high <= SAME_SHARE * low:
        said.append(
            f"All logs have the peak rate {high:.3g}; what another peak does rests on the form of the law alone."
        )
    sizes = [float(np.mean(log.batch_size)) for log in forecast.logs if log.batch_size is not None]
    if forecast.batch_size is None:
        said.append("The logs have no batch size, so nothing can be said of another.")
    elif max(sizes) <= SAME_SHARE * min(sizes):
        said.append(
            f"All logs have the batch size {sizes[0]:,.6g}; what another does rests on the optimizer's law alone."
        )
    if forecast.most_points < DECIDING_POINTS:
        said.append(
            f"No log has more than {forecast.most_points} points after its warm-up: fewer than {DECIDING_POINTS} decide nothing."
        )
    elif open_:
        said.append(f"Not decided by these logs: {', '.join(f'{name} ({SPEAKS_OF[name]})' for name in open_)}.")
    return tuple(said)


def decays(rates: Array) -> bool:
    """Whether rates fall after their warm-up."""
    top = int(np.argmax(rates >= 0.99 * rates.max()))
    return bool(rates[top:].min() < CONSTANT_SHARE * rates.max())


@dataclass(frozen=True, eq=False, repr=False)
class NextRun(Tabular):
    """Candidate runs by what they would teach: the half-width of the 90% interval that would be left, smallest first."""

    rows: list[dict[str, Any]]
    width: float  # half-width now, of the final loss of the best schedule, as `Forecast.predict` has it
    rates: Array  # of the best candidate, one for each step
    steps: int

    def _brief(self) -> str:
        best = self.rows[0]
        return f"{best['run']}: narrows the best schedule's final loss from ±{self.width:.4f} to ±{best['width']:.4f}"

    def table(self) -> list[dict[str, Any]]:
        return self.rows

    @property
    def sentence(self) -> str:
        """The advice in one sentence."""
        best = self.rows[0]
        return (
            f"The run to make next is {best['run']} over {self.steps:,} steps: it would narrow the final loss of the best "
            f"schedule from ±{self.width:.4f} to ±{best['width']:.4f}."
        )

    def to_dict(self) -> dict[str, Any]:
        return {"width": self.width, "steps": self.steps, "rows": self.rows, "sentence": self.sentence}


def next_run(
    forecast: Forecast, steps: int | None = None, max_lr: float | None = None, *, extrapolate: bool = False
) -> NextRun:
    """The candidate that narrows the final loss of the best schedule most.

    The interval now is that of `Forecast.predict`. A candidate narrows both of its parts: the covariance of the parameters, by the
    rule for Gaussian posteriors, and the error of the law's form, because the candidate is one more log that may be near.
    """
    steps = forecast.longest if steps is None else steps
    best = forecast.optimal_schedule(steps, max_lr, extrapolate=extrapolate)
    decay, covariance = forecast.metric.weight_decay, forecast.fitted.covariance
    end = Course.of(best.rates, np.array([best.steps]), decay)
    goal = _slopes(forecast, end)[0]

    def width(covariance: Array, more: Course | None = None) -> float:
        allowance = float(Gaps.of(forecast, end, more).allowance()[0])
        return INTERVAL_90 * best.loss * float(np.sqrt(goal @ covariance @ goal + allowance**2))

    runs = candidates(forecast, steps, best.peak)
    times = np.unique(np.linspace(max(1, steps // 20), steps, CANDIDATE_POINTS).astype(int))
    free = float(np.median([independent_points(e) for e in forecast.fitted.residuals]))
    rows = []
    for name, rates in runs.items():
        course = Course.of(rates, times, decay)
        rows.append(
            {"run": name, "width": width(narrowed(covariance, _slopes(forecast, course), forecast.error, free), course)}
        )
    rows.sort(key=lambda row: row["width"])
    return NextRun(rows, width(covariance), runs[rows[0]["run"]], int(steps))


def narrowed(covariance: Array, slopes: Array, scatter: float, independent: float) -> Array:
    """The covariance of the parameters after one more log, whose points scatter as those of the fitted logs do.

    So many of its points are ``independent``, and they have an offset in common. ``slopes`` are the derivatives of the
    logarithms of its losses by the parameters.
    """
    count = len(slopes)
    noise = np.full((count, count), SETTINGS_OF_FIT.offset**2)
    noise += np.eye(count) * scatter**2 * max(count / independent, 1.0)
    across = slopes @ covariance
    return covariance - across.T @ np.linalg.solve(across @ slopes.T + noise, across)


def candidates(forecast: Forecast, steps: int, peak: float) -> dict[str, Array]:
    """Runs that a user could make next, by name: one rate for each step."""
    warm = min(forecast.warmup, steps // 10)
    t = np.arange(1, steps + 1)
    rise = np.minimum(1.0, t / max(warm, 1))
    u = np.clip((t - warm) / max(steps - warm, 1), 0, 1)
    shapes = {
        "a constant rate": np.ones(steps), "a cosine to zero": (1 + np.cos(np.pi * u)) / 2, "a linear decay to zero": 1 - u,
        "a decay to zero over the last fifth": np.minimum(1.0, 5 * (1 - u)),
        "a drop to a third at half of the steps": np.where(u < 0.5, 1.0, 1 / 3),
        "a drop to a tenth at half of the steps": np.where(u < 0.5, 1.0, 0.1),
    }  # fmt: skip
    found = {f"{name} with peak {peak:.3g}": peak * rise * shape for name, shape in shapes.items()}
    found[f"a linear decay to zero with peak {peak / 3:.3g}"] = peak / 3 * rise * (1 - u)
    return found


def _slopes(forecast: Forecast, course: Course) -> Array:
    """Derivatives of the logarithm of the loss by the log parameters."""
    loss, J = forecast.law.jacobian(course)
    return J / loss[:, None]
