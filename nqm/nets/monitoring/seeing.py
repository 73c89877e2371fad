"""How many examples each backward pass has, seen at the calls of the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ...types import Wrong
from ..adapting import IGNORED_TARGET
from ..trees import leaves
from .gathering import Changed, sum_over_ranks


class Calls:
    """The sizes, weights and losses of the calls of a model under a gradient, until the next `clear`."""

    def __init__(self, model: nn.Module, batch_size: int | None, reduction: str | None) -> None:
        self.batch_size, self.reduction, self._on = batch_size, reduction, True
        self._forward = model.register_forward_pre_hook(self._call, with_kwargs=True)
        self._back = model.register_forward_hook(self._output)
        self.clear()

    def clear(self) -> None:
        """Forget the step so far."""
        self._sizes: list[int] = []
        self._tokens: list[Tensor] = []
        self._items: list[float | Tensor] = []
        self._told: list[int] = []
        self._losses: list[Tensor] = []

    def remove(self) -> None:
        """Take the hooks off the model."""
        self._forward.remove()
        self._back.remove()

    def told(self, examples: int) -> None:
        """Note the size of a backward pass that the caller says."""
        self._told.append(examples)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Do not look at the calls that are made inside."""
        before, self._on = self._on, False
        try:
            yield
        finally:
            self._on = before

    def _call(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if not (self._on and torch.is_grad_enabled()):
            return
        tensors = [t for t in leaves((args, dict(kwargs))) if isinstance(t, Tensor) and t.ndim]
        self._sizes.append(len(tensors[0]) if tensors else 0)
        labels, items = kwargs.get("labels"), kwargs.get("num_items_in_batch")
        if items is not None and isinstance(labels, Tensor):
            self._tokens.append((labels != IGNORED_TARGET).sum())
            self._items.append(items.reshape(-1)[0] if isinstance(items, Tensor) else float(items))  # type: ignore[arg-type]

    def _output(self, module: nn.Module, args: object, output: object) -> None:
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if self._on and torch.is_grad_enabled() and isinstance(loss, Tensor) and loss.numel() == 1:
            self._losses.append(loss.detach().clone())  # Trainer multiplies it in place

    @property
    def examples(self) -> int:
        """The examples of all passes so far."""
        return sum(self._told or self._sizes)

    def loss(self) -> float:
        """The loss of the step on all ranks, as the model's own outputs have it.

        It is the mean of the outputs. If the model was told ``num_items_in_batch``, each output is the sum over its tokens divided by
        that number, which counts the tokens of this rank's step or, with Trainer by default, those of all ranks.
        """
        if not self._losses:
            return math.nan
        total = sum(one.float() for one in self._losses)
        tokens, items = sum(self._tokens), self._items[0] if self._items else 0
        sums = torch.tensor([total, tokens, items], dtype=torch.float32, device=self._losses[0].device)
        ranks = sum_over_ranks(sums)
        loss, counted, told = sums.tolist()
        if not self._tokens:
            return loss / ranks / len(self._losses)
        everywhere = counted > 0 and told / counted > (1 + ranks) / 2
        return loss if everywhere else loss / ranks

    def passes(self, backward: int) -> tuple[list[float], list[int]]:
        """Weights a_i and sizes b_i of this many backward passes."""
        sizes = self._told or self._sizes
        if self.batch_size is not None:
            sizes = [self.batch_size] * backward
        if backward == 0:
            raise Wrong(
                "no backward pass was seen since the last step: call monitor.step after loss.backward()", "loss"
            )
        if len(sizes) != backward or not all(sizes):
            calls = f"the model was called {len(sizes)} times with tensors in a step of {backward} backward passes"
            remedy = "give Monitor batch_size, the examples of one backward pass, or call monitor.count before each"
            raise Wrong(f"{calls}; {remedy}", argument="batch_size")
        if len(self._tokens) == backward:
            return [float(t) for t in self._tokens], sizes
        if self.reduction is None and len(set(sizes)) > 1:
            differ = f"its backward passes have {min(sizes)} to {max(sizes)} examples, and their weights are not known"
            remedy = "give Monitor reduction='mean' if every pass has the same weight, or 'sum' if every example has"
            raise Changed(f"{differ}; {remedy}")
        return ([float(b) for b in sizes] if self.reduction == "sum" else [1.0] * backward), sizes
