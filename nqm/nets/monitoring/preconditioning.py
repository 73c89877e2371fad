"""The metric of an optimizer: how much it multiplies each entry of the gradient, up to a common factor.

An optimizer that divides by d, such as Adam, is gradient descent in the coordinates sqrt(d) theta. There the noise scale is
tr(C / d) / (g' (1 / d) g), with d as it is before the step, so that it does not depend on the noise of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

SECOND_MOMENTS = ("max_exp_avg_sq", "exp_avg_sq", "square_avg", "sum")
"""Names under which torch's optimizers keep the averages or sums of squared gradients; the first that is there is used."""
AVERAGES_WITH_BIAS = ("max_exp_avg_sq", "exp_avg_sq")
"""Averages that begin at 0 and are divided by 1 - beta2^t."""


def second_moment(state: Mapping[str, Any]) -> tuple[str, Tensor] | None:
    """The kept squares of the gradient of one parameter, with their name."""
    for name in SECOND_MOMENTS:
        if isinstance(found := state.get(name), Tensor):
            return name, found
    return None


def roots_of_metric(optimizer: Optimizer) -> dict[Tensor, Tensor] | None:
    """For each parameter the root of what its gradient is multiplied by; None if that is one number for all parameters.

    It is one number for SGD with one learning rate, and for Adam before its first step.
    """
    moments = {p: second_moment(cast(Mapping[str, Any], state)) for p, state in optimizer.state.items()}
    rates = {float(group.get("lr", 1.0)) for group in optimizer.param_groups}
    if len(rates) < 2 and not any(moments.values()):
        return None
    roots: dict[Tensor, Tensor] = {}
    for group in optimizer.param_groups:
        rate = float(group.get("lr", 1.0)) ** 0.5
        for p in group["params"]:
            if (found := moments.get(p)) is None:
                roots[p] = torch.full((), rate, device=p.device)
                continue
            name, squares = found
            squares = squares.detach().float()
            if name in AVERAGES_WITH_BIAS and "step" in optimizer.state[p]:
                squares = squares / (1 - group["betas"][1] ** float(optimizer.state[p]["step"]))
            roots[p] = rate / (squares.sqrt() + float(group.get("eps", 0.0))).sqrt()
    return roots
