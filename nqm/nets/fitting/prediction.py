"""Predict what a fitted network will do next: expected loss over steps, its interval, and how far to trust it.

The exact engine runs on the measured spectrum, and the offset is added. How far this holds depends on how far the weights
travel, which is the effective learning rate times the steps: `Horizon` has the product up to which past checks stayed
within 2% and within 5%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.readable import Tabular
from ...engine.run import Outcome, Run, number, numbers
from ...engine.schedule import Schedule, as_schedule
from ...engine.spectrum import Spectrum
from ...optimizers.base import Optimizer, require_set
from ...problems.base import AnySchedule, check_batch_size, report_steps
from ...problems.quadratic import Quadratic
from ...types import Array, Wrong
from ..estimates import bootstrap
from .adaptive import AdaptiveRun, inner_of
from .following import followed
from .plots import plot_prediction

if TYPE_CHECKING:
    from .model import Fit


@dataclass(frozen=True)
class Horizon:
    """The effective lr x steps x largest curvature up to which checks stayed within 2% and within 5%."""

    within_2: float
    within_5: float
    source: str

    def sentence(self, reach: float) -> str:
        """How to read a prediction up to lr x steps x curvature = ``reach``."""
        if reach <= self.within_2:
            level = "within 2%"
        elif reach <= self.within_5:
            level = "within 5%"
        else:
            level = "further than 5%: take what lies past it as a direction, and fit again on the way"
        return (
            f"lr x steps x curvature goes to {reach:.3g}; {self.source} stayed within 2% up to {self.within_2:.3g} and "
            f"within 5% up to {self.within_5:.3g}, so expect it {level}"
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Horizon:
        """The horizon in the note of a file, where a number that is not finite is null."""
        return cls(float(data["within_2"] or 0), float(data["within_5"] or 0), str(data["source"]))

    def to_dict(self) -> dict[str, object]:
        return {"within_2": number(self.within_2), "within_5": number(self.within_5), "source": self.source}


USUAL_HORIZON = Horizon(300.0, 300.0, "checks of the built-in workloads, whose descents end at 300,")
"""The horizon of a fit that has not been checked itself, pooled from the files in docs/checks; a test repeats it."""
METRIC_HORIZON = Horizon(30.0, 60.0, "checks of AdamW on three workloads (docs/checks/adamw.csv), in the median,")
"""The horizon of Adam and AdamW from a fit in their metric."""
PLAIN_HORIZON = Horizon(10.0, 30.0, "checks of the built-in workloads, without a descent,")
"""The horizon of the plain quadratic, on the workload with the largest errors."""
DIVERGED_PREDICTION = 1e3  # a prediction of Adam says that it diverges from this many times the checkpoint's loss on
UNKNOWN = dict.fromkeys(("band_signal", "band_noise", "band_edges", "noise_scale", "curvature_noise_scale"))
"""Fields of a `Run` that describe the quadratic's own modes, which a prediction omits."""
PREDICTION_COLUMNS = ("steps", "loss", "low", "high", "reach")  # columns of a prediction's table


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Tabular):
    """A predicted `Run`, its 90% interval from the noise vectors, and the horizon up to which to trust it.

    ``reach`` is the effective lr x steps x largest curvature at each reported step.
    """

    run: Run
    low: Array
    high: Array
    reach: Array
    horizon: Horizon

    def _brief(self) -> str:
        return f"{self.run._brief()}, 90% interval {self.low[-1]:.4g} to {self.high[-1]:.4g}"

    def _notes(self) -> list[str]:
        return [self.message]

    plot = plot_prediction

    @property
    def steps(self) -> Array:
        """The reported steps."""
        return self.run.steps

    @property
    def loss(self) -> Array:
        """The predicted loss at each reported step."""
        return self.run.loss

    @property
    def message(self) -> str:
        """How the run ends, and how far to trust it."""
        if not self.run.outcome.ok:
            return self.run.message
        return f"{self.run.message}; {self.horizon.sentence(float(self.reach[-1]))}"

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, as ``--json`` prints them."""
        return {
            "optimizer": str(self.run.optimizer), "batch_size": number(self.run.batch_size),
            "outcome": self.run.outcome.name, "message": self.message,
            **{name: numbers(getattr(self, name)) for name in PREDICTION_COLUMNS}, "horizon": self.horizon.to_dict(),
        }  # fmt: skip

    def table(self) -> list[dict[str, object]]:
        """One row for each reported step."""
        columns = (getattr(self, name).tolist() for name in PREDICTION_COLUMNS)
        return [dict(zip(PREDICTION_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]


def predict(
    fit: Fit, optimizer: Optimizer, batch_size: float, steps: int | Sequence[int], schedule: AnySchedule = None, *,
    replacement: bool = True, bent: bool = True,
) -> Prediction:  # fmt: skip
    """Expected training loss of a linear optimizer over the next steps from the checkpoint of a fit.

    Parameters
    ----------
    optimizer, batch_size, steps, schedule : as in `Quadratic.run`; momenta start at zero.
    replacement : whether the examples of a batch are drawn independently. In shuffled epochs, a batch of B out of N
        examples has the noise of an independent batch of B (N - 1) / (N - B).
    bent : whether the loss is corrected as the fit's descent measured it; False for the plain quadratic.

    For a setting that is unstable on the measured curvature nothing is predicted, and the message says so.
    """
    require_set(optimizer, "predict")
    _check_metric(fit, optimizer)
    size = check_batch_size(batch_size)
    if not replacement:
        size = size * (fit.examples - 1) / (fit.examples - size) if size < fit.examples else math.inf
    times = report_steps(steps, "log", 100)
    fixed, shown = as_schedule(schedule, int(times[-1])), times.tolist()
    if fit.metric is not None:
        return _adaptive(fit, optimizer, size, check_batch_size(batch_size), times, fixed, bent)
    run = fit.problem.run(optimizer, size, shown, fixed)
    if not run.outcome.ok:
        return _refused(fit, run)
    reach = _reach(optimizer, fixed, times) * float(fit.spectrum.h.max())
    following = None if not bent else fit.bend
    if following is None:
        signal, noise = run.signal + fit.offset, run.noise
    else:
        signal, noise = followed(following, fit.spectrum, optimizer, size, times, fixed)
    low, high = (signal + noise / size * share for share in _noise_shares(fit, optimizer, size, shown, fixed))
    loss, floor, size = signal + noise / size, run.floor + fit.offset, check_batch_size(batch_size)
    parts = {"loss": loss, "signal": signal, "noise": noise, "floor": floor if following is None else math.nan}
    return Prediction(replace(run, batch_size=size, **parts, **UNKNOWN), low, high, reach, horizon_of(fit, bent))


def _noise_shares(
    fit: Fit, optimizer: Optimizer, size: float, times: list[int], schedule: Schedule | None
) -> tuple[Array, Array]:
    """The ends of the 90% interval of the quadratic's noise at each step, from the noise vectors, over its mean."""
    table = np.stack([Quadratic(spectrum).run(optimizer, size, times, schedule).noise for spectrum in _probes(fit)])
    mean, bands = table.mean(0), [bootstrap(column) for column in table.T]
    ends = np.array([[band.low, band.high] for band in bands]).T
    return tuple(np.where(mean > 0, ends / np.where(mean > 0, mean, 1), 1.0))


