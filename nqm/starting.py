"""What the program ``nqm`` does before it loads anything. Where nqm is imported by another program, nothing here happens.

Ctrl-C while it is still loading ends it without a word, as it ends programs of other languages; Python would print where in the
imports it was. And NumPy and SciPy calculate in one thread each: nqm gives them small matrices, for which the threads of a busy
machine wait for one another. The nodes of a Gauss rule of 600 points took 2.6 s in two threads and 0.08 s in one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

PROGRAMS = ("nqm", "nqm.exe")  # what the installed program is called


def is_program(argv: Sequence[str], words: Sequence[str]) -> bool:
    """Whether a process whose ``sys.argv`` and ``sys.orig_argv`` are these is the program, while it imports its modules.

    Processes that share its work have the arguments of the program, and were started in another way.

    >>> is_program(["-m", "tune"], ["python", "-m", "nqm", "tune"]), is_program(["bin/nqm"], ["python", "bin/nqm"])
    (True, True)
    >>> is_program(["mine.py", "nqm"], ["python", "mine.py", "nqm"]), is_program(["bin/nqm"], ["python", "-c", "..."])
    (False, False)
    """
    first = argv[0] if argv else ""
    if first == "-m":
        return ("-m", "nqm") in pairwise(words)
    return PurePath(first).name in PROGRAMS and first in words


def start() -> None:
    """Prepare the process if it is the program. Ctrl-C is left alone where the handler is not Python's own."""
    if not is_program(sys.argv, sys.orig_argv):
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # It is read when NumPy is loaded.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt_again() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again, once everything is loaded that can tell it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
