"""The curvature in the basis of a run, and what an optimizer may know about it.

H is diagonal in its eigenbasis and dense in a rotated basis. With an orthogonal R, the weights ``w = R theta`` have the
curvature ``H = R diag(h) R'``. Arrays of weights have one row for each replica, so they are rotated by ``theta @ R.T`` and
rotated back by ``w @ R``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ..types import Array, Wrong

Power = float | Array
Rotation = ArrayLike | None
"""A rotation as a user gives it: None, "random", the seed of a random rotation, or an orthogonal matrix."""

MAX_DENSE_MODES = 2_000  # most modes of a rotated problem, because every step multiplies by its dense H
MAX_GAINS = 256  # most powers of h that are stored for a preconditioner that changes from step to step
ORTHOGONAL_WITHIN = 1e-10  # largest difference between an entry of R R' and the identity that a rotation may have
ROTATION_STREAM = 0x0520  # first word of the seed of a random rotation, so that it differs from noise of the same seed


class Geometry:
    """What an optimizer may know about the problem: powers of H, its diagonal, gradients of single examples.

    Parameters
    ----------
    h : curvatures.
    rotation : the orthogonal matrix R, or None in the eigenbasis.
    gradient : a function from weights to the gradient on one fresh example, for optimizers that estimate something.
    """

    def __init__(
        self, h: Array, rotation: Array | None = None, gradient: Callable[[Array], Array] | None = None
    ) -> None:
        self.h, self.rotation, self.gradient = h, rotation, gradient
        self._gains: dict[tuple[tuple[int, ...], bytes], Array] = {}

    @cached_property
    def diagonal(self) -> Array:
        """The diagonal of H in the basis of the run."""
        return self.h if self.rotation is None else self.rotation**2 @ self.h

    def precondition(self, g: Array, power: Power) -> Array:
        """``H^-power g``; in the eigenbasis the power may be an array of settings."""
        gain = self._gain(-power)
        return g * gain if self.rotation is None else self.turn(self.back(g) * gain)

    def multiply(self, w: Array) -> Array:
        """``H w``."""
        return w * self.h if self._dense is None else w @ self._dense

    @cached_property
    def _dense(self) -> Array | None:
        """H as a matrix in the basis of the run; None in the eigenbasis."""
        return None if self.rotation is None else (self.rotation * self.h) @ self.rotation.T

    def _gain(self, power: Power) -> Array:
        """``h^power``, stored for the next steps."""
        key = (np.shape(power), np.asarray(power, dtype=float).tobytes())
        if key not in self._gains:
            if len(self._gains) >= MAX_GAINS:
                self._gains.clear()
            self._gains[key] = self.h**power
        return self._gains[key]

    def preconditioned(self, power: Power) -> Geometry:
        """The geometry as seen through a preconditioner: that of ``H^(1 - power)``."""
        gradient = self.gradient
        behind = None if gradient is None else lambda w: self.precondition(gradient(w), power)
        return Geometry(self.h ** (1 - power), self.rotation, behind)

    def knowing(self, gradient: Callable[[Array], Array]) -> Geometry:
        """The same geometry with gradients of single examples."""
        return Geometry(self.h, self.rotation, gradient)

    def select(self, rows: Array) -> Geometry:
        """The same geometry for some of the settings on its leading axis."""
        return Geometry(self.h[rows] if self.h.ndim == 3 else self.h, self.rotation, self.gradient)

    def turn(self, theta: Array) -> Array:
        """Weights in the eigenbasis, rotated to the basis of the run."""
        return theta if self.rotation is None else theta @ self.rotation.T

    def back(self, w: Array) -> Array:
        """Weights in the basis of the run, rotated to the eigenbasis."""
        return w if self.rotation is None else w @ self.rotation


def rotation_matrix(rotation: Rotation, modes: int, seed: int) -> Array | None:
    """The orthogonal matrix that a user asks for, or None; ``seed`` is that of a "random" rotation."""
    if rotation is None:
        return None
    if modes > MAX_DENSE_MODES:
        raise _wrong(f"a rotated problem is dense and has at most {MAX_DENSE_MODES:,} modes; this one has {modes:,}")
    if isinstance(rotation, str) and rotation == "random":
        return _random_orthogonal(modes, seed)
    if isinstance(rotation, (int, np.integer)) and not isinstance(rotation, bool) and rotation >= 0:
        return _random_orthogonal(modes, int(rotation))
    if np.ndim(rotation) == 0:
        raise _wrong(f"rotation must be None, 'random', a seed of at least 0 or an orthogonal matrix, got {rotation!r}")
    matrix = np.asarray(rotation, dtype=float)
    if matrix.shape != (modes, modes):
        raise _wrong(f"rotation must be a {modes} x {modes} matrix, one row for each mode, got {matrix.shape}")
    off = float(np.abs(matrix @ matrix.T - np.eye(modes)).max())
    if not off < ORTHOGONAL_WITHIN:
        raise _wrong(f"rotation must be orthogonal, but an entry of R R' differs from the identity by {off:.3g}")
    return matrix


def _wrong(sentence: str) -> Wrong:
    return Wrong(sentence, argument="rotation")


def _random_orthogonal(modes: int, seed: int) -> Array:
    """A uniformly random orthogonal matrix: Q of the QR decomposition of a Gaussian matrix, times the signs of diag(R)."""
    rng = np.random.default_rng([ROTATION_STREAM, seed])
    q, r = np.linalg.qr(rng.standard_normal((modes, modes)))
    return q * np.sign(np.diag(r))
