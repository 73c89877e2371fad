"""The page of claims and the verb that writes it."""

from __future__ import annotations

import base64
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nqm.paper.claims
from nqm.cli import main
from nqm.paper.claims import CLAIMS, run_all
from nqm.paper.claims.base import OWN, PAPER, Claim, Measured
from nqm.paper.claims.collect import Checked
from nqm.paper.claims.page import as_html, as_markdown, summary
from nqm.show.verdict import Verdict

FEW = ["stationary_covariance", "preconditioning_before_after"]


def call(*args: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in args])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_run_writes_pictures_and_one_page(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = run_all(FEW, tmp_path / "new" / "folder", turn=True, progress=lambda *done: seen.append(done))
    assert seen == [(1, 2), (2, 2)]
    assert [one.claim.name for one in found] == FEW
    text, page = ((tmp_path / "new" / "folder" / name).read_text() for name in ("claims.md", "claims.html"))
    for one in found:
        picture = (tmp_path / "new" / "folder" / f"{one.claim.name}.png").read_bytes()
        assert base64.b64encode(picture).decode() in page
        assert f"]({one.claim.name}.png)" in text
        assert one.turned is not None
        for words in (one.claim.statement, one.measured.told, one.measured.reason, one.turned.sentence):
            assert words in text
        assert f"**{one.measured.sentence}**" in text
        assert f'id="{one.claim.name}"' in page
        assert f'href="#{one.claim.name}"' in page
    assert summary(found) in text
    assert not re.search(r'(src|href)="(?!data:|#)', page), "the page holds all it shows"


@pytest.mark.slow
def test_workers_change_nothing_but_the_time(tmp_path: Path) -> None:
    for workers in (1, 2):
        run_all(FEW, tmp_path / str(workers), workers=workers)
    for name in ("claims.md", "claims.html", f"{FEW[0]}.png"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_text_of_a_claim_cannot_break_the_page(tmp_path: Path) -> None:
    (tmp_path / "tricky.png").write_bytes(b"picture")
    table = [{"a|b": "<x>", "n": float(i)} for i in range(40)]
    tricky = Measured(table, 2.0, "a < b", "It is <b>.", 1.0, "a & b", Verdict.fails, when="x < y")
    one = Checked(
        Claim("tricky", "1 < 2 & 3.", "Some & one (2020)", "<nowhere>", lambda: tricky, lambda table: None), tricky, 0.1
    )  # type: ignore[arg-type]
    page = as_html([one], tmp_path)
    assert "<x>" not in page
    assert "&lt;x&gt;" in page
    assert "1 &lt; 2 &amp; 3." in page
    assert "12 of 40 rows" in page
    assert "Said by Some &amp; one (2020), &lt;nowhere&gt;." in page
    assert "12 of 40 rows" in as_markdown([one])
    assert summary([one]) == "Of 1 claim of other works, 1 does not hold."


def made(verdict: Verdict, origin: str, identity: str = "") -> Checked:
    """A claim with a verdict, of somebody."""
    found = Measured([{"x": 1.0}], 1.0, "a number", "It was measured.", 0.1, "a reason", verdict, when="it rains")
    about = Claim("one", "It is.", origin, "somewhere", lambda: found, lambda table: None, identity=identity)  # type: ignore[arg-type]
    return Checked(about, found, 0.1)


def test_counts_of_the_paper_of_other_works_and_of_our_own_are_apart() -> None:
    found = [
        made(Verdict.fails, OWN), made(Verdict.holds, PAPER), made(Verdict.holds, PAPER, "by definition"),
        made(Verdict.partly, PAPER), made(Verdict.untested, PAPER), made(Verdict.untested, "Li et al. (2024)"),
    ]  # fmt: skip
    assert summary(found) == (
        "Of 4 claims of the paper, 2 hold (1 is an identity), 1 holds with qualifications and 1 is not tested. "
        "Of 1 claim of other works, 1 is not tested. Of 1 claim of our own, 1 does not hold."
    )
    text = as_markdown(found)
    assert text.index("Said by Zhang et al. (2019)") < text.index("Said by Li et al. (2024)") < text.index("Our own: ")
    assert "- identity: by definition; the measurement checks the code" in text
    assert "**not tested: it rains**" in text


def test_a_folder_that_cannot_be_made_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write into the folder"):
        run_all(FEW, tmp_path / "file")


# The verb.


def test_one_claim_in_words_and_as_json() -> None:
    result = call("claims", "stationary_covariance", "--turn")
    assert result.exit_code == 0
    assert result.stderr == ""
    for words in (
        "stationary_covariance\n",
        "  claim      Run at",
        "  said by    Zhang et al. (2019)\n",
        "  verdict    holds within 0.5%",
        "  turned     if",
    ):
        assert words in result.stdout
    assert result.stdout.endswith("Of 1 claim of the paper, 1 holds.\n")
    found = json.loads(call("claims", "stationary_covariance", "--json").stdout)["claims"][0]
    assert found["name"] == "stationary_covariance"
    assert found["verdict"] == "holds"
    assert found["number"] == pytest.approx(0.005)
    assert found["turned"] is None
    assert found["origin"] == "Zhang et al. (2019)"
    assert len(found["table"]) > 50


def test_the_list() -> None:
    result = call("claims", "--list")
    assert [line for line in result.stdout.splitlines() if not line.startswith(" ")] == list(CLAIMS)
    assert all(c.statement in result.stdout for c in CLAIMS.values())
    listed = json.loads(call("claims", "--list", "--json").stdout)["claims"]
    assert {c["name"]: c["statement"] for c in listed} == {c.name: c.statement for c in CLAIMS.values()}


def test_files_are_named(tmp_path: Path) -> None:
    result = call("claims", "stationary_covariance", "--out", "here")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == ["wrote here/claims.md", "wrote here/claims.html"]
    assert {p.name for p in (tmp_path / "here").iterdir()} == {
        "claims.md", "claims.html", "stationary_covariance.png",
    }  # fmt: skip


def test_a_wrong_name_is_one_sentence() -> None:
    result = call("claims", "stationary_covariances")
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("Error: ")
    assert "there is no claim 'stationary_covariances' (did you mean stationary_covariance?)" in line


@pytest.mark.parametrize("line", main.commands["claims"].examples)  # type: ignore[attr-defined]
def test_examples_call_with_real_names(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nqm.paper.claims, "run_all", lambda names, out, **options: [])
    assert call(*shlex.split(line)[1:]).exit_code == 0
