"""Models, batches and losses as they come, made what `Network` needs: a module with a tensor as output, and a mean over examples.

Wrappers are taken off. Of a tuple the first part is the output, of a dict or an object its ``logits``. A loss that divides a sum
over targets by the number of targets that count, or by the sum of their class weights, is no mean over examples: its value on a
batch depends on which targets come together. On all the data it is sum_j u_j / sum_j w_j, with the sum u_j and the weight w_j of
example j. This is the mean over examples of u_j / mean(w), which takes its place: the same loss on all the data, and on batches
the same up to the scatter of their weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
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

IGNORED_TARGET = -100  # the target that the losses of torch and of Hugging Face omit

SUM_NOTE = (
    "the loss is a sum over examples and was divided by their number, so multiply learning rates by the batch size"
)
WEIGHT_NOTE = (
    "targets are weighted or ignored, so a batch is divided by the mean weight of all examples, not by its own"
)
LAST_AXIS_NOTE = "the classes are on the last axis of the output"


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
    ignore_index: int = IGNORED_TARGET
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


def as_mean(
    loss: Callable[..., Tensor], targets: Iterable[Tree], out: Tensor
) -> tuple[Callable[..., Tensor], list[str]]:
    """The loss as a mean over examples where it is a known one that is not, and what is to be said of it.

    ``targets`` are those of all the data, in pieces, and ``out`` are the outputs of the first examples.
    """
    options = _options(loss)
    reduction = options["reduction"] if options else getattr(loss, "reduction", _keywords(loss).get("reduction"))
    summed = reduction == "sum"
    asis: tuple[Callable[..., Tensor], list[str]] = (DividedSum(loss), [SUM_NOTE]) if summed else (loss, [])
    if options is None or reduction == "none":
        return asis
    ignored, moved, sums, counted = int(options["ignore_index"]), False, list[Tensor](), True
    for target in targets:
        if not isinstance(target, Tensor) or target.is_floating_point():
            return asis
        moved = moved or (not sums and classes_second(out, target[: len(out)]) is not out)
        weights, whole = target_weights(target, options["weight"], ignored)
        sums.append(weights)
        counted &= whole
    each = torch.cat(sums)
    uneven = float(each.std(correction=0)) > 0
    if counted and not (uneven or moved or summed):
        return asis
    if not float(each.sum()) > 0:
        raise Wrong(f"every target is ignored: all of them are {ignored}", argument="data")
    notes = asis[1] + ([WEIGHT_NOTE] if uneven and not summed else []) + ([LAST_AXIS_NOTE] if moved else [])
    per_example = 1.0 if summed else float(each.mean())
    return CrossEntropy(per_example, options["weight"], ignored, float(options["label_smoothing"])), notes


def target_weights(target: Tensor, weight: Tensor | None, ignored: int) -> tuple[Tensor, bool]:
    """The weight w_j of each example, the sum over its targets of their class weights, and whether no target is ignored.

    >>> target_weights(torch.tensor([[0, 1], [1, 255]]), torch.tensor([1.0, 3.0]), 255)
    (tensor([4., 3.], dtype=torch.float64), False)
    """
    counts = target != ignored
    weights = counts.double()
    if weight is not None:  # an ignored target may lie outside of the classes
        weights *= weight.detach().double().to(target.device)[target.where(counts, 0)]
    return weights.reshape(len(target), -1).sum(1), bool(counts.all())


def _keywords(loss: object) -> Mapping[str, Any]:
    return loss.keywords if isinstance(loss, partial) else {}


def _options(loss: object) -> dict[str, Any] | None:
    """The options of a cross-entropy of torch; None for any other loss."""
    usual: dict[str, Any] = {
        "weight": None,
        "ignore_index": IGNORED_TARGET,
        "label_smoothing": 0.0,
        "reduction": "mean",
    }
    if isinstance(loss, nn.CrossEntropyLoss):
        return {name: getattr(loss, name) for name in usual}
    if loss is F.cross_entropy or (isinstance(loss, partial) and loss.func is F.cross_entropy and not loss.args):
        return {**usual, **{k: v for k, v in _keywords(loss).items() if k in usual}}
    return None
