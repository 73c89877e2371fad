"""A character-level language model on Moby-Dick: a Transformer decoder of two layers, after Vaswani et al. (2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...optimizers import SGD
from .base import Workload
from .moby_dick import LENGTH, SYMBOLS, data, val

WIDTH, HEADS, LAYERS = 32, 2, 2


class DecoderLayer(nn.Module):
    """``x + attention(norm(x))``, then ``x + mlp(norm(x))``; a character sees those before it and itself."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        q, k, v = parts.movedim(-2, -4).unbind(-2)  # each (..., head, position, width of a head)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.movedim(-3, -2).flatten(-2))
        return x + self.mlp(x)


class LanguageModel(nn.Module):
    """Scores of the next character at each position, (sequences, symbols, positions) as ``cross_entropy`` takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(len(SYMBOLS), WIDTH), nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.layers = nn.Sequential(*(DecoderLayer() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(SYMBOLS)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(x) + self.place[: x.shape[-1]])).movedim(-1, 1)


def model() -> nn.Module:
    return LanguageModel()


WORKLOAD = Workload(
    "moby_transformer", "two-layer Transformer on 4,096 sequences of 32 characters of Moby-Dick", data, model,
    examples=4_096, optimizer=SGD(0.3), batch_size=32, steps=1_000, target=2.2, chunk=256, val=val,
)  # fmt: skip
