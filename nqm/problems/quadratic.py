"""Problems: what can be trained. `Quadratic` is exact."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..engine.run import Outcome, Run
from ..engine.schedule import Schedule, as_schedule
from ..engine.spectrum import HEAD, Spectrum
from ..engine.trajectory import MAX_STEPS, Trajectory
from ..optimizers.base import Optimizer, require_set
from ..types import Array, Wrong

AnySchedule = Schedule | Callable[[int], float] | None


class Problem(ABC):
    """Something to train: the exact quadratic here, a real network elsewhere; both give a `Run`."""

    @abstractmethod
    def run(
        self, optimizer: Optimizer, batch_size: float, steps: int | Sequence[int], schedule: AnySchedule = None
    ) -> Run:
        """Train and report the loss."""


@dataclass(frozen=True, eq=False)
class Quadratic(Problem):
    """The noisy quadratic model: loss ``1/2 sum n h theta^2``, gradient noise of variance c / B on each mode.

    >>> from nqm import SGD
    >>> problem = Quadratic(Spectrum.power_law(10_000))
    >>> problem.run(SGD(1.0), batch_size=1024, steps=1000).loss[-1].round(6)
    np.float64(0.613652)
    """

    spectrum: Spectrum

    def __post_init__(self) -> None:
        if not isinstance(self.spectrum, Spectrum):
            raise Wrong(f"Quadratic needs a Spectrum, got {self.spectrum!r:.60}; wrap arrays as Spectrum(h)")

    @cached_property
    def fine(self) -> Quadratic:
        """The same problem on nodes, to 1e-9: what maps and moving pictures look at, whatever the setting."""
        return Quadratic(self.spectrum.compress())

    @cached_property
    def coarse(self) -> Quadratic:
        """The same problem on fewer nodes: what searches look at before they confirm on the full one.

        Good to 1e-7 and better where modes have stopped swinging, as in tuned runs; the head is a short one.
        """
        return Quadratic(self.spectrum.compress(1e-7, head=HEAD // 4))

    @cached_property
    def coarse_smooth(self) -> Quadratic:
        """The same for optimizers of one slot, which do not oscillate and make do with fewer of those nodes, to 1e-6."""
        return Quadratic(self.coarse.spectrum.compress(1e-6, swings=False, head=HEAD // 4))

    def coarse_for(self, optimizer: Optimizer) -> Quadratic:
        """The nodes a search for this optimizer looks at."""
        return self.coarse_smooth if len(optimizer.initial()) == 1 else self.coarse

    def run(
        self,
        optimizer: Optimizer,
        batch_size: float,
        steps: int | Sequence[int],
        schedule: AnySchedule = None,
        grid: Literal["log", "linear"] = "log",
        points: int = 200,
    ) -> Run:
        """Exact expected loss of an optimizer over steps.

        Parameters
        ----------
        optimizer : with every hyper-parameter set.
        batch_size : positive; infinity for no noise.
        steps : the last step, or the steps to report.
        schedule : multipliers on learning rate, momentum and batch size, or a function of the step.
        grid, points : how the reported steps are spaced when ``steps`` is a number.
        """
        require_set(optimizer, "run")
        batch_size = check_batch_size(batch_size)
        times = report_steps(steps, grid, points)
        schedule = as_schedule(schedule, int(times[-1]))
        spectrum = self.spectrum
        bands = Bands(spectrum)
        signal, noise = np.empty((2, len(times), len(bands))), None
        g = np.empty((len(times), 2))
        with np.errstate(over="ignore", invalid="ignore"):
            for i, (m_signal, m_noise) in enumerate(self._moments(optimizer, schedule, times)):
                signal[0, i], signal[1, i] = bands(m_signal, m_noise)
                second = spectrum.s * m_signal + (0.0 if math.isinf(batch_size) else spectrum.c / batch_size * m_noise)
                weight = spectrum.count * spectrum.h**2 * second
                g[i] = weight.sum(), (spectrum.h * weight).sum()
        signal, noise = signal
        total_signal, total_noise = signal.sum(1), noise.sum(1)
        loss = total_signal + (total_noise / batch_size if math.isfinite(batch_size) else 0.0)
        floor = self.floor(optimizer, batch_size, schedule)
        outcome = Outcome.finished if not math.isinf(floor) and np.isfinite(loss[-1]) else Outcome.diverged
        trace = [(spectrum.count * spectrum.c).sum(), (spectrum.count * spectrum.h * spectrum.c).sum()]
        with np.errstate(divide="ignore"):
            scales = trace / g
        return Run(
            steps=times, loss=loss, signal=total_signal, noise=total_noise, batch_size=batch_size, optimizer=optimizer,
            floor=floor, outcome=outcome, message=self.sentence(outcome, optimizer, schedule, steps=int(times[-1])),
            band_edges=bands.edges, band_signal=signal.T, band_noise=noise.T,
            noise_scale=scales[:, 0], curvature_noise_scale=scales[:, 1],
        )  # fmt: skip

    def sample(
        self,
        optimizer: Optimizer,
        batch_size: float,
        steps: int | Sequence[int],
        schedule: AnySchedule = None,
        *,
        replicas: int = 64,
        noise: Any = "gaussian",
        seed: int = 0,
        start: Literal["gaussian", "fixed"] = "gaussian",
        rotation: Any = None,
        quantiles: Sequence[float] = (0.1, 0.5, 0.9),
        grid: Literal["log", "linear"] = "log",
        points: int = 200,
        progress: Callable[[int, int], None] | None = None,
        workers: int | None = None,
    ) -> Run:
        """Mean loss over random replicas, which step the optimizer's own update rule: the twin of `run`.

        Parameters
        ----------
        optimizer, batch_size, steps, schedule, grid, points : as in `run`; the optimizer need not be linear.
        replicas : how many to average; memory does not grow with them.
        noise : a law by name (`nqm.sampling.laws.LAWS`), such as "rademacher" or "student_t(5)", or a function
            ``(rng, shape) -> array`` of mean 0 and variance 1.
        seed : of all random numbers; the answer does not depend on the number of threads.
        start : theta_0 normal with variance s, or "fixed" at sqrt(s).
        rotation : "random", a seed or an orthogonal matrix: run in that basis, with a dense H of at most 2,000 modes.
        quantiles : of the losses of single replicas, to report.
        progress : called with (done, total).
        workers : threads; one a core if left out.

        >>> from nqm import SGD
        >>> problem = Quadratic(Spectrum([1.0, 0.1]))
        >>> run = problem.sample(SGD(0.5), batch_size=10, steps=[0, 10], replicas=100_000)
        >>> exact = problem.run(SGD(0.5), batch_size=10, steps=[0, 10])
        >>> bool((abs(run.loss - exact.loss) < 4 * run.stderr).all())
        True
        """
        from ..sampling import replicas as sample
        from ..sampling.bases import rotation_matrix
        from ..sampling.laws import law
        from ..sampling.sources import Additive

        require_set(optimizer, "sample")
        times = report_steps(steps, grid, points)
        if start not in ("gaussian", "fixed"):
            raise Wrong(f"start must be 'gaussian' or 'fixed', got {start!r}", argument="start")
        found, seed = law(noise), sample.check_seed(seed)
        turned = rotation_matrix(rotation, round(self.spectrum.dim), seed)
        plan = sample.Plan(
            Additive(self.spectrum, optimizer, found, start, turned), optimizer, check_batch_size(batch_size),
            times, as_schedule(schedule, int(times[-1])), sample.check_replicas(replicas), seed,
        )  # fmt: skip
        return sample.sample(plan, quantiles=quantiles, warning=found.warning, progress=progress, workers=workers)

    def losses(self, optimizer: Optimizer, t: int, schedule: Schedule | None = None) -> tuple[Any, Any]:
        """(signal, noise) after t steps, summed over modes; one value for each setting the optimizer holds."""
        optimizer = optimizer.at_horizon(t)
        dynamics = Trajectory(optimizer, self.spectrum.h, schedule)
        with np.errstate(over="ignore", invalid="ignore"):
            m_signal, m_noise = dynamics.end(t)
            return m_signal @ self.spectrum.signal_mass, m_noise @ self.spectrum.noise_mass

    def loss(self, optimizer: Optimizer, t: int, batch_size: float, schedule: Schedule | None = None) -> float:
        """Expected loss after t steps."""
        signal, noise = self.losses(optimizer, t, schedule)
        return float(signal + noise / batch_size)

    def floor(self, optimizer: Optimizer, batch_size: float, schedule: AnySchedule = None) -> float:
        """Steady-state loss, exactly: infinity where the optimizer is unstable on this spectrum, NaN where nothing moves."""
        require_set(optimizer, "floor")
        fixed = as_schedule(schedule, 1) if not isinstance(schedule, Schedule) else schedule
        m = Trajectory(optimizer.endless, self.spectrum.h, fixed).floor()
        if np.any(np.isinf(m)):
            return math.inf
        return float(m @ self.spectrum.noise_mass) / check_batch_size(batch_size)

    def sentence(self, outcome: Outcome, optimizer: Optimizer, schedule: Schedule | None = None, **numbers: Any) -> str:
        """The outcome's sentence with its numbers; for a divergence, where it is and the limit that was passed."""
        if outcome is Outcome.diverged:
            radius = Trajectory(optimizer.endless, self.spectrum.h, schedule).stationary().radius()
            worst = int(np.argmax(radius))
            limit = self.stability_limit(optimizer)
            numbers |= {"radius": float(radius[worst]), "h": float(self.spectrum.h[worst])}
            numbers["limit"] = f" below {limit:.6g}" if math.isfinite(limit) and schedule is None else ""
        return outcome.value.format(**numbers)

    def stability_limit(self, optimizer: Optimizer, tol: float = 1e-10) -> float:
        """The learning rate below which the optimizer is stable on every mode, its other parameters as they are.

        >>> from nqm import HeavyBall
        >>> Quadratic(Spectrum([0.5, 2.0])).stability_limit(HeavyBall(momentum=0.5))   # 2 (1 + momentum) / h
        1.5
        """
        from ..optimizers.base import fill, parameters

        known = parameters(optimizer)
        if "lr" not in known:
            raise Wrong(f"stability_limit needs an optimizer with one learning rate, got {optimizer}")
        one = fill(optimizer, {"lr": 1.0})
        require_set(one, "stability_limit")
        ends = np.array([self.spectrum.h.min(), self.spectrum.h.max()])
        # Steps that are alike lose stability at the largest curvature. A cycle can resonate with any mode.
        modes = np.append(self.coarse.spectrum.h, ends) if one.endless.cycle > 1 else ends

        def stable(lr: float, h: Array = modes) -> bool:
            return bool(Trajectory(fill(optimizer, {"lr": lr}).endless, h).stable())

        low, high = 0.0, 1e-3 * float(np.min(one.edge(ends)))
        while stable(high) and high < 1e300:
            low, high = high, high * (1.02 if len(modes) > 2 else 2.0)
        while high - low > tol * high:
            middle = (low + high) / 2
            low, high = (middle, high) if stable(middle) else (low, middle)
        while len(modes) > 2 and not stable(low * (1 - tol), self.spectrum.h):
            low *= 0.999
        return float(f"{low:.10g}")

    def _moments(self, optimizer: Optimizer, schedule: Schedule | None, times: Array) -> Any:
        """Second moments of the reported weights at each time."""
        if optimizer.depends_on_horizon:  # each time is a run of its own
            for t in times:
                dynamics = Trajectory(optimizer.at_horizon(int(t)), self.spectrum.h, schedule)
                yield dynamics.read(dynamics.move(dynamics.start(), 0, int(t)), int(t))
            return
        dynamics = Trajectory(optimizer.endless, self.spectrum.h, schedule)
        state, now = dynamics.start(), 0
        for t in times:
            state, now = dynamics.move(state, now, int(t)), int(t)
            yield dynamics.read(state, now)


