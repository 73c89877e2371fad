"""How text reaches a terminal: lines are broken between words where the terminal ends. A pipe gets them whole."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Iterable

import click

from ..show.layout import wrapped
from .spelling import as_options

NARROWEST_SCREEN = 20  # Some terminals say that they have 0 or 1 columns.


def screen_width(err: bool = False) -> float:
    """The columns of the terminal; a pipe or a file has no end, so that nothing wraps there."""
    stream = sys.stderr if err else sys.stdout
    return max(shutil.get_terminal_size().columns, NARROWEST_SCREEN) if stream.isatty() else math.inf


def say(text: str, err: bool = False) -> None:
    """Print text with options for arguments. What does not fit a line goes on below its beginning, and behind a dash."""
    width = screen_width(err)
    for line in as_options(text).split("\n"):
        margin = re.match(r" *(- )?", line)
        indent = " " * margin.end() if margin else ""
        lines = "\n".join(wrapped(line, width, indent))
        # A progress bar takes what is written to standard error, and prints it above itself; click would write past it.
        print(lines, file=sys.stderr) if err else click.echo(lines)


def remark(sentences: Iterable[str], err: bool = False) -> None:
    """Print sentences as remarks, each behind a dash."""
    for sentence in sentences:
        say(f"- {sentence}", err)
