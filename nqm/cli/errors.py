"""The boundary for errors: what a user reads about an exception, and the exit status with which the program ends.

A wrong call is a `Wrong`, or a usage error of click's, and nothing else: one sentence and status 2. What the machine or the
user's own code did has a sentence of its own. Every other exception is a bug in nqm, and is told as one.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager

import click

from ..text.imports import UserCodeError, install_hint, user_failure
from ..types import Wrong, short

FAILED = 1  # There is no answer, the machine or the user's code failed, or nqm has a bug.
WRONG = 2  # The call was wrong.
INTERRUPTED = 130  # This is what a shell reports of a process that Ctrl-C ended.

REPORT = "please report it with your command and with what it prints under NQM_DEBUG=1"


class Failure(click.ClickException):
    """A computation that has no answer, told in one sentence."""

    exit_code = FAILED


def tell(error: Exception) -> int:
    """Print an exception on standard error, and return the exit status."""
    if not isinstance(error, (Wrong, UserCodeError, click.ClickException, click.Abort)) and not _interrupted(error):
        error = user_failure(error) or error
    if os.environ.get("NQM_DEBUG"):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    elif isinstance(error, UserCodeError):
        click.echo(error.traceback, err=True, nl=False)
    sentence, status = ending(error)
    click.echo(f"Error: {' '.join(sentence.split())}", err=True)
    _settle_output()
    return status


def ending(error: Exception) -> tuple[str, int]:
    """The sentence and the exit status of an exception."""
    if isinstance(error, click.Abort) or _interrupted(error):
        return "interrupted", INTERRUPTED
    if isinstance(error, click.UsageError):
        see = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        return error.format_message().rstrip(".") + see, error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, Wrong):
        return str(error), WRONG
    if isinstance(error, UserCodeError):
        return str(error), FAILED
    if isinstance(error, OSError):
        return _of_file(error), FAILED
    if isinstance(error, MemoryError):
        return "there is not enough memory; ask for fewer modes, steps, points or replicas", FAILED
    if isinstance(error, BrokenExecutor):
        return "a process that shared the work was killed, perhaps for want of memory", FAILED
    if isinstance(error, ImportError) and (hint := install_hint(error.name or "")):
        return f"this needs {(error.name or '').partition('.')[0]}, which cannot be imported ({error}){hint}", FAILED
    return f"this is a bug in nqm, {type(error).__name__}: {short(str(error), 300)}; {REPORT}", FAILED


def _of_file(error: OSError) -> str:
    """What kept a file from being read or written. Names that the user gave have been checked before any work."""
    name = repr(str(error.filename)) if error.filename is not None else ""
    if name and isinstance(error, FileNotFoundError):
        return f"there is no file {name}"
    if name and isinstance(error, IsADirectoryError):
        return f"{name} is a folder, not a file"
    if name and isinstance(error, NotADirectoryError):
        return f"the path {name} leads through a file, not a folder"
    if name and isinstance(error, PermissionError):
        return f"there is no permission to open {name}"
    if error.errno is None:  # It is one of nqm's own, such as `LabError`, and has a sentence.
        return str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the device is full, and {name or 'standard output'} could not be written"
    if error.errno in (errno.EPIPE, errno.EBADF):
        return "standard output is closed, and not everything could be printed"
    return f"{name or 'the system refused'}: {error.strerror or error}"


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: compiled code wraps the interrupt in a `SystemError`, sometimes twice."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


class ClosedOutput(io.TextIOBase):
    """Stands for a standard output that was closed before the program began, where Python has None."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def open_output() -> None:
    """Let writing to a closed standard output fail, instead of being forgotten; nobody misses standard error."""
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open as long as the program runs


@contextmanager
def closed_pipe_told() -> Iterator[None]:
    """Tell of a pipe whose reader has gone; click would end without a word."""
    try:
        yield
    except BrokenPipeError as error:
        raise Failure(_of_file(error)) from error


def _settle_output() -> None:
    """Forget what a full device or a closed pipe did not take; otherwise Python complains once more when it exits."""
    try:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
