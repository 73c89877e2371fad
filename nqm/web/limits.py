"""All limits of the explorer: what a request may ask for, and what the server keeps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class RequestLimits:
    """What a request may ask for. The page reads these limits from /api/describe."""

    body_bytes: int = 2**21  # A JSON body, which may contain a file, may have at most this many bytes.
    upload_bytes: int = 2**22  # A file that is uploaded may have at most this many bytes.
    text: int = 2_000  # An optimizer, a schedule or a spectrum may have at most this many characters.
    nodes: int = 20_000  # A spectrum may have at most this many nodes.
    steps: int = 10**9  # A run may have at most this many steps.
    points: int = 1_000  # A curve may report this many steps.
    pieces: int = 100  # A best schedule may have at most this many pieces.
    schedule_pieces: int = 1_000  # A schedule that is given as data may have at most this many pieces.
    batch_sizes: int = 40  # A sweep may have at most this many batch sizes.
    optimizers: int = 6  # A sweep may have at most this many optimizers.
    slots: int = 6  # An optimizer may have at most this many slots: SGD has one, momentum and each average add one.
    settings: int = 64  # An axis of a map may have at most this many values.
    replicas: int = 1_024  # A sampled curve may average at most this many replicas.
    noise_file: int = 2**20  # A file from which a noise scale is read may have at most this many characters.
    devices: int = 10**6  # A training may run on at most this many devices.
    uploads: int = 32  # The server keeps this many files that were uploaded.


@dataclass(frozen=True)
class ServerLimits:
    """What the server spends on requests."""

    time: float = (
        30.0  # A part of an answer may take this many seconds, unless `nqm serve --time-limit` says otherwise.
    )
    parts: float = 20.0  # A request that sends its answer in parts may take this many time limits in all.
    read: float = 30.0  # A client has this many seconds to send the head of a request, and as many for its body.
    memory_bytes: int = 2**31  # A worker may allocate this many bytes in addition to those it starts with.
    drain_bytes: int = 2**25  # Of a body that is too long, this many bytes are read before the connection is closed.
    waiting: int = 256  # At most this many requests may wait for a worker.
    store_bytes: int = 2**26  # The server keeps at most this many bytes of uploads, and as many of answers.
    nodes_shown: int = 400  # An answer lists at most this many nodes of a spectrum.


REQUEST = RequestLimits()
SERVER = ServerLimits()


class Recent(Generic[K, V]):
    """A cache that drops the least recently used value when there are too many values, or too many bytes of them."""

    def __init__(
        self, most: float, size_of: Callable[[V], int] = lambda _: 0, most_bytes: int = SERVER.store_bytes
    ) -> None:
        self.most, self.size_of, self.most_bytes, self.size = most, size_of, most_bytes, 0
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def keep(self, key: K, value: V) -> V:
        if key in self._kept:
            self.size -= self.size_of(self._kept.pop(key))
        self._kept[key] = value
        self.size += self.size_of(value)
        while len(self._kept) > self.most or self.size > self.most_bytes:
            self.size -= self.size_of(self._kept.popitem(last=False)[1])
        return value

    def __len__(self) -> int:
        return len(self._kept)
