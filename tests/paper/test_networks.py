"""The chapter on real networks: studies that come with the package, and simulated ones whose verdicts are known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
from lab_curves import SIZES, hyperbola, with_rates

from nqm.lab.compare import Topic
from nqm.paper import network_studies, report
from nqm.paper.claims import CLAIMS
from nqm.paper.figures import networks as chapter
from nqm.paper.instance import PaperStudy
from nqm.show.tables import to_csv


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one study in which every finding of the paper holds."""
    knees = {"SGD": 30, "HeavyBall": 250, "Adam": 800, "KFAC": 3000}
    curves = [
        with_rates(hyperbola(name, knee, 3500 / (knee + 8)), np.minimum(SIZES, 40)) for name, knee in knees.items()
    ]
    curves.append(hyperbola("EMA(SGD)", 18, 95))
    to_csv([row for curve in curves for row in curve.table()], tmp_path / "digits.csv")
    monkeypatch.setattr(network_studies, "FOLDER", tmp_path)
    return tmp_path


def test_every_topic_has_a_claim_of_the_model() -> None:
    assert list(network_studies.CLAIM_OF) == list(Topic)
    assert set(network_studies.CLAIM_OF.values()) <= set(CLAIMS)


def test_every_study_of_the_package_has_a_title_and_is_read() -> None:
    files = {path.stem for path in network_studies.FOLDER.glob("*.csv")}
    assert files == set(network_studies.names())
    table = chapter.data()
    assert {row["study"] for row in table} == files
    assert chapter.draw(table).axes


def test_a_simulated_study_is_judged(simulated: Path) -> None:
    table = chapter.data()
    found = chapter.findings(table, PaperStudy())
    assert {one.verdict.name for one in found} == {"holds"}
    assert all(one.says.startswith("MLP on digits: ") for one in found)
    told = " ".join(one.measured for one in found)
    rates = sum("learning rate" in one.says for one in found)  # They are judged by the intervals of their slopes.
    assert told.count("of resampled curves") == len(found) - rates == len(found) - 2


def test_a_study_of_another_truth_is_judged_otherwise(simulated: Path) -> None:
    """The planted bug: the curves of SGD and K-FAC exchanged."""
    path = simulated / "digits.csv"
    swap = {"SGD": "KFAC", "KFAC": "SGD"}
    lines = [",".join(swap.get(cell, cell) for cell in line.split(",")) for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    verdicts = {one.says: one.verdict.name for one in chapter.findings(chapter.data(), PaperStudy())}
    order = "MLP on digits: the critical batch size of KFAC is larger than that of Adam"
    assert verdicts[order] == "fails"


@pytest.mark.slow
def test_the_chapter_sets_networks_beside_the_model(simulated: Path) -> None:
    study = PaperStudy((2**2, 2**4, 2**10, 2**18, 2**20))
    table = chapter.data()
    text = chapter.tables(table, study)
    for topic in Topic:
        line = next(line for line in text.splitlines() if topic.value in line)
        assert "MLP on digits: holds" in line
    found = [(one.says, one.measured, one.verdict.name) for one in chapter.findings(table, study)]
    whole = report.write({"networks": (table, found, text)}, {"networks": chapter}, study)
    assert f"Of {len(found)} statements, the numbers support {len(found)}" in whole
