"""Models, batches and losses as they come, made what `Network` needs: a module with a tensor as output, and a mean over examples.

Wrappers are taken off. Of a tuple the first part is the output, of a dict or an object its ``logits``. A loss that divides a sum
over targets by the number of targets that count, or by the sum of their class weights, is no mean over examples: its value on a
batch depends on which targets come together. On all the data it is sum_j u_j / sum_j w_j, with the sum u_j and the weight w_j of
example j. This is the mean over examples of u_j / mean(w), which takes its place: the same loss on all the data, and on batches
the same up to the scatter of their weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..types import Wrong
from .trees import Tree

WRAPPERS = {
    "DataParallel": "module", "DistributedDataParallel": "module", "OptimizedModule": "_orig_mod",
}  # fmt: skip
"""Classes that hold a model, with the name under which they hold it."""
SHARDED = ("FullyShardedDataParallel", "FSDPModule")
"""Wrappers that split each parameter over ranks, so that no rank has the whole model."""
OUTPUTS = ("logits", "prediction_logits", "out", "last_hidden_state")
"""Names under which models return their output in a dict or an object; the first that is there is used."""
CAST_UP = (torch.bfloat16, torch.float16)
"""Precisions in which curvature is lost in rounding: such a model is measured in float32."""

SUM_NOTE = (
    "the loss is a sum over examples and was divided by their number, so multiply learning rates by the batch size"
)


def unwrapped(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """The model inside its wrappers, and what is to be said of them."""
    notes: list[str] = []
    while (name := type(model).__name__) in WRAPPERS:
        model = getattr(model, WRAPPERS[name])
        notes.append(f"the model was taken out of its {name}")
    if found := {base.__name__ for base in type(model).__mro__} & set(SHARDED):
        remedy = "gather it first (its full state dict, loaded into the plain module)"
        raise Wrong(f"{found.pop()} splits the parameters over ranks; {remedy}", argument="model")
    return model, notes


def output_of(found: object) -> object:
    """The tensor in what a model returns, or what it returned if there is none."""
    if isinstance(found, (tuple, list)) and found and isinstance(found[0], Tensor):
        return found[0]
    for name in OUTPUTS:
        part = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        if isinstance(part, Tensor):
            return part
    return found


def loss_in(found: object) -> Tensor:
    """The loss in what a model returns."""
    loss = found.get("loss") if isinstance(found, Mapping) else getattr(found, "loss", None)
    if not isinstance(loss, Tensor):
        returned = f"the model returned {type(found).__name__} without a loss"
        raise Wrong(f"{returned}; give loss, a function of (output, target), or targets as 'labels'", argument="loss")
    return loss


def by_name(model: nn.Module, inputs: Mapping[str, object]) -> bool:
    """Whether the model takes the parts of a dict by their names, and not the dict itself."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return True
    return set(inputs) <= {p.name for p in parameters}


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy as a mean over examples, of targets that are weighted or ignored; ``per_example`` is mean(w).

    Outputs have their classes on the second axis, as torch has them, or on the last, as language models do.
    """

    per_example: float
    weight: Tensor | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0

    __name__ = "cross_entropy"

    def __call__(self, out: Tensor, target: Tensor) -> Tensor:
        out = classes_second(out, target)
        weight = None if self.weight is None else self.weight.to(out)
        total = F.cross_entropy(
            out, target, weight, ignore_index=self.ignore_index, reduction="sum", label_smoothing=self.label_smoothing
        )
        return total / (len(target) * self.per_example)


@dataclass(frozen=True)
class DividedSum:
    """A loss that is a sum over examples, divided by their number."""

    loss: Callable[..., Tensor]

    def __call__(self, out: Tensor, target: Tensor) -> Tensor:
        return self.loss(out, target) / len(target)


def classes_second(out: Tensor, target: Tensor) -> Tensor:
    """The outputs with their classes on the second axis."""
    if target.is_floating_point() or out.ndim != target.ndim + 1 or out.ndim < 3:
        return out
    last = out.shape[:-1] == target.shape
    return out.movedim(-1, 1) if last and out.shape[2:] != target.shape[1:] else out


def as_mean(loss: Callable[..., Tensor], target: Tree, out: Tensor) -> tuple[Callable[..., Tensor], list[str]]:
    """The loss as a mean over examples where it is a known one that is not, and what is to be said of it."""
    options = _options(loss)
    if options is None:
        if getattr(loss, "reduction", None) == "sum" or _keywords(loss).get("reduction") == "sum":
            return DividedSum(loss), [SUM_NOTE]
        return loss, []
    weight, ignored, smoothing = options["weight"], int(options["ignore_index"]), float(options["label_smoothing"])
    if not isinstance(target, Tensor) or target.is_floating_point():
        summed = options["reduction"] == "sum"
        return (DividedSum(loss), [SUM_NOTE]) if summed else (loss, [])
    counts = (target != ignored).reshape(len(target), -1)
    weights = counts.double()
    if weight is not None:
        weights = weights * weight.detach().double().to(target.device)[target.clamp(min=0)].reshape(len(target), -1)
    moved = classes_second(out, target[: len(out)]) is not out
    uneven = float(weights.sum(1).std(correction=0)) > 0
    summed = options["reduction"] == "sum"
    if options["reduction"] == "none" or not (uneven or moved or summed or not bool(counts.all())):
        return loss, []
    if not float(weights.sum()) > 0:
        raise Wrong(f"every target is ignored: all of them are {ignored}", argument="data")
    notes = [SUM_NOTE] if summed else []
    if uneven and not summed:
        notes.append(
            "targets are weighted or ignored, so a batch is divided by the mean weight of all examples, not by its own"
        )
    if moved:
        notes.append("the classes are on the last axis of the output")
    each = 1.0 if summed else float(weights.sum(1).mean())
    return CrossEntropy(each, weight, ignored, smoothing), notes


def _keywords(loss: object) -> Mapping[str, Any]:
    return loss.keywords if isinstance(loss, partial) else {}


def _options(loss: object) -> dict[str, Any] | None:
    """The options of a cross-entropy of torch; None for any other loss."""
    usual: dict[str, Any] = {"weight": None, "ignore_index": -100, "label_smoothing": 0.0, "reduction": "mean"}
    if isinstance(loss, nn.CrossEntropyLoss):
        return {name: getattr(loss, name) for name in usual}
    if loss is F.cross_entropy or (isinstance(loss, partial) and loss.func is F.cross_entropy and not loss.args):
        return {**usual, **{k: v for k, v in _keywords(loss).items() if k in usual}}
    return None
