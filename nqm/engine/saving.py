"""Files of named arrays with a few plain values beside them, as ``.json`` or ``.npz``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..types import Array, Wrong


def save_columns(
    path: Path, what: str, columns: Mapping[str, Array], plain: Mapping[str, object], packed: Mapping[str, object]
) -> None:
    """Write arrays; the ending of the path decides how, and another ending than ``.json`` or ``.npz`` is a wrong call.

    JSON has the ``plain`` values beside the arrays, and null where an array has no number. An ``.npz`` file, which holds arrays
    alone, has the ``packed`` values, each as one text of JSON.
    """
    if path.suffix.lower() == ".npz":
        texts: dict[str, Any] = {name: json.dumps(value) for name, value in packed.items()}
        with path.open("wb") as file:
            np.savez(file, **texts, **columns)  # type: ignore[arg-type]
    elif path.suffix.lower() == ".json":
        path.write_text(json.dumps({**plain, **{k: _listed(v) for k, v in columns.items()}}) + "\n")
    else:
        ending = path.suffix or "without an ending"
        raise Wrong(f"save: a {what} is written as .json or .npz, not {ending!r}", argument="path")


def _listed(values: Array) -> list[Any]:
    """An array as lists for JSON, which has no NaN: other readers than Python's refuse a file with one."""
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    listed = values.astype(object)
    listed[missing] = None
    return listed.tolist()
