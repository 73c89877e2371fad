"""A mode that stands for another device: it refuses tensors that are made without a device, and numbers taken off it unasked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

FACTORIES = {
    getattr(torch, name): name
    for name in (
        "zeros", "ones", "empty", "full", "arange", "randn", "rand", "randint", "randperm", "tensor", "as_tensor", "eye",
        "linspace", "from_numpy", "scalar_tensor",
    )
}  # fmt: skip
"""Functions that make a tensor, on the CPU unless they are told otherwise."""
KEEPING = (Tensor.double, Tensor.float, Tensor.contiguous, Tensor.to, Tensor.reshape, Tensor.detach)
"""Methods after which a tensor that left the device is still off it."""


class StrayTensor(AssertionError):
    """A tensor that would be on the CPU while the network is elsewhere."""


class OneDevice(TorchFunctionMode):
    """Refuses what would fail if the network were on an accelerator, as far as calls of the package show it."""

    def __init__(self, package: str = "nqm") -> None:
        super().__init__()
        self.package, self.left, self.calls = package, dict[int, Tensor](), 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        kwargs = dict(kwargs or {})
        here = sys._getframe(1).f_globals.get("__name__", "")
        if here.split(".")[0] == self.package:
            self.calls += 1
            moved = func is torch.as_tensor and isinstance(args[0], Tensor)  # which stays where it is
            if func in FACTORIES and not moved and kwargs.get("device") is None:
                raise StrayTensor(f"{here} calls torch.{FACTORIES[func]} without its device")
            if func is Tensor.numpy and id(args[0]) not in self.left:
                raise StrayTensor(f"{here} calls .numpy() of a tensor that is not known to be on the CPU")
        found = func(*args, **kwargs)
        left = func is Tensor.cpu or (func in KEEPING and args and id(args[0]) in self.left)
        if left and isinstance(found, Tensor):
            self.left[id(found)] = found  # kept, so that its id stays its own
        return found
