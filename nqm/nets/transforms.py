"""Derivatives of functions of one tensor: torch's transforms, with the types that they return here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

grad = torch.func.grad
vmap = torch.func.vmap


def pushed_forward(function: Callable[[Tensor], Tensor], at: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    """The value, and J v: forward mode."""
    return cast(tuple[Tensor, Tensor], torch.func.jvp(function, (at,), (along,)))


def pulled_back(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The value, and the function u -> J' u: reverse mode."""
    value, pull = cast(Any, torch.func.vjp(function, at))
    return value, lambda u: pull(u)[0]
