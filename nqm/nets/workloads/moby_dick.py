"""Moby-Dick (Melville, 1851) as 1.2 million characters in 135 chapters, with a Transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...optimizers import SGD
from ...types import Wrong
from .base import Workload
from .datasets import DataSet
from .fetch import how

DATA_FILES = DataSet("moby_dick", how("moby_dick"))
CHAPTERS = 135
HELD_OUT_SEQUENCES = 1024
WIDTH, HEADS, LAYERS = 32, 2, 2
LENGTH = 32  # characters in a sequence
SYMBOLS = "\n" + "".join(map(chr, range(32, 127)))
ASCII_FOR = str.maketrans({"\u2014": "-", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u0152": "OE"})


def encoded(text: str) -> Tensor:
    """A number below 96 for each character; one that is not ASCII becomes the nearest ASCII sign, or a question mark."""
    index = {symbol: i for i, symbol in enumerate(SYMBOLS)}
    return torch.tensor([index.get(symbol, index["?"]) for symbol in text.translate(ASCII_FOR)], dtype=torch.int64)


def data(n: int) -> tuple[Tensor, Tensor]:
    """The first n sequences: 32 characters each as inputs, and the character after each of them as targets."""
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
    """The 1,024 sequences after the first n."""
    x, y = data(n + HELD_OUT_SEQUENCES)
    if len(x) <= n:
        raise Wrong(f"the book has {len(x):,} sequences of {LENGTH} characters: none is left after {n:,}", "examples")
    return x[n:], y[n:]


class DecoderLayer(nn.Module):
    """``x + attention(norm(x))``, then ``x + mlp(norm(x))``; a character attends to itself and to those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        wide = 4 * WIDTH
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, wide), nn.GELU(), nn.Linear(wide, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        q, k, v = parts.movedim(-2, -4).unbind(-2)  # each (..., head, position, width of a head)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.movedim(-3, -2).flatten(-2))
        return x + self.mlp(x)


class LanguageModel(nn.Module):
    """A Transformer decoder with two layers, after Vaswani et al. (2017), that predicts the next character.

    Its outputs are scores (sequences, symbols, positions), as ``cross_entropy`` expects them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(len(SYMBOLS), WIDTH), nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.layers = nn.Sequential(*(DecoderLayer() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(SYMBOLS)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(x) + self.place[: x.shape[-1]])).movedim(-1, 1)


MOBY_TRANSFORMER = Workload(
    "moby_transformer", data, LanguageModel, examples=4_096, optimizer=SGD(0.3), batch_size=32, steps=1_000, chunk=256,
    val=val,
)  # fmt: skip
