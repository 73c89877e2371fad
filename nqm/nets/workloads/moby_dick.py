"""Moby-Dick (Melville, 1851), character by character: 1.2 million of them in 135 chapters."""

from __future__ import annotations

import torch
from torch import Tensor

from ...types import Wrong
from .datasets import DataSet
from .fetch import how

DATA_FILES = DataSet("moby_dick", how("moby_dick"))
CHAPTERS = 135
HELD_OUT_SEQUENCES = 1024
LENGTH = 32  # characters that a sequence predicts
SYMBOLS = "\n" + "".join(map(chr, range(32, 127)))
ASCII_FOR = str.maketrans({"\u2014": "-", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u0152": "OE"})


def encoded(text: str) -> Tensor:
    """A number below 96 for each character; what is not ASCII becomes the sign nearest to it, or a question mark."""
    index = {symbol: i for i, symbol in enumerate(SYMBOLS)}
    return torch.tensor([index.get(symbol, index["?"]) for symbol in text.translate(ASCII_FOR)], dtype=torch.int64)


def data(n: int) -> tuple[Tensor, Tensor]:
    """n sequences that follow one another: 32 characters, and for each the one that comes after it."""
    texts, found = [], 0
    for chapter in range(1, CHAPTERS + 1):
        texts.append(DATA_FILES.file(f"chapter_{chapter}.txt").read_text(encoding="utf-8").replace("\r\n", "\n"))
        found += len(texts[-1]) + 1
        if found > n * LENGTH + 1:
            break
    symbols = encoded("\n".join(texts))
    rows = min(n, (len(symbols) - 1) // LENGTH)
    ends = rows * LENGTH
    return symbols[:ends].view(rows, LENGTH), symbols[1 : ends + 1].view(rows, LENGTH)


def val(n: int) -> tuple[Tensor, Tensor]:
    """The 1,024 sequences that come after the first n."""
    x, y = data(n + HELD_OUT_SEQUENCES)
    if len(x) <= n:
        raise Wrong(f"the book has {len(x):,} sequences of {LENGTH} characters: none is left after {n:,}", "examples")
    return x[n:], y[n:]
