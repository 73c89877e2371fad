"""What a fit on some of the examples knows of all the data; `subsampling` computes it. This module does not need torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...engine.run import number
from ..estimates import Estimate

NUMBERS = ("loss", "gradient_square", "trace_noise", "noise_scale", "largest_curvature")


@dataclass(frozen=True)
class Subsample:
    """Numbers of all the data, estimated from a sample of the examples, with 90% intervals of their sampling error."""

    population: int
    examples: int
    loss: Estimate
    gradient_square: Estimate
    trace_noise: Estimate
    noise_scale: Estimate
    largest_curvature: Estimate

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Subsample:
        """What `to_dict` wrote; a number that is not finite is null."""
        ends = {n: {k: math.inf if v is None else float(v) for k, v in data[n].items()} for n in NUMBERS}
        found = (Estimate(end["value"], end["low"], end["high"]) for end in ends.values())
        return cls(int(data["population"]), int(data["examples"]), *found)

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, as in files and ``--json``."""
        found = {n: {k: number(v) for k, v in getattr(self, n).to_dict().items()} for n in NUMBERS}
        return {"population": self.population, "examples": self.examples, **found}

    def sentence(self) -> str:
        """What a reader should know."""
        shown = ", ".join(f"{n.replace('_', ' ')} {getattr(self, n)}" for n in NUMBERS)
        return f"{self.examples:,} of {self.population:,} examples were measured; for all of them: {shown}"
