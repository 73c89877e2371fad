"""Results as strict JSON, which has neither NaN nor infinity."""

from __future__ import annotations

import json
import math


def plain(value: object) -> object:
    """Data as strict JSON has it: lists for tuples, None for numbers that are not finite."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(data: object) -> str:
    """Strict JSON on indented lines.

    >>> print(to_json({"loss": math.nan}))
    {
      "loss": null
    }
    """
    return json.dumps(plain(data), indent=2, allow_nan=False)
