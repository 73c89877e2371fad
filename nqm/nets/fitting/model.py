"""Fit: a network at a checkpoint as a noisy quadratic, which the exact engine takes as it is.

With the signal nodes (h, g^2) and noise nodes (h, c) of `probing`, the expected loss after t steps is

    loss(t) = loss - sum g^2 / (2 h) + 1/2 sum h (g^2 / h^2) m_s(h, t) + (1/B) 1/2 sum h c m_n(h, t)

where m_s and m_n are the second moments on curvature h after a unit start and under unit noise. So signal nodes are modes
with s = g^2 / h^2 and c = 0, noise nodes are modes with s = 0, and one `Spectrum` holds both. The first two terms are the
``offset``, the minimum of the quadratic, which may be negative.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.readable import Readable
from ...engine.saving import save_columns
from ...engine.spectrum import Spectrum
from ...problems.quadratic import Quadratic
from ...types import Array, Wrong
from ..estimates import Estimate, Measure, bootstrap
from .advice import advise
from .descent import RISING_STEPS, Bend, Descent
from .hits import promised_hits
from .kfac_metric import KFACMetric
from .metric import AdamMetric
from .negative import NEARLY_FLAT, Negative, negative_part
from .plots import plot_fit
from .prediction import Horizon, predict
from .sampled import Subsample
from .testing import Tested

FLAT_SHARE = 1e-7  # smaller curvatures, as a share of the largest, are raised to it; they are flat for 10^5 steps
FIT_FORMAT = "nqm fit 1"  # the entry "format" of the file of a fit
KINDS = ("signal", "noise", "density")  # the measures of a fit
RENAMED = {"noise_settled": "noise_eigenvectors"}  # names of entries in files of earlier versions, with today's names


@dataclass(frozen=True)
class Provenance:
    """Where a fit comes from and what it cost. Entries that are missing in the file of an earlier version have defaults."""

    network: str = ""
    step: int | None = None  # step of the checkpoint in the network's training
    parameters: int = 0  # number of trained weights
    curvature: str = ""  # name of the curvature matrix
    lanczos_steps: int = 0  # Lanczos steps from the gradient
    noise_vectors: int = 0  # number of random combinations of per-example gradients
    noise_steps: int = 0  # Lanczos steps from each noise vector
    noise_eigenvectors: int = 0  # number of eigenvectors along which the noise was computed exactly
    probes: int = 0  # number of random vectors for the density of curvatures
    seed: int = 0
    products: int = 0  # products with the curvature matrix
    full_gradients: int = 0  # steps of the descent
    chunk: int = 0  # examples in a pass over the data
    gradient_seconds: float = 0.0  # time of a full gradient
    product_cost: float = 0.0  # cost of a product with one vector, in full gradients
    product_cost_together: float = 0.0  # cost of a product among several vectors, in full gradients
    notes: tuple[str, ...] = ()  # sentences on what was changed in the network
    seconds: float = 0.0  # time of the whole fit

    @classmethod
    def from_dict(cls, note: Mapping[str, Any]) -> Provenance:
        """The provenance in the note of a file; entries that this version does not know are omitted."""
        given = {RENAMED.get(name, name): value for name, value in note.items()}
        step = given.pop("step", None)
        known: dict[str, Any] = {n: type(v)(given[n]) for n, v in vars(cls()).items() if n in given}
        return cls(**known, step=None if step is None else int(step))

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "notes": list(self.notes)}


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Readable):
    """A measured model: two measures over curvature, the loss at the checkpoint, and where they come from.

    ``top`` has the largest curvatures h, and along each of them the gradient g, the noise variance c and Adam's
    preconditioner. ``density`` is the distribution of all curvatures, if random probes were asked for. ``descent`` is the real
    loss along full gradients, by which predictions are corrected. ``horizon`` is how far checks found this fit accurate, and
    ``tested`` what the short trainings found by which the fit tested itself. ``metric`` is that of Adam or K-FAC, if the fit was
    made for it: then everything is in units of ``w = P^-1/2 theta`` (`AdamMetric`, `KFACMetric`). ``sampled`` has numbers of all the
    data with their sampling errors, if the fit was made on a sample of the examples.
    """

    signal: Measure
    noise: Measure
    loss: float
    examples: int
    top: dict[str, Array] = field(default_factory=dict)
    density: Measure | None = None
    descent: Descent | None = None
    provenance: Provenance = Provenance()
    horizon: Horizon | None = None
    tested: Tested | None = None
    metric: AdamMetric | KFACMetric | None = None
    sampled: Subsample | None = None

    predict = predict
    first_hits = promised_hits
    advise = advise
    plot = plot_fit

    def _brief(self) -> str:
        about, h = self.provenance, f"largest curvature {self.signal.h.max():.4g}"
        step = "" if about.step is None else f" at step {about.step:,}"
        what = f"{about.network or 'network'}{step}, {about.parameters:,} weights, {self.examples:,} examples"
        return f"{what}: loss {self.loss:.4g}, {h}, noise scale {self.noise_scale}"

    @cached_property
    def note(self) -> dict[str, object]:
        """Provenance, horizon, test, metric and sampling errors, as in files and in ``--json``."""
        found = {"horizon": self.horizon, "tested": self.tested, "metric": self.metric, "sampled": self.sampled}
        return {**self.provenance.to_dict(), **{k: v.to_dict() for k, v in found.items() if v is not None}}

    @cached_property
    def spectrum(self) -> Spectrum:
        """Signal nodes (c = 0) and noise nodes (s = 0) as modes of one spectrum."""
        return self.spectrum_with(self.noise.weight / self.noise.probes)

    def spectrum_with(self, noise: Array) -> Spectrum:
        """The spectrum with these weights on the noise nodes; nodes of equal curvature become one mode."""
        least = FLAT_SHARE * max(self.signal.h.max(), self.noise.h.max())
        flat = (
            NEARLY_FLAT / FLAT_SHARE * least
        )  # signal on negative curvature is taken as on nearly flat modes (`negative`)
        falling = np.where(self.signal.h < 0, flat, self.signal.h)
        h, where = np.unique(np.maximum(np.append(falling, self.noise.h), least), return_inverse=True)
        signals = len(self.signal.h)
        g2 = np.bincount(where[:signals], np.maximum(self.signal.weight, 0), len(h))
        c = np.maximum(np.bincount(where[signals:], noise, len(h)), 0)
        note = {"fit": self.note, "offset": self.loss - float((g2 / h).sum() / 2)}
        return Spectrum(h[::-1], c[::-1], (g2 / h**2)[::-1], note=note)

    @cached_property
    def negative(self) -> Negative:
        """The part of the signal on negative curvature, which ``spectrum`` takes as nearly flat."""
        return negative_part(self.signal.h, self.signal.weight)

    @cached_property
    def problem(self) -> Quadratic:
        """The measured quadratic; its losses lack the `offset`."""
        return Quadratic(self.spectrum)

    @property
    def offset(self) -> float:
        """The minimum of the quadratic's loss, to be added to the losses of ``problem``."""
        return self.loss - self.spectrum.initial_loss

    @cached_property
    def bend(self) -> Bend | None:
        """The map from losses of the quadratic to losses of the network, if a descent was measured."""
        return None if self.descent is None else Bend(self.descent, self.problem, self.offset)

    @property
    def noise_scale(self) -> Estimate:
        """tr C / |g|^2: the batch size at which noise and signal of a gradient are equal."""
        g = self.signal.integral(np.ones_like)
        return bootstrap(self.noise.each(np.ones_like), lambda trace: trace / g)

    @property
    def curvature_noise_scale(self) -> Estimate:
        """tr GC / g'Gg: the batch size at which noise and signal are equal in what a step does to the loss."""
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
        """The power p for which H^-p is closest to Adam's preconditioner at the checkpoint, and the spread around it in logs.

        Adam divides by d, the root of the second moment of single-example gradients. Along the vectors y of the largest
        curvatures, log(y' d^-1 y) against log h has the slope -p. For C = H and a diagonal H, p would be 1/2.
        """
        slope, spread = _slope(self.top["h"], self.top["adam"])
        return -slope, spread

    def to_dict(self) -> dict[str, object]:
        """What ``nqm fit --json`` prints; files also have the nodes."""
        slope, spread = self.noise_exponent
        power, around = self.adam_power
        return {
            "loss": self.loss, "offset": self.offset, "examples": self.examples,
            "largest_curvature": float(self.signal.h.max()), "trace_noise": self.noise.integral(np.ones_like),
            "gradient_norm": math.sqrt(self.signal.integral(np.ones_like)),
            "noise_scale": self.noise_scale.to_dict(), "curvature_noise_scale": self.curvature_noise_scale.to_dict(),
            "noise_exponent": slope, "noise_exponent_spread": spread,
            "adam_power": power, "adam_power_spread": around, "negative_share": self.negative.share,
            "least_curvature": float(self.signal.h.min()), **self.note,
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write to ``.json`` or ``.npz``, as the ending says; `load` reads it back exactly."""
        measures = {kind: getattr(self, kind) for kind in KINDS if getattr(self, kind) is not None}
        columns = {f"{kind}_{k}": v for kind, measure in measures.items() for k, v in vars(measure).items()}
        columns |= {f"top_{k}": v for k, v in self.top.items()}
        columns |= {f"metric_{k}": v for k, v in self.metric.columns().items()} if self.metric else {}
        measured = vars(self.descent) if self.descent else {}
        if self.descent and not self.descent.rising:  # Files of earlier versions do not have it.
            measured = {k: v for k, v in measured.items() if k not in ("rising", "hastened")}
        columns |= {f"descent_{k}": np.atleast_1d(v) for k, v in measured.items() if v is not None}
        about = {"format": FIT_FORMAT, "loss": self.loss, "examples": self.examples, "note": self.note}
        save_columns(Path(path), "fit", columns, plain=about, packed={"about": about})

    @classmethod
    def load(cls, path: str | Path) -> Fit:
        """Read what `save` wrote, in this version or an earlier one."""
        path = Path(path)
        if not path.is_file():
            raise Wrong(f"there is no fit file {str(path)!r}", argument="path")
        try:
            return cls._parsed(_read(path))
        except Wrong as error:
            what = str(error)
        except KeyError as error:
            what = f"its entry {error} is missing"
        except json.JSONDecodeError as error:
            what = f"its text is not JSON from line {error.lineno}, column {error.colno} on, as if it were cut short"
        except (OSError, ValueError, TypeError, IndexError, EOFError, zipfile.BadZipFile):
            what = "its contents are damaged"
        advice = "make it again with `nqm fit`, or name the file that `nqm fit --out` wrote"
        raise Wrong(f"{path.name!r} is not a fit that can be read: {what}; {advice}", argument="path")

    @classmethod
    def _parsed(cls, data: Mapping[str, Any]) -> Fit:
        if data.get("format") != FIT_FORMAT:
            kind = f"its format is {data['format']!r:.40}" if "format" in data else "it has no entry 'format'"
            raise Wrong(f"{kind}, and that of a fit is {FIT_FORMAT!r}")
        kinds = {"h": float, "weight": float, "probe": int}
        measures = {
            kind: Measure(*(np.asarray(data[f"{kind}_{name}"], dtype) for name, dtype in kinds.items()))
            for kind in KINDS
            if f"{kind}_h" in data
        }
        top = {k.removeprefix("top_"): np.asarray(v, float) for k, v in data.items() if k.startswith("top_")}
        descent = None
        if "descent_lr" in data:
            names = ("lr", "momentum", "steps", "loss")
            lr, momentum, steps, loss = (np.asarray(data[f"descent_{name}"], float) for name in names)
            noise = np.asarray(data["descent_noise"], float) if "descent_noise" in data else None
            rising = int(np.ravel(data.get("descent_rising", 0))[0])
            if not 0 <= rising <= RISING_STEPS:
                raise Wrong(f"its descent has a rate that rises for {rising} steps, and {RISING_STEPS} is the most")
            sharpness = np.asarray(data["descent_sharpness"], float) if "descent_sharpness" in data else None
            if any(column is not None and column.shape != steps.shape for column in (loss, noise, sharpness)):
                raise Wrong("its descent should have a loss, a noise and a largest curvature for each step")
            hastened = int(np.ravel(data.get("descent_hastened", 0))[0])
            if hastened < 0:
                raise Wrong(f"its descent is hastened from step {hastened} on, and no step is negative")
            descent = Descent(
                float(lr[0]), float(momentum[0]), steps.astype(int), loss, noise, rising, sharpness, hastened
            )
        note = dict(data["note"])
        about = Provenance.from_dict(note), Horizon.from_dict(note["horizon"]) if "horizon" in note else None
        tested = Tested.from_dict(note["tested"]) if "tested" in note else None
        loss, examples, density = float(data["loss"]), int(data["examples"]), measures.get("density")
        metric = None
        if "metric" in note:
            arrays = {
                k.removeprefix("metric_"): np.asarray(v, float) for k, v in data.items() if k.startswith("metric_")
            }
            kind = KFACMetric if "kfac" in note["metric"] else AdamMetric
            metric = kind.from_columns(note["metric"], arrays)
        sampled = Subsample.from_dict(note["sampled"]) if "sampled" in note else None
        given = (loss, examples, top, density, descent, *about, tested, metric, sampled)
        return cls(measures["signal"], measures["noise"], *given)


def _slope(x: Array, y: Array) -> tuple[float, float]:
    """The slope of log y against log x, and the standard deviation around the line."""
    fine = (x > 0) & (y > 0)
    if fine.sum() < 3:
        return math.nan, math.nan
    u, v = np.log(x[fine]), np.log(y[fine])
    slope, level = np.polyfit(u, v, 1)
    return float(slope), float(np.std(v - slope * u - level))


def is_fit(path: str | Path) -> bool:
    """Whether `Fit.save` wrote a file; otherwise it may be a spectrum."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                return "about.npy" in file.namelist()
        return re.search(rf'"format":\s*"{FIT_FORMAT}"', Path(path).read_text()[:1000]) is not None
    except (OSError, UnicodeDecodeError, zipfile.BadZipFile):
        return False


def _read(path: Path) -> dict[str, Any]:
    if path.suffix.lower() == ".json":
        data = json.loads(path.read_text())
        if not isinstance(data, dict):
            raise Wrong(f"its text is a JSON {type(data).__name__}, not an object")
        return data
    if path.suffix.lower() != ".npz":
        raise Wrong("a fit is read from .json or .npz")
    with np.load(path, allow_pickle=False) as file:
        return {**json.loads(str(file["about"])), **{k: file[k] for k in file.files if k != "about"}}
