"""The checks that the documentation rests on, as `nqm check` wrote them: the bars they meet, and the horizon they give."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nqm.nets.checking import furthest
from nqm.nets.prediction import PLAIN, USUAL

DOCS = Path(__file__).parents[2] / "docs"
MAIN = ["digits", "fashion_mlp", "fashion_cnn"]


def generate() -> Any:
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(name: str) -> list[dict[str, Any]]:
    return generate().checked_rows(name)


def test_the_table_has_not_drifted() -> None:
    assert generate().nets_page() == (DOCS / "nets.md").read_text(), "run python docs/generate.py"


@pytest.mark.parametrize("name", MAIN)
def test_the_bars_are_met(name: str) -> None:
    """Four optimizers, batches of 16 to 4,096, a range of ten in learning rate; medians under 2% and 5%."""
    found = [row for row in rows(name) if row["rate"] < 0.5]
    assert {16, 64, 256, 1024, 4096} == {row["batch_size"] for row in found}
    assert {row["optimizer"].split("(")[0] for row in found} == {"SGD", "HeavyBall", "Nesterov", "EMA"}
    rates = [row["rate"] for row in found]
    assert max(rates) / min(rates) == pytest.approx(10, rel=0.02)
    for steps, bar in ((300, 0.02), (1000, 0.05)):
        errors = [abs(row["error"]) for row in found if row["steps"] == steps]
        assert len(errors) == 12
        assert np.median(errors) < bar


def test_the_usual_horizon_is_that_of_the_checks() -> None:
    every = [row for name in MAIN for row in rows(name)]
    for tol, claimed in ((0.02, USUAL.within_2), (0.05, USUAL.within_5)):
        assert furthest([(row["reach"], abs(row["error"])) for row in every], tol) == pytest.approx(claimed, rel=0.01)
    least = [(row["reach"], abs(row["plain_error"])) for row in rows("digits")]
    assert PLAIN.within_2 <= furthest(least, 0.02)
    assert PLAIN.within_5 <= furthest(least, 0.05)
