"""The plain ways: a grid search with an eigen-decomposition per setting and bisection over time; a loop of sampled steps.

Written for comparison, in vectorised NumPy. For each setting the 3x3 matrix of (E theta^2, E theta m, E m^2) of every mode is
diagonalised once, powers are taken of its eigenvalues, and the first time below the target is bisected for each batch size.
"""

from __future__ import annotations

import numpy as np


def grid(power: float) -> list[tuple[float, float]]:
    """Learning rates times momenta: steps of 10% and of 0.1 octaves of memory, as a careful hand would take."""
    rates = np.geomspace(1e-3, 3.9, 88)
    momenta = np.append(0.0, 1 - np.exp2(-np.arange(1, 10, 0.1)))
    return [(float(lr), float(m)) for lr in rates for m in momenta]


def steps_for_setting(
    h: np.ndarray, power: float, lr: float, momentum: float, batch_sizes: list[float], target: float, limit: int = 2**21
) -> list[int | None]:
    """Steps to the target at each batch size by bisection, for heavy ball preconditioned by H^-power."""
    k, gain = h ** (1 - power), h**-power
    # (theta, m) with m scaled by the rate: theta' = theta - m', m' = momentum m + lr (k theta + gain eps)
    x, b = lr * k, momentum
    A = np.empty((len(h), 3, 3))
    A[:, 0] = np.stack([(1 - x) ** 2, -2 * b * (1 - x), np.full_like(x, b**2)], axis=1)
    A[:, 1] = np.stack([x * (1 - x), b * (1 - 2 * x), np.full_like(x, -(b**2))], axis=1)
    A[:, 2] = np.stack([x**2, 2 * b * x, np.full_like(x, b**2)], axis=1)
    noise = lr**2 * gain**2 * h
    Q = np.stack([noise, -noise, noise], axis=1)
    values, vectors = np.linalg.eig(A)
    inverse = np.linalg.inv(vectors)
    steady = np.linalg.solve(np.eye(3) - A, Q[..., None])[..., 0]
    start = np.zeros((len(h), 3))
    start[:, 0] = 1.0
    signal_part = np.einsum("nij,nj->ni", inverse, start)
    noise_part = np.einsum("nij,nj->ni", inverse, steady)

    def loss(t: int) -> tuple[float, float]:
        powers = vectors[:, 0] * values**t
        signal = np.einsum("ni,ni->n", powers, signal_part).real
        settled = steady[:, 0] - np.einsum("ni,ni->n", powers, noise_part).real
        return float(h @ signal / 2), float(h @ settled / 2)

    found: list[int | None] = []
    for batch_size in batch_sizes:
        low, high = 0, limit
        signal, noise_ = loss(high)
        if not signal + noise_ / batch_size <= target:
            found.append(None)
            continue
        while high - low > 1:
            middle = (low + high) // 2
            signal, noise_ = loss(middle)
            low, high = (low, middle) if signal + noise_ / batch_size <= target else (middle, high)
        found.append(high)
    return found


def sample_heavy_ball(
    h: np.ndarray, lr: float, momentum: float, batch_size: float, steps: int, replicas: int, seed: int = 0
) -> float:
    """Mean loss after some steps of heavy ball over sampled replicas: all of them as one array, a loop over steps."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((replicas, len(h)))
    m = np.zeros_like(theta)
    deviation = np.sqrt(h / batch_size)
    for _ in range(steps):
        m = momentum * m + h * theta + deviation * rng.standard_normal(theta.shape)
        theta = theta - lr * m
    return float((theta**2 @ h).mean() / 2)


def bandwidth(megabytes: int = 256) -> float:
    """Bytes per second of a triad a = b + c over arrays far larger than any cache, best of five."""
    import time

    a, b, c = (np.ones(megabytes * 2**17) for _ in range(3))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        np.add(b, c, out=a)
        times.append(time.perf_counter() - start)
    return 3 * a.nbytes / min(times)
