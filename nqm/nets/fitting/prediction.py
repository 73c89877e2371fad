"""Predict what a fitted network will do next: expected loss over steps, its interval, and how far to trust it.

The loss is that of `following`. Its interval comes from the test that the fit made of itself (`testing`). How far it holds
depends on how far the weights travel, which is the effective learning rate times the steps: `Horizon` has the product up to
which checks or the test stayed within 2% and within 5%. The plain quadratic is the exact engine on the measured spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.readable import Tabular
from ...engine.run import Outcome, Run, number, numbers
from ...engine.schedule import Schedule, as_schedule
from ...engine.spectrum import Spectrum
from ...optimizers.base import Optimizer, Written, require_set
from ...problems.base import AnySchedule, check_batch_size, report_steps
from ...problems.quadratic import Quadratic
from ...types import Array, Wrong
from ..estimates import bootstrap
from ..natural import as_trained
from .edge import KNOWN_EXCESS, capped, excess
from .following import followed
from .kfac_steps import NaturalRun
from .metric import AdamMetric
from .plots import plot_prediction
from .stepwise import check_metric, run_in_metric
from .testing import interval, past_descent

if TYPE_CHECKING:
    from .model import Fit


@dataclass(frozen=True)
class Horizon:
    """The effective lr x steps x largest curvature up to which checks stayed within 2% and within 5%."""

    within_2: float
    within_5: float
    source: str

    own: bool = True  # whether it was measured on the network of the fit itself

    def held(self) -> str:
        """How far the checks were within 2% and within 5%, in words."""
        if not self.within_5 > 0:
            return "were off by more than 5% from the first steps on"
        if not self.within_2 > 0:
            return f"stayed within 5% up to {self.within_5:.3g}, and were off by more than 2% from the first steps on"
        if self.within_2 == self.within_5:
            return f"stayed within 2% up to {self.within_2:.3g}"
        return f"stayed within 2% up to {self.within_2:.3g} and within 5% up to {self.within_5:.3g}"

    def sentence(self, reach: float) -> str:
        """What a prediction up to lr x steps x curvature = ``reach`` rests on; empty for the fit's own test, told elsewhere."""
        if self.source.startswith(OWN_TEST):
            return ""
        far = f"lr x steps x curvature goes to {reach:.3g}; {self.source} {self.held()}"
        if not self.own:
            return f"not tested on this network: {far}, which may not hold here"
        return (
            far
            if reach <= self.within_5
            else f"{far}: take what lies past that as a direction, and fit again on the way"
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Horizon:
        """The horizon in the note of a file, where a number that is not finite is null."""
        return cls(float(data["within_2"] or 0), float(data["within_5"] or 0), str(data["source"]))

    def to_dict(self) -> dict[str, object]:
        return {"within_2": number(self.within_2), "within_5": number(self.within_5), "source": self.source}


OWN_TEST = "the test of this fit"  # how the source of a horizon begins that a fit has from its own test
USUAL_HORIZON = Horizon(750.0, 750.0, "checks of the built-in workloads, whose descents end at 750,", own=False)
"""The horizon of a fit that has not been checked itself, pooled from the files in docs/checks; a test repeats it."""
METRIC_HORIZON = Horizon(50.0, 150.0, "checks of AdamW on four workloads, in the median,", own=False)
"""The horizon of Adam and AdamW from a fit in their metric: the shortest of the workloads in docs/checks/adamw.csv."""
KFAC_HORIZON = Horizon(0.9, 2.5, "checks of KFAC, in the median,", own=False)
"""The horizon of K-FAC from a fit in its metric without a test of its own: the shortest of the networks in docs/checks/kfac.csv."""
PLAIN_HORIZON = Horizon(10.0, 30.0, "checks of the built-in workloads, without a descent,", own=False)
"""The horizon of the plain quadratic, on the workload with the largest errors."""
MAX_METRIC_STEPS = 10**5  # longest prediction of Adam, AdamW and K-FAC, whose steps are taken one by one in Python
DIVERGED_PREDICTION = 1e3  # a prediction of Adam says that it diverges from this many times the checkpoint's loss on
UNKNOWN = dict.fromkeys(("band_signal", "band_noise", "band_edges", "noise_scale", "curvature_noise_scale"))
"""Fields of a `Run` that describe the quadratic's own modes, which a prediction omits."""
WIDE = 0.5  # an interval that ends more than this above its loss says little, however well the test went
BIN_RATIO = 3.0  # errors are pooled over bins of effective lr x steps; the two ends of a bin have this ratio
PAST_DESCENT = 1.05  # a prediction that goes further than this multiple of the descent says so
EDGE_FACTOR = 4.0
"""Factor for which intervals past the edge of stability allow. Chosen on the 260 real losses past the edge in
docs/checks/prediction.csv, of which intervals then hold 89%."""
SHARPENED_FACTOR = 1.15
"""Factor for which intervals allow where curvature has grown past what the learning rate allows, so that trainings swing. Chosen on a
Transformer two steps after its initialisation, whose curvature grows 24-fold and whose losses there are up to 14% off."""
UNSTABLE = (
    "outside the stable region of the measured curvature, so nothing is predicted: the quadratic {message}. "
    "Real networks often move to flatter regions there and recover, which no quadratic of this checkpoint shows"
)
UNBOUNDED = (
    "nothing is predicted: curvature goes down to {h:.3g}, and along it the quadratic falls by more than the whole loss within "
    "{steps:,} steps; ask for fewer steps, or fit with a descent, which measures what the loss does there"
)
UNKNOWN_RATE = (
    "outside the stable region of the measured curvature by a factor of {over:.3g} in the learning rate, so nothing is predicted: "
    "networks are known to move to flatter regions there up to a factor of {known:g}. Real networks often recover even beyond"
)
DIVERGED_TEST = (
    "nothing is predicted: the learning rate is {over:.3g} of the largest stable one of the measured curvature, and trainings of the "
    "fit's own test diverged at {least:.3g} of it. Take a smaller one, or fit again after some steps"
)
PAST_EDGE = (
    "the learning rate is {over:.3g} times the largest stable one, so curvature is taken to come down to the edge of stability; "
    "the interval allows for a factor of {factor:g}"
)
SHARPENED = (
    "on the way the largest curvature grows to {growth:.2g} times that at the checkpoint, and there the learning rate is "
    "{over:.3g} times the largest stable one: trainings swing, and predictions are rough"
)
PAST_HORIZON = (
    "this is {ratio:.2g} times as far as the descent of the fit, and past its end predictions were off by 15% in the median "
    "and sixteenfold at worst; fit again with a longer horizon"
)
UNLIKE_TRAINING = ("eval mode", "measured in float32")
"""Words in the notes on a network that say that it was measured otherwise than it is usually trained."""
PREDICTION_COLUMNS = ("steps", "loss", "low", "high", "reach")  # columns of a prediction's table


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Tabular):
    """A predicted `Run`, its 90% interval, and the horizon up to which to trust it.

    The interval comes from the test of the fit (`testing`); that of a plain quadratic from the noise vectors alone. ``reach``
    is the effective lr x steps x largest curvature at each reported step, and ``disturbance`` how far noise has disturbed the
    training by then; a plain quadratic has none. ``remarks`` are sentences on what limits it.
    """

    run: Run
    low: Array
    high: Array
    reach: Array
    horizon: Horizon
    remarks: tuple[str, ...] = ()
    disturbance: Array = field(default_factory=lambda: np.zeros(1))

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
        """The last loss with its interval, and what that rests on; or why nothing is predicted."""
        if not self.run.outcome.ok:
            return self.run.message
        low, loss, high = (float(values[-1]) for values in (self.low, self.loss, self.high))
        end = f"{low:.4g} to {high:.4g}" if math.isfinite(high) else f"{low:.4g} or more"
        if math.isnan(high):
            end = "not known, because it is a factor of the loss, and that is not positive"
        wide = ", which says little" if loss > 0 and high / loss - 1 > WIDE else ""
        found = f"after {int(self.steps[-1]):,} steps the loss is {loss:.4g} (90% interval {end}{wide})"
        return "; ".join((found, *self.reasons))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences on what the interval rests on."""
        told = self.horizon.sentence(float(self.reach[-1]))
        return (told, *self.remarks) if told else self.remarks

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
    fit: Fit, optimizer: Written, batch_size: float, steps: int | Sequence[int], schedule: AnySchedule = None, *,
    replacement: bool = True, bent: bool = True,
) -> Prediction:  # fmt: skip
    """Expected training loss of a linear optimizer over the next steps from the checkpoint of a fit.

    Parameters
    ----------
    optimizer, batch_size, steps, schedule : as in `Quadratic.run`; momenta start at zero.
    replacement : whether the examples of a batch are drawn independently. In shuffled epochs, a batch of B out of N
        examples has the noise of an independent batch of B (N - 1) / (N - B).
    bent : whether the loss is corrected as the fit's descent measured it; False for the plain quadratic.

    Past the edge of stability curvature is capped (`edge`). Where nothing is known, as at twice the largest stable rate or
    for the plain quadratic past the edge, nothing is predicted, and the message says so.
    """
    optimizer = as_trained(optimizer)
    require_set(optimizer, "predict")
    check_metric(fit, optimizer)
    size = check_batch_size(batch_size)
    if not replacement:
        size = size * (fit.examples - 1) / (fit.examples - size) if size < fit.examples else math.inf
    times = report_steps(steps, "log", 100)
    fixed, shown = as_schedule(schedule, int(times[-1])), times.tolist()
    if fit.metric is not None:
        return _in_metric(fit, optimizer, (size, check_batch_size(batch_size)), times, fixed, bent)
    reach = _reach(optimizer, fixed, times) * float(fit.spectrum.h.max())
    if fit.bend is not None and bent:
        return _corrected(fit, optimizer, (size, check_batch_size(batch_size)), times, fixed, reach)
    run = fit.problem.run(optimizer, size, shown, fixed)
    if not run.outcome.ok:
        return _refused(fit, run, UNSTABLE.format(message=run.message))
    lost = fit.negative.lost(float(optimizer.effective_lr), int(times[-1]))
    if lost > fit.loss:
        return _refused(fit, run, UNBOUNDED.format(h=fit.negative.least, steps=int(times[-1])))
    signal = run.signal + fit.offset
    low, high = (signal + run.noise / size * share for share in _noise_shares(fit, optimizer, size, shown, fixed))
    loss, size = signal + run.noise / size, check_batch_size(batch_size)
    found = replace(run, batch_size=size, loss=loss, signal=signal, floor=run.floor + fit.offset, **UNKNOWN)
    remarks = (fit.negative.sentence(lost),) if fit.negative.told else ()
    return Prediction(found, low, high, reach, PLAIN_HORIZON, remarks)


def _corrected(
    fit: Fit, optimizer: Optimizer, sizes: tuple[float, float], times: Array, schedule: Schedule | None, reach: Array
) -> Prediction:
    """A prediction by noise that follows the loss; ``sizes`` are the batch size that has its noise, and the one to show."""
    assert fit.bend is not None
    size, shown = sizes
    over = excess(fit.spectrum, optimizer, schedule)
    run = Quadratic(capped(fit.spectrum, optimizer, schedule)).run(optimizer, size, [0], schedule)
    if over > KNOWN_EXCESS or not run.outcome.ok:
        return _refused(fit, run, UNKNOWN_RATE.format(over=over, known=2))
    if fit.tested is not None and over >= fit.tested.diverged * (1 - 1e-9):
        return _refused(fit, run, DIVERGED_TEST.format(over=over, least=fit.tested.diverged))
    signal, noise, disturbed = followed(fit.bend, fit.spectrum, optimizer, size, times, schedule)
    message = Outcome.finished.value.format(steps=int(times[-1]))
    unit = shown / size if math.isfinite(shown) else 1.0  # noise is shown per example of the batch that was asked for
    parts = {"steps": times, "loss": signal + noise / size, "signal": signal, "noise": noise * unit}
    run = replace(run, batch_size=shown, floor=math.nan, message=message, **parts, **UNKNOWN)
    found = Prediction(run, run.loss, run.loss, reach, horizon_of(fit), disturbance=disturbed)
    remarks = list(_remarks(fit, found))
    grown = fit.bend.sharpening(run.loss)
    growth, factor = float(grown.max()), np.where(over * grown > 1, SHARPENED_FACTOR, 1.0)
    if over > 1:
        remarks.append(PAST_EDGE.format(over=over, factor=EDGE_FACTOR))
    elif over * growth > 1:
        remarks.append(SHARPENED.format(growth=growth, over=over * growth))
    low, high = interval(fit, found, EDGE_FACTOR if over > 1 else factor)
    return replace(found, low=low, high=high, remarks=tuple(remarks))


def _remarks(fit: Fit, prediction: Prediction) -> Iterator[str]:
    """Sentences on the test of the fit, on negative curvature, on how the network was measured, and on what lies past the descent."""
    assert fit.descent is not None
    if fit.tested is not None:
        fine = np.isfinite(fit.tested.trained)
        errors = np.abs(fit.tested.errors[fine]) if fine.any() else np.ones(1)
        within = f"up to lr x steps x curvature = {fit.tested.reach.max():.3g}"
        off = f"off by {np.median(errors):.1%} in the median and {errors.max():.1%} at worst"
        yield f"the fit's own test, {within}, found predictions {off}"
        if not fine.all():
            yield f"trainings of that test diverged at {fit.tested.diverged:.3g} of the largest stable learning rate"
    if fit.negative.told:
        yield fit.negative.sentence(None)
    for note in fit.provenance.notes:
        if any(words in note for words in UNLIKE_TRAINING):
            yield f"{note}: a training that does otherwise may differ"
    ratio = float(past_descent(fit, prediction)[-1])
    if ratio > PAST_DESCENT:
        yield PAST_HORIZON.format(ratio=ratio)


def _noise_shares(
    fit: Fit, optimizer: Optimizer, size: float, times: list[int], schedule: Schedule | None
) -> tuple[Array, Array]:
    """The ends of the 90% interval of the quadratic's noise at each step, from the noise vectors, over its mean."""
    table = np.stack([Quadratic(spectrum).run(optimizer, size, times, schedule).noise for spectrum in _probes(fit)])
    mean, bands = table.mean(0), [bootstrap(column) for column in table.T]
    ends = np.array([[band.low, band.high] for band in bands]).T
    return tuple(np.where(mean > 0, ends / np.where(mean > 0, mean, 1), 1.0))


