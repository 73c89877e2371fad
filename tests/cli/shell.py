"""How the tests of the command line call it, and read what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def strict(text: str) -> Any:
    """JSON as the standard has it: without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)
