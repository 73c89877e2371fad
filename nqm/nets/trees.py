"""Data as trees of tensors: a tensor, or tuples, lists and dicts of them, whose first axis runs over examples.

The derivatives of functions of one tensor are here too: torch's transforms, with precise return types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


def as_tensors(batch: object, argument: str = "data") -> Tree:
    """A batch as a tree of tensors: mappings become dicts, lists tuples, arrays and numbers tensors; text is refused."""
    if isinstance(batch, Mapping):
        return {key: as_tensors(part, argument) for key, part in batch.items()}
    if isinstance(batch, (tuple, list)) and not all(isinstance(part, (int, float, bool)) for part in batch):
        return tuple(as_tensors(part, argument) for part in batch)
    try:
        return torch.as_tensor(batch)
    except (TypeError, ValueError, RuntimeError) as error:
        found = f"{argument} has {type(batch).__name__} {batch!r:.40} where a tensor is needed"
        raise Wrong(f"{found}; leave out what the model and the loss do not take", argument=argument) from error


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


def collect(data: object, examples: int | None = None) -> tuple[Tree, list[str]]:
    """Return the examples of tensors, a Dataset, a DataLoader or an iterable of batches as one tree, and notes for the user.

    ``examples`` is how many are taken, from the first on; of an iterable no more batches are drawn than that needs.
    """
    from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

    if isinstance(data, TensorDataset):
        return _some_of(tuple(data.tensors), examples), []
    if isinstance(data, DataLoader):
        note = "the examples of the DataLoader were drawn once, and its order and augmentation are fixed from then on"
        return _all_of(data, examples), [note]
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return _all_of(DataLoader(data, batch_size=256), examples), []
    if isinstance(data, list) and data and all(isinstance(one, Mapping) for one in data):
        remedy = "give a DataLoader of them, whose collate_fn makes tensors, or tensors that hold all of them"
        raise Wrong(f"data is a list of {len(data):,} dicts, as of examples or batches; {remedy}", argument="data")
    if isinstance(data, (tuple, list, Mapping, Tensor)):
        return _some_of(as_tensors(data), examples), []
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        note = "the batches of the data were drawn once, and their order and augmentation are fixed from then on"
        return _all_of(data, examples), [note]
    got = type(data).__name__
    kinds = "tensors (inputs, targets), a Dataset, a DataLoader or an iterable of batches"
    raise Wrong(f"data must be {kinds}, got {got}", argument="data")


def _some_of(tree: Tree, examples: int | None) -> Tree:
    return tree if examples is None else indexed(tree, slice(examples))


def _all_of(batches: Iterable[Any], examples: int | None) -> Tree:
    """Join batches until there are enough examples."""
    found: list[Tree] = []
    taken = 0
    for batch in batches:
        found.append(as_tensors(batch))
        taken += count(found[-1])
        if examples is not None and taken >= examples:
            break
    if not found:
        raise Wrong(EMPTY, argument="data")
    shapes = {tuple(tuple(t.shape[1:]) for t in leaves(tree)) for tree in found}
    if len(shapes) > 1:
        one, other = sorted(map(str, shapes))[:2]
        remedy = "pad them to one shape in collate_fn, with targets that the loss ignores"
        raise Wrong(f"batches of data have examples of different shapes, {one} and {other}; {remedy}", argument="data")
    return _some_of(joined(found, torch.cat), examples)


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
