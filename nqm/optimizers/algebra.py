"""What several optimizers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def follow(G: Sequence[Sequence[Any]], b: Sequence[Any], r: Sequence[Any]) -> tuple[list[Any], Any]:
    """What the inner weights will be after a step, as a row over the slots before it.

    ``r . x' = row . x + noise eps`` for ``x' = x + G x + b eps``: the row ``r (I + G)`` and the noise ``r . b``.
    """
    k = len(r)
    row = [r[j] + sum(r[i] * G[i][j] for i in range(k)) for j in range(k)]
    return row, sum(r[i] * b[i] for i in range(k))


def adapted(m: Any, v: Any, g: Any, t: int, beta1: Any, beta2: Any, eps: Any) -> tuple[Any, Any, Any]:
    """Adam's averages of the gradient and of its square after step t, and the direction they give."""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    unbiased = (1 - beta2 ** (t + 1)) ** -0.5
    return m, v, m / (1 - beta1 ** (t + 1)) / (v**0.5 * unbiased + eps)


def norm(g: Any) -> Any:
    """The Euclidean norm over all parameters."""
    return (g * g).sum(-1, keepdims=True) ** 0.5
