"""The plain ways: a loop of sampled steps over whole arrays in NumPy, and the speed of the memory."""

from __future__ import annotations

import numpy as np


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
