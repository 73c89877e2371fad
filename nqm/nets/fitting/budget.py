"""What a fit will take, before it starts: memory, passes over the data, and time, measured on one product and one gradient.

Memory is counted in numbers for each parameter. The basis of Lanczos takes one number for each step. The vectors of the largest
curvatures take its place, and later the bases of a group of noise vectors. The rest is the model, its copies, and what a product
needs. Activations of a pass over ``chunk`` examples come on top; they do not grow with the number of steps.
"""

from __future__ import annotations

import copy
import ctypes
import sys
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
FIXED_BYTES = 12 * 10**6  # what a fit takes whatever the size of the network: vectors that pass together, freed blocks
TOGETHER_BYTES = (
    2**22
)  # memory of the vectors that pass together; a pass that pulls them back holds about three times as much
BASIS_BYTES = 2**30  # memory that the Lanczos bases of a group of start vectors may take, at most
SMALL_BASIS_BYTES = 2**26  # memory that a group may take whatever the size of the network
BASIS_NUMBERS = 36  # numbers for each parameter that a group may take in a large network
WORKING_NUMBERS = 6  # numbers for each parameter that a product and Lanczos hold beside each basis of a group
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


def give_back() -> None:
    """Return freed memory to the system. glibc keeps freed blocks below 32 MB, up to 50 bytes for each weight of a fit."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def together(at: Tensor, most: int) -> int:
    """How many vectors as long as ``at`` pass together, at most ``most``."""
    return max(1, min(most, TOGETHER_BYTES // (at.numel() * at.element_size())))


def in_small_pieces(network: Network) -> Network:
    """The network with so few examples in a pass that the gradients of single ones take little memory."""
    other = copy.copy(network)
    other.chunk = together(network.theta, network.chunk)
    return other


def vectors_in_group(at: Tensor, steps: int, memory: int | None = None, basis: Store = "working") -> int:
    """From how many vectors as long as ``at`` Lanczos starts at once; ``memory`` is in bytes.

    If it is omitted, a group may take 36 numbers for each parameter, but 64 MB at least and 1 GB at most.
    """
    most = max(BASIS_NUMBERS * at.numel() * at.element_size(), SMALL_BASIS_BYTES) if memory is None else memory
    return max(1, min(BASIS_BYTES, most) // _bytes_in_group(at, steps, basis))


def _bytes_in_group(at: Tensor, steps: int, basis: Store) -> int:
    """Memory for Lanczos from one vector of a group."""
    return at.numel() * (steps * stored_bytes(at, basis) + WORKING_NUMBERS * at.element_size())


def planned(
    operator: Curvature, g: Tensor, *, steps: int, noise_vectors: int, noise_steps: int, probes: int, descent: int,
    memory: int | None, basis: Store = "working",
) -> Budget:  # fmt: skip
    """How a fit stays within ``memory`` bytes, with fewer Lanczos steps if need be, and how long it will take."""
    fixed = FIXED_BYTES + FIXED_NUMBERS * g.numel() * g.element_size()
    step, notes, group = g.numel() * stored_bytes(g, basis), list[str](), None
    if memory is not None:
        left = memory - fixed
        room = left // step if step else steps * (left >= 0)
        if room < LEAST_STEPS:
            needed = _bytes(fixed + LEAST_STEPS * step)
            raise Wrong(f"a fit of {g.numel():,} weights needs {needed}, and memory is {_bytes(memory)}", "memory")
        if room < steps:
            notes.append(f"{room} Lanczos steps were taken instead of {steps}, to stay within {_bytes(memory)}")
        steps, group = min(steps, room), max(left, 0)
    product, gradient = _seconds(lambda: operator(g[None])), _seconds(operator.network.gradient)
    products = steps + (noise_vectors + probes) * noise_steps
    seconds = products * product + descent * gradient
    some = min(vectors_in_group(g, noise_steps, group, basis), noise_vectors + probes)
    bases = max(steps * step, some * _bytes_in_group(g, noise_steps, basis))
    return Budget(steps, group, fixed + bases, products, descent, seconds, tuple(notes))


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
