"""What every problem answers: `Problem`, whose verbs are the same for the quadratic, for least squares and for any other.

The verbs are written once, here. A problem supplies the `Motion` of an optimizer over its modes, its noise, its steady
state and its fast curves.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ..engine.mean_field import FINE_DETAIL, Detail, MeanField, Multipliers, Start
from ..engine.readable import Readable
from ..engine.run import Outcome, Run
from ..engine.schedule import AnySchedule, Schedule, as_schedule
from ..engine.spectrum import Spectrum, decades
from ..engine.trajectory import MAX_STEPS
from ..optimizers.base import Optimizer, Written, as_optimizer, fill, parameters, require_set
from ..optimizers.checks import require_sound
from ..optimizers.nonlinear import refuse_moments
from ..sampling import replicas as sampling
from ..sampling.bases import Rotation, rotation_matrix
from ..sampling.laws import Function, Law, law
from ..sampling.sources import GradientSource
from ..types import Array, Progress, Wrong, is_number
from .followed import Followed
from .motion import Motion, Pair
from .nodes import Nodes

AnyLaw = str | Function | Law
"""A law of noise as a user gives it."""

Steps = int | Sequence[int] | Array
"""The last step of a run, or the steps to report."""


class Problem(Readable):
    """Something to train, whose expected loss is known: ``loss = signal + noise / batch_size`` over steps.

    Searches, plots, the command line and the page use only its verbs and do not ask which problem it is: `run`, `sample`,
    `moments`, `losses`, `loss`, `curve`, `doublings`, `walk`, `floor`, `stability_limit` and `sentence`.
    A search that needs signal and noise separately, such as that for an optimal schedule, asks `separable`.
    """

    for_users: ClassVar[frozenset[str] | None] = frozenset({
        "spectrum", "run", "sample", "moments", "losses", "floor", "stability_limit", "initial_loss", "nodes", "gradient_noise",
    })  # fmt: skip
    spectrum: Spectrum
    separable: ClassVar[bool]
    """Whether neither signal nor noise depends on the batch size."""
    coarseness: ClassVar[tuple[float, int]]
    """The tolerance of the coarse `Nodes`, and the number of largest curvatures that they keep."""
    noiseless: ClassVar[bool] = True
    """Whether an infinite batch size has a meaning, and with it the lower bounds on steps that follow from the modes."""
    instead: ClassVar[str] = "a LeastSquares has such a problem, a Quadratic, as .additive"
    """What to use instead, where a verb refuses a problem that is not separable."""

    def _brief(self) -> str:
        return self.spectrum._brief()

    @property
    def max_steps(self) -> int:
        """The longest run for which the problem has an answer; searches end there."""
        return MAX_STEPS

    size_limits: tuple[float, float] = (0.0, math.inf)
    """The smallest and the largest batch size for which the problem has an answer."""

    @property
    def counts_examples(self) -> bool:
        """Whether a batch size is a number of examples, so that steps times batch size count examples."""
        return True

    # What a problem supplies.

    @property
    @abstractmethod
    def modes(self) -> Spectrum:
        """The modes on which a motion works."""

    @property
    @abstractmethod
    def units(self) -> Pair:
        """The units of the moments of a motion on each mode: (signal, noise)."""

    @abstractmethod
    def on(self, modes: Spectrum) -> Self:
        """The same problem on other modes, such as quadrature nodes."""

    @abstractmethod
    def motion(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None) -> Motion[Any]:
        """The motion of a linear optimizer that is already at its horizon (`Optimizer.at_horizon`)."""

    @abstractmethod
    def gradient_noise(self, moments: Array) -> Array:
        """Variance of the gradient of one example on each mode, at weights with these second moments."""

    @abstractmethod
    def curve(self, optimizer: Optimizer, batch_size: float) -> Callable[[int], Array]:
        """A function of t: the loss after t steps of each setting that the optimizer holds.

        Searches use this function. It is the fastest way to the loss, does not check its arguments, and has a relative error
        of at most 1e-4.
        """

    @abstractmethod
    def doublings(self, optimizer: Optimizer, batch_size: float) -> Iterator[Pair]:
        """(signal, noise) of each setting after 1, 2, 4, 8, ... steps, endlessly.

        A problem that is not separable may return the whole loss at this batch size as the signal.
        """

    @abstractmethod
    def _floor(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None) -> float:
        """The steady-state loss, for checked arguments."""

    @abstractmethod
    def _limit(self, optimizer: Optimizer, batch_size: float) -> float:
        """The stability limit, for checked arguments."""

    @abstractmethod
    def _diverges(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None) -> str:
        """A sentence that says why a run diverges, with the limit that it exceeds."""

    @abstractmethod
    def _source(
        self, optimizer: Optimizer, batch_sizes: Array, laws: Sequence[Law], start: str, rotation: Array | None
    ) -> GradientSource:
        """The problem as a sampler sees it; the laws are those of ``noise`` and, if given, of ``features``."""

    # What follows from that.

    @cached_property
    def masses(self) -> Pair:
        """Weights of the modes in signal and noise of the loss, for moments in the units of the problem."""
        return tuple(self.modes.count * self.modes.h * unit / 2 for unit in self.units)  # type: ignore[return-value]

    def field(
        self, optimizer: Optimizer, batch_size: float | Array, schedule: Multipliers | None = None, *,
        start: Start = "gaussian", detail: Detail = FINE_DETAIL,
    ) -> MeanField:  # fmt: skip
        """The mean field of an optimizer that is already at its horizon."""
        self.check_optimizer(optimizer)
        if not optimizer.has_mean_field:
            refuse_moments(optimizer)
        if not self.follows(optimizer):
            normal = f"the mean field of {optimizer} takes gradients for normal numbers"
            here = f"those of {type(self).__name__} are not; use problem.sample, tune or sweep, which sample it"
            raise Wrong(f"{normal}, and {here}", argument="optimizer")
        noise = None if self.separable else self.noise_on
        return MeanField(
            optimizer, self.modes, batch_size, schedule, start=start, detail=detail, noise=noise, units=self.units
        )

    def follow(
        self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None, *,
        start: Start = "gaussian", detail: Detail = FINE_DETAIL,
    ) -> Motion[Any]:  # fmt: skip
        """The motion of any optimizer that is already at its horizon: exact if it is linear, or else its mean field."""
        if optimizer.linear:
            return self.motion(optimizer, batch_size, schedule)
        return self.field(optimizer, batch_size, schedule, start=start, detail=detail)

    def follows(self, optimizer: Optimizer) -> bool:
        """Whether the loss of an optimizer is known here without sampling: exactly, or by a mean field."""
        return optimizer.has_mean_field

    def noise_on(self, moments: Array, h: Array, count: Array) -> Array:
        """What `gradient_noise` gives on other modes, of curvature h and multiplicity ``count``."""
        raise NotImplementedError(f"the noise of {type(self).__name__} does not depend on second moments")

    def summed(self, moments: Pair) -> Pair:
        """Signal and noise of the loss, from the moments of a motion."""
        with np.errstate(over="ignore", invalid="ignore"):
            return moments[0] @ self.masses[0], moments[1] @ self.masses[1]

    @property
    def initial_loss(self) -> float:
        """The expected loss before the first step."""
        return self.spectrum.initial_loss

    @cached_property
    def nodes(self) -> Nodes[Self]:
        """The same problem on few quadrature nodes."""
        return Nodes(self)

    def slow(self, steps: int) -> bool:
        """Whether a run of this many steps takes long, because it is stepped one by one."""
        return False

    def hopeless_after(
        self, optimizer: Optimizer, batch_size: float, target: float, schedule: Schedule | None, limit: int
    ) -> int:
        """A step after which the target cannot be reached any more, at most ``limit``."""
        return limit

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """Refuse an optimizer for which the problem has no answer."""

    def caveat(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None, steps: int) -> str:
        """The end of a message on a run for which the problem is less certain than usual; empty where it is exact."""
        return ""

    def walk(
        self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None, limit: int = MAX_STEPS
    ) -> Iterator[Array]:
        """The losses after each of the steps 1, 2, 3, ... up to ``limit``, in blocks."""
        motion = self.follow(optimizer.endless, batch_size, schedule)
        state = motion.start()
        for t in range(limit):
            with np.errstate(all="ignore"):
                state = motion.move(state, t, t + 1)
            yield np.atleast_1d(total(self.summed(motion.read(state, t + 1)), batch_size))

    def run(
        self, optimizer: Written, batch_size: float, steps: Steps, schedule: AnySchedule = None,
        grid: Literal["log", "linear"] = "log", points: int = 200, *, start: Start = "gaussian",
    ) -> Run:  # fmt: skip
        """Expected loss of an optimizer over steps: exact if it is linear, or else by its mean field.

        Signal is the loss of the same run without any noise. Noise is the rest of the loss, times the batch size. In a mean field
        the two do not separate, and signal is the loss of the mean weights.

        Parameters
        ----------
        optimizer : an optimizer with every hyper-parameter set, or its text, such as ``"EMA(SGD(0.1), 0.99)"``.
        batch_size : a positive number; infinity for no noise.
        steps : the last step, or the steps to report.
        schedule : multipliers on learning rate, momentum and batch size, their text (``"cosine(1000)"``), or a function of the step.
        grid, points : spacing and number of the reported steps if ``steps`` is a number.
        start : law of theta_0, which matters to optimizers that are not linear: normal, or of the fixed size sqrt(s).
        """
        require_sound(optimizer := as_optimizer(optimizer), "run")
        check_start(start)
        batch_size, times = check_batch_size(batch_size), report_steps(steps, grid, points)
        fixed = as_schedule(schedule, int(times[-1]))
        if optimizer.linear:
            return self._run(optimizer, batch_size, times, fixed)
        followed = Followed(self, optimizer, batch_size, fixed, start)
        detail, error = followed.resolved(times)
        run = followed.problem._run(optimizer, batch_size, times, fixed, start, detail)
        return replace(run, method="mean field", message=run.message + followed.note(run, error))

    def _run(
        self, optimizer: Optimizer, batch_size: float, times: Array, fixed: Schedule | None, start: Start = "gaussian",
        detail: Detail = FINE_DETAIL,
    ) -> Run:  # fmt: skip
        h, n = self.spectrum.h, self.spectrum.count
        nh, nhh, nhhh = n * h, n * h**2, n * h**3
        edges, which = decades(h)
        weights = which * (nh / 2)
        parts, scales = np.empty((2, len(which), len(times))), np.empty((2, len(times)))
        with np.errstate(all="ignore"):
            for i, moments in enumerate(self._moments(optimizer, times, batch_size, fixed, start, detail)):
                parts[0, :, i], parts[1, :, i] = (weights @ m for m in moments)
                m = total(moments, batch_size)
                c = self.gradient_noise(m)
                scales[:, i] = (n @ c) / (nhh @ m), (nh @ c) / (nhhh @ m)
        signal, noise = parts.sum(axis=1)
        loss = total((signal, noise), batch_size)
        floor = self.floor(optimizer, batch_size, fixed)
        outcome = Outcome.finished if not math.isinf(floor) and np.isfinite(loss[-1]) else Outcome.diverged
        message = self.sentence(outcome, optimizer, batch_size, fixed, steps=int(times[-1]))
        return Run(
            times, loss, signal, noise, batch_size, optimizer, floor, outcome, message,
            band_edges=edges, band_signal=parts[0], band_noise=parts[1],
            noise_scale=scales[0], curvature_noise_scale=scales[1],
        )  # fmt: skip

    def sample(
        self, optimizer: Written, batch_size: float, steps: Steps, schedule: AnySchedule = None, *,
        replicas: int = 64, noise: AnyLaw = "gaussian", features: AnyLaw | None = None, seed: int = 0,
        start: Start = "gaussian", rotation: Rotation = None,
        quantiles: Sequence[float] = (0.1, 0.5, 0.9), grid: Literal["log", "linear"] = "log", points: int = 200,
        progress: Progress | None = None, workers: int | None = None,
    ) -> Run:  # fmt: skip
        """Mean loss over random replicas that step the update rule of the optimizer: the Monte Carlo twin of `run`.

        Parameters
        ----------
        optimizer, batch_size, steps, schedule, grid, points : as in `run`; the optimizer need not be linear.
        replicas : number of replicas; memory does not grow with it.
        noise : a law by name (`nqm.sampling.laws.LAWS`), such as "rademacher" or "student_t(5)", or a function
            ``(rng, shape) -> array`` of mean 0 and variance 1. On `LeastSquares` it is the law of the label noise.
        features : on `LeastSquares`, the law of the components of the features; Gaussian if omitted, for which `run` is exact.
            Other laws have other fourth moments, and so other gradient noise.
        seed : seed of all random numbers; the answer does not depend on the number of threads.
        start : "gaussian" for normal theta_0 with variance s, or "fixed" for theta_0 = sqrt(s).
        rotation : "random", a seed or an orthogonal matrix: run in that basis, with a dense H of at most 2,000 modes.
        quantiles : levels of the quantiles of the losses of single replicas.
        progress : called with the work that is done and the total.
        workers : number of threads; one for each core if omitted.

        >>> from nqm import Quadratic, SGD, Spectrum
        >>> problem = Quadratic(Spectrum([1.0, 0.1]))
        >>> run = problem.sample(SGD(0.5), batch_size=10, steps=[0, 10], replicas=100_000)
        >>> exact = problem.run(SGD(0.5), batch_size=10, steps=[0, 10])
        >>> bool((abs(run.loss - exact.loss) < 4 * run.stderr).all())
        True
        """
        require_set(optimizer := as_optimizer(optimizer), "sample")
        times = report_steps(steps, grid, points)
        check_start(start)
        laws = [law(noise), *([] if features is None else [law(features, "features")])]
        seed, batch_size = sampling.check_whole("seed", seed, 0), check_batch_size(batch_size)
        fixed = as_schedule(schedule, int(times[-1]))
        sizes = batch_size * (fixed.batch_size if fixed else np.ones(1))
        turned = rotation_matrix(rotation, round(self.spectrum.dim), seed)
        source = self._source(optimizer, sizes, laws, start, turned)
        replicas = sampling.check_whole("replicas", replicas, 1, sampling.MAX_REPLICAS)
        plan = sampling.Plan(source, optimizer, batch_size, times, fixed, replicas, seed)
        warning = "; ".join(each.warning for each in laws if each.warning)
        return sampling.sample(plan, quantiles=quantiles, warning=warning, progress=progress, workers=workers)

    def moments(self, optimizer: Written, times: Steps, batch_size: float, schedule: AnySchedule = None) -> Pair:
        """Second moments E[theta^2] of the reported weights on each mode, as (signal, noise).

        The last axis is the mode. The first axis is the time, unless ``times`` is a single step.

        >>> from nqm import Quadratic, SGD, Spectrum
        >>> signal, noise = Quadratic(Spectrum([1.0, 0.5])).moments(SGD(0.5), [0, 1], batch_size=4)
        >>> signal.tolist(), noise.tolist()         # (1 - lr h)^2 s and lr^2 c
        ([[1.0, 1.0], [0.25, 0.5625]], [[0.0, 0.0], [0.25, 0.125]])
        """
        optimizer, steps, batch_size, fixed = self._asked("moments", optimizer, times, batch_size, schedule)
        with np.errstate(all="ignore"):
            found = np.array(list(self._moments(optimizer, steps, batch_size, fixed)))
        return (found[0, 0], found[0, 1]) if np.ndim(times) == 0 else (found[:, 0], found[:, 1])

    def losses(self, optimizer: Written, times: Steps, batch_size: float, schedule: AnySchedule = None) -> Pair:
        """Signal and noise of the loss after each of the times, or after a single step, for each setting of the optimizer.

        >>> from nqm import Quadratic, SGD, Spectrum
        >>> signal, noise = Quadratic(Spectrum([1.0, 0.5])).losses(SGD(0.5), 1, batch_size=4)
        >>> float(signal), float(noise)
        (0.265625, 0.15625)
        """
        optimizer, steps, batch_size, fixed = self._asked("losses", optimizer, times, batch_size, schedule)
        if np.ndim(times) == 0:
            return self._losses(optimizer, int(steps[0]), batch_size, fixed)
        found = np.array([self.summed(m) for m in self._read(optimizer, steps, batch_size, fixed)])
        return found[:, 0], found[:, 1]

    def loss(self, optimizer: Optimizer, t: int, batch_size: float, schedule: Schedule | None = None) -> float:
        """Expected loss of one setting after t steps; if the run is `slow`, from its `curve`."""
        if schedule is None and self.slow(t):
            return float(self.curve(optimizer, batch_size)(t)[0])
        return float(total(self._losses(optimizer, t, batch_size, schedule), batch_size))

    def floor(self, optimizer: Written, batch_size: float, schedule: AnySchedule = None) -> float:
        """Steady-state loss: infinity if the optimizer is unstable, NaN if nothing moves or, in a mean field, nothing settles."""
        require_sound(optimizer := as_optimizer(optimizer), "floor")
        batch_size, fixed = check_batch_size(batch_size), as_schedule(schedule, 1)
        if optimizer.linear:
            return self._floor(optimizer, batch_size, fixed)
        return Followed(self, optimizer, batch_size, fixed).floor()

    def stability_limit(self, optimizer: Written, batch_size: float = math.inf) -> float:
        """The learning rate below which the loss stays bounded, for the other parameters as they are.

        The batch size matters only if noise depends on the loss, as on `LeastSquares`.

        >>> from nqm import HeavyBall, LeastSquares, Quadratic, SGD, Spectrum
        >>> Quadratic(Spectrum([0.5, 2.0])).stability_limit(HeavyBall(momentum=0.5))   # 2 (1 + momentum) / h
        1.5
        >>> LeastSquares(Spectrum([1.0])).stability_limit(SGD(), batch_size=2)         # 2 / (1 + 2 / B)
        1.0
        """
        batch_size, optimizer = check_batch_size(batch_size), as_optimizer(optimizer)
        self.check_optimizer(optimizer)
        if not optimizer.linear:
            raise Wrong(f"stability_limit needs a linear optimizer, and {optimizer} is not linear", "optimizer")
        if "lr" not in parameters(optimizer):
            raise Wrong(f"stability_limit needs an optimizer with one learning rate, got {optimizer}", "optimizer")
        require_sound(fill(optimizer, {"lr": 1.0}), "stability_limit")
        return float(f"{self._limit(optimizer, batch_size):.10g}")

    def sentence(
        self, outcome: Outcome, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None, *,
        steps: int = 0, target: float = math.nan, floor: float = math.nan, loss: float = math.nan,
    ) -> str:  # fmt: skip
        """The sentence of an outcome with its numbers; for a divergence, its cause and the limit that was exceeded."""
        if outcome is Outcome.diverged and not optimizer.linear:
            return "diverges: the moments of its mean field overflow; lower the learning rate"
        if outcome is Outcome.diverged:
            return self._diverges(optimizer, batch_size, schedule)
        return outcome.value.format(steps=steps, target=target, batch_size=batch_size, floor=floor, loss=loss)

    def _asked(
        self, verb: str, given: Written, times: Steps, batch_size: float, schedule: AnySchedule
    ) -> tuple[Optimizer, Array, float, Schedule | None]:
        """The checked optimizer, times, batch size and schedule of a call."""
        require_sound(optimizer := as_optimizer(given), verb)
        steps = report_steps([times] if isinstance(times, int | np.integer) else times, "log", 2)
        return optimizer, steps, check_batch_size(batch_size), as_schedule(schedule, int(steps[-1]))

    def _losses(self, optimizer: Optimizer, t: int, batch_size: float, schedule: Schedule | None = None) -> Pair:
        """What `losses` gives for a single step, without checks."""
        with np.errstate(all="ignore"):
            return self.summed(self.follow(optimizer.at_horizon(t), batch_size, schedule).end(t))

    def _moments(
        self, optimizer: Optimizer, times: Array, batch_size: float, schedule: Schedule | None,
        start: Start = "gaussian", detail: Detail = FINE_DETAIL,
    ) -> Iterator[Pair]:  # fmt: skip
        for signal, noise in self._read(optimizer, times, batch_size, schedule, start, detail):
            yield self.units[0] * signal, self.units[1] * noise

    def _read(
        self, optimizer: Optimizer, times: Iterable[int], batch_size: float, schedule: Schedule | None,
        start: Start = "gaussian", detail: Detail = FINE_DETAIL,
    ) -> Iterator[Pair]:  # fmt: skip
        """The moments of a motion at rising times; an optimizer that depends on its horizon has a run of its own for each."""
        motion = self.follow(optimizer.endless, batch_size, schedule, start=start, detail=detail)
        state, now = motion.start(), 0
        for t in map(int, times):
            with np.errstate(all="ignore"):
                if optimizer.depends_on_horizon:
                    motion = self.follow(optimizer.at_horizon(t), batch_size, schedule, start=start, detail=detail)
                    state, now = motion.start(), 0
                state, now = motion.move(state, now, t), t
                found = motion.read(state, now)
            yield found


def total(parts: Pair, batch_size: float) -> Array:
    """``signal + noise / batch_size``; for an infinite batch size only the signal, even if the noise overflowed."""
    with np.errstate(over="ignore", invalid="ignore"):
        return parts[0] + parts[1] / batch_size if math.isfinite(batch_size) else parts[0]


def check_spectrum(spectrum: object, problem: str) -> None:
    """Refuse anything but a `Spectrum` as the data of a problem."""
    if not isinstance(spectrum, Spectrum):
        raise Wrong(f"{problem} needs a Spectrum, got {spectrum!r:.60}; wrap arrays as Spectrum(h)", "spectrum")


def check_batch_size(batch_size: object) -> float:
    """The batch size that a caller gave; refused if it is not positive."""
    if not is_number(batch_size) or not batch_size > 0:
        raise Wrong(f"batch_size must be a positive number, got {batch_size!r}", argument="batch_size")
    return float(batch_size)


def check_target(target: object) -> float:
    """The target loss that a caller gave; refused if it is not positive and finite."""
    if not is_number(target) or not 0 < target < math.inf:
        raise Wrong(f"target must be a positive loss, got {target!r}", argument="target")
    return float(target)


def check_start(start: object) -> None:
    """Refuse a law of theta_0 that does not exist."""
    if start not in ("gaussian", "fixed"):
        raise Wrong(f"start must be 'gaussian' or 'fixed', got {start!r}", argument="start")


def check_steps(steps: object, least: int = 0, argument: str = "steps") -> int:
    """The number of steps that a caller gave as ``argument``; refused if it is not whole or out of range."""
    if not is_number(steps) or not least <= steps <= MAX_STEPS or steps != int(steps):
        raise Wrong(f"{argument} must be a whole number from {least} to 10^9, got {steps!r}", argument)
    return int(steps)


def report_steps(steps: Steps, grid: str, points: int) -> Array:
    """The steps that a run reports: the given steps, or ``points`` steps up to a given last step."""
    if isinstance(steps, (int, float, np.number)):
        last = check_steps(steps)
        if grid not in ("log", "linear"):
            raise Wrong(f"grid must be 'log' or 'linear', got {grid!r}", argument="grid")
        if points < 2:
            raise Wrong(f"points must be at least 2, got {points!r}", argument="points")
        even = grid == "linear" or last < 2
        spaced = np.linspace(0, last, points) if even else np.append(0, np.geomspace(1, last, points))
        return np.unique(np.rint(spaced).astype(np.int64))
    times = np.asarray(steps)
    if times.ndim != 1 or times.size == 0 or times.dtype.kind not in "iuf" or not np.all(np.isfinite(times)):
        raise Wrong(f"steps must be a number or a list of steps, got {steps!r:.80}", argument="steps")
    whole = np.rint(times).astype(np.int64)
    if np.any(whole != times) or whole.min() < 0 or whole.max() > MAX_STEPS or np.any(np.diff(whole) <= 0):
        raise Wrong("steps must be whole numbers from 0 to 10^9 in rising order", argument="steps")
    return whole


def require_problem(problem: Problem, verb: str) -> None:
    """Refuse anything that is not a problem, such as a spectrum."""
    if not isinstance(problem, Problem):
        raise Wrong(f"{verb} needs a problem such as Quadratic(spectrum), got {problem!r:.60}", argument="problem")


def require_separable(problem: Problem, verb: str) -> None:
    """Refuse a problem whose signal and noise depend on the batch size."""
    if not isinstance(problem, Problem) or not problem.separable:
        needs = f"{verb} needs a problem whose noise does not depend on its loss, got {type(problem).__name__}"
        raise Wrong(f"{needs}; {getattr(problem, 'instead', Problem.instead)}", argument="problem")