def _in_metric(
    fit: Fit, optimizer: Optimizer, sizes: tuple[float, float], times: Array, schedule: Schedule | None, bent: bool
) -> Prediction:  # fmt: skip
    """The prediction of Adam, AdamW or K-FAC, from a fit in their metric; ``sizes`` are as in `_corrected`."""
    size, shown = sizes
    if times[-1] > MAX_METRIC_STEPS:
        told = f"a prediction of {times[-1]:,} steps in the metric of {optimizer} takes too long"
        raise Wrong(f"{told}; ask for at most {MAX_METRIC_STEPS:,} steps", argument="steps")
    course = run_in_metric(fit, optimizer, size, schedule, bent=bent)
    signal, loss, probes, disturbed = course.course(times)
    noise = loss - signal
    fine = bool(np.all(np.isfinite(loss)) and loss[-1] < DIVERGED_PREDICTION * fit.loss)
    message = Outcome.finished.value.format(steps=int(times[-1])) if fine else "diverges on the measured curvature"
    run = Run(
        steps=times, loss=loss, signal=signal, noise=noise * (shown if math.isfinite(shown) else 0.0), batch_size=shown,
        optimizer=optimizer, floor=math.nan, outcome=Outcome.finished if fine else Outcome.diverged, message=message,
    )  # fmt: skip
    moved, factor, swings = _reach_of(course.lr, schedule, times), np.ones(len(times)), list[str]()
    if isinstance(course, NaturalRun):
        moved, over, grown = (np.array(every)[times] for every in (course.moved, course.excess, course.sharpest))
        if over[-1] > KNOWN_EXCESS:
            return _refused(fit, run, UNKNOWN_RATE.format(over=over[-1], known=2))
        factor = np.where(over > 1, EDGE_FACTOR, np.where(grown > 1, SHARPENED_FACTOR, 1.0))
        if over[-1] > 1:
            swings.append(PAST_EDGE.format(over=over[-1], factor=EDGE_FACTOR))
        elif grown[-1] > 1:
            swings.append(SHARPENED.format(growth=grown[-1] / max(over[-1], 1e-300), over=grown[-1]))
    found = Prediction(
        run, loss, loss, moved * float(fit.spectrum.h.max()), horizon_of(fit, bent), disturbance=disturbed
    )
    if fit.descent is None or not bent:
        bands = [bootstrap(column) for column in probes.T]
        return replace(found, low=np.array([band.low for band in bands]), high=np.array([band.high for band in bands]))
    low, high = interval(fit, found, factor)
    return replace(found, low=low, high=high, remarks=(*_remarks(fit, found), *swings))


