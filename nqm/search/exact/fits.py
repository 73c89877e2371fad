"""Quadratics through clouds of points by least squares, for small numbers of parameters: loops, compiled where numba is installed.

A search makes hundreds of fits to a dozen points each. In NumPy, where every operation on so few numbers takes a
microsecond or two, they took longer than the losses of the points.
"""

from __future__ import annotations

import numpy as np

from ...engine.kernels.compiling import exact
from ...types import Array

FLAT = 1e-3  # of the largest curvature: less counts as that
LONG = 12.0  # how much longer than wide a cloud may get
WALL = 50.0  # rises beyond this count as that


@exact
def advance(
    X: Array, values: Array, middle: Array, best: Array, least: Array, center: Array, axes: Array, size: Array, bowl: Array
) -> None:  # fmt: skip
    """One round of searches side by side, in place: from the values at their clouds X to the centres, axes and sizes of the next.

    X is (search, point, p); ``middle`` the median rise of each cloud, ``best`` the best points so far and ``least`` their
    values. ``bowl`` tells whose quadratic had a minimum. A cloud shrinks once the minimum lies inside it or nothing is gained.
    """
    searches, points, p = X.shape
    model, shape, step = np.empty(p), np.empty((p, p)), np.empty(p)
    for i in range(searches):
        low = 0
        for k in range(points):
            low = k if values[i, k] < values[i, low] else low
        moved_on = values[i, low] < least[i]
        if moved_on:
            least[i] = values[i, low]
            for j in range(p):
                best[i, j] = X[i, low, j]
        bowl[i] = fit(X[i], values[i], middle[i], best[i], size[i], model, shape)
        if not bowl[i]:
            size[i] *= 0.6 if moved_on else 0.35
            for j in range(p):
                center[i, j] = best[i, j]
            continue
        for j in range(p):
            step[j] = model[j] - best[i, j]
        cholesky_solve(axes[i], step)  # in units of the cloud
        jump = 1e-12
        for j in range(p):
            jump = max(jump, abs(step[j]) / size[i])
        for j in range(p):
            center[i, j] = best[i, j] + (model[j] - best[i, j]) * min(1.0, 2.0 / jump)
            for k in range(p):
                axes[i, j, k] = shape[j, k]
        if jump < 1.0 or not moved_on:
            size[i] *= 0.35


@exact
def fit(X: Array, values: Array, middle: float, best: Array, radius: float, model: Array, shape: Array) -> bool:
    """Minimum of the least-squares quadratic into ``model``, axes that make its curvature round into ``shape``.

    X is (point, p). False where it has no minimum: then that is ``best`` and the axes are those of a ball.
    """
    points, p = X.shape
    terms = 1 + p + p * (p + 1) // 2
    normal, y, row, H, V = np.zeros((terms, terms)), np.zeros(terms), np.ones(terms), np.empty((p, p)), np.empty((p, p))
    lowest, total = values[0], 0.0
    for k in range(points):
        lowest = min(lowest, values[k])
    for k in range(points):
        rise, at = values[k] - lowest, 1 + p
        weight = 1 / (1 + (rise / max(middle, 1e-12)) ** 2)  # far walls are not quadratic
        total += weight
        for i in range(p):
            row[1 + i] = (X[k, i] - best[i]) / radius
        for i in range(p):
            for j in range(i, p):
                row[at] = row[1 + i] * row[1 + j]
                at += 1
        for i in range(terms):
            y[i] += weight * row[i] * min(rise, WALL)
            for j in range(i + 1):
                normal[i, j] += weight * row[i] * row[j]
    for i in range(terms):
        normal[i, i] += 1e-9 * total  # points pressed against a bound leave it singular
    cholesky_solve(normal, y)
    at = 1 + p
    for i in range(p):
        model[i] = best[i]
        for j in range(i, p):
            H[i, j] = H[j, i] = 2 * y[at] if i == j else y[at]
            at += 1
    jacobi(H, V)
    top = 0.0
    for i in range(p):
        top = max(top, H[i, i])
        for j in range(p):
            shape[i, j] = 1.0 if i == j else 0.0
    if not top > 0:
        return False
    for i in range(p):
        shape[i, i] = 0.0
    for k in range(p):
        bent, slope = max(H[k, k], FLAT * top), 0.0
        for i in range(p):
            slope += V[i, k] * y[1 + i]
        for i in range(p):
            model[i] -= radius * V[i, k] * slope / bent
            for j in range(p):
                shape[i, j] += V[i, k] * V[j, k] * min(np.sqrt(top / bent), LONG)
    return True


@exact
def cholesky_solve(M: Array, y: Array) -> None:
    """y becomes M^-1 y; the lower half of M is used, and used up."""
    n = len(y)
    for j in range(n):
        for k in range(j):
            M[j, j] -= M[j, k] * M[j, k]
        M[j, j] = np.sqrt(max(M[j, j], 1e-300))
        for i in range(j + 1, n):
            for k in range(j):
                M[i, j] -= M[i, k] * M[j, k]
            M[i, j] /= M[j, j]
    for i in range(n):
        for k in range(i):
            y[i] -= M[i, k] * y[k]
        y[i] /= M[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            y[i] -= M[k, i] * y[k]
        y[i] /= M[i, i]


@exact
def jacobi(H: Array, V: Array) -> None:
    """Rotate a symmetric H until it is diagonal; the columns of V are its eigenvectors."""
    p = len(H)
    for i in range(p):
        for j in range(p):
            V[i, j] = 1.0 if i == j else 0.0
    for _ in range(30):
        off, size = 0.0, 0.0
        for i in range(p):
            size += H[i, i] * H[i, i]
            for j in range(i):
                off += H[i, j] * H[i, j]
        if off <= 1e-30 * size:
            break
        for i in range(p):
            for j in range(i + 1, p):
                if H[i, j] == 0:
                    continue
                half = (H[j, j] - H[i, i]) / (2 * H[i, j])
                tangent = (1.0 if half >= 0 else -1.0) / (abs(half) + np.sqrt(half * half + 1))
                c = 1 / np.sqrt(tangent * tangent + 1)
                s = tangent * c
                for k in range(p):
                    H[k, i], H[k, j] = c * H[k, i] - s * H[k, j], s * H[k, i] + c * H[k, j]
                for k in range(p):
                    H[i, k], H[j, k] = c * H[i, k] - s * H[j, k], s * H[i, k] + c * H[j, k]
                    V[k, i], V[k, j] = c * V[k, i] - s * V[k, j], s * V[k, i] + c * V[k, j]