def _check_metric(fit: Fit, optimizer: Optimizer) -> None:
    """Refuse an optimizer that the fit was not made for."""
    adam = inner_of(optimizer)
    if fit.metric is None and adam is not None:
        advice = (
            "fit(network, optimizer=...) with the torch optimizer, or `nqm fit --optimizer adamw --state checkpoint.pt`"
        )
        raise Wrong(f"{optimizer} is predicted from a fit in its own metric; make one: {advice}", argument="optimizer")
    if fit.metric is not None and adam is None:
        made = f"this fit is in the metric of {fit.metric.optimizer}"
        raise Wrong(
            f"{made}, and predicts Adam and AdamW; for {optimizer} fit without an optimizer", argument="optimizer"
        )
    if fit.metric is None and not optimizer.linear:
        advice = "train it, as with `nqm lab run`, or predict SGD, HeavyBall, Nesterov and averages of them"
        raise Wrong(f"{optimizer} is not linear, so its loss on a fit is not predicted; {advice}", argument="optimizer")


def _adaptive(
    fit: Fit, optimizer: Optimizer, size: float, shown_size: float, times: Array, schedule: Schedule | None, bent: bool
) -> Prediction:  # fmt: skip
    """The prediction of Adam or AdamW, from a fit in their metric."""
    signal, noises = AdaptiveRun(fit, optimizer, size, schedule, bent=bent).course(times)
    bands = [bootstrap(column) for column in noises.T]
    noise, low, high = noises.mean(0), np.array([b.low for b in bands]), np.array([b.high for b in bands])
    loss = signal + noise
    fine = bool(np.all(np.isfinite(loss)) and loss[-1] < DIVERGED_PREDICTION * fit.loss)
    outcome = Outcome.finished if fine else Outcome.diverged
    message = outcome.value.format(steps=int(times[-1])) if fine else "diverges on the measured curvature"
    adam = inner_of(optimizer)
    assert adam is not None
    reach = _reach_of(float(adam.lr), schedule, times) * float(fit.spectrum.h.max())
    parts = {"signal": signal, "noise": noise * shown_size if math.isfinite(shown_size) else 0 * noise}
    run = Run(
        steps=times, loss=loss, **parts, batch_size=shown_size, optimizer=optimizer, floor=math.nan, outcome=outcome,
        message=message,
    )  # fmt: skip
    return Prediction(run, signal + low, signal + high, reach, horizon_of(fit, bent))