def horizon_of(fit: Fit, bent: bool = True) -> Horizon:
    """The horizon of the fit's own checks or of its test, or else the usual one, limited to where the fit's descent ends."""
    if fit.descent is None or not bent:
        return PLAIN_HORIZON
    if fit.horizon is not None:
        return fit.horizon
    if isinstance(fit.metric, AdamMetric):
        return METRIC_HORIZON
    if fit.metric is not None and fit.tested is None:
        return KFAC_HORIZON
    end, usual = max(fit.descent.reach * float(fit.spectrum.h.max()), PLAIN_HORIZON.within_2), USUAL_HORIZON
    if fit.tested is None:
        return replace(usual, within_2=min(usual.within_2, end), within_5=min(usual.within_5, end))
    points = list(zip(fit.tested.reach.tolist(), np.abs(fit.tested.errors).tolist(), strict=True))
    last = float(fit.tested.reach.max())

    def within(tol: float) -> float:
        reach = furthest(points, tol)
        return end if reach >= last * (1 - 1e-9) else reach  # the test held as far as it went

    held, source = (within(0.02), within(0.05)), OWN_TEST
    return Horizon(*held, f"{source}, continued to the end of its descent," if end in held else source)


def furthest(points: list[tuple[float, float]], tol: float) -> float:
    """The largest x up to which every bin of points (x, error) has a median error within ``tol``.

    It is 0 if the first bin has not, or if there is no point because nothing was predicted.
    """
    if not points:
        return 0.0
    x, error = np.array(points).T
    edge, found = x.min(), 0.0
    while edge <= x.max():
        inside = (x >= edge) & (x < BIN_RATIO * edge)
        if inside.any():
            if not np.median(error[inside]) <= tol:
                break
            found = float(x[inside].max())
        edge *= BIN_RATIO
    return found


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


def _refused(fit: Fit, run: Run, message: str) -> Prediction:
    """A prediction of the checkpoint alone, with the reason."""
    one = np.array([fit.loss])
    parts = {"steps": np.array([0]), "loss": one, "signal": one, "noise": np.zeros(1)}
    stopped = replace(run, **parts, message=message, outcome=Outcome.diverged, **UNKNOWN)
    return Prediction(stopped, one, one, np.zeros(1), horizon_of(fit))