class Bands:
    """Sums over modes by decade of curvature."""

    def __init__(self, spectrum: Spectrum) -> None:
        low, high = math.floor(np.log10(spectrum.h.min())), math.ceil(np.log10(spectrum.h.max()))
        self.edges = 10.0 ** np.arange(low, max(high, low + 1) + 1)
        which = np.clip(np.searchsorted(self.edges, spectrum.h, side="left") - 1, 0, len(self.edges) - 2)
        self.which = np.eye(len(self.edges) - 1)[:, which]
        self.signal, self.noise = self.which * spectrum.signal_mass, self.which * spectrum.noise_mass

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __call__(self, m_signal: Array, m_noise: Array) -> tuple[Array, Array]:
        return self.signal @ m_signal, self.noise @ m_noise

    def split(self, values: Array) -> Array:
        return self.which @ values


def check_batch_size(batch_size: Any) -> float:
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, float, np.number)) or not batch_size > 0:
        raise Wrong(f"batch_size must be a positive number, got {batch_size!r}", argument="batch_size")
    return float(batch_size)


def check_target(target: Any) -> float:
    if isinstance(target, bool) or not isinstance(target, (int, float, np.number)) or not (0 < target < math.inf):
        raise Wrong(f"target must be a positive loss, got {target!r}", argument="target")
    return float(target)


