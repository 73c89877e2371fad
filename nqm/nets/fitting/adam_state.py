"""Read the state of Adam or AdamW off a torch optimizer, or measure what it would be, and find what a `AdamMetric` keeps of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...optimizers import Adam, AdamW
from ...optimizers.base import Optimizer
from ...types import Array, Wrong
from ..krylov import Krylov
from ..network import Network
from .metric import AdamMetric

WITH_METRIC = {"Adam": Adam, "AdamW": AdamW}
"""The optimizers whose metric is known, by the name of their class, which is the same in torch and here."""
OUTSIDE = 1e-6  # a smaller share of the momentum outside of the gradient's Krylov space is rounding
DRIFT_EXAMPLES = 512  # number of examples whose gradients are squared, to tell how v will drift
DRIFT_WEIGHTS = 256
"""Number of weights whose v is followed, drawn in proportion to D g^2, the share of a weight in how the loss falls. Their mean
of D(t) / D has a standard error of a sixteenth of the scatter over weights."""


@dataclass(frozen=True, eq=False)
class AdamState:
    """The state of Adam for each weight of a network: corrected second moments, momentum, relative rates and weight decay."""

    optimizer: Adam | AdamW
    step: int
    second: Tensor  # v_hat = v / (1 - beta2^t)
    momentum: Tensor  # exp_avg
    rate: Tensor  # learning rate of the weight's group, relative to the first group's
    decay: Tensor  # decoupled weight decay of the weight's group, relative to the largest

    @property
    def preconditioner(self) -> Tensor:
        """D, with the relative rate of each weight."""
        return self.rate / (self.second.sqrt() + float(self.optimizer.eps))


def read_state(network: Network, given: object, batch_size: float | None = None) -> AdamState:
    """The state of a ``torch.optim.Adam`` or ``AdamW``, or of its ``state_dict()``.

    An nqm optimizer such as ``AdamW(1e-3)`` has no state. Then the second moments of gradients of ``batch_size`` examples are
    measured at the checkpoint, and the prediction is that of an optimizer that starts there.
    """
    if isinstance(given, Optimizer):
        return _measured(network, given, batch_size)
    if isinstance(given, torch.optim.Optimizer):
        name, groups = type(given).__name__, given.param_groups
        rows = [(p, given.state.get(p, {})) for group in groups for p in group["params"]]
        places = _by_value(network, [p for p, _ in rows])
        states = [state for _, state in rows]
    elif isinstance(given, Mapping) and {"state", "param_groups"} <= given.keys():
        groups = given["param_groups"]
        name = "AdamW" if any(group.get("decoupled_weight_decay", True) for group in groups) else "Adam"
        states = [given["state"].get(i, {}) for group in groups for i in group["params"]]
        places = _by_shape(network, groups, states)
    else:
        raise Wrong(
            f"optimizer must be a torch.optim.AdamW or Adam, its state_dict(), or nqm's AdamW(lr), got {type(given).__name__}",
            argument="optimizer",
        )
    if name not in WITH_METRIC:
        raise Wrong(
            f"the metric of {name} is not known; those of {' and '.join(WITH_METRIC)} are", argument="optimizer"
        )
    return _gathered(network, name, groups, states, places)


def load_state(path: str, name: str) -> dict[str, Any]:
    """The ``state_dict()`` of Adam or AdamW in a file of ``torch.save``, alone or in a checkpoint.

    Only tensors, numbers and names are read, so that a file cannot run code.
    """
    if name.lower() not in ("adam", "adamw"):
        raise Wrong(f"--state holds the state of adam or adamw, got {name!r}", argument="optimizer")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever unpickling raises on a damaged or foreign file
        what = "cannot be read as a file of torch.save that holds tensors and numbers alone"
        raise Wrong(
            f"{path!r} {what} ({type(error).__name__}); save optimizer.state_dict() in it", argument="state"
        ) from None
    parts = [found, *(found.values() if isinstance(found, dict) else ())]
    for part in parts:
        if isinstance(part, dict) and {"state", "param_groups"} <= part.keys():
            groups = [{**group, "decoupled_weight_decay": name.lower() == "adamw"} for group in part["param_groups"]]
            return {**part, "param_groups": groups}
    inside = (
        f"it has {', '.join(map(str, list(found)[:6]))}"
        if isinstance(found, dict)
        else f"it is a {type(found).__name__}"
    )
    raise Wrong(f"{path!r} has no state_dict() of an optimizer; {inside}", argument="state")


def _measured(network: Network, optimizer: Optimizer, batch_size: float | None) -> AdamState:
    """A state that has seen no step yet, with the second moments that it will see first."""
    if not isinstance(optimizer, Adam | AdamW):
        raise Wrong(f"the metric of {optimizer} is not known; those of Adam and AdamW are", argument="optimizer")
    if batch_size is None:
        why = "without a state the second moments of gradients depend on it"
        raise Wrong(f"a fit in the metric of {optimizer} needs batch_size: {why}", argument="batch_size")
    signal, noise = second_moments(network, torch.Generator().manual_seed(0))
    one = torch.ones_like(network.theta)
    return AdamState(optimizer, 0, (signal + noise / batch_size).to(one), 0 * one, one, one)


def _gathered(
    network: Network, name: str, groups: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, Any]], places: Sequence[str]
) -> AdamState:  # fmt: skip
    """The state in the order of the network's weights."""
    first = groups[0]
    (beta1, beta2), eps = first["betas"], first["eps"]
    if any(tuple(group["betas"]) != (beta1, beta2) or group["eps"] != eps for group in groups):
        raise Wrong("all parameter groups must have the same betas and eps", argument="optimizer")
    owners = [group for group in groups for _ in group["params"]]
    parts: dict[str, tuple[Tensor, ...]] = {}
    steps = set[int]()
    for place, state, group in zip(places, states, owners, strict=True):
        if "exp_avg_sq" not in state:
            raise Wrong(
                f"the optimizer has no state for {place}: it has made no step yet; train one, or give nqm's {name}(lr)",
                "optimizer",
            )
        step = int(state["step"])
        steps.add(step)
        v = state.get("max_exp_avg_sq", state["exp_avg_sq"]) / (1 - beta2**step)
        one, decay = torch.ones_like(v), float(group["weight_decay"]) if name == "AdamW" else 0.0
        parts[place] = v, state["exp_avg"], one * float(group["lr"] / first["lr"]), one * decay
    if missing := [name for name in network.shapes if name not in parts]:
        raise Wrong(
            f"the optimizer does not train {', '.join(missing[:4])}; name the parameters that it trains in Network",
            "optimizer",
        )
    second, momentum, rate, decay = (
        torch.cat([parts[name][i].detach().reshape(-1).to(network.theta) for name in network.shapes]) for i in range(4)
    )
    settings = {"lr": float(first["lr"]), "beta1": float(beta1), "beta2": float(beta2), "eps": float(eps)}
    largest = float(decay.max())
    decays = {"weight_decay": largest} if name == "AdamW" else {}
    relative = decay / largest if largest else torch.ones_like(decay)
    return AdamState(WITH_METRIC[name](**settings, **decays), max(steps), second, momentum, rate, relative)


