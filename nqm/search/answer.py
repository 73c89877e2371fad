"""What tuning is asked for, and what it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..engine.readable import Readable
from ..engine.run import Outcome, number
from ..optimizers.base import Optimizer, parameters
from ..problems.base import AnyLaw, check_batch_size, check_steps, check_target, is_number
from ..sampling.bases import Rotation
from ..sampling.laws import GAUSSIAN, Law, law
from ..sampling.replicas import check_whole
from ..types import Wrong

O_co = TypeVar("O_co", bound=Optimizer, covariant=True)


@dataclass(frozen=True)
class Goal:
    """Fewest steps to a target, within ``steps``; or, without a target, the least loss after ``steps``."""

    batch_size: float
    target: float | None
    steps: int

    @classmethod
    def of(
        cls, batch_size: float, target: float | None, steps: int | None, examples: float | None, max_steps: int
    ) -> Goal:
        """A goal from what a user gave, refused by name."""
        batch_size = check_batch_size(batch_size)
        if sum(goal is not None for goal in (target, steps, examples)) != 1:
            raise Wrong("tune needs exactly one goal: target=, steps= or examples=", argument="target")
        if examples is not None:
            if not (is_number(examples) and batch_size <= examples and math.isfinite(batch_size)):
                raise Wrong(
                    f"examples must be at least one batch of {batch_size:g}, got {examples!r}", argument="examples"
                )
            steps = int(examples // batch_size)
        limit = check_steps(max_steps, 1, "max_steps")
        if steps is None:
            return cls(batch_size, check_target(target), limit)
        return cls(batch_size, None, check_steps(steps, 1))


@dataclass(frozen=True, eq=False)
class Sampling:
    """How an optimizer that is sampled meets the problem: the law of the noise, its seed, the basis.

    The mean loss of a linear optimizer feels neither the law, of variance 1, nor the basis.
    """

    law: Law = GAUSSIAN
    seed: int = 0
    rotation: Rotation = None

    @classmethod
    def of(cls, optimizer: Optimizer, noise: AnyLaw, seed: int, rotation: Rotation) -> Sampling:
        """From what a user gave, refused by name."""
        found = law(noise)
        if found.warning and isinstance(optimizer, Optimizer) and optimizer.linear:
            raise Wrong(
                f"noise: {optimizer} cannot be tuned, as {found.warning}; take a law with a variance", argument="noise"
            )
        return cls(found, check_whole("seed", seed, 0), rotation)


PLAIN = Sampling()


def at_edge(names: tuple[str, ...]) -> str:
    """The remark about parameters at the edge of their range."""
    return f"; the best {' and '.join(names)} lies at the edge of its range" if names else ""


@dataclass(frozen=True, repr=False)
class Tuned(Readable, Generic[O_co]):
    """Answer of `tune`: the optimizer with every parameter set, and what it reaches.

    ``at_bound`` names the parameters whose best value lies at the edge of its range: momentum at 0 means that momentum
    does not help here. ``stderr`` is the standard error of the steps, or of the loss for a budget, of an optimizer that is
    sampled; None where the answer is exact. It is that of measuring this setting: the search may have missed a better one.
    """

    optimizer: O_co
    steps: int | None
    loss: float
    batch_size: float
    at_bound: tuple[str, ...]
    outcome: Outcome
    message: str
    stderr: float | None = None

    def _brief(self) -> str:
        return f"{self.optimizer}, batch_size={self.batch_size:,.10g}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "optimizer": str(self.optimizer),
            **{name: number(p.value) for name, p in parameters(self.optimizer).items()},
            "effective_lr": number(self.optimizer.effective_lr),
            "steps": self.steps,
            "examples": None if self.steps is None else number(self.steps * self.batch_size),
            "loss": number(self.loss),
            "batch_size": number(self.batch_size),
            "at_bound": list(self.at_bound),
            "outcome": self.outcome.name,
            "message": self.message,
            "stderr": number(self.stderr),
        }
