"""Least-squares quadratics through clouds of points, for few parameters, compiled where numba is installed.

A search makes hundreds of fits to a dozen points each. In plain NumPy an operation on so few numbers takes a microsecond or
two, and the fits took longer than the losses of the points.
"""

from __future__ import annotations

import numpy as np

from ...engine.kernels.compiling import exact
from ...types import Array
from .settings import FitSettings


@exact
def advance(
    X: Array, values: Array, middle: Array, best: Array, least: Array, center: Array, axes: Array, size: Array, bowl: Array,
    by: FitSettings,
) -> None:  # fmt: skip
    """Update the centres, axes and sizes of the clouds of several searches in place, from the values at the points X.

    X has shape (search, point, p). ``middle`` is the median rise within each cloud, ``best`` the best point of each search
    so far and ``least`` its value. ``bowl`` becomes True where the fitted quadratic has a minimum. A cloud shrinks once that
    minimum lies inside it, or when the round has gained nothing.
    """
    for i in range(len(X)):
        low = np.argmin(values[i])
        moved_on = values[i, low] < least[i]
        if moved_on:
            least[i], best[i] = values[i, low], X[i, low]
        bowl[i], step, shape = fit(X[i] - best[i], values[i], middle[i], size[i], by)
        # The length of the step in units of the cloud's axes.
        jump = max(1e-12, np.abs(np.linalg.solve(axes[i], step)).max() / size[i])
        center[i] = best[i] + step * min(1.0, by.furthest / jump)
        if not bowl[i] or jump < 1.0 or not moved_on:
            size[i] *= by.shrink
        if bowl[i]:
            axes[i] = shape


@exact
def fit(X: Array, values: Array, middle: float, radius: float, by: FitSettings) -> tuple[bool, Array, Array]:
    """The least-squares quadratic through values at points X around 0, of shape (point, p) and of size ``radius``.

    Returns whether it has a minimum, the minimum, and the axes in which its curvature is the same in all directions.
    Without a minimum these are 0 and the axes of a ball. Points that rise far above the median count little, because they
    do not follow the quadratic.
    """
    points, p = X.shape
    rows, H, at = np.ones((points, 1 + p + p * (p + 1) // 2)), np.empty((p, p)), 1 + p
    rows[:, 1:at] = X / radius
    for i in range(p):
        for j in range(i, p):
            rows[:, at] = rows[:, 1 + i] * rows[:, 1 + j]
            at += 1
    rise = values - values.min()
    weight = 1 / (1 + (rise / max(middle, 1e-12)) ** 2)
    weighted = np.ascontiguousarray(rows.T) * weight
    # Points pressed against a bound would make the matrix singular without the ridge.
    normal = weighted @ rows + by.ridge * weight.sum() * np.eye(at)
    y = np.linalg.solve(normal, weighted @ np.minimum(rise, by.wall))
    at = 1 + p
    for i in range(p):
        for j in range(i, p):
            H[i, j] = H[j, i] = 2 * y[at] if i == j else y[at]
            at += 1
    curvature, V = np.linalg.eigh(H)
    top = curvature.max()
    if not top > 0:
        return False, np.zeros(p), np.eye(p)
    bent, across = np.maximum(curvature, by.flat * top), np.ascontiguousarray(V.T)
    minimum = -radius * (np.ascontiguousarray(V) @ (across @ y[1 : 1 + p] / bent))
    return True, minimum, np.ascontiguousarray(V * np.minimum(np.sqrt(top / bent), by.long)) @ across
