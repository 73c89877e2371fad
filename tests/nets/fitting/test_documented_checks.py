"""The checks that the documentation rests on, as `nqm check` wrote them: the bars they meet, and the horizon they give."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nqm.nets.fitting.prediction import PLAIN_HORIZON, USUAL_HORIZON
from nqm.nets.fitting.validation import furthest
from nqm.show.verdict import Verdict

DOCS = Path(__file__).parents[3] / "docs"
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


def test_the_tables_have_not_drifted() -> None:
    made = generate()
    assert made.nets_page() == (DOCS / "nets.md").read_text(), "run python docs/generate.py"
    assert made.claims_page_kept() == (DOCS / "claims.md").read_text(), "run python docs/generate.py"


def test_a_page_without_its_block_is_refused(tmp_path: Path) -> None:
    page, made = tmp_path / "page.md", generate()
    page.write_text(f"before\n\n{made.block('one', 'old')}\n\nafter\n")
    assert made.with_blocks(page, one="new") == f"before\n\n{made.block('one', 'new')}\n\nafter\n"
    with pytest.raises(AssertionError, match=r"page\.md has no block 'other'"):
        made.with_blocks(page, other="new")


def test_the_fisher_matrix_of_resnet8_over_its_training() -> None:
    """The verdict in the documentation follows from the table beside it."""
    table = generate().read_rows("fisher_cifar_resnet8")
    assert [row["epoch"] for row in table] == [1, 2, 4, 8, 16, 32]
    found = generate().fisher()
    assert found.verdict is Verdict.fails
    assert found.number == min(row["alignment"] for row in table if row["before"] >= 4)
    for page in ("nets.md", "claims.md"):
        assert generate().fisher_verdict() in (DOCS / page).read_text()


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
    for tol, claimed in ((0.02, USUAL_HORIZON.within_2), (0.05, USUAL_HORIZON.within_5)):
        assert furthest([(row["reach"], abs(row["error"])) for row in every], tol) == pytest.approx(claimed, rel=0.01)
    least = [(row["reach"], abs(row["plain_error"])) for row in rows("digits")]
    assert PLAIN_HORIZON.within_2 <= furthest(least, 0.02)
    assert PLAIN_HORIZON.within_5 <= furthest(least, 0.05)
