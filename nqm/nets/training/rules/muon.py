"""Muon (Jordan et al., 2024) as an optimizer of the lab."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor

from ....types import Wrong
from ...network import Network
from .base import Method, Settings
from .torch_optim import one_by_one, ranges_of

NAME = "Muon"


def muon() -> Method:
    """``torch.optim.Muon`` for the weight matrices, and AdamW at the same learning rate for all other tensors.

    ::

        m <- momentum m + (1 - momentum) g
        W <- W - lr weight_decay W - 0.2 sqrt(max(rows, columns)) lr orthogonalised(m)

    The factor 0.2 sqrt(max(rows, columns)) (PyTorch's ``match_rms_adamw``) makes a step as large as AdamW's, so one learning
    rate serves both. ``weight_decay`` is 0 unless set.

    References
    ----------
    Jordan et al. (2024), Muon: an optimizer for hidden layers in neural networks.
    """
    kind = getattr(torch.optim, NAME, None)
    if kind is None:
        raise Wrong(f"this PyTorch, {torch.__version__}, has no Muon; install 2.9 or later", "optimizer")
    numbers = ("lr", "weight_decay", "momentum", "nesterov", "eps", "ns_steps")
    known = [name for name in inspect.signature(kind).parameters if name in numbers]
    ranges = {
        **ranges_of(kind), "eps": "positive", "momentum": "in [0, 1)", "ns_steps": "a whole number, 1 or more",
    }  # fmt: skip

    def make(parts: list[Tensor], settings: Settings) -> list[torch.optim.Optimizer]:
        given = {"weight_decay": 0.0, **settings}
        if "ns_steps" in given:
            given["ns_steps"] = int(given["ns_steps"])
        found: list[torch.optim.Optimizer] = []
        if matrices := [part for part in parts if part.ndim == 2]:
            found.append(kind(matrices, adjust_lr_fn="match_rms_adamw", **given))
        if others := [part for part in parts if part.ndim != 2]:
            found.append(torch.optim.AdamW(others, lr=given["lr"], weight_decay=given["weight_decay"]))
        return found

    def check_network(network: Network) -> None:
        if not any(len(shape) == 2 for shape in network.shapes.values()):
            raise Wrong(f"{NAME} is for weight matrices, and {network.name} has none", "workload")

    return one_by_one(NAME, make, known, ranges, check_network)
