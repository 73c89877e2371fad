"""A run that was interrupted is continued: finished parts are kept beside the output, and stale ones never come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from nqm import paper
from nqm.cli import main
from nqm.paper import claims, parts
from nqm.paper.figures import curves, fig2
from nqm.paper.instance import PaperStudy
from nqm.paper.parts import Parts

FIGURES = ["fig2", "curves"]
CLAIMS = ["lr_momentum_interchangeable", "stationary_covariance"]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_part_is_written_as_soon_as_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "parts.jsonl"
    first = Parts(path, "about")
    assert not first.note
    first.keep("a", {"x": [1, 0.1, float("inf")]})
    first.keep("b", 2)
    again = Parts(path, "about")
    assert again.known == first.known
    assert "2 finished parts" in again.note
    again.finish()
    assert not path.exists()
    assert Parts(path, "about").known == {}


def test_a_line_that_was_cut_off_is_omitted_and_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "parts.jsonl"
    first = Parts(path, 0)
    first.keep("a", 1)
    first.keep("b", [2] * 40)
    path.write_bytes(path.read_bytes()[:-20])  # as a process that is killed while it writes leaves it
    second = Parts(path, 0)
    assert second.known == {"a": 1}
    second.keep("c", 3)
    assert Parts(path, 0).known == {"a": 1, "c": 3}


def test_parts_of_other_premises_or_of_another_version_are_discarded_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "parts.jsonl"
    Parts(path, PaperStudy((4.0,)).about).keep("a", 1)
    other = Parts(path, PaperStudy((8.0,)).about)
    assert other.known == {}
    assert "another version of nqm, or from other premises" in other.note
    assert not path.exists()
    Parts(path, 0).keep("a", 1)
    monkeypatch.setattr(parts, "versions", lambda: {"numpy": "0.1"})
    assert Parts(path, 0).known == {}


def test_the_fingerprint_is_that_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nqm" / "paper").mkdir(parents=True)
    monkeypatch.setattr(parts, "__file__", str(tmp_path / "nqm" / "paper" / "parts.py"))
    source = tmp_path / "nqm" / "engine.py"
    source.write_text("x = 1\n")
    before = parts._fingerprint(0)
    assert before == parts._fingerprint(0)
    source.write_text("x = 2\n")
    assert before != parts._fingerprint(0)


@pytest.mark.slow
def test_figures_continue_where_they_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paper.run_all(tmp_path / "whole", FIGURES)
    with monkeypatch.context() as patch:
        patch.setattr(curves, "data", interrupt)
        with pytest.raises(KeyboardInterrupt):
            paper.run_all(tmp_path / "stopped", FIGURES)
    told: list[str] = []
    monkeypatch.setattr(fig2, "data", interrupt)  # it is not asked again
    paper.run_all(tmp_path / "stopped", FIGURES, notice=told.append)
    assert ["1 finished part" in sentence for sentence in told] == [True]
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):  # a run that was completed is computed anew
        paper.run_all(tmp_path / "stopped", FIGURES)


@pytest.mark.slow
def test_figures_of_other_batch_sizes_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(curves, "data", interrupt)
        with pytest.raises(KeyboardInterrupt):
            paper.run_all(tmp_path, FIGURES)
    monkeypatch.setattr(fig2, "data", interrupt)
    with pytest.raises(KeyboardInterrupt):
        paper.run_all(tmp_path, FIGURES, study=PaperStudy((4.0, 16.0)))


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_claims_continue_where_they_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    whole = claims.run_all(CLAIMS, tmp_path / "whole", turn=True)
    with pytest.raises(KeyboardInterrupt):
        claims.run_all(CLAIMS, tmp_path / "stopped", turn=True, progress=interrupt, workers=workers)
    kept = Parts(tmp_path / "stopped" / "unfinished-claims.jsonl", PaperStudy().about).known
    assert {CLAIMS[0], f"{CLAIMS[0]}, turned"} <= set(kept)
    measured: list[str] = []
    check = claims.Claim.check

    def counted(self: claims.Claim, study: PaperStudy | None = None, **premises: object) -> claims.Measured:
        measured.append(self.name)
        return check(self, study, **premises)

    monkeypatch.setattr(claims.Claim, "check", counted)
    found = claims.run_all(CLAIMS, tmp_path / "stopped", turn=True)
    assert CLAIMS[0] not in measured
    for one, other in zip(found, whole, strict=True):
        assert {**one.to_dict(), "seconds": 0} == {**other.to_dict(), "seconds": 0}
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def test_measurements_with_premises_of_ones_own_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        claims.run_all(CLAIMS[1:], tmp_path, premises={"x": 0.5}, progress=interrupt)
    assert [path.name for path in tmp_path.glob("unfinished*")] == []


@pytest.mark.slow
def test_the_command_line_says_how_long_and_tells_of_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = CliRunner().invoke(main, ["paper", "--only", "curves", "--only", "fig2"]).stderr.splitlines()
    assert lines[0].startswith("2 figures on 1 process: roughly half a minute")
    assert lines[1:] == ["fig2: done (1 of 2)", "curves: done (2 of 2)"]
    result = CliRunner().invoke(main, ["claims", *CLAIMS])
    assert "with --out, finished ones are kept" in result.stderr.splitlines()[0]
    assert result.stderr.splitlines()[1:] == [f"{name}: done ({i} of 2)" for i, name in enumerate(CLAIMS, 1)]
    assert CliRunner().invoke(main, ["claims", CLAIMS[1]]).stderr == ""
    monkeypatch.setattr(curves, "data", interrupt)
    again = ["paper", "--only", "curves", "--only", "fig2"]
    assert "Error: interrupted" in CliRunner().invoke(main, again).stderr
    assert "continuing: 1 finished part" in CliRunner().invoke(main, again).stderr
