"""Decorators that compile a loop with numba, and the notice that compiling takes a while.

Modules with compiled loops are imported at first use, because numba takes a second to load. Each decorator sets fastmath
explicitly: a function without the flag inherits that of its first caller. Where numba is not installed the decorators
change nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar, cast

try:
    import numba
except ImportError:
    numba = None

F = TypeVar("F", bound=Callable[..., object])


def loop(function: F) -> F:
    """A loop in which multiplications and additions may be fused."""
    return _compiled(function, {"contract", "nsz"})


def exact(function: F) -> F:
    """A loop that computes rounding errors, so nothing may be fused."""
    return _compiled(function, False)


def in_any_order(function: F) -> F:
    """A loop whose sums may be taken in any order."""
    return _compiled(function, True)


def _compiled(function: F, fastmath: bool | set[str]) -> F:
    if numba is None:
        return function
    return cast(F, numba.njit(cache=True, fastmath=fastmath, error_model="numpy", nogil=True)(function))


if numba is not None:
    from numba.core.event import Event, Listener, register

    class CompileNotice(Listener):
        """Warns once that loops of nqm are being compiled. Loops that numba finds in its cache are not compiled."""

        said = False

        def on_start(self, event: Event) -> None:
            if not self.said and event.data and event.data["dispatcher"].py_func.__module__.startswith("nqm."):
                self.said = True
                logging.getLogger("nqm").warning(
                    "nqm is compiling its inner loops, which takes some seconds; later runs load them from a cache"
                )

        def on_end(self, event: Event) -> None: ...

    register("numba:compile", CompileNotice())