def report_steps(steps: Any, grid: str, points: int) -> Array:
    """The steps a run reports: as given, or spaced up to the last."""
    if isinstance(steps, (int, np.integer, float)) and not isinstance(steps, bool):
        if not 0 <= steps <= MAX_STEPS or steps != int(steps):
            raise Wrong(f"steps must be a whole number from 0 to 10^9, got {steps!r}", argument="steps")
        if grid not in ("log", "linear"):
            raise Wrong(f"grid must be 'log' or 'linear', got {grid!r}", argument="grid")
        if points < 2:
            raise Wrong(f"points must be at least 2, got {points!r}", argument="points")
        if grid == "linear" or steps < 2:
            spaced = np.linspace(0, steps, points)
        else:
            spaced = np.append(0, np.geomspace(1, steps, points))
        return np.unique(np.rint(spaced).astype(np.int64))
    times = np.asarray(steps)
    if times.ndim != 1 or times.size == 0 or not np.all(np.isfinite(times.astype(float))):
        raise Wrong(f"steps must be a number or a list of steps, got {steps!r:.80}", argument="steps")
    whole = np.rint(times.astype(float)).astype(np.int64)
    if np.any(whole != times) or whole.min() < 0 or whole.max() > MAX_STEPS or np.any(np.diff(whole) <= 0):
        raise Wrong("steps must be whole numbers from 0 to 10^9 in rising order", argument="steps")
    return whole
