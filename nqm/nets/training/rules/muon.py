"""Muon."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor

from ....types import Wrong
from ...network import Network
from .base import Method, Settings, check_names, check_number
from .torch_optim import check_kinds, one_by_one, tried

NAME = "Muon"


def muon() -> Method:
    """``torch.optim.Muon`` on the weight matrices, and AdamW at the same rate on biases, kernels and other tensors.

    ::

        m <- momentum m + (1 - momentum) g
        W <- W - lr weight_decay W - 0.2 sqrt(max(rows, columns)) lr orthogonalised(m)

    The factor 0.2 sqrt(max(rows, columns)) (PyTorch's ``match_rms_adamw``) makes a step as large as AdamW's, so that one learning
    rate serves both. ``weight_decay`` is 0 unless set.

    References
    ----------
    Jordan et al. (2024), Muon: an optimizer for hidden layers in neural networks.
    """
    kind = getattr(torch.optim, NAME, None)
    if kind is None:
        raise Wrong(f"this PyTorch, {torch.__version__}, has no Muon; 2.9 and later have", "optimizer")
    numbers = ("lr", "weight_decay", "momentum", "nesterov", "eps", "ns_steps")
    known = [name for name in inspect.signature(kind).parameters if name in numbers]

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

    def check_settings(settings: Settings, network: Network | None = None) -> None:
        check_names(NAME, settings, known)
        check_kinds(NAME, settings, kind)
        for name in ("lr", "eps"):
            check_number(NAME, name, settings.get(name, 1), "positive", lambda v: v > 0)
        check_number(NAME, "momentum", settings.get("momentum", 0), "in [0, 1)", lambda v: 0 <= v < 1)
        passes = settings.get("ns_steps", 1)
        check_number(NAME, "ns_steps", passes, "a whole number, 1 or more", lambda v: v >= 1 and v == int(v))
        tried(NAME, make, settings, [torch.zeros(2, 2), torch.zeros(2)])
        if network is not None and not any(len(shape) == 2 for shape in network.shapes.values()):
            raise Wrong(f"{NAME} is for weight matrices, and {network.name} has none", "workload")

    return one_by_one(NAME, check_settings, make)
