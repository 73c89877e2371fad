"""The data of a problem: curvature, gradient noise and start on each mode.

The loss of a linear optimizer depends only on how signal mass (n h s / 2) and noise mass (n h c / 2) are distributed over
h. So a huge spectrum is compressed to the nodes of Gauss quadrature rules, block by block over the curvature.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..types import Array, Wrong, is_number
from .quadrature import Block, compress_block, uniform_rule
from .readable import Tabular
from .saving import save_columns

SPECTRUM_COLUMNS = ("h", "c", "s", "count")  # the arrays of a spectrum
EXACT_DIM = 2**14  # most modes of a power law whose modes are all kept
HEAD = 128  # number of the largest curvatures that are kept where the others are replaced by nodes
END_SHARE = (
    0.02  # share of the initial loss at which runs end; the tolerance of a compressed spectrum is relative to it
)
BLOCK_RATIO = 128.0  # largest curvature of a compressed block, divided by its smallest
SMOOTH_BLOCK_RATIO = 8.0  # the same ratio for spectra that serve only optimizers without momentum
INDEX_RATIO = 2.0  # last index of a block of a power law with more than EXACT_DIM modes, divided by its first


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum(Tabular):
    """Modes of a noisy quadratic: arrays, checked and frozen on construction.

    Parameters
    ----------
    h : curvature of each mode, positive.
    c : variance of the gradient noise of one example on each mode; ``h`` if omitted (the paper's C = H).
    s : initial second moment E[theta_0^2] of each mode (squared mean plus variance).
    count : multiplicity of each mode; it need not be whole.

    >>> paper = Spectrum.power_law(10_000)
    >>> round(paper.trace, 6), round(paper.initial_loss, 6)
    (9.787606, 4.893803)
    """

    h: Any
    c: Any = None
    s: Any = 1.0
    count: Any = 1.0
    note: dict[str, Any] = field(default_factory=dict, kw_only=True, metadata={"text": False})  # provenance, saved

    def __post_init__(self) -> None:
        h = _column("h", self.h)
        for name in SPECTRUM_COLUMNS:
            array = h if name == "h" or getattr(self, name) is None else _column(name, getattr(self, name))
            if array.size not in (1, h.size):
                sentence = f"{name} has {array.size} entries but h has {h.size}; give as many, or one for all"
                raise Wrong(sentence, argument=name)
            object.__setattr__(self, name, _frozen(np.broadcast_to(array, h.shape).copy()))
        with np.errstate(over="ignore"):
            if not np.isfinite((self.count * h * (self.s + self.c)).sum()):
                raise Wrong("the total loss of these modes overflows; rescale h, c, s or count", argument="h")

    @classmethod
    def power_law(
        cls, d: float, exponent: float = 1.0, noise_exponent: float | None = None, start_exponent: float = 0.0,
        scale: float = 1.0, noise: float = 1.0, start: float = 1.0,
    ) -> Spectrum:  # fmt: skip
        """``h_i = scale i^-exponent``, ``c_i = noise scale i^-noise_exponent``, ``s_i = start i^-start_exponent``, i = 1 .. d.

        If omitted, ``noise_exponent`` is ``exponent``, so that C = H. Up to 16,384 modes are all kept. Beyond that, the sum
        over i becomes Gauss quadrature for equally spaced points (discrete Chebyshev polynomials), block by block, and
        costs about the same for 10^5 modes as for 10^12.
        """
        b = exponent if noise_exponent is None else noise_exponent
        whole = lambda v: 1 <= v <= 1e15 and v == int(v)  # noqa: E731
        _check("power_law", "a whole number from 1 to 10^15", whole, d=d)
        exponents = {"exponent": exponent, "noise_exponent": b, "start_exponent": start_exponent}
        _check("power_law", "a number from -20 to 20", lambda v: abs(v) <= 20, **exponents)
        _check("power_law", "a positive number", lambda v: v > 0, scale=scale)
        _check("power_law", "a number of at least 0", lambda v: v >= 0, noise=noise, start=start)
        i, count = _indices(int(d))
        return cls(scale * i**-exponent, noise * scale * i**-b, start * i**-start_exponent, count)

    @property
    def dim(self) -> float:
        """Number of modes, counted with their multiplicities."""
        return float(self.count.sum())

    @property
    def trace(self) -> float:
        """tr H."""
        return float((self.count * self.h).sum())

    @cached_property
    def signal_mass(self) -> Array:
        """n h s / 2 of each mode: its initial loss."""
        return _frozen(self.count * self.h * self.s / 2)

    @cached_property
    def noise_mass(self) -> Array:
        """n h c / 2 of each mode."""
        return _frozen(self.count * self.h * self.c / 2)

    @property
    def initial_loss(self) -> float:
        """The expected loss before the first step."""
        return float(self.signal_mass.sum())

    def _brief(self) -> str:
        nodes = f" on {len(self):,} nodes" if abs(self.dim - len(self)) > 0.5 else ""
        modes = f"{self.dim:,.6g} {'mode' if self.dim == 1 else 'modes'}{nodes}"
        h = f"curvature {self.h.min():.4g} to {self.h.max():.4g}"
        return f"{modes}, {h}, trace {self.trace:.4g}, initial loss {self.initial_loss:.4g}"

    def table(self) -> list[dict[str, Any]]:
        """One row for each mode."""
        columns = (getattr(self, name).tolist() for name in SPECTRUM_COLUMNS)
        return [dict(zip(SPECTRUM_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]

    def summary(self) -> dict[str, Any]:
        """The spectrum in nine numbers, as ``nqm spectrum --json`` prints them.

        The noise scale is tr C / |g|^2 and the curvature noise scale tr HC / g'Hg, both at the start and in expectation.

        >>> round(Spectrum.power_law(10_000).summary()["noise_scale"], 3)
        5.951
        """

        def scale(weight: Array) -> float:
            signal, noise = float(weight @ (self.h**2 * self.s)), float(weight @ self.c)
            return noise / signal if signal > 0 else math.inf

        return {
            "modes": float(f"{self.dim:.12g}"),  # It may be a sum of quadrature weights, which is whole up to rounding.
            "nodes": len(self), "trace": self.trace, "initial_loss": self.initial_loss,
            "noise_trace": float(self.count @ self.c),
            "largest_curvature": float(self.h.max()), "smallest_curvature": float(self.h.min()),
            "noise_scale": scale(self.count), "curvature_noise_scale": scale(self.count * self.h),
        }  # fmt: skip

    def __len__(self) -> int:
        return self.h.size

    def binned(self, n: int = 100) -> Spectrum:
        """The spectrum with each curvature moved down to the lower edge of its bin, as the paper's authors quantise it.

        The n bins are geometric. Noise keeps its ratio to curvature, so C = H stays C = H.
        """
        _check("binned", "a whole number from 2 to 10^6", lambda v: 2 <= v <= 10**6 and v == int(v), n=n)
        n = int(n)
        edges = np.geomspace(self.h.min(), self.h.max(), n)
        # The last edge is the largest curvature, up to rounding.
        which = np.clip(np.searchsorted(edges, self.h * (1 + 1e-12), side="right") - 1, 0, n - 1)
        used, group = np.unique(which, return_inverse=True)
        weight = self.count / np.bincount(group, self.count)[group]
        s = np.bincount(group, weight * self.s)
        c = np.bincount(group, weight * self.c / self.h) * edges[used]
        return Spectrum(edges[used], c, s, np.bincount(group, self.count))

    def compress(self, tol: float = 1e-9, swings: bool = True, head: int = HEAD) -> Spectrum:
        """A spectrum of fewer modes, whose losses differ from this one's by a relative error of at most ``tol``.

        The ``head`` largest curvatures are kept. Blocks of the others are replaced by Gauss nodes of their total mass, with
        weights for signal and for noise. The rule of a block is accepted if it reproduces the response of the block to SGD
        and to near-critical heavy ball at every time scale (`quadrature.responses`) to ``tol``. Otherwise the block gets
        more nodes, then is cut in two, and finally keeps its modes. Without ``swings`` only the responses to SGD are tested,
        and fewer nodes suffice. The tolerance does not hold for modes that oscillate for hundreds of radians (a momentum of
        0.999 at a large learning rate).
        """
        _check("compress", "between 0 and 1", lambda v: 0 < v < 1, tol=tol)
        if len(self) <= head:
            return self
        live = self.count > 0
        h, first = np.unique(-self.h[live], return_inverse=True)  # Modes of the same curvature become one mode.
        h, s, c, n = -h, *(np.bincount(first, a[live]) for a in (self.signal_mass, self.noise_mass, self.count))
        edges = [min(head, len(h))]
        while edges[-1] < len(h):
            low = h[edges[-1]] / (BLOCK_RATIO if swings else SMOOTH_BLOCK_RATIO)
            edges.append(max(int(np.searchsorted(-h, -low, side="left")), edges[-1] + 1))
        parts: list[Block] = [(h[:head], s[:head], c[:head], n[:head])]
        for lo, hi in pairwise(edges):
            parts.append(compress_block(h[lo:hi], s[lo:hi], c[lo:hi], n[lo:hi], END_SHARE * tol, swings))
        h, s, c, n = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return Spectrum(h, 2 * c / (n * h), 2 * s / (n * h), n, note=self.note)

    def save(self, path: str | Path) -> None:
        """Write the spectrum to a ``.json`` or ``.npz`` file; the ending of ``path`` decides."""
        columns, note = {name: getattr(self, name) for name in SPECTRUM_COLUMNS}, {"note": self.note}
        save_columns(Path(path), "spectrum", columns, plain=note, packed=note)

    @classmethod
    def load(cls, path: str | Path) -> Spectrum:
        """Read a file written by `save`, or a ``.csv`` whose header names h and optionally c, s and count."""
        path = Path(path)
        if path.is_dir():
            raise Wrong(f"{str(path)!r} is a folder; name a spectrum file in it", argument="path")
        if not path.is_file():
            raise Wrong(f"there is no spectrum file {str(path)!r}", argument="path")
        try:
            columns = {".json": _read_json, ".npz": _read_npz, ".csv": _read_csv}[path.suffix.lower()](path)
        except KeyError:
            sentence = f"a spectrum is read from .json, .npz or .csv, not from {path.name!r}"
            raise Wrong(sentence, argument="path") from None
        except UnicodeDecodeError:
            raise Wrong(f"{path.name!r} is not a spectrum: it is not text in UTF-8", argument="path") from None
        except json.JSONDecodeError as error:
            at = f"line {error.lineno}, column {error.colno}"
            why = f"it is not complete JSON, and reading stops at {at}" if path.stat().st_size else "it is empty"
            raise Wrong(f"{path.name!r} is not a spectrum: {why}", argument="path") from None
        except (OSError, ValueError, TypeError, EOFError) as error:
            raise Wrong(f"{path.name!r} is not a spectrum: {error}", argument="path") from None
        if "h" not in columns:
            raise Wrong(f"{path.name!r} has no column h; it has {', '.join(columns) or 'none'}", argument="path")
        return cls(**columns)


def _column(name: str, value: Any) -> Array:
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise Wrong(f"{name} must be numbers, got {value!r:.80}", argument=name) from None
    array = np.atleast_1d(array)
    if name == "h" and array.ndim == 2 and array.shape[0] == array.shape[1]:
        sentence = f"h must be a list of curvatures, got a matrix of {len(array):,} rows"
        raise Wrong(f"{sentence}; give its eigenvalues above 0, of numpy.linalg.eigvalsh", argument=name)
    if array.ndim != 1 or array.size == 0:
        raise Wrong(f"{name} must be a non-empty list of numbers, got shape {array.shape}", argument=name)
    sign = (array <= 0, "be positive") if name == "h" else (array < 0, "not be negative")
    for bad, must in ((~np.isfinite(array), "be finite"), sign):
        if np.any(bad):
            i, flat = (
                int(np.argmax(bad)),
                "; a flat direction carries no loss, drop it" if must == "be positive" else "",
            )
            raise Wrong(f"{name} must {must}, got {array[i]:g} at index {i}{flat}", argument=name)
    return array


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _check(verb: str, must_be: str, valid: Callable[[Any], bool], **values: Any) -> None:
    """Refuse arguments that are not finite numbers, or not valid."""
    for name, value in values.items():
        if not is_number(value) or not abs(value) <= 1e300 or not valid(value):
            raise Wrong(f"{verb}: {name} must be {must_be}, got {value!r:.80}", argument=name)


def _indices(d: int) -> tuple[Array, Array]:
    """Nodes and weights for sums over i = 1 .. d."""
    if d <= EXACT_DIM:
        return np.arange(1.0, d + 1), np.ones(d)
    nodes, weights, first = [np.arange(1.0, HEAD + 1)], [np.ones(HEAD)], HEAD + 1
    while first <= d:
        last = min(d, math.floor(first * INDEX_RATIO))
        x, w = uniform_rule(first, last, nodes=14)
        nodes.append(x)
        weights.append(w)
        first = last + 1
    return np.concatenate(nodes), np.concatenate(weights)


def _read_json(path: Path) -> dict[str, Any]:
    data = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(data, dict):
        raise Wrong("it should be an object with lists h, c, s, count")
    return {k: v for k, v in data.items() if k in (*SPECTRUM_COLUMNS, "note")}


def _read_npz(path: Path) -> dict[str, Any]:
    import zipfile

    if not zipfile.is_zipfile(path):  # NumPy would take it for a pickle, and advise to load it as one.
        raise Wrong("it is not an .npz archive")
    try:
        with np.load(path, allow_pickle=False) as data:
            columns: dict[str, Any] = {k: data[k] for k in SPECTRUM_COLUMNS if k in data}
            note = json.loads(str(data["note"])) if "note" in data else {}
    except zipfile.BadZipFile as error:
        raise Wrong(str(error)) from None
    return {**columns, "note": note}


def _read_csv(path: Path) -> dict[str, Any]:
    import csv

    with path.open(newline="", encoding="utf-8-sig") as file:  # Spreadsheets write a byte-order mark.
        reader = csv.reader(file)
        lines = [(reader.line_num, row) for row in reader if row and not row[0].startswith("#")]
    if not lines:
        raise Wrong("it is empty")
    names, rows = [name.strip() for name in lines[0][1]], lines[1:]
    if any(len(row) != len(names) for _, row in rows):
        raise Wrong(f"every line should have {len(names)} columns, as the header has")
    if unknown := set(names) - {*SPECTRUM_COLUMNS}:
        raise Wrong(f"its header names {', '.join(sorted(unknown))}; the columns are {', '.join(SPECTRUM_COLUMNS)}")
    return {name: [_number(row[i], name, line) for line, row in rows] for i, name in enumerate(names)}


def _number(text: str, name: str, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise Wrong(f"{text!r:.40} in column {name} of line {line} is not a number") from None


def decades(h: Array) -> tuple[Array, Array]:
    """The edges of the decades of curvature, and the matrix (decade, mode) that sums over the modes of each decade."""
    low, high = math.floor(np.log10(h.min())), math.ceil(np.log10(h.max()))
    edges = 10.0 ** np.arange(low, max(high, low + 1) + 1)
    which = np.clip(np.searchsorted(edges, h, side="left") - 1, 0, len(edges) - 2)
    return edges, np.eye(len(edges) - 1)[:, which]
