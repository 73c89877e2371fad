"""Data as trees of tensors: a tensor, or tuples, lists and dicts of them, whose first axis runs over examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..types import Wrong


def tree_map(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """The tree with the function applied to every tensor."""
    if isinstance(tree, dict):
        return {key: tree_map(function, value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return tuple(tree_map(function, value) for value in tree)
    return function(tree)


def leaves(tree: Any) -> list[torch.Tensor]:
    """Every tensor of the tree."""
    found: list[torch.Tensor] = []
    tree_map(found.append, tree)
    return found


def collect(data: Any) -> tuple[Any, list[str]]:
    """All examples of tensors, a Dataset or a DataLoader as one tree, and what should be said about that."""
    from torch.utils.data import DataLoader, Dataset, TensorDataset

    if isinstance(data, TensorDataset):
        return tuple(data.tensors), []
    if isinstance(data, DataLoader):
        said = "the examples of the DataLoader were drawn once, and its order and augmentation are fixed from then on"
        return _joined(list(data)), [said]
    if isinstance(data, Dataset):
        return _joined(list(DataLoader(data, batch_size=256))), []
    if isinstance(data, (tuple, list, dict, torch.Tensor)):
        return tree_map(torch.as_tensor, data), []
    raise Wrong(
        f"data must be tensors (inputs, targets), a Dataset or a DataLoader, got {type(data).__name__}", argument="data"
    )


def count(tree: Any) -> int:
    """How many examples there are; every tensor must have as many."""
    tensors = leaves(tree)
    if not tensors or any(t.ndim == 0 for t in tensors):
        raise Wrong("data must be tensors whose first axis runs over examples, such as (inputs, targets)")
    sizes = sorted({len(t) for t in tensors})
    if len(sizes) > 1:
        raise Wrong(f"data must have as many inputs as targets, got tensors of {sizes[0]:,} and {sizes[-1]:,} rows")
    if sizes[0] == 0:
        raise Wrong("data is empty: there is no example to take a gradient of")
    return sizes[0]


def _joined(batches: list[Any]) -> Any:
    if not batches:
        raise Wrong("data is empty: there is no example to take a gradient of")
    return _zipped([tree_map(torch.as_tensor, batch) for batch in batches])


def _zipped(trees: list[Any]) -> Any:
    first = trees[0]
    if isinstance(first, dict):
        return {key: _zipped([tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple):
        return tuple(_zipped(list(part)) for part in zip(*trees, strict=True))
    return torch.cat(trees)


def some(tree: Any, n: int) -> Iterable[torch.Tensor]:
    """The first n examples of every tensor."""
    return tree_map(lambda t: t[:n], tree)
