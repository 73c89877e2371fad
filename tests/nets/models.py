"""Small networks with every kind of layer, in float64: what products, gradients and fits are tested on."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqm.nets.network import Network


class Attention(nn.Module):
    """One block of fused attention over a short sequence, read out at its mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attend = nn.Linear(3, 4), nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        return self.head((x + self.attend(x, x, x, need_weights=False)[0]).mean(1))


def mlp(n: int = 24, **options: object) -> Network:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    return Network(model, F.cross_entropy, (torch.randn(n, 5), torch.arange(n) % 3), dtype=torch.float64, **options)


def cnn() -> Network:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3))
    return Network(model, nn.CrossEntropyLoss(), (torch.randn(20, 1, 7, 7), torch.arange(20) % 3), dtype=torch.float64)


def attention() -> Network:
    torch.manual_seed(2)
    return Network(Attention(), F.cross_entropy, (torch.randn(6, 4, 3), torch.arange(6) % 3), dtype=torch.float64)


def regression() -> Network:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Dropout(0.5), nn.Linear(6, 2))
    return Network(model, F.mse_loss, (torch.randn(16, 4), torch.randn(16, 2)), dtype=torch.float64)


NETWORKS = {"mlp": mlp, "cnn": cnn, "attention": attention, "regression": regression}


Trained = tuple[nn.Module, torch.optim.Optimizer, tuple[Tensor, Tensor]]  # a model, its optimizer and its data


def adamw_regression(groups: bool = False, lr: float = 0.01, beta2: float = 0.9999999, steps: int = 30) -> Trained:
    """A linear model, whose loss is a quadratic, with an AdamW that has a momentum and a v that hardly moves."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 6, generator=generator, dtype=torch.float64) * torch.tensor([3.0, 2, 1, 1, 0.5, 0.3])
    clean = x @ torch.randn(6, 2, generator=generator, dtype=torch.float64)
    y = clean + 0.5 * torch.randn(200, 2, generator=generator, dtype=torch.float64)
    torch.manual_seed(0)
    model = nn.Linear(6, 2).double()
    parts = [
        {"params": [model.weight], "weight_decay": 0.1},
        {"params": [model.bias], "weight_decay": 0.0, "lr": lr / 2},
    ]
    optimizer = torch.optim.AdamW(parts if groups else model.parameters(), lr=lr, weight_decay=0.1, betas=(0.9, beta2))
    for _ in range(steps):
        advance(model, optimizer, x, y)
    for state in optimizer.state.values():  # as after a long training
        state["step"] += 10**7
        state["exp_avg_sq"] = 1.0 + torch.rand(state["exp_avg_sq"].shape, generator=generator, dtype=torch.float64)
    return model, optimizer, (x, y)


def advance(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, norm: float = math.inf) -> None:
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), norm)
    optimizer.step()
