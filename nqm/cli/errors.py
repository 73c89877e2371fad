"""What a user reads about an exception, and the exit status of the program.

A wrong call raises `Wrong` or a usage error of click: one sentence and status 2. Failures of the machine and of the user's
own code have sentences of their own and status 1. Any other exception is reported as a bug in nqm, with status 1.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress

import click

from ..text.imports import UserCodeError, install_hint, user_failure
from ..types import Wrong, short
from .screen import say

FAILED = 1  # Exit status if there is no answer, if the machine or the user's code failed, or if nqm has a bug.
WRONG = 2  # Exit status of a wrong call.
PIPE_CLOSED = 141  # Exit status if the reader of the output has gone, as shells have it for SIGPIPE.
INTERRUPTED = 130  # Exit status after Ctrl-C, as shells have it.

TORCH_OUT_OF_MEMORY = "allocate memory"  # part of torch's message, which is a `RuntimeError` on the CPU
REPORT = "NQM_DEBUG=1 shows where"


class Failure(click.ClickException):
    """A computation without an answer; its text is the sentence that says why."""

    exit_code = FAILED


def tell(error: Exception) -> int:
    """Report an exception on standard error, and return the exit status."""
    if not isinstance(error, (Wrong, UserCodeError, click.ClickException, click.Abort)) and not _interrupted(error):
        error = user_failure(error) or error
    sentence, status = ending(error)
    with suppress(OSError):  # Standard error may be closed, too.
        if os.environ.get("NQM_DEBUG"):
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        elif isinstance(error, UserCodeError):
            click.echo(error.traceback, err=True, nl=False)
        say(f"Error: {' '.join(sentence.split())}", err=True)
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
    if isinstance(error, MemoryError) or TORCH_OUT_OF_MEMORY in str(error):
        return "there is not enough memory; ask for fewer modes, steps, points, replicas or examples in a batch", FAILED
    if isinstance(error, BrokenExecutor):
        return "a process that shared the work was killed, perhaps for want of memory", FAILED
    if isinstance(error, ImportError) and (hint := install_hint(error.name or "")):
        return f"this needs {(error.name or '').partition('.')[0]}, which cannot be imported ({error}){hint}", FAILED
    return f"this is a bug in nqm, {type(error).__name__}: {short(str(error), 300)}; {REPORT}", FAILED


def _of_file(error: OSError) -> str:
    """The sentence about a file that could not be read or written."""
    name = repr(str(error.filename)) if error.filename is not None else ""
    if name and isinstance(error, FileNotFoundError):
        return f"there is no file {name}"
    if name and isinstance(error, IsADirectoryError):
        return f"{name} is a folder, not a file"
    if name and isinstance(error, NotADirectoryError):
        return f"the path {name} leads through a file, not a folder"
    if name and isinstance(error, PermissionError):
        return f"there is no permission to open {name}"
    if error.errno is None:  # nqm raised it with a sentence of its own, as a `LabError`.
        return str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the device is full, and {name or 'standard output'} could not be written"
    if error.errno == errno.EBADF:
        return "standard output is closed, and not everything could be printed"
    return f"{name or 'the system refused'}: {error.strerror or error}"


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error. Compiled code wraps the interrupt in a `SystemError`, sometimes twice."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


class ClosedOutput(io.TextIOBase):
    """A standard output that was closed before the program started. Writing fails, where Python's None would ignore it."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def open_output() -> None:
    """Make writing to a closed standard output an error, and writing to a closed standard error harmless."""
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open as long as the program runs


class ReaderGone(click.exceptions.Exit):
    """The program that read the output has ended, as ``head`` does. That is no error, so nothing is said."""

    def __init__(self) -> None:
        super().__init__(PIPE_CLOSED)


@contextmanager
def closed_pipe_told() -> Iterator[None]:
    """End as other programs do when the reader of the output has gone. Click would end with status 1."""
    try:
        yield
    except BrokenPipeError as error:
        if not _reader_gone():
            raise Failure(_of_file(error)) from error
        _settle_output()
        raise ReaderGone from error


def _reader_gone() -> bool:
    """Whether nothing can be written to standard output or standard error, because what is behind the pipe has ended."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.write("")
            stream.flush()  # What could not be written is still there.
            poller = select.poll()
            poller.register(stream.fileno(), 0)
            if any(event & select.POLLERR for _, event in poller.poll(0)):  # Without a buffer nothing is left to write.
                return True
        except BrokenPipeError:
            return True
        except (OSError, ValueError, AttributeError):  # no file, or a system that has no such poll
            continue
    return False


def _settle_output() -> None:
    """Discard output that could not be written, because Python would report it a second time when it exits."""
    for number, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
