"""Data as trees of tensors: a tensor, or tuples, lists and dicts of them, whose first axis runs over examples.

The derivatives of functions of one tensor are here too: torch's transforms, with precise return types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from ..types import Wrong

Tree: TypeAlias = "Tensor | tuple[Tree, ...] | dict[Any, Tree]"
"""Data nested as the user nested it, with any keys and to any depth."""

T = TypeVar("T")
grad = torch.func.grad
vmap = torch.func.vmap
EMPTY = "data is empty: there is no example to take a gradient of"


def tree_map(function: Callable[..., object], tree: T, *others: T) -> T:
    """Apply the function to every tensor, together with those in the same place of other trees; lists become tuples."""
    trees = cast(Any, (tree, *others))
    if isinstance(tree, dict):
        return cast(T, {key: tree_map(function, *(one[key] for one in trees)) for key in tree})
    if isinstance(tree, (tuple, list)):
        return cast(T, tuple(tree_map(function, *parts) for parts in zip(*trees, strict=True)))
    return cast(T, function(*trees))


def joined(trees: Sequence[T], join: Callable[[tuple[Tensor, ...]], Tensor]) -> T:
    """Join trees of one shape tensor by tensor, by ``torch.cat`` or ``torch.stack``."""
    return tree_map(lambda *tensors: join(tensors), *trees)


def indexed(tree: T, index: slice | Tensor | list[int] | int | None) -> T:
    """Index every tensor of the tree along its first axis; None adds an axis in front."""
    return tree_map(lambda tensor: tensor[index], tree)


def leaves(tree: object) -> list[Tensor]:
    """Return every tensor of the tree."""
    found: list[Tensor] = []
    tree_map(found.append, tree)
    return found


def collect(data: object) -> tuple[Tree, list[str]]:
    """Return all examples of tensors, a Dataset or a DataLoader as one tree, and notes for the user."""
    from torch.utils.data import DataLoader, Dataset, TensorDataset

    if isinstance(data, TensorDataset):
        return tuple(data.tensors), []
    if isinstance(data, DataLoader):
        note = "the examples of the DataLoader were drawn once, and its order and augmentation are fixed from then on"
        return _all_of(data), [note]
    if isinstance(data, Dataset):
        return _all_of(DataLoader(data, batch_size=256)), []
    if isinstance(data, (tuple, list, dict, Tensor)):
        return tree_map(torch.as_tensor, cast(Tree, data)), []
    got = type(data).__name__
    raise Wrong(f"data must be tensors (inputs, targets), a Dataset or a DataLoader, got {got}", argument="data")


def _all_of(batches: Any) -> Tree:
    """Join the batches of a DataLoader."""
    found = [tree_map(torch.as_tensor, batch) for batch in batches]
    if not found:
        raise Wrong(EMPTY, argument="data")
    return joined(found, torch.cat)


def count(tree: Tree) -> int:
    """Return the number of examples, after checking that every tensor has the same number."""
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


def pushed_forward(function: Callable[[Tensor], Tensor], at: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    """Return the function's value and J v, its Jacobian J times the vector ``along``, by forward mode."""
    return cast(tuple[Tensor, Tensor], torch.func.jvp(function, (at,), (along,)))


def pulled_back(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the function's value and the map u -> J' u, by reverse mode."""
    value, pull = cast(Any, torch.func.vjp(function, at))
    return value, lambda u: pull(u)[0]
