"""Statements beside the number that was measured for each, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What the numbers say of a statement."""

    holds = "holds"
    partly = "holds in part"
    fails = "not supported"
    open = "not decided"

    @classmethod
    def of(cls, *checks: bool) -> Verdict:
        """All of its parts hold, some, or none."""
        return cls.holds if all(checks) else cls.partly if any(checks) else cls.fails


JUDGED = (Verdict.holds, Verdict.partly, Verdict.fails)


@dataclass(frozen=True)
class Finding:
    """A statement, the number that this run measured for it, and the verdict."""

    says: str
    measured: str
    verdict: Verdict
