"""The bugs that ``make planted`` plants: each still applies, and one that does not is an error."""

from __future__ import annotations

import pytest

from benchmarks.planted import DRAWN, Bug, known


def test_every_bug_still_applies() -> None:
    bugs = known()
    assert len({bug.name for bug in bugs}) == len(bugs) > DRAWN


@pytest.mark.parametrize("text", ["", "a = 1\na = 1\n"], ids=["gone", "twice"])
def test_a_bug_that_no_longer_applies_is_an_error(text: str) -> None:
    with pytest.raises(SystemExit, match="no longer applies"):
        Bug("engine", "file.py", "what", "a = 1\n", "a = 2\n").planted(text)
