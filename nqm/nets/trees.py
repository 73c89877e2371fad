"""Data as trees of tensors: a tensor, or tuples, lists and dicts of them, whose first axis runs over examples.

Derivatives too: torch's transforms for functions of one tensor, with the types that they return here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from ..types import Wrong

Tree: TypeAlias = "Tensor | tuple[Tree, ...] | dict[Any, Tree]"
"""Data as nested as the user's own: keys and depth are theirs."""

T = TypeVar("T")
grad = torch.func.grad
vmap = torch.func.vmap
EMPTY = "data is empty: there is no example to take a gradient of"


def tree_map(function: Callable[[Tensor], object], tree: T) -> T:
    """The tree with the function applied to every tensor; lists become tuples."""
    if isinstance(tree, dict):
        return cast(T, {key: tree_map(function, value) for key, value in tree.items()})
    if isinstance(tree, (tuple, list)):
        return cast(T, tuple(tree_map(function, value) for value in tree))
    return cast(T, function(cast(Tensor, tree)))


def leaves(tree: object) -> list[Tensor]:
    """Every tensor of the tree."""
    found: list[Tensor] = []
    tree_map(found.append, tree)
    return found


def joined(trees: Sequence[T], join: Callable[[list[Tensor]], Tensor]) -> T:
    """Trees of one shape as one tree, their tensors joined: by ``torch.cat``, ``torch.stack``."""
    first = trees[0]
    if isinstance(first, dict):
        return cast(T, {key: joined([cast(Any, tree)[key] for tree in trees], join) for key in first})
    if isinstance(first, (tuple, list)):
        return cast(T, tuple(joined(list(parts), join) for parts in zip(*cast(Any, trees), strict=True)))
    return cast(T, join(list(cast(Sequence[Tensor], trees))))


def collect(data: object) -> tuple[Tree, list[str]]:
    """All examples of tensors, a Dataset or a DataLoader as one tree, and what should be said about that."""
    from torch.utils.data import DataLoader, Dataset, TensorDataset

    if isinstance(data, TensorDataset):
        return tuple(data.tensors), []
    if isinstance(data, DataLoader):
        said = "the examples of the DataLoader were drawn once, and its order and augmentation are fixed from then on"
        return _all_of(list(data)), [said]
    if isinstance(data, Dataset):
        return _all_of(list(DataLoader(data, batch_size=256))), []
    if isinstance(data, (tuple, list, dict, Tensor)):
        return tree_map(torch.as_tensor, cast(Tree, data)), []
    got = type(data).__name__
    raise Wrong(f"data must be tensors (inputs, targets), a Dataset or a DataLoader, got {got}", argument="data")


def count(tree: Tree) -> int:
    """How many examples there are; every tensor must have as many."""
    tensors = leaves(tree)
    if not tensors or any(t.ndim == 0 for t in tensors):
        raise Wrong("data must be tensors whose first axis runs over examples, such as (inputs, targets)", "data")
    sizes = sorted({len(t) for t in tensors})
    if len(sizes) > 1:
        got = f"tensors of {sizes[0]:,} and {sizes[-1]:,} rows"
        raise Wrong(f"data must have as many inputs as targets, got {got}", argument="data")
    if sizes[0] == 0:
        raise Wrong(EMPTY, argument="data")
    return sizes[0]


def some(tree: Tree, n: int) -> Tree:
    """The first n examples of every tensor."""
    return tree_map(lambda t: t[:n], tree)


def _all_of(batches: list[Tree]) -> Tree:
    """The batches of a DataLoader as one tree."""
    if not batches:
        raise Wrong(EMPTY, argument="data")
    return joined([tree_map(torch.as_tensor, batch) for batch in batches], torch.cat)


def pushed_forward(function: Callable[[Tensor], Tensor], at: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    """The value, and J v: forward mode."""
    return cast(tuple[Tensor, Tensor], torch.func.jvp(function, (at,), (along,)))


def pulled_back(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The value, and the function u -> J' u: reverse mode."""
    value, pull = cast(Any, torch.func.vjp(function, at))
    return value, lambda u: pull(u)[0]
