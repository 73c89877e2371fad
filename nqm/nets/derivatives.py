"""Derivatives of functions of one flat vector, in the fast way and in the slow way that every differentiable model supports.

The fast way is torch.func: forward mode, and vectorised over vectors and over examples. Recurrent layers, checkpointed gradients,
control flow that depends on data, and functions with a derivative of their own may lack one of these. The slow way is plain reverse
mode, one vector and one example after the other: J v is the derivative of u -> J' u along v, reverse mode over reverse mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from ..types import Wrong
from .trees import Tree, count, grad, indexed, pulled_back, pushed_forward, vmap

Function = Callable[[Tensor], Tensor]
UNSUPPORTED = (RuntimeError, NotImplementedError, ValueError, TypeError, AssertionError)
"""What torch raises for an operation that lacks a rule for forward mode or vectorising."""
ROUNDING_OF_WAYS = {torch.float64: 1e-8, torch.float32: 1e-3}
"""Relative difference that fast and slow derivatives may have by rounding, by precision; 1e-2 for any other."""
ROWS_TOGETHER = 8  # rows that are pulled back together, at most
ROWS_BYTES = 2**26  # memory that the rows of weights may take that are pulled back or pushed forward together


@dataclass(frozen=True)
class Ways:
    """How derivatives are computed: ``fast`` by torch.func over vectors, ``together`` vectorised over examples."""

    fast: bool = True
    together: bool = True

    def pulled(self, function: Function, at: Tensor) -> tuple[Tensor, Function]:
        """The value, and the map from rows u to rows J' u."""
        if self.fast:
            value, pull = pulled_back(function, at)
            return value, lambda rows: vmap(pull, chunk_size=min(ROWS_TOGETHER, rows_within(at)))(rows)
        x = at.detach().requires_grad_()
        with torch.enable_grad():
            value = function(x)
        return value.detach(), lambda rows: torch.stack([_reverse(value, x, u).detach() for u in rows])

    def pushed(self, function: Function, at: Tensor, rows: Tensor) -> Tensor:
        """The rows J v."""
        if self.fast:
            return vmap(lambda v: pushed_forward(function, at, v)[1], chunk_size=rows_within(at))(rows)
        x = at.detach().requires_grad_()
        with torch.enable_grad():
            value = function(x)
            u = torch.zeros_like(value, requires_grad=True)
            pulled = _reverse(value, x, u, create_graph=True)
        return torch.stack([_reverse(pulled, u, v).detach() for v in rows])

    def bent(self, function: Function, at: Tensor, rows: Tensor) -> Tensor:
        """Each row times the Hessian of a function whose value is one number."""
        if self.fast:
            return vmap(pulled_back(grad(function), at)[1])(rows)
        x = at.detach().requires_grad_()
        with torch.enable_grad():
            value = function(x)
            g = _reverse(value, x, torch.ones_like(value), create_graph=True)
        if not g.requires_grad:  # the function is linear
            return torch.zeros_like(rows)
        return torch.stack([_reverse(g, x, v).detach() for v in rows])

    def over_examples(self, function: Callable[[Tree], Tensor], batch: Tree) -> Tensor:
        """The function of each example, which it sees as a batch of one."""
        if self.together:
            return vmap(lambda one: function(indexed(one, None)))(batch)
        return torch.stack([function(indexed(batch, slice(i, i + 1))) for i in range(count(batch))])


SLOWEST = Ways(fast=False, together=False)


def rows_within(at: Tensor) -> int:
    """How many rows as long as ``at`` a pass may hold."""
    return max(1, ROWS_BYTES // (at.numel() * at.element_size()))


def chosen_ways(
    outputs: Callable[[Ways, Tensor], Tensor], loss: Function, losses: Callable[[Ways], Tensor], at: Tensor
) -> tuple[Ways, str | None]:
    """The fastest ways that work for a model and give right numbers, and what is to be said of slower ones.

    ``outputs`` and ``loss`` are functions of the weights on a few examples, and ``losses`` returns the losses of these examples.
    Outputs and losses are computed in a given way. The fast derivatives must equal the slow ones: forward mode through some models
    is silently wrong.
    """
    together, why = True, ""
    try:
        if not _close(losses(Ways()), losses(SLOWEST)):
            together, why = False, "the losses of several examples differ from those of one at a time"
    except UNSUPPORTED as error:
        together, why = False, first_sentence(error)
    ways = Ways(together=together)
    of_weights = partial(outputs, ways)
    try:
        wrong = _differs(ways, of_weights, loss, at)
    except UNSUPPORTED as error:
        wrong = first_sentence(error)
    if not wrong:
        return ways, f"examples are taken one after the other, which is slower: {why}" if why else None
    try:
        _derivatives(SLOWEST, of_weights, loss, at)
    except UNSUPPORTED as error:
        needed = "neither forward mode nor reverse mode over reverse mode passes through it"
        told = first_sentence(error)
        raise Wrong(f"the model or its loss cannot be measured, as {needed}: {told}", argument="network") from error
    slow = "derivatives are taken by reverse mode alone, one vector after the other, which is slower"
    return Ways(fast=False, together=together), f"{slow}: {wrong}"


def _differs(ways: Ways, outputs: Function, loss: Function, at: Tensor) -> str:
    """Why fast derivatives cannot be used, or an empty text; with torch's exception if they cannot be computed."""
    here = _derivatives(ways, outputs, loss, at)
    try:
        there = _derivatives(SLOWEST, outputs, loss, at)
    except UNSUPPORTED:  # Without the slow way, J v and J' u must still agree with each other.
        (pushed, pulled, _), row = here, _direction(at)
        there = [(pushed * torch.ones_like(pushed)).sum().reshape(1)]
        here = [(pulled * row).sum().reshape(1)]
    same = all(_close(a, b) for a, b in zip(here, there, strict=True))
    return "" if same else "forward mode gives other numbers than reverse mode"


def _derivatives(ways: Ways, outputs: Function, loss: Function, at: Tensor) -> list[Tensor]:
    """J v, J' 1 and the product of the loss's Hessian with v, for one vector v."""
    row = _direction(at)
    value, pull = ways.pulled(outputs, at)
    return [ways.pushed(outputs, at, row), pull(torch.ones_like(value)[None]), ways.bent(loss, at, row)]


def _direction(at: Tensor) -> Tensor:
    """A vector that is not special, the same on every device."""
    places = torch.arange(at.numel(), device=at.device, dtype=torch.float32)
    return torch.sin(1.0 + 7.3 * places).to(at.dtype)[None]


def _close(one: Tensor, other: Tensor) -> bool:
    scale = max(float(torch.linalg.vector_norm(other)), 1e-30)
    return float(torch.linalg.vector_norm(one - other)) <= ROUNDING_OF_WAYS.get(one.dtype, 1e-2) * scale + 1e-30


def first_sentence(error: BaseException) -> str:
    """The first sentence of an exception, of which torch writes paragraphs."""
    return " ".join(str(error).split()).split(". ")[0].rstrip(".")[:200]


def _reverse(value: Tensor, x: Tensor, u: Tensor, create_graph: bool = False) -> Tensor:
    (found,) = torch.autograd.grad(
        value, x, u, retain_graph=True, create_graph=create_graph, materialize_grads=True, allow_unused=True
    )
    return cast(Tensor, found)
