"""Data that is drawn when it is needed and never held as a whole: a Dataset, a DataLoader, or an iterable of batches.

`Stream` stands in the place of a tree of tensors: `Network` asks for examples by slice or by index, and gets them as tensors. A
Dataset with ``__getitem__`` is asked for single examples. Anything else is passed through from its beginning, again and again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from ..sampling.replicas import check_whole
from ..types import Wrong
from .network import PASS_EXAMPLES, Likelihood, Network
from .preflight import FIRST_EXAMPLES, MEAN_ERROR
from .trees import EMPTY, Tree, as_tensors, count, indexed, leaves, tree_map

Pad = Any
"""A number that fills up shorter examples, or a tree of numbers nested like a batch."""
SLOW_NOTE = "the stream has no random access, so every random batch takes a pass through it; a Dataset with __getitem__ is faster"


def streamed(
    model: nn.Module, loss: Callable[..., Tensor] | None, data: object, *, pad: Pad = None,
    of: Literal["output", "model"] = "output", parameters: str | Sequence[str] | None = None,
    dtype: torch.dtype | None = None, chunk: int = PASS_EXAMPLES, likelihood: Likelihood = None,
    examples: int | None = None, name: str = "", step: int | None = None,
) -> Network:  # fmt: skip
    """A `Network` on data that is never held in memory as a whole; at most ``chunk`` examples are.

    Parameters
    ----------
    data : a Dataset, a DataLoader, or any iterable of batches that can be passed through again and again. Of a DataLoader the
        dataset and the ``collate_fn`` are used, in the order of the dataset. Every pass must give the same examples, so
        augmentation must be off.
    pad : fills up examples of different shapes, such as sequences: a number, or numbers nested like a batch, such as
        ``(0, -100)`` for (tokens, targets) or ``{"input_ids": 0, "attention_mask": 0, "labels": -100}``.
    examples : number of examples to take, from the first on; all of them if omitted.

    The other parameters are those of `Network`. The data is passed through once before anything is measured.

    >>> class Squares(Dataset):
    ...     def __len__(self): return 100
    ...     def __getitem__(self, i): return torch.tensor([i / 100, i * i / 1e4]), i % 2
    >>> network = streamed(nn.Linear(2, 2), F.cross_entropy, DataLoader(Squares(), batch_size=8, shuffle=True), chunk=16)
    >>> network.examples, network.take(slice(3, 5))[1].tolist()
    (100, [1, 0])
    """
    source = _source(data, pad)
    first = source.rows(range(min(n for n in (source.known, examples, FIRST_EXAMPLES) if n is not None)))
    network = Network(
        model, loss, first, of=of, parameters=parameters, dtype=dtype, chunk=chunk, likelihood=likelihood, name=name,
        step=step,
    )  # fmt: skip
    kept = {t.dtype for t in leaves(first)} == {t.dtype for t in leaves(network.data)}
    split = of == "output" and loss is not None and isinstance(first, dict) and "labels" in first
    stream = Stream(source, 0, None if kept else network.theta.dtype, network.theta.device, split)
    found = _survey(stream, None if examples is None else check_whole("examples", examples, 1), chunk)
    network.data, network.examples = replace(stream, examples=found.examples), found.examples  # type: ignore[assignment]
    network.notes += source.notes
    said = network.set_loss(network.loss if loss is None else loss, likelihood)  # by all of the data
    network.notes += [note for note in said if note not in network.notes]
    if found.shortest is not None:
        _check_padding(network, found.shortest, found.longest)
    return network


class Supply(ABC):
    """Where examples come from; ``known`` is their number, or None if only a pass through all of them tells it."""

    known: int | None = None
    notes: Sequence[str] = ()

    @abstractmethod
    def rows(self, index: Iterable[int]) -> Tree:
        """The examples of an index, in its order."""

    @abstractmethod
    def batches(self, size: int) -> Iterator[Tree]:
        """All examples, in pieces that may be of any size."""


class Indexed(Supply):
    """A Dataset with ``__getitem__`` and ``__len__``, whose examples a function joins."""

    notes = ("the examples are drawn from the dataset whenever they are needed, in its own order",)

    def __init__(self, dataset: Any, join: Callable[[list[Any]], Any]) -> None:
        self.dataset, self.join, self.known = dataset, join, len(dataset)
        if not self.known:
            raise Wrong(EMPTY, argument="data")
        self.first = range(min(FIRST_EXAMPLES, self.known))
        if not _same(self.rows(self.first), self.rows(self.first)):
            _refuse_changes("the first examples of the dataset")

    def rows(self, index: Iterable[int]) -> Tree:
        return as_tensors(self.join([self.dataset[i] for i in index]))

    def batches(self, size: int) -> Iterator[Tree]:
        assert self.known is not None
        for low in range(0, self.known, size):
            yield self.rows(range(low, min(low + size, self.known)))


class Passed(Supply):
    """An iterable of batches; examples that follow the last ones are read on, others from the beginning."""

    notes = (SLOW_NOTE,)

    def __init__(self, data: Iterable[Any], pad: Pad) -> None:
        if iter(data) is data:
            remedy = "give an object whose __iter__ begins anew, such as a list, a DataLoader or an IterableDataset"
            raise Wrong(f"data can be passed through only once, as a generator can; {remedy}", argument="data")
        self.data, self.pad = data, pad
        self.first: Tree | None = None
        self._begin()

    def _begin(self) -> None:
        self.reader, self.at = self._read(), 0
        self.rest: Tree | None = None

    def _read(self) -> Iterator[Tree]:
        seen = None
        for batch in self.data:
            plain = as_tensors(batch)
            if seen is None:
                self.first = plain if self.first is None else self.first
                if not _same(self.first, plain):
                    _refuse_changes("the first batch of the stream")
            seen = plain
            yield plain
        if seen is None:
            raise Wrong(EMPTY, argument="data")

    def batches(self, size: int) -> Iterator[Tree]:
        return self._read()

    def rows(self, index: Iterable[int]) -> Tree:
        wanted = list(index)
        low, high = min(wanted), max(wanted) + 1
        if wanted == list(range(low, high)):
            return self._run(low, high)
        picked, start = dict[int, Tree](), 0
        for batch in self._read():
            end = start + count(batch)
            picked |= {i: indexed(batch, slice(i - start, i - start + 1)) for i in set(wanted) if start <= i < end}
            start = end
            if start >= high:
                break
        if missing := set(wanted) - set(picked):
            _refuse_changes(
                f"the stream has {start:,} examples, and number {max(missing):,} was there before; the data"
            )
        return joined_padded([picked[i] for i in wanted], self.pad)

    def _run(self, low: int, high: int) -> Tree:
        """Successive examples."""
        if low < self.at:
            self._begin()
        parts = list[Tree]()
        while self.at < high:
            piece = self.rest if self.rest is not None else next(self.reader, None)
            if piece is None:
                if parts and self.known is None:
                    break  # fewer than the first few examples
                _refuse_changes(f"the stream ended after {self.at:,} of {high:,} examples; the data")
            size = count(piece)
            skip, take = max(0, low - self.at), min(size, high - self.at)
            if take > skip:
                parts.append(indexed(piece, slice(skip, take)))
            self.rest = indexed(piece, slice(take, None)) if take < size else None
            self.at += take
        return joined_padded(parts, self.pad)


@dataclass(frozen=True)
class Stream:
    """Examples that are drawn when they are asked for; it is indexed as a tensor is."""

    source: Supply
    examples: int
    dtype: torch.dtype | None
    device: torch.device
    split: bool  # whether the labels of a dict are the targets

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, index: slice | Tensor | list[int]) -> Tree:
        if isinstance(index, slice):
            return self.ready(self.source.rows(range(*index.indices(self.examples))))
        return self.ready(self.source.rows([int(i) for i in index]))

    def ready(self, batch: Tree) -> Tree:
        """A batch as the network takes it."""
        if self.split and isinstance(batch, dict):
            batch = {name: part for name, part in batch.items() if name != "labels"}, batch["labels"]
        return tree_map(self._moved, batch)

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)


@dataclass(frozen=True)
class Survey:
    """What the first pass found: the number of examples, and one of the shortest and of the longest, if shapes differ."""

    examples: int
    shortest: int | None = None
    longest: int = 0


def _survey(stream: Stream, most: int | None, chunk: int) -> Survey:
    """Pass through the data once."""
    total, sizes = 0, dict[int, int]()
    for batch in stream.source.batches(chunk):
        if any(t.is_floating_point() and not bool(torch.isfinite(t).all()) for t in leaves(batch)):
            raise Wrong("data has values that are NaN or infinite; drop those examples", argument="data")
        n = count(batch)
        sizes.setdefault(sum(t.numel() // n for t in leaves(batch)), total)
        total += n
        if most is not None and total >= most:
            total = most
            break
    stream.source.known = total if stream.source.known is None else stream.source.known
    return Survey(total) if len(sizes) < 2 else Survey(total, sizes[min(sizes)], sizes[max(sizes)])


def _check_padding(network: Network, shortest: int, longest: int) -> None:
    """Refuse a model whose loss of an example changes if the example is filled up beside a longer one."""
    with torch.no_grad():
        alone = float(network.batch_loss(network.theta, network.take(slice(shortest, shortest + 1))))
        both = network.take(torch.tensor([shortest, longest], device=network.theta.device))
        beside = float(network.batch_loss(network.theta, indexed(both, slice(0, 1))))
    if abs(alone - beside) > MEAN_ERROR.get(network.theta.dtype, 1e-2) * max(abs(alone), 1e-3):
        what = f"the loss of example {shortest:,} is {alone:.6g} alone and {beside:.6g} when it is filled up"
        remedy = (
            "give the model a mask (attention_mask) and fill targets with a value that the loss ignores, such as -100"
        )
        raise Wrong(f"padding changes the loss: {what}; {remedy}", argument="pad")


def joined_padded(trees: Sequence[Tree], pad: Pad) -> Tree:
    """Join batches to one, filling up shorter examples; without ``pad`` different shapes are refused."""
    if len(trees) == 1:
        return trees[0]

    def join(value: float | None, *tensors: Tensor) -> Tensor:
        shapes = {tuple(t.shape[1:]) for t in tensors}
        if len(shapes) == 1:
            return torch.cat(tensors)
        if value is None:
            one, other = sorted(map(str, shapes))[:2]
            remedy = "give pad, such as pad=(0, -100) for (tokens, targets)"
            raise Wrong(f"examples have different shapes, {one} and {other}; {remedy}", argument="pad")
        sizes = [max(shape) for shape in zip(*(t.shape[1:] for t in tensors), strict=True)]
        return torch.cat([filled(t, sizes, value) for t in tensors])

    if pad is None or isinstance(pad, (int, float)):
        return tree_map(lambda *tensors: join(pad, *tensors), *trees)
    try:
        return cast(Tree, tree_map(join, pad, *trees))  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Wrong(f"pad must be a number, or numbers nested like a batch, got {pad!r}", argument="pad") from error


def filled(tensor: Tensor, sizes: Sequence[int], value: float) -> Tensor:
    """A batch with its axes after the first filled up at their ends.

    >>> filled(torch.tensor([[1, 2]]), [4], -100).tolist()
    [[1, 2, -100, -100]]
    """
    missing = [size - now for size, now in zip(sizes, tensor.shape[1:], strict=True)]
    return F.pad(tensor, [n for one in reversed(missing) for n in (0, one)], value=value)


def _source(data: object, pad: Pad) -> Supply:
    """The source of a Dataset, a DataLoader or an iterable."""
    join: Callable[[list[Any]], Any] = default_collate
    if pad is not None:
        join = lambda items: joined_padded([indexed(as_tensors(item), None) for item in items], pad)  # noqa: E731
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset) and data.batch_size is not None:
        own = data.collate_fn if data.collate_fn is not default_collate else join
        return Indexed(data.dataset, own)
    if isinstance(data, Dataset) and not isinstance(data, (IterableDataset, DataLoader)):
        return Indexed(data, join)
    if isinstance(data, (Tensor, Mapping, str, bytes, tuple)) or not isinstance(data, Iterable):
        kinds = "a Dataset, a DataLoader or an iterable of batches"
        raise Wrong(f"data must be {kinds}, got {type(data).__name__}; Network takes tensors", argument="data")
    return Passed(data, pad)


def _same(one: Tree, other: Tree) -> bool:
    """Whether two batches have the same numbers, of which some may be NaN."""
    here, there = leaves(one), leaves(other)
    if [t.shape for t in here] != [t.shape for t in there]:
        return False
    return all(bool(((a == b) | (a != a)).all()) for a, b in zip(here, there, strict=True))


def _refuse_changes(what: str) -> NoReturn:
    remedy = "every pass must give the same examples: turn augmentation and shuffling off, or hold the data (Network)"
    raise Wrong(f"{what} changed from one pass to the next; {remedy}", argument="data")
