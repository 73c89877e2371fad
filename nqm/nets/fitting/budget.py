"""What a fit will take, before it starts: memory, passes over the data, and time, measured on one product and one gradient.

Memory is counted in numbers for each parameter. The basis of Lanczos takes one number for each step. The vectors of the largest
curvatures take its place, and later the bases of a group of noise vectors. The rest is the model, its copies, and what a product
needs. Activations of a pass over ``chunk`` examples come on top; they do not grow with the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor

from ...show.numbers import brief
from ...types import Wrong
from ..curvature import Curvature

FIXED_NUMBERS = (
    14  # numbers for each parameter beside the bases: the model, its copies, gradients, and the terms of a product
)
LEAST_STEPS = 2  # Lanczos steps without which there is no model


@dataclass(frozen=True)
class Budget:
    """The plan of a fit: Lanczos steps, bytes for the bases of noise vectors, and what all of it takes."""

    steps: int
    group_bytes: int | None
    memory: int
    products: int
    gradients: int
    seconds: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        most = f"about {_bytes(self.memory)} beside the activations"
        time = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} minutes"
        return f"{self.products} products and {self.gradients} gradients over all the data, about {time}; {most}"


def planned(
    operator: Curvature, g: Tensor, *, steps: int, noise_vectors: int, noise_steps: int, probes: int, descent: int,
    memory: int | None,
) -> Budget:  # fmt: skip
    """How a fit stays within ``memory`` bytes, with fewer Lanczos steps if need be, and how long it will take."""
    one, notes, group = g.numel() * g.element_size(), list[str](), None
    if memory is not None:
        room = memory // one - FIXED_NUMBERS
        if room < LEAST_STEPS:
            needed = _bytes((FIXED_NUMBERS + LEAST_STEPS) * one)
            raise Wrong(f"a fit of {g.numel():,} weights needs {needed}, and memory is {_bytes(memory)}", "memory")
        if room < steps:
            notes.append(f"{room} Lanczos steps were taken instead of {steps}, to stay within {_bytes(memory)}")
        steps, group = min(steps, room), room * one
    product, gradient = _seconds(lambda: operator(g[None])), _seconds(operator.network.gradient)
    products = steps + (noise_vectors + probes) * noise_steps
    seconds = products * product + descent * gradient
    bases = max(steps, 0 if group is None else group // one)
    return Budget(steps, group, (FIXED_NUMBERS + bases) * one, products, descent, seconds, tuple(notes))


def _seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _bytes(count: float) -> str:
    """A number of bytes as text.

    >>> _bytes(8e9), _bytes(2.5e6)
    ('8 GB', '2.5 MB')
    """
    return f"{brief(count / 1e9)} GB" if count >= 1e9 else f"{brief(count / 1e6)} MB"
