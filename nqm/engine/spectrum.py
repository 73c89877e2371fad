"""The data of a problem: curvature, gradient noise and start on each mode.

All that the dynamics of a linear optimizer see is where signal mass (n h s / 2) and noise mass (n h c / 2) lie over h.
So a huge spectrum compresses into the nodes of Gauss quadrature rules, block by block over the curvature.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..types import Array, Wrong
from .quadrature import Block, compress_block, uniform_rule
from .readable import Tabular

EXACT_DIM = 2**14  # most modes that a power law keeps one by one
HEAD = 128  # largest curvatures that a larger power law and a compressed spectrum keep as they are
END_SHARE = 0.02  # share of the initial loss at which runs end; the error of a compressed spectrum is small beside it
BLOCK_RATIO = 128.0  # largest over smallest curvature of a block that is compressed
SMOOTH_BLOCK_RATIO = 8.0  # the same ratio for spectra that serve optimizers without momentum
INDEX_RATIO = 2.0  # last over first index of a block of a larger power law


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum(Tabular):
    """Modes of a noisy quadratic: arrays, checked and frozen on construction.

    Parameters
    ----------
    h : curvature of each mode, positive.
    c : variance of the gradient noise of one example on each mode; ``h`` if left out (the paper's C = H).
    s : initial second moment E[theta_0^2] of each mode (mean squared plus variance).
    count : multiplicity of each mode; need not be whole.

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
        if np.any(h <= 0):
            i = int(np.argmax(h <= 0))
            raise Wrong(
                f"h must be positive, got {h[i]:g} at index {i}; a flat direction carries no loss, drop it",
                argument="h",
            )
        object.__setattr__(self, "h", h)
        for name, value in (("c", h if self.c is None else self.c), ("s", self.s), ("count", self.count)):
            array = _column(name, value)
            if array.size not in (1, h.size):
                raise Wrong(
                    f"{name} has {array.size} entries but h has {h.size}; give as many, or one for all", argument=name
                )
            if np.any(array < 0):
                i = int(np.argmax(array < 0))
                raise Wrong(f"{name} must not be negative, got {array[i]:g} at index {i}", argument=name)
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

        ``noise_exponent`` is ``exponent`` if left out, so that C = H. Up to 16,384 modes are kept one by one; beyond,
        the sum over i becomes Gauss quadrature for equally spaced points (discrete Chebyshev polynomials), block by
        block, and costs the same for 10^5 modes as for 10^12.
        """
        b = exponent if noise_exponent is None else noise_exponent
        _real("power_law", d=d, exponent=exponent, noise_exponent=b, start_exponent=start_exponent)
        _real("power_law", scale=scale, noise=noise, start=start)
        if not (1 <= d <= 1e15) or d != int(d):
            raise Wrong(f"power_law: d must be a whole number from 1 to 10^15, got {d!r}", argument="d")
        d = int(d)
        for name, value in (("exponent", exponent), ("noise_exponent", b), ("start_exponent", start_exponent)):
            if abs(value) > 20:
                raise Wrong(f"power_law: {name} must be a number of size at most 20, got {value!r}", argument=name)
        for name, value in (("scale", scale), ("noise", noise), ("start", start)):
            if value < 0 or (name == "scale" and value == 0):
                raise Wrong(f"power_law: {name} must be positive, got {value!r}", argument=name)
        i, count = _indices(d)
        return cls(scale * i**-exponent, noise * scale * i**-b, start * i**-start_exponent, count)

    @property
    def dim(self) -> float:
        """Number of modes, multiplicities counted."""
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
        return float(self.signal_mass.sum())

    def _brief(self) -> str:
        nodes = f" on {len(self):,} nodes" if abs(self.dim - len(self)) > 0.5 else ""
        modes = f"{self.dim:,.6g} {'mode' if self.dim == 1 else 'modes'}{nodes}"
        h = f"curvature {self.h.min():.4g} to {self.h.max():.4g}"
        return f"{modes}, {h}, trace {self.trace:.4g}, initial loss {self.initial_loss:.4g}"

    def table(self) -> list[dict[str, Any]]:
        """One row for each mode."""
        names = ("h", "c", "s", "count")
        columns = (getattr(self, name).tolist() for name in names)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def summary(self) -> dict[str, Any]:
        """The spectrum in seven numbers, as ``nqm spectrum --json`` prints them."""
        return {
            "modes": float(f"{self.dim:.12g}"),  # a sum of quadrature weights, whole up to rounding
            "nodes": len(self), "trace": self.trace, "initial_loss": self.initial_loss,
            "noise_trace": float(self.count @ self.c),
            "largest_curvature": float(self.h.max()), "smallest_curvature": float(self.h.min()),
        }  # fmt: skip

    def __len__(self) -> int:
        return self.h.size

    def binned(self, n: int = 100) -> Spectrum:
        """Each curvature moved down to the edge of its bin, of n geometric ones: the authors' quantisation.

        Noise keeps its ratio to curvature, so C = H stays C = H.
        """
        _real("binned", n=n)
        if n != int(n) or not 2 <= n <= 10**6:
            raise Wrong(f"binned: n must be a whole number from 2 to 10^6, got {n!r}", argument="n")
        n = int(n)
        edges = np.geomspace(self.h.min(), self.h.max(), n)
        # The largest curvature is the last edge itself, up to rounding.
        which = np.clip(np.searchsorted(edges, self.h * (1 + 1e-12), side="right") - 1, 0, n - 1)
        used, group = np.unique(which, return_inverse=True)
        weight = self.count / np.bincount(group, self.count)[group]
        s = np.bincount(group, weight * self.s)
        c = np.bincount(group, weight * self.c / self.h) * edges[used]
        return Spectrum(edges[used], c, s, np.bincount(group, self.count))

    def compress(self, tol: float = 1e-9, swings: bool = True, head: int = HEAD) -> Spectrum:
        """Fewer modes with the same signal and noise measures, to a relative error of ``tol`` in the loss.

        The ``head`` largest curvatures stay as they are; blocks of the rest are replaced by Gauss nodes of their total mass,
        with weights for signal and for noise. A block's rule is accepted when it reproduces the block's response to
        SGD and to near-critical heavy ball at every time scale (`quadrature.responses`) to ``tol``; else it gets more
        nodes, is cut in two, and in the end keeps its modes. Without ``swings`` only SGD's responses count, and fewer nodes do.
        Modes that ring on for hundreds of radians (a momentum of 0.999 at a large rate) are not held to ``tol``.
        """
        _real("compress", tol=tol)
        if not 0 < tol < 1:
            raise Wrong(f"compress: tol must lie between 0 and 1, got {tol!r}", argument="tol")
        if len(self) <= head:
            return self
        live = self.count > 0
        h, first = np.unique(-self.h[live], return_inverse=True)  # modes of one curvature are one mode
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
        """Write to ``.json`` or ``.npz``, as the ending says."""
        path = Path(path)
        columns = {name: getattr(self, name) for name in ("h", "c", "s", "count")}
        if path.suffix.lower() == ".npz":
            with path.open("wb") as file:
                np.savez(file, **columns, note=json.dumps(self.note))
        elif path.suffix.lower() == ".json":
            lists = {name: column.tolist() for name, column in columns.items()}
            path.write_text(json.dumps({**lists, "note": self.note}) + "\n")
        else:
            found = path.suffix or "without an ending"
            raise Wrong(f"save: a spectrum is written as .json or .npz, not {found!r}", argument="path")

    @classmethod
    def load(cls, path: str | Path) -> Spectrum:
        """Read a ``.json`` or ``.npz`` written by `save`, or a ``.csv`` with a header that names h and perhaps c, s, count."""
        path = Path(path)
        if not path.is_file():
            raise Wrong(f"there is no spectrum file {str(path)!r}", argument="path")
        try:
            columns = {".json": _read_json, ".npz": _read_npz, ".csv": _read_csv}[path.suffix.lower()](path)
        except KeyError:
            sentence = f"a spectrum is read from .json, .npz or .csv, not from {path.name!r}"
            raise Wrong(sentence, argument="path") from None
        except (OSError, UnicodeDecodeError, ValueError, TypeError, EOFError) as error:
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
    if array.ndim != 1 or array.size == 0:
        raise Wrong(f"{name} must be a non-empty list of numbers, got shape {array.shape}", argument=name)
    if not np.all(np.isfinite(array)):
        i = int(np.argmin(np.isfinite(array)))
        raise Wrong(f"{name} must be finite, got {array[i]} at index {i}", argument=name)
    return _frozen(array)


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _real(verb: str, **values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not -1e300 <= cast(Any, value) <= 1e300:
            raise Wrong(f"{verb}: {name} must be a finite number, got {value!r:.80}", argument=name)


def _indices(d: int) -> tuple[Array, Array]:
    """Nodes and weights of the sum over i = 1 .. d."""
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
    return {k: v for k, v in data.items() if k in ("h", "c", "s", "count", "note")}


def _read_npz(path: Path) -> dict[str, Any]:
    import zipfile

    try:
        with np.load(path, allow_pickle=False) as data:
            columns: dict[str, Any] = {k: data[k] for k in ("h", "c", "s", "count") if k in data}
            note = json.loads(str(data["note"])) if "note" in data else {}
    except zipfile.BadZipFile as error:
        raise Wrong(str(error)) from None
    return {**columns, "note": note}


def _read_csv(path: Path) -> dict[str, Any]:
    import csv

    with path.open(newline="", encoding="utf-8-sig") as file:  # A spreadsheet begins the file with a byte-order mark.
        rows = [row for row in csv.reader(file) if row and not row[0].startswith("#")]
    if not rows:
        raise Wrong("it is empty")
    names = [name.strip() for name in rows[0]]
    if any(len(row) != len(names) for row in rows):
        raise Wrong(f"every line should have {len(names)} columns, as the header has")
    if unknown := set(names) - {"h", "c", "s", "count"}:
        raise Wrong(f"its header names {', '.join(sorted(unknown))}; the columns are h, c, s, count")
    return {name: [float(row[i]) for row in rows[1:]] for i, name in enumerate(names)}
