"""What a fit will take, before it starts: memory, passes over the data, and time, measured on one product and one gradient.

Memory is counted in numbers for each parameter. The basis of Lanczos takes one number for each step. The vectors of the largest
curvatures take its place, and later the bases of a group of noise vectors. The rest is the model, its copies, and what a product
needs. Activations of a pass over ``chunk`` examples come on top; they do not grow with the number of steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor

from ...show.numbers import brief
from ...types import Wrong
from ..curvature import Curvature
from ..krylov import Store, stored_bytes
from ..network import Network

FIXED_NUMBERS = (
    14  # numbers for each parameter beside the bases: the model, its copies, gradients, and the terms of a product
)
TOGETHER_BYTES = (
    2**24
)  # memory of the vectors that pass together; a pass that pulls them back holds about three times as much
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


def together(at: Tensor, most: int) -> int:
    """How many vectors as long as ``at`` pass together, at most ``most``."""
    return max(1, min(most, TOGETHER_BYTES // (at.numel() * at.element_size())))


def in_small_pieces(network: Network) -> Network:
    """The network with so few examples in a pass that the gradients of single ones take little memory."""
    other = copy.copy(network)
    other.chunk = together(network.theta, network.chunk)
    return other


def planned(
    operator: Curvature, g: Tensor, *, steps: int, noise_vectors: int, noise_steps: int, probes: int, descent: int,
    memory: int | None, basis: Store = "working",
) -> Budget:  # fmt: skip
    """How a fit stays within ``memory`` bytes, with fewer Lanczos steps if need be, and how long it will take."""
    one, step, notes, group = g.numel() * g.element_size(), g.numel() * stored_bytes(g, basis), list[str](), None
    if memory is not None:
        left = memory - FIXED_NUMBERS * one
        room = left // step if step else steps * (left >= 0)
        if room < LEAST_STEPS:
            needed = _bytes(FIXED_NUMBERS * one + LEAST_STEPS * step)
            raise Wrong(f"a fit of {g.numel():,} weights needs {needed}, and memory is {_bytes(memory)}", "memory")
        if room < steps:
            notes.append(f"{room} Lanczos steps were taken instead of {steps}, to stay within {_bytes(memory)}")
        steps, group = min(steps, room), max(left, 0)
    product, gradient = _seconds(lambda: operator(g[None])), _seconds(operator.network.gradient)
    products = steps + (noise_vectors + probes) * noise_steps
    seconds = products * product + descent * gradient
    bases = max(steps * step, 0 if group is None else group)
    return Budget(steps, group, FIXED_NUMBERS * one + bases, products, descent, seconds, tuple(notes))


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