def _by_value(network: Network, given: Sequence[Tensor]) -> list[str]:
    """The names of the parameters that a torch optimizer trains: those of the network's with the same values."""
    named, found = network.state_dict(), list[str]()
    for p in given:
        same = [
            n
            for n in network.shapes
            if n not in found and p.shape == named[n].shape and bool((p.detach().to(named[n]) == named[n]).all())
        ]
        if not same:
            shape = tuple(p.shape)
            why = "its weights must be those of the network: fit at the step at which the state was taken"
            raise Wrong(
                f"the optimizer trains a parameter of shape {shape} that the network does not have; {why}", "optimizer"
            )
        found.append(same[0])
    return found


def _by_shape(network: Network, groups: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the parameters in a ``state_dict``: as it gives them, or from their order and shapes in each group."""
    if all("param_names" in group for group in groups):
        return [str(name) for group in groups for name in group["param_names"]]
    shapes = [tuple(state["exp_avg"].shape) if "exp_avg" in state else () for state in states]
    sizes = [len(group["params"]) for group in groups]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    ways: list[list[str]] = []
    for way in _assignments(list(network.shapes.items()), shapes, sizes, starts, (0,) * len(sizes)):
        ways.append(way)
        if len(ways) > 1:
            raise Wrong(
                "the groups of the state_dict can be matched to the parameters in several ways; give the torch optimizer itself, or "
                "make it from named_parameters(), so that its state_dict has their names",
                argument="optimizer",
            )
    if not ways:
        raise Wrong(
            f"the {len(shapes)} parameters of the state_dict do not have the shapes of the network's {len(network.shapes)}",
            "optimizer",
        )
    return ways[0]


def _assignments(
    left: list[tuple[str, tuple[int, ...]]], shapes: list[tuple[int, ...]], sizes: list[int], starts: list[int], used: tuple[int, ...]
) -> Iterator[list[str]]:  # fmt: skip
    """All ways to deal the parameters, in their order, to the groups, each of which takes them in its own order of shapes."""
    if not left:
        if list(used) == sizes:
            names = [""] * len(shapes)
            yield names
        return
    (name, shape), *rest = left
    for i, taken in enumerate(used):
        if taken < sizes[i] and shapes[starts[i] + taken] == shape:
            for names in _assignments(rest, shapes, sizes, starts, (*used[:i], taken + 1, *used[i + 1 :])):
                names[starts[i] + taken] = name
                yield names


def second_moments(network: Network, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The square of the gradient and the variance of the gradients of single examples, for each weight."""
    some = torch.randperm(network.examples, generator=generator, device="cpu")[:DRIFT_EXAMPLES]
    squares = torch.zeros_like(network.theta, dtype=torch.float64)
    for rows in network.example_gradients(index=some):
        squares += (rows.double() ** 2).sum(0)
    signal = network.gradient().double() ** 2
    return signal, (squares / len(some) - signal).clamp(min=0)


class Brought(NamedTuple):
    """What a state brings along, on the Ritz vectors of the gradient's Krylov space, and the momentum outside of that space."""

    h: Array
    g: Array
    m: Array
    pull: Array
    outside: Tensor | None


def brought_along(theta: Tensor, state: AdamState, krylov: Krylov, g: Tensor) -> Brought:
    """What a state brings along at the weights theta, with the gradient g in the units of the metric, and its Krylov space."""
    assert krylov.basis is not None
    root = state.preconditioner.sqrt()
    m, pull = root * state.momentum, state.rate * state.decay * theta / root
    outside = m.clone()
    for kept in krylov.basis:
        row = kept.to(m)
        outside -= (row @ m) * row
    left = outside if float(outside.norm()) > OUTSIDE * float(m.norm()) else None
    h = np.sort(krylov.quadrature()[0])[::-1]
    return Brought(h, krylov.along(g), krylov.along(m), krylov.along(pull), left)


def metric_of(
    network: Network, state: AdamState, brought: Brought, outside: Krylov | None, generator: torch.Generator
) -> AdamMetric:
    """The metric of a state; ``outside`` is the Krylov space of the momentum outside of the gradient's."""
    h, m2 = outside.quadrature() if outside else (np.empty(0), np.empty(0))
    signal, noise = second_moments(network, generator)
    share = (state.preconditioner.double() * signal).cpu()
    some = torch.multinomial(share / share.sum(), DRIFT_WEIGHTS, replacement=True, generator=generator)
    second = state.second.double().clamp(min=torch.finfo(torch.float64).tiny)
    drift_g2, drift_c = ((part / second).cpu()[some].numpy() for part in (signal, noise))
    norm2 = np.array([float(signal.sum()), float(noise.sum())])
    parts = brought.h, brought.g, brought.m, brought.pull
    return AdamMetric(state.optimizer, state.step, *parts, h, m2, drift_g2, drift_c, norm2)
