"""The question that tuning answers (`Goal`, `Sampling`), and its answer (`Tuned`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..engine.readable import Readable
from ..engine.run import Method, Outcome, number
from ..optimizers.base import Optimizer, parameters
from ..problems.base import MAX_STEPS, AnyLaw, Problem, check_batch_size, check_steps, check_target, is_number
from ..sampling.bases import Rotation
from ..sampling.laws import GAUSSIAN, Law, law
from ..sampling.replicas import check_whole
from ..types import Wrong

O_co = TypeVar("O_co", bound=Optimizer, covariant=True)


def check_goal(problem: Problem, target: object) -> float:
    """The target loss that a caller gave; refused also if the problem begins at or below it."""
    checked = check_target(target)
    if checked >= problem.initial_loss:
        raise Wrong(
            f"target {checked:g} is not below the initial loss, {problem.initial_loss:.6g}, so training has nothing to do; "
            "give a lower target",
            "target",
        )
    return checked


@dataclass(frozen=True)
class Goal:
    """Fewest steps to a target, ``steps`` at most; or, without a target, the least loss after ``steps``.

    ``argument`` is the argument in which the user gave the steps.
    """

    batch_size: float
    target: float | None
    steps: int
    argument: str = "steps"

    @classmethod
    def of(
        cls,
        batch_size: float,
        target: float | None = None,
        steps: int | None = None,
        examples: float | None = None,
        max_steps: int = MAX_STEPS,
    ) -> Goal:
        """The goal that a user's arguments state; a wrong argument is refused by its name."""
        batch_size = check_batch_size(batch_size)
        if sum(goal is not None for goal in (target, steps, examples)) != 1:
            raise Wrong("give exactly one goal: target=, steps= or examples=", "target")
        if examples is not None:
            if math.isinf(batch_size):
                raise Wrong("a budget of examples needs a finite batch size, got inf; give steps instead", "examples")
            if not (is_number(examples) and batch_size <= examples):
                raise Wrong(f"examples must be at least one batch of {batch_size:g}, got {examples!r}", "examples")
            steps = int(examples // batch_size)
        limit = check_steps(max_steps, 1, "max_steps")
        if steps is None:
            return cls(batch_size, check_target(target), limit)
        return cls(batch_size, None, check_steps(steps, 1), "steps" if examples is None else "examples")


@dataclass(frozen=True, eq=False)
class Sampling:
    """How an optimizer is sampled: the law of the noise, the seed, and the basis.

    The mean loss of a linear optimizer does not depend on the law, which has variance 1, nor on the basis.
    """

    law: Law = GAUSSIAN
    seed: int = 0
    rotation: Rotation = None
    asked: bool = (
        False  # whether sampling is needed: the caller wants it, or a law or a basis for which no mean field is known
    )

    @classmethod
    def of(cls, optimizer: Optimizer, noise: AnyLaw, seed: int, rotation: Rotation, sampled: bool = False) -> Sampling:
        """The sampling that a user's arguments state; a wrong argument is refused by its name."""
        found = law(noise)
        if found.warning and isinstance(optimizer, Optimizer) and optimizer.linear:
            raise Wrong(
                f"noise: {optimizer} cannot be tuned, because {found.warning}; take a law with a variance", "noise"
            )
        asked = sampled or rotation is not None or found is not GAUSSIAN
        return cls(found, check_whole("seed", seed, 0), rotation, asked)


PLAIN = Sampling()


def at_edge(names: tuple[str, ...]) -> str:
    """The end of a message that names the parameters at the edge of their range."""
    return f"; the best {' and '.join(names)} lies at the edge of its range" if names else ""


@dataclass(frozen=True, repr=False)
class Tuned(Readable, Generic[O_co]):
    """Answer of `tune`: the optimizer with every parameter set, and what it reaches.

    ``at_bound`` names the parameters whose best value lies at the edge of its range; a momentum of 0 means that momentum
    does not help here. ``method`` says how losses were found: "exact", by "mean field", or "sampled". ``stderr`` is None
    unless they were sampled. For an optimizer that is sampled it is the standard error
    of the steps, or of the loss after a budget, at the setting that was found. It says nothing of better settings that the
    search may have missed. ``counts_examples`` says whether the batch size is a number of examples.
    """

    optimizer: O_co
    steps: int | None
    loss: float
    batch_size: float
    at_bound: tuple[str, ...]
    outcome: Outcome
    message: str
    stderr: float | None = None
    method: Method = "exact"
    counts_examples: bool = True

    @property
    def examples(self) -> float | None:
        """Steps times batch size; None where the target is not reached, or where the batch size counts no examples."""
        return self.steps * self.batch_size if self.steps is not None and self.counts_examples else None

    def _brief(self) -> str:
        return f"{self.optimizer}, batch_size={self.batch_size:,.10g}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "optimizer": str(self.optimizer),
            **{name: number(p.value) for name, p in parameters(self.optimizer).items()},
            "effective_lr": number(self.optimizer.effective_lr),
            "steps": self.steps,
            "examples": number(self.examples),
            "loss": number(self.loss),
            "batch_size": number(self.batch_size),
            "at_bound": list(self.at_bound),
            "outcome": self.outcome.name,
            "message": self.message,
            "stderr": number(self.stderr),
            "method": self.method,
        }