def horizon_of(fit: Fit, bent: bool = True) -> Horizon:
    """The horizon of the fit's own checks, or else the usual one, limited to where the fit's descent ends."""
    if fit.descent is None or not bent:
        return PLAIN_HORIZON
    if fit.horizon is not None:
        return fit.horizon
    if fit.metric is not None:
        return METRIC_HORIZON
    end, usual = max(fit.descent.reach * float(fit.spectrum.h.max()), PLAIN_HORIZON.within_2), USUAL_HORIZON
    return Horizon(min(usual.within_2, end), min(usual.within_5, end), usual.source)


def _probes(fit: Fit) -> list[Spectrum]:
    """For each noise vector a spectrum with its noise alone."""
    h, c = np.maximum(fit.noise.h, fit.spectrum.h.min()), np.maximum(fit.noise.weight, 0)
    return [Spectrum(h[mine], c[mine], 0.0) for mine in (fit.noise.probe == k for k in range(fit.noise.probes))]


def _reach(optimizer: Optimizer, schedule: Schedule | None, times: Array) -> Array:
    """Effective learning rate summed over the steps before each reported one."""
    return _reach_of(float(optimizer.effective_lr), schedule, times)


def _reach_of(rate: float, schedule: Schedule | None, times: Array) -> Array:
    """A learning rate summed over the steps before each reported one."""
    if schedule is None:
        return rate * times
    ends = np.append(schedule.ends[:-1], max(schedule.steps, int(times[-1])))  # the last piece continues
    total = np.cumsum(schedule.lr * np.diff(ends, prepend=0))
    return rate * np.interp(times, np.append(0, ends), np.append(0.0, total))


def _refused(fit: Fit, run: Run) -> Prediction:
    """A prediction of the checkpoint alone, with the reason."""
    message = (
        f"outside the stable region of the measured curvature, so nothing is predicted: the quadratic {run.message}. "
        "Real networks often move to flatter regions there and recover, which no model of this checkpoint shows"
    )
    one = np.array([fit.loss])
    parts = {"steps": np.array([0]), "loss": one, "signal": one, "noise": np.zeros(1)}
    stopped = replace(run, **parts, message=message, outcome=Outcome.diverged, **UNKNOWN)
    return Prediction(stopped, one, one, np.zeros(1), horizon_of(fit))
