"""What a claim is: a statement, a measurement that can be repeated with other premises, and a verdict from its number."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType, NoneType

from ...engine.run import number
from ...show.chart import Figure
from ...show.tables import Row, Table
from ...show.verdict import Finding, Verdict
from ...text.values import parse_number
from ...types import Wrong, unknown
from ..instance import PaperStudy

PAPER = "Zhang et al. (2019)"
OWN = "nqm"
"""Origins of claims; any other origin is the name and the year of another work."""
Premises = Mapping[str, object]
"""The assumptions of a claim, by name: numbers, words, or an optimizer."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured for a claim, and the verdict.

    Parameters
    ----------
    table : every number of the picture.
    number, what : the number that decides, and what it is.
    told : the measurement in a sentence or two, with its numbers.
    tolerance, reason : how far the number may be from what the claim says, and the reason for this tolerance.
    verdict : the verdict that follows from the number and the tolerance.
    within : how closely or where the claim holds, as in "holds within ...".
    when : where the claim does not hold, as in "does not hold when ..."; or why it is not tested, as in "not tested: ...".
    """

    table: Table
    number: float
    what: str
    told: str
    tolerance: float
    reason: str
    verdict: Verdict
    within: str = ""
    when: str = ""

    def __post_init__(self) -> None:
        if self.verdict is not Verdict.holds and not self.when:
            raise Wrong(
                f"a verdict of {self.verdict.value!r} needs `when`: where the claim does not hold, or why it is not tested"
            )

    @property
    def sentence(self) -> str:
        """The verdict as a sentence: holds, holds within ..., does not hold when ..., not tested: ..."""
        if self.verdict is Verdict.untested:
            return f"{self.verdict.value}: {self.when}"
        holds = f"holds within {self.within}" if self.within else "holds"
        fails = f"does not hold when {self.when}"
        return {Verdict.holds: holds, Verdict.partly: f"{holds}; {fails}", Verdict.fails: fails}[self.verdict]

    def to_dict(self) -> Row:
        """Plain numbers, as ``--json`` prints them."""
        return {
            "measured": self.told, "number": number(self.number), "what": self.what,
            "tolerance": number(self.tolerance), "reason": self.reason,
            "verdict": self.verdict.name, "sentence": self.sentence, "table": self.table,
        }  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A statement that can be measured.

    It is a module of this package with ``STATEMENT``; ``ORIGIN``, who says it: `PAPER`, `OWN`, or another work with its year;
    ``SOURCE``, where it is said; ``measure(...)``, whose arguments are the premises of the claim; and ``draw(table)``. An
    argument ``study`` of ``measure`` is a `PaperStudy`, which gives the problem and the batch sizes. It may have ``TURN``, the
    description of a premise that changes the verdict, with its arguments; ``IDENTITY``, why the statement is true by definition, so
    that its measurement checks the code alone; and ``NEEDS``, a module that the claim needs, and the extra that installs it.
    """

    name: str
    statement: str
    origin: str
    source: str
    measure: Callable[..., Measured] = field(repr=False)
    draw: Callable[[Table], Figure] = field(repr=False)
    turned_by: str = ""
    turn: Premises = field(default_factory=dict)
    identity: str = ""
    needs: tuple[str, str] | None = None

    @classmethod
    def of(cls, module: ModuleType) -> Claim:
        turned_by, turn = getattr(module, "TURN", ("", {}))
        return cls(
            name=module.__name__.rsplit(".", 1)[-1], statement=module.STATEMENT, origin=module.ORIGIN, source=module.SOURCE,
            measure=module.measure, draw=module.draw, turned_by=turned_by, turn=turn,
            identity=getattr(module, "IDENTITY", ""), needs=getattr(module, "NEEDS", None),
        )  # fmt: skip

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize()

    @property
    def said(self) -> str:
        """Who says it, and where."""
        return f"Our own: {self.source}." if self.origin == OWN else f"Said by {self.origin}, {self.source}."

    @property
    def missing(self) -> str:
        """What to install before the claim can be measured; empty if nothing is missing."""
        if self.needs is None or find_spec(self.needs[0]) is not None:
            return ""
        return f"needs nqm[{self.needs[1]}]: pip install 'nqm[{self.needs[1]}]'"

    @property
    def premises(self) -> dict[str, object]:
        """The arguments of the measurement and their defaults."""
        known = inspect.signature(self.measure).parameters
        return {name: p.default for name, p in known.items() if name != "study"}

    @property
    def studies(self) -> bool:
        """Whether the claim asks a study, whose answers it shares with other claims."""
        return "study" in inspect.signature(self.measure).parameters

    def to_dict(self) -> Row:
        """The statement, who makes it and where, as ``--list --json`` prints them."""
        return {
            "name": self.name, "statement": self.statement, "origin": self.origin, "source": self.source,
            "identity": self.identity or None, "needs": self.missing or None,
        }  # fmt: skip

    def check(self, study: PaperStudy | None = None, **premises: object) -> Measured:
        """Measure the claim, with other premises where they are given."""
        for name in premises:
            self._default(name)
        asked = {"study": study or PaperStudy()} if self.studies else {}
        said = f"{self.name} cannot be measured with {', '.join(f'{name} = {v}' for name, v in premises.items())}"
        try:
            found = self.measure(**asked, **premises)
        except Wrong as error:
            if not premises:
                raise
            # It is about what the measurement made of the premise, of which the caller knows nothing.
            raise Wrong(f"{said}: {error}", "premises") from error
        if premises and math.isnan(found.number):
            raise Wrong(f"{said}: there, the {found.what} is not a number", "premises")
        return found

    def _default(self, name: str) -> object:
        if name not in self.premises:
            raise unknown(f"premise of {self.name}", name, self.premises, argument="premises")
        return self.premises[name]

    def read(self, text: str) -> tuple[str, str | float | tuple[float, ...]]:
        """A premise from text, ``name=value``: a number, several with commas between them, or a word, as its default is."""
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise Wrong(
                f"a premise is NAME=VALUE; {self.name} has {', '.join(self.premises)}, got {text!r:.60}", "premises"
            )
        default = self._default(name)
        if isinstance(default, str):
            return name, value
        several = isinstance(default, (tuple, list))
        if not all(isinstance(one, (int, float, NoneType)) for one in (default if several else [default])):
            raise Wrong(
                f"{name} of {self.name} is neither numbers nor a word: give it in Python, with nqm.paper.claims.check",
                "premises",
            )
        try:
            numbers = tuple(parse_number(part) for part in value.split(",")) if several else parse_number(value)
        except Wrong as error:
            raise Wrong(f"{name}: {error}", "premises") from None
        if isinstance(default, int) and not isinstance(numbers, int):
            raise Wrong(f"{name} of {self.name} must be a whole number, got {value!r:.60}", "premises")
        return name, numbers

    def finding(self, study: PaperStudy | None = None, **premises: object) -> Finding:
        """The claim as a line of a report."""
        found = self.check(study, **premises)
        whose = "" if self.origin == PAPER else " (our own)" if self.origin == OWN else f" ({self.origin})"
        return Finding(f"{self.statement}{whose}", found.told, found.verdict)
