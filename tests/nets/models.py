"""Small networks with every kind of layer, in float64: what products, gradients and fits are tested on."""

from __future__ import annotations

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
