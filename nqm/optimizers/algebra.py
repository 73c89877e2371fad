"""The one thing wrappers share: what the inner weights will be after a step, as a row over the slots before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def follow(G: Sequence[Sequence[Any]], b: Sequence[Any], r: Sequence[Any]) -> tuple[list[Any], Any]:
    """``r . x' = row . x + noise eps`` for ``x' = x + G x + b eps``: the row ``r (I + G)`` and the noise ``r . b``."""
    k = len(r)
    row = [r[j] + sum(r[i] * G[i][j] for i in range(k)) for j in range(k)]
    return row, sum(r[i] * b[i] for i in range(k))
