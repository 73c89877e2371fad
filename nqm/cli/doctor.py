"""The verb that checks an optimizer of your own or, without one, the installation."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from . import options
from .options import OPTIMIZER, verb
from .output import Sink, answered, progress, show_pairs

if TYPE_CHECKING:
    from ..optimizers import Optimizer


@verb(
    "check an optimizer of your own, or the installation",
    "nqm doctor",
    "nqm doctor 'HeavyBall(momentum=0.9)'",
    "nqm doctor 'nqm.optimizers.nesterov:Nesterov(lr=0.1)' --json",
)
@click.argument("optimizer", type=OPTIMIZER, required=False)
@options.sink()
def doctor(optimizer: Optimizer | None, sink: Sink) -> None:
    """Check an optimizer of your own, written as module:Class or module:Class(lr=0.1). Omitted parameters get usual values.

    The checks: shapes of what the methods return; arrays of modes; dependence on t; A - I returned instead of A; system
    against update, by sampling; the stability limit against a plain loop; the loss at that limit and beyond it. Each check
    prints a line with passed, failed or skipped, the number and what to do. The exit status is 1 if a check failed.

    Without an optimizer, it shows the versions of what is installed and which extras are missing.
    """
    if optimizer is None:
        found = _installed()
        return sink.deliver(lambda: found, lambda: show_pairs(found))
    from ..problems.checkup import check_optimizer

    with progress(f"checking {optimizer}"):
        checks = check_optimizer(optimizer)
    words = {True: "passed", False: "failed", None: "skipped"}
    sink.deliver(
        lambda: {"optimizer": str(optimizer), "checks": [asdict(check) for check in checks]},
        lambda: show_pairs({f"{words[d.passed]:<8} {d.check:<10}": d.message for d in checks}),
    )
    answered(all(check.passed is not False for check in checks))


def _installed() -> dict[str, str]:
    """Versions of packages, whether the inner loops are compiled, and whether each extra is installed."""
    from ..engine.kernels import loops
    from ..show.html import versions
    from ..text.imports import EXTRAS

    lacking = {extra for module, extra in EXTRAS.items() if find_spec(module) is None}
    extras = {
        f"extra {e}": f"missing: pip install 'nqm[{e}]'" if e in lacking else "installed" for e in EXTRAS.values()
    }
    return versions() | {"loops": "compiled" if loops().compiled else "NumPy, slower: pip install numba"} | extras
