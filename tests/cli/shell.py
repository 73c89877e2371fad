"""How the tests of the command line call it, and read what it says."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nqm.cli import main

ROOT = Path(__file__).parents[2]
SMALL = "power_law(100)"


def call(*args: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in args])


def told(result: Result, status: int = 2) -> str:
    """The one line on standard error of a call that was wrong, or failed with another status."""
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    return one_line(result)


def one_line(result: Result) -> str:
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    assert "Traceback" not in lines[0]
    return lines[0]


BROKEN = {
    errno.EPIPE: "",
    errno.ENOSPC: "the device is full, and standard output could not be written",
}
"""What a standard output does that takes nothing, and the sentence about it; nothing is said of a reader that has gone."""


class BrokenOutput(io.StringIO):
    """A standard output that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


def told_without_output(args: Sequence[object], number: int, capture: pytest.CaptureFixture[str]) -> str:
    """The last line on standard error of a call whose output could not be printed, which is status 1, or 141 for a pipe."""
    capture.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", BrokenOutput(number))
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in args], prog_name="nqm")
    assert ended.value.code == (141 if number == errno.EPIPE else 1)
    written = capture.readouterr().err.strip().splitlines()
    assert "Traceback" not in "".join(written)
    assert "Error" not in "".join(written) or number != errno.EPIPE
    return written[-1] if written else ""


def strict(text: str) -> Any:
    """JSON as the standard has it: without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)
