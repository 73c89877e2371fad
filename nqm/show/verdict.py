"""Verdicts on statements: a statement, the number that was measured for it, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Whether the measured numbers support a statement.

    ``open`` is for measurements that could decide and have not yet; ``untested`` for those that cannot decide, whatever their number.
    """

    holds = "holds"
    partly = "holds in part"
    fails = "not supported"
    open = "not decided"
    untested = "not tested"

    @classmethod
    def of(cls, *checks: bool) -> Verdict:
        """The verdict on a statement from the checks of its parts: ``holds`` if all pass, ``fails`` if none does."""
        return cls.holds if all(checks) else cls.partly if any(checks) else cls.fails


JUDGED = (Verdict.holds, Verdict.partly, Verdict.fails)


@dataclass(frozen=True)
class Finding:
    """A statement, the number that this run measured for it, and the verdict."""

    says: str
    measured: str
    verdict: Verdict
