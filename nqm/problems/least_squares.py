"""Least squares with Gaussian features: exact, with the sampling noise of real minibatches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..engine.run import Outcome, Run
from ..engine.schedule import Schedule, as_schedule
from ..engine.spectrum import HEAD, Spectrum
from ..optimizers.base import Optimizer, fill, parameters, require_set
from ..types import Array, Wrong
from .coupled import Coupled, Steady
from .quadratic import AnySchedule, Bands, Problem, Quadratic, check_batch_size, report_steps
from .renewal import Renewal

SHORT = 1024  # steps that are walked sooner than jumped over
MUCH = 10**8  # modes times steps, beyond which a loss at constant settings is not walked to
SHORT_CYCLE, MAX_CYCLE = 8, 256  # steps of a cycle whose steady state is solved for on every mode, and at all
MANY = 1024  # modes above which stability is first looked at on nodes


@dataclass(frozen=True, eq=False)
class LeastSquares(Problem):
    """Linear regression on fresh Gaussian examples: features of covariance H, labels with noise.

    Each step draws B examples, ``f ~ N(0, H)`` and ``label = f' theta* + sigma xi``, and takes the gradient of their
    mean squared error. With theta counted from theta* its noise on a mode of curvature h has variance::

        (h^2 m + h tau + h sigma^2) / B,      m = E theta^2 on the mode,   tau = sum n h m = 2 loss

    at the point where the gradient is taken: noise that falls with the loss, and a learning rate that stability caps at
    small batches, both of which `Quadratic` leaves out. The loss is the excess risk ``1/2 sum n h E[theta^2]``; the
    ``sigma^2 / 2`` that no weights can remove is not in it.

    Parameters
    ----------
    spectrum : curvatures h, starts s and multiplicities. Gradient noise follows from the features, so c is not used,
        except that ``c = sigma^2 h`` gives the label noise where none is named.
    label_noise : sigma^2, the variance of the labels' noise.

    >>> from nqm import SGD
    >>> problem = LeastSquares(Spectrum.power_law(10_000), label_noise=1.0)
    >>> round(problem.stability_limit(SGD(), batch_size=4), 4), round(problem.additive.stability_limit(SGD()), 4)
    (0.7292, 2.0)
    >>> problem.run(SGD(0.5), batch_size=4, steps=[0, 1, 10]).loss.round(4).tolist()
    [4.8938, 4.8137, 4.4579]
    """

    spectrum: Spectrum
    label_noise: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.spectrum, Spectrum):
            raise Wrong(f"LeastSquares needs a Spectrum, got {self.spectrum!r:.60}; wrap arrays as Spectrum(h)")
        noise, spectrum = self.label_noise, self.spectrum
        if noise is None:
            ratio = spectrum.c / spectrum.h
            if np.ptp(ratio) > 1e-6 * ratio.max():
                raise Wrong(
                    "the noise c of this spectrum is not a multiple of h, so it names no label noise; "
                    "give LeastSquares label_noise="
                )
            noise = float(ratio.max())
        if isinstance(noise, bool) or not isinstance(noise, (int, float, np.number)) or not 0 <= noise < math.inf:
            raise Wrong(f"label_noise must be a variance of at least 0, got {noise!r}", argument="label_noise")
        object.__setattr__(self, "label_noise", float(noise))
        own = Spectrum(spectrum.h, float(noise) * spectrum.h, spectrum.s, spectrum.count, spectrum.note)
        object.__setattr__(self, "spectrum", own)

    @cached_property
    def additive(self) -> Quadratic:
        """The quadratic that has the noise of the minimum, c = sigma^2 h, everywhere."""
        return Quadratic(self.spectrum)

    @cached_property
    def features(self) -> Spectrum:
        """The modes as the dynamics see them: c = h is what a unit of loss or of label noise adds."""
        spectrum = self.spectrum
        return Spectrum(spectrum.h, spectrum.h, spectrum.s, spectrum.count)

    @cached_property
    def fine(self) -> LeastSquares:
        """The same problem on nodes, to 1e-9: what long runs of a search are confirmed on."""
        return self._on(self.features.compress(1e-9))

    @cached_property
    def coarse(self) -> LeastSquares:
        """The same on fewer nodes, to 1e-4, for searches."""
        return self._on(self.features.compress(1e-4))

    @cached_property
    def coarse_smooth(self) -> LeastSquares:
        """The same for optimizers of one slot, which do not oscillate and make do with fewer nodes still."""
        return self._on(self.features.compress(1e-6, swings=False, head=HEAD // 4))

    def coarse_for(self, optimizer: Optimizer) -> LeastSquares:
        """The nodes a search for this optimizer looks at."""
        return self.coarse_smooth if len(optimizer.initial()) == 1 else self.coarse

    def _on(self, nodes: Spectrum) -> LeastSquares:
        problem = LeastSquares(nodes, self.label_noise)
        object.__setattr__(problem, "features", nodes)  # the rule's own weights for signal and noise
        return problem

    def coupled(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None) -> Coupled:
        """The dynamics of one optimizer here."""
        return Coupled(optimizer, self.features, self.label_noise, batch_size, schedule)

    def run(
        self,
        optimizer: Optimizer,
        batch_size: float,
        steps: int | Sequence[int],
        schedule: AnySchedule = None,
        grid: Literal["log", "linear"] = "log",
        points: int = 200,
    ) -> Run:
        """Exact expected loss of an optimizer over steps; arguments as for `Quadratic.run`.

        Signal is the loss that the same run has without any noise. Noise is B times the rest, which here depends on B.
        Noise scales are those of the reported weights, where the noise is that of their own loss.
        """
        require_set(optimizer, "run")
        batch_size = check_batch_size(batch_size)
        times = report_steps(steps, grid, points)
        schedule = as_schedule(schedule, int(times[-1]))
        n, h, bands = self.spectrum.count, self.spectrum.h, Bands(self.spectrum)
        parts, scales = np.empty((2, len(times), len(bands))), np.empty((len(times), 2))
        with np.errstate(all="ignore"):
            for i, (signal, noise) in enumerate(self._moments(optimizer, batch_size, schedule, times)):
                parts[:, i] = bands.split(n * h * signal / 2), bands.split(n * h * noise / 2)
                m = signal + noise / batch_size
                c = h * (h * m + n @ (h * m) + self.label_noise)  # per example, at the reported weights
                scales[i] = (n @ c) / (n @ (h**2 * m)), (n @ (h * c)) / (n @ (h**3 * m))
            band_signal, band_noise = parts
            signal, noise = band_signal.sum(1), band_noise.sum(1)
            loss = signal + noise / batch_size
        floor = self.floor(optimizer, batch_size, schedule)
        outcome = Outcome.finished if not math.isinf(floor) and np.isfinite(loss[-1]) else Outcome.diverged
        message = self.sentence(outcome, optimizer, schedule, batch_size=batch_size, steps=int(times[-1]))
        return Run(
            steps=times, loss=loss, signal=signal, noise=noise, batch_size=batch_size, optimizer=optimizer,
            floor=floor, outcome=outcome, message=message,
            band_edges=bands.edges, band_signal=band_signal.T, band_noise=band_noise.T,
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
        features: Any = "gaussian",
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
        """Mean loss over random replicas that draw real minibatches and step the optimizer's own update rule.

        Parameters are those of `Quadratic.sample`, except that gradients come from B examples a step, a whole number:

        features : the law of the features' components, by name or as a function ``(rng, shape) -> array`` of mean 0 and
            variance 1. `run` is exact for Gaussian ones; others have other fourth moments, hence other noise.
        noise : the law of the labels' noise.

        >>> from nqm import HeavyBall
        >>> problem = LeastSquares(Spectrum([1.0, 0.1]), label_noise=0.5)
        >>> run = problem.sample(HeavyBall(0.2, 0.5), batch_size=2, steps=[0, 10], replicas=20_000)
        >>> exact = problem.run(HeavyBall(0.2, 0.5), batch_size=2, steps=[0, 10])
        >>> bool((abs(run.loss - exact.loss) < 4 * run.stderr).all())
        True
        """
        from ..sampling import replicas as sample
        from ..sampling.bases import rotation_matrix
        from ..sampling.laws import law
        from ..sampling.sources import Minibatch

        require_set(optimizer, "sample")
        times = report_steps(steps, grid, points)
        if start not in ("gaussian", "fixed"):
            raise Wrong(f"start must be 'gaussian' or 'fixed', got {start!r}", argument="start")
        seed, laws = sample.check_seed(seed), (law(features), law(noise))
        turned = rotation_matrix(rotation, round(self.spectrum.dim), seed)
        source = Minibatch(self.spectrum, self.label_noise, *laws, start, turned)
        fixed, B = as_schedule(schedule, int(times[-1])), check_batch_size(batch_size)
        sizes = B * (fixed.batch_size if fixed else np.ones(1))
        if np.any(np.isfinite(sizes) & (sizes != np.rint(sizes))):
            raise Wrong(
                f"batch_size must be a whole number of examples at every step to be sampled, got {B:g}",
                argument="batch_size",
            )
        plan = sample.Plan(source, optimizer, B, times, fixed, sample.check_replicas(replicas), seed)
        warning = "; ".join(filter(None, (each.warning for each in laws)))
        return sample.sample(plan, quantiles=quantiles, warning=warning, progress=progress, workers=workers)

    def losses(
        self, optimizer: Optimizer, t: int, batch_size: float, schedule: Schedule | None = None
    ) -> tuple[Any, Any]:
        """(signal, noise) after t steps at a batch size; one value for each setting the optimizer holds."""
        coupled = self.coupled(optimizer.at_horizon(t), batch_size, schedule)
        with np.errstate(all="ignore"):
            state, _, _ = coupled.walk(coupled.start(), 0, t)
            mass = self.features.count * self.features.h / 2
            signal, noise = coupled.read(state, t)
            return signal @ mass, noise @ mass

    def loss(self, optimizer: Optimizer, t: int, batch_size: float, schedule: Schedule | None = None) -> float:
        """Expected loss after t steps: stepped, or for long runs at constant settings `estimate`."""
        if t * len(self.features) > MUCH and schedule is None:
            return float(self.estimate(optimizer, t, batch_size)[0])
        signal, noise = self.losses(optimizer, t, batch_size, schedule)
        return float(signal + noise / batch_size)

    def estimate(self, optimizer: Optimizer, t: int, batch_size: float) -> Array:
        """Loss after t steps of each setting the optimizer holds, at a cost of log t (`Renewal`).

        Accurate to 1e-12 where the loss is smooth, and to 1e-4 in the midst of swings that hardly decay.
        """
        coupled = self.coupled(optimizer.at_horizon(t), batch_size)
        with np.errstate(all="ignore"):
            if t < SHORT or not Renewal.fits(coupled):
                _, signal, noise = coupled.walk(coupled.start(), 0, t)
                if t == 0:
                    return np.full(coupled.settings, self.spectrum.initial_loss)
                return signal[:, -1] + noise[:, -1] / batch_size
            return Renewal(coupled).losses(t)

    def floor(self, optimizer: Optimizer, batch_size: float, schedule: AnySchedule = None) -> float:
        """Steady-state loss, exactly: infinity where the optimizer is unstable, NaN where nothing moves.

        Cycles of more than 8 steps are looked at on the nodes of `fine`, and those of more than 256 not at all: NaN.
        """
        require_set(optimizer, "floor")
        fixed = as_schedule(schedule, 1) if not isinstance(schedule, Schedule) else schedule
        steady = self._steady(optimizer, check_batch_size(batch_size), fixed)
        return float(steady.floor[0]) if steady else math.nan

    def _steady(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None) -> Steady | None:
        """The long run, if its cycle is not too long to be solved for: the cost goes as its square."""
        held = optimizer.endless
        if held.cycle > MAX_CYCLE:
            return None
        return (self if held.cycle <= SHORT_CYCLE else self.fine).coupled(held, batch_size, schedule).steady()

    def stability_limit(self, optimizer: Optimizer, batch_size: float, tol: float = 1e-12) -> float:
        """The learning rate below which the loss stays bounded at a batch size, the other parameters as they are.

        For SGD it is the root of ``sum n x / (B (2 - x (1 + 1/B))) = 1``, x = lr h.

        >>> from nqm import SGD
        >>> LeastSquares(Spectrum([1.0])).stability_limit(SGD(), batch_size=2)     # 2 / (1 + 2 / B)
        1.0
        """
        batch_size = check_batch_size(batch_size)
        if "lr" not in parameters(optimizer):
            raise Wrong(f"stability_limit needs an optimizer with one learning rate, got {optimizer}")
        one = fill(optimizer, {"lr": 1.0})
        require_set(one, "stability_limit")

        def stable(lr: float, problem: LeastSquares) -> bool:
            steady = problem._steady(fill(optimizer, {"lr": lr}), batch_size)
            if steady is None:
                raise Wrong(
                    f"stability_limit takes cycles of up to {MAX_CYCLE} steps, and {optimizer} has a longer one"
                )
            return bool(steady.stable[0])

        nodes = self.fine if len(self.features) > MANY else self
        low, high = 0.0, 1e-3 * float(np.min(one.edge(self.spectrum.h)))
        while not stable(high, nodes) and high > 1e-300:
            high /= 4
        # A cycle can resonate near its edge, and be stable again above.
        careful = 0.2 * float(np.min(one.edge(self.spectrum.h))) if one.endless.cycle > 1 else math.inf
        while stable(high, nodes) and high < 1e300:
            low, high = high, high * (1.02 if high > careful else 2.0)
        low, high = _bisect(lambda lr: stable(lr, nodes), low, high, tol)
        if nodes is not self:
            low, high = low * (1 - 1e-6), high * (1 + 1e-6)
            while low > 0 and not stable(low, self):
                low *= 0.999
            low, high = _bisect(lambda lr: stable(lr, self), low, high, tol)
        return float(f"{low:.10g}")

    def sentence(
        self, outcome: Outcome, optimizer: Optimizer, schedule: Schedule | None = None, *, batch_size: float,
        **numbers: Any,
    ) -> str:  # fmt: skip
        """The outcome's sentence with its numbers; for a divergence, what feeds it and the limit that was passed."""
        if outcome is not Outcome.diverged:
            return outcome.value.format(batch_size=batch_size, **numbers)
        steady = self._steady(optimizer, batch_size, schedule)
        if steady is None or steady.radius[0] > 1 or not (steady.own[0] >= 1 or steady.gain[0] >= 1):
            return self.additive.sentence(outcome, optimizer, schedule, **numbers)
        limit = self.stability_limit(optimizer, batch_size) if schedule is None else math.nan
        below = f" below {limit:.6g}" if math.isfinite(limit) else ""
        gain = f"with a gain of {steady.gain[0]:.4g}, above 1" if steady.own[0] < 1 else "on a single mode already"
        return (
            f"diverges: at batch size {batch_size:g} the noise of a batch feeds back {gain}; "
            f"lower the learning rate{below} or raise the batch size"
        )

    def _moments(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None, times: Array) -> Any:
        """Second moments of the reported weights at each time, (signal, B times noise)."""
        if optimizer.depends_on_horizon:  # each time is a run of its own
            for t in times:
                coupled = self.coupled(optimizer.at_horizon(int(t)), batch_size, schedule)
                state, _, _ = coupled.walk(coupled.start(), 0, int(t))
                yield coupled.read(state, int(t))
            return
        coupled = self.coupled(optimizer.endless, batch_size, schedule)
        state, now = coupled.start(), 0
        for t in times:
            (state, _, _), now = coupled.walk(state, now, int(t)), int(t)
            yield coupled.read(state, now)


def _bisect(stable: Any, low: float, high: float, tol: float) -> tuple[float, float]:
    while high - low > tol * high:
        middle = (low + high) / 2
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low, high
