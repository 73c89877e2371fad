"""The checks that the documentation rests on, as `nqm check` wrote them: the bars they meet, and the horizon they give."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nqm.nets.fitting.prediction import PAST_HORIZON, PLAIN_HORIZON, USUAL_HORIZON, furthest
from nqm.show.verdict import Verdict

DOCS = Path(__file__).parents[3] / "docs"
MAIN = ["digits", "fashion_mlp", "fashion_cnn", "mnist_cnn"]


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
    """Four optimizers, batches of 16 to 4,096, a range of 25 in learning rate; medians under 1% and 2%, no setting off by 20%."""
    found = rows(name)
    assert {16, 64, 256, 1024, 4096} == {row["batch_size"] for row in found}
    assert {row["optimizer"].split("(")[0] for row in found} == {"SGD", "HeavyBall", "Nesterov", "EMA"}
    rates = [row["rate"] for row in found]
    assert max(rates) / min(rates) == pytest.approx(25, rel=0.02)
    for steps, bar in ((300, 0.01), (1000, 0.02)):
        errors = [abs(row["error"]) for row in found if row["steps"] == steps]
        assert len(errors) == 16
        assert np.median(errors) < bar
        assert max(errors) < 0.2


def test_the_usual_horizon_is_that_of_the_checks() -> None:
    every = [row for name in MAIN for row in rows(name)]
    for tol, claimed in ((0.02, USUAL_HORIZON.within_2), (0.05, USUAL_HORIZON.within_5)):
        assert furthest([(row["reach"], abs(row["error"])) for row in every], tol) == pytest.approx(claimed, rel=0.01)
    least = [(row["reach"], abs(row["plain_error"])) for row in rows("digits")]
    assert PLAIN_HORIZON.within_2 <= furthest(least, 0.02)
    assert PLAIN_HORIZON.within_5 <= furthest(least, 0.05)


def test_intervals_hold_on_networks_that_they_were_not_chosen_on() -> None:
    """docs/checks/prediction.csv: 90% intervals hold 80 to 97% of the real losses, pooled, and three in four on each network."""
    found = [row for row in generate().read_rows("prediction") if row["excess"] < 0.74 and not row["short"]]
    held = {row["network"]: list[bool]() for row in found}
    for row in found:
        held[row["network"]].append(row["low"] <= row["trained"] <= row["high"])
    checked = {"digits_1", "digits_100", "fashion_cnn", "mnist_cnn"}  # the width was chosen without having seen these
    assert 0.8 <= np.mean([inside for name in checked for inside in held[name]]) <= 0.97
    assert min(np.mean(inside) for inside in held.values()) >= 0.75


def test_what_messages_say_about_the_edge_and_past_the_descent_is_measured() -> None:
    every = generate().read_rows("prediction")
    past = [row for row in every if row["excess"] > 1 and not row["short"]]
    inside = np.mean([row["low"] <= row["trained"] <= row["high"] for row in past])
    assert (len(past), inside) == (260, pytest.approx(0.91, abs=0.005))
    beyond = [row for row in every if row["short"] and row["past"] > 1 and row["excess"] < 0.74]
    errors = [abs(row["predicted"] / row["trained"] - 1) for row in beyond]
    assert np.median(errors) == pytest.approx(0.14, abs=0.005)
    assert max(errors) == pytest.approx(14, abs=0.5)
    assert "off by 14% in the median and fifteenfold at worst" in PAST_HORIZON
