"""Fit: a network at a checkpoint as a noisy quadratic that the exact engine takes as it is.

With signal nodes (h, g^2) and noise nodes (h, c) of `measure`, the loss after t steps is expected at

    loss(t) = loss - sum g^2 / (2 h) + 1/2 sum h (g^2 / h^2) m_s(h, t) + (1/B) 1/2 sum h c m_n(h, t)

where m_s and m_n are the second moments that the optimizer makes of a unit start and of unit noise on curvature h. So
signal nodes are modes with s = g^2 / h^2 and c = 0, noise nodes modes with s = 0, and both live in one `Spectrum`. What is
left when both have died away is the ``offset``, the least loss of the quadratic; it may lie below zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...engine.spectrum import Spectrum
from ...problems.base import AnySchedule
from ...problems.quadratic import Quadratic
from ...types import Array, Wrong
from ..estimates import Estimate, Measure, bootstrap
from .descent import Bend, Descent, descend

if TYPE_CHECKING:
    from ...optimizers.base import Optimizer
    from ..network import Network
    from .prediction import Prediction

FLAT = 1e-7  # of the largest curvature: smaller ones act as straight slopes for 10^5 steps, and are set to this
FORMAT = "nqm fit 1"
SQUARED = 512  # examples whose gradients are squared for Adam's second moment
EPS = 1e-8  # Adam's own
SETTLED = 0.02  # of a curvature: a Ritz vector with a smaller residual is taken as an eigenvector
TIMED = 3  # gradients, to say what products cost
KINDS = ("signal", "noise", "density")
Progress = Callable[[int, int], None]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Fit:
    """A measured model: two measures over curvature, the loss at the checkpoint, and where they come from.

    ``top`` has the largest curvatures h, and gradient g, noise variance c and Adam's preconditioner along each. ``density``
    is the distribution of all curvatures, if random probes were asked for. ``descent`` is how the real loss falls along full
    gradients, by which predictions are bent. ``note`` is provenance.
    """

    signal: Measure
    noise: Measure
    loss: float
    examples: int
    top: dict[str, Array] = field(default_factory=dict)
    density: Measure | None = None
    descent: Descent | None = None
    note: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Signal nodes (c = 0) and noise nodes (s = 0) as modes of one spectrum."""
        return self.spectrum_with(self.noise.weight / self.noise.probes)

    def spectrum_with(self, noise: Array) -> Spectrum:
        """The spectrum with other weights on the noise nodes; nodes that are one curvature are one mode."""
        least = FLAT * max(self.signal.h.max(), self.noise.h.max())
        h, where = np.unique(np.maximum(np.append(self.signal.h, self.noise.h), least), return_inverse=True)
        signals = len(self.signal.h)
        g2 = np.bincount(where[:signals], np.maximum(self.signal.weight, 0), len(h))
        c = np.maximum(np.bincount(where[signals:], noise, len(h)), 0)
        note = {"fit": self.note, "offset": self.loss - float((g2 / h).sum() / 2)}
        return Spectrum(h[::-1], c[::-1], (g2 / h**2)[::-1], note=note)

    @cached_property
    def problem(self) -> Quadratic:
        return Quadratic(self.spectrum)

    @property
    def offset(self) -> float:
        """The least loss of the quadratic: add it to the losses of ``problem``."""
        return self.loss - self.spectrum.initial_loss

    @cached_property
    def bend(self) -> Bend | None:
        """From losses of the quadratic to losses of the network, if a descent was measured."""
        return None if self.descent is None else Bend(self.descent, self.problem, self.offset)

    @property
    def noise_scale(self) -> Estimate:
        """tr C / |g|^2: the batch size at which noise and signal of a gradient are alike."""
        g = self.signal.integral(np.ones_like)
        return bootstrap(self.noise.each(np.ones_like), lambda trace: trace / g)

    @property
    def curvature_noise_scale(self) -> Estimate:
        """tr GC / g'Gg: the same for what a step does to the loss."""
        bent = self.signal.integral(lambda h: h)
        return bootstrap(self.noise.each(lambda h: h), lambda trace: trace / bent)

    @property
    def noise_exponent(self) -> tuple[float, float]:
        """Slope of log c against log h over the largest curvatures, and the spread of log c around the line.

        The paper's C = H is a slope of 1.
        """
        return _slope(self.top["h"], self.top["c"])

    @property
    def adam_power(self) -> tuple[float, float]:
        """The power p of H^-p that comes closest to Adam's preconditioner here, and the spread around it in logs.

        Adam divides by d, the root of the second moment of single-example gradients. Along the largest curvatures' vectors
        y, log(y' d^-1 y) against log h has the slope -p; for C = H and a diagonal H it would be 1/2.
        """
        slope, spread = _slope(self.top["h"], self.top["adam"])
        return -slope, spread

    def predict(
        self, optimizer: Optimizer, batch_size: float, steps: int | Sequence[int], schedule: AnySchedule = None,
        *, replacement: bool = True, bent: bool = True,
    ) -> Prediction:  # fmt: skip
        """Expected training loss over the next steps, with its interval and how far it can be trusted: see `predict`."""
        from .prediction import predict

        return predict(self, optimizer, batch_size, steps, schedule, replacement=replacement, bent=bent)

    def plot(self, path: str | None = None) -> Any:
        """Signal and noise over curvature, and noise against curvature."""
        from .plots import plot_fit

        return plot_fit(self, path)

    def to_dict(self) -> dict[str, Any]:
        """What ``nqm fit --json`` prints; files have the nodes besides."""
        slope, spread = self.noise_exponent
        power, around = self.adam_power
        return {
            "loss": self.loss, "offset": self.offset, "examples": self.examples,
            "largest_curvature": float(self.signal.h.max()), "trace_noise": self.noise.integral(np.ones_like),
            "gradient_norm": math.sqrt(self.signal.integral(np.ones_like)),
            "noise_scale": self.noise_scale.to_dict(), "curvature_noise_scale": self.curvature_noise_scale.to_dict(),
            "noise_exponent": slope, "noise_exponent_spread": spread,
            "adam_power": power, "adam_power_spread": around, **self.note,
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write to ``.json`` or ``.npz``, as the ending says; `load` reads it back exactly."""
        path = Path(path)
        measures = {kind: getattr(self, kind) for kind in KINDS if getattr(self, kind) is not None}
        columns = {f"{kind}_{k}": v for kind, measure in measures.items() for k, v in measure.to_dict().items()}
        columns |= {f"top_{k}": v for k, v in self.top.items()}
        columns |= {f"descent_{k}": v for k, v in (self.descent.to_dict() if self.descent else {}).items()}
        about = {"format": FORMAT, "loss": self.loss, "examples": self.examples, "note": self.note}
        if path.suffix == ".npz":
            np.savez(path, about=json.dumps(about), **columns)
        elif path.suffix == ".json":
            path.write_text(json.dumps({**about, **{k: v.tolist() for k, v in columns.items()}}) + "\n")
        else:
            raise Wrong(f"save: a fit is written as .json or .npz, not {path.suffix or 'without an ending'!r}")

    @classmethod
    def load(cls, path: str | Path) -> Fit:
        """Read what `save` wrote."""
        path = Path(path)
        if not path.is_file():
            raise Wrong(f"there is no fit file {str(path)!r}")
        try:
            return cls._parsed(_read(path))
        except (OSError, UnicodeDecodeError, ValueError, TypeError, KeyError, EOFError) as error:
            raise Wrong(f"{path.name!r} is not a fit that nqm wrote: {error}") from None

    @classmethod
    def _parsed(cls, data: dict[str, Any]) -> Fit:
        if data.get("format") != FORMAT:
            raise Wrong(f"its format is {data.get('format')!r}, not {FORMAT!r}")
        measures = {
            kind: Measure(
                np.asarray(data[f"{kind}_h"], float), np.asarray(data[f"{kind}_weight"], float),
                np.asarray(data[f"{kind}_probe"], int),
            )
            for kind in KINDS
            if f"{kind}_h" in data
        }  # fmt: skip
        top = {k.removeprefix("top_"): np.asarray(v, float) for k, v in data.items() if k.startswith("top_")}
        names = ("lr", "momentum", "steps", "loss")
        path = [np.asarray(data[f"descent_{k}"], float) for k in names] if "descent_lr" in data else []
        descent = Descent(float(path[0][0]), float(path[1][0]), path[2].astype(int), path[3]) if path else None
        loss, examples, note = float(data["loss"]), int(data["examples"]), dict(data["note"])
        return cls(measures["signal"], measures["noise"], loss, examples, top, measures.get("density"), descent, note)


def fit(
    network: Network,
    *,
    steps: int = 40,
    noise_vectors: int = 6,
    noise_steps: int = 12,
    probes: int = 0,
    descent: int = 150,
    curvature: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Measure signal and noise of a network at its checkpoint.

    Parameters
    ----------
    steps : Lanczos steps from the gradient, each a product with the curvature.
    noise_vectors : random combinations of per-example gradients, for the noise beside the largest curvatures, along which
        it is found exactly; their scatter gives the intervals.
    noise_steps : Lanczos steps from each of them, and from each probe.
    probes : random vectors for the density of eigenvalues; the prediction does not need them.
    descent : full gradients along which the real loss is followed; 0 for none. Each comes 2 / largest curvature further in
        effective learning rate x steps, and predictions hold about as far as it goes: see `descent`.
    curvature : "gauss_newton" (default), "hessian", "fisher" or "empirical_fisher".
    progress : called with (done, total). Ctrl-C keeps the Lanczos steps made so far, and the note says how many.
    """
    import torch

    from ..curvature import curvature_of
    from ..krylov import SPENT
    from ..preflight import check_measurable
    from . import measurement as m

    wanted = {
        "steps": (steps, 2),
        "noise_vectors": (noise_vectors, 1),
        "noise_steps": (noise_steps, 2),
        "probes": (probes, 0),
    }
    for name, (value, least) in wanted.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise Wrong(f"fit: {name} must be a whole number of at least {least}, got {value!r}")
    began = perf_counter()

    def trial(few: Network) -> None:
        generator = torch.Generator().manual_seed(seed)
        _, g = m.noise_vectors(few, 1, generator)
        start = torch.randn(1, few.dim, generator=generator, dtype=g.dtype)
        (found,) = m.krylov_spaces(curvature_of(few, curvature), start, 2, keep=True)
        _top(few, found, g, generator)

    loss = check_measurable(network, trial)
    generator = torch.Generator().manual_seed(seed)
    noise, g = m.noise_vectors(network, noise_vectors, generator)
    if not bool((g != 0).any()):
        raise Wrong("the gradient is zero at this checkpoint: there is nothing to train")
    if not math.isfinite(float((g.double() ** 2).sum())):
        raise Wrong("the gradient is not finite at this checkpoint; scale the inputs, or load a sound checkpoint")
    operator, total = curvature_of(network, curvature), steps + (noise_vectors + probes) * noise_steps

    def show(done: int, _: int) -> None:
        if progress:
            progress(operator.products, total)

    (signal,), alone = _timed(lambda: m.krylov_spaces(operator, g[None], steps, keep=True, progress=show))
    top, along = _top(network, signal, g, generator)
    if not top["h"].max() > 0:
        raise Wrong(
            f"the largest curvature along the gradient is {top['h'].max():g}, as where every softmax is saturated; scale the "
            "inputs, or take another checkpoint"
        )
    settled = top["residual"] <= SETTLED * top["h"]
    rest = m.without(noise, along[torch.as_tensor(settled)])
    if rest.norm() <= SPENT.get(g.dtype, 1e-3) * noise.norm():  # those vectors span all that moves
        rest = rest[:0]
    starts = torch.cat([rest, torch.randn(probes, network.dim, generator=generator, dtype=g.dtype)])
    spaces, together = _timed(lambda: m.krylov_spaces(operator, starts, noise_steps, progress=show))
    parts = [space.measure() for space in spaces]
    apart = parts[: len(rest)] if len(rest) else [(np.empty(0), np.empty(0))] * noise_vectors
    density = parts[len(rest) :]
    known = top["h"][settled], np.maximum(top["c"][settled], 0)
    gradient = sum(_timed(network.gradient)[1] for _ in range(TIMED)) / TIMED
    path = descend(network, 1 / float(top["h"].max()), descent, progress) if descent else None
    note = {
        "network": network.name, "step": network.step, "parameters": network.dim, "curvature": operator.name,
        "lanczos_steps": len(signal), "noise_vectors": len(apart), "noise_steps": max(map(len, spaces), default=0),
        "noise_settled": int(settled.sum()), "probes": len(density), "seed": seed, "products": operator.products,
        "full_gradients": 0 if path is None else int(path.steps[-1]), "chunk": network.chunk,
        "gradient_seconds": gradient, "product_cost": alone / len(signal) / gradient,
        "product_cost_together": together / max(operator.products - len(signal), 1) / gradient,
        "notes": list(network.notes), "seconds": round(perf_counter() - began, 2),
    }  # fmt: skip
    return Fit(
        Measure.of([signal.measure()]),
        Measure.of([(np.append(known[0], h), np.append(known[1], c)) for h, c in apart]),
        loss, network.examples, top, Measure.of(density) if density else None, path, note,
    )  # fmt: skip


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """What the work gives, and the seconds that it took."""
    began = perf_counter()
    found = work()
    return found, perf_counter() - began


def _top(network: Network, found: Any, g: Any, generator: Any, most: int = 16) -> tuple[dict[str, Array], Any]:
    """The largest Ritz values from the gradient; signal, noise variance and Adam's preconditioner along their vectors.

    The vectors themselves come second.
    """
    import torch

    from ..transforms import pushed_forward, vmap

    values, vectors = found.ritz()
    k = min(most, len(found))
    y, second = vectors[:k].to(g.dtype), np.zeros(k)
    for batch, share in network.batches(k):
        along = vmap(lambda v, b=batch: pushed_forward(lambda t: network.losses(t, b), network.theta, v)[1])(y)
        second += share * (along.double() ** 2).mean(1).numpy()
    c = second - ((y @ g).double() ** 2).numpy()
    some = torch.randperm(network.examples, generator=generator)[:SQUARED]
    squares = sum((rows.double() ** 2).sum(0) for rows in network.example_gradients(index=some)) / len(some)
    adam = (y.double() ** 2 / (torch.as_tensor(squares) ** 0.5 + EPS)).sum(1).numpy()
    columns = {"h": values[:k], "c": c, "g": (y @ g).double().numpy(), "adam": adam, "residual": found.residuals()[:k]}
    return columns, y


def _slope(x: Array, y: Array) -> tuple[float, float]:
    """Of log y against log x, and the standard deviation around the line."""
    fine = (x > 0) & (y > 0)
    if fine.sum() < 3:
        return math.nan, math.nan
    u, v = np.log(x[fine]), np.log(y[fine])
    slope, level = np.polyfit(u, v, 1)
    return float(slope), float(np.std(v - slope * u - level))


def is_fit(path: str | Path) -> bool:
    """Whether a file is one that `Fit.save` wrote, and not a spectrum."""
    import zipfile

    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                return "about.npy" in file.namelist()
        return f'"format": "{FORMAT}"' in Path(path).read_text()[:1000]
    except (OSError, UnicodeDecodeError, zipfile.BadZipFile):
        return False


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        data = json.loads(path.read_text())
        if not isinstance(data, dict):
            raise Wrong("it should be an object")
        return data
    if path.suffix != ".npz":
        raise Wrong("a fit is read from .json or .npz")
    import zipfile

    try:
        with np.load(path, allow_pickle=False) as file:
            return {**json.loads(str(file["about"])), **{k: file[k] for k in file.files if k != "about"}}
    except zipfile.BadZipFile as error:
        raise Wrong(str(error)) from None
