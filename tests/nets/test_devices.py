"""Nothing is made on the CPU in the middle of a measurement: under a mode that refuses it, and with a planted stray tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from devices import OneDevice, StrayTensor
from models import NETWORKS, mlp
from torch import nn
from torch.nn import functional as F

from nqm import SGD, Adam, HeavyBall
from nqm.nets import Monitor, checkpoints, curvature_of, curvature_similarity, fit, predict, train
from nqm.nets.krylov import standard_normal
from nqm.nets.network import Network
from nqm.nets.training.kronecker import layers_of, statistics
from nqm.nets.training.stacks import Plain
from nqm.text.imports import UserCodeError


def fitted() -> None:
    for name in ("mlp", "cnn", "attention"):
        found = fit(NETWORKS[name](), steps=6, noise_vectors=2, noise_steps=3, probes=1, descent=4)
        predict(found, HeavyBall(0.01, 0.5), 4, 10)


def products() -> None:
    network = mlp()
    for kind in ("gauss_newton", "hessian", "fisher", "empirical_fisher"):
        curvature_of(network, kind).dense()


def trained() -> None:
    for optimizer in (SGD(0.1), HeavyBall(0.1, 0.5), Adam(0.01)):
        train(mlp(), optimizer, 4, 6, seeds=1)


def compared() -> None:
    curvature_similarity(checkpoints(mlp(), SGD(0.1), 4, [0, 3]), k=2, probes=2, lanczos_steps=3)


def kronecker_factors() -> None:
    for make in (mlp, NETWORKS["cnn"]):
        network = make()
        index = torch.arange(network.examples)
        for generators in (None, [torch.Generator().manual_seed(0)]):
            found = statistics(Plain(network), layers_of(network), network.theta[None], index[None], generators)
            assert found.factors


def monitored() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    x, y = torch.randn(16, 5), torch.arange(16) % 3
    optimizer = torch.optim.Adam(model.parameters())

    def loss_of(model: nn.Module, batch: object) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])  # type: ignore[index]

    for own in (False, True):
        options = {"loss_of": loss_of, "curvature_every": 1} if own else {}
        with Monitor(model, optimizer, every=1, **options) as monitor:  # type: ignore[arg-type]
            for _ in range(3):
                optimizer.zero_grad()
                for i in (0, 8):
                    (F.cross_entropy(model(x[i : i + 8]), y[i : i + 8]) / 2).backward()
                monitor.step(batch=(x, y))
                optimizer.step()


data = torch.randn(10, 4), torch.arange(10) % 3
WORK: dict[str, Callable[[], None]] = {
    "fit": fitted, "products": products, "train": trained, "similarity": compared, "kfac": kronecker_factors, "monitor": monitored,
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_everything_stays_on_the_device(name: str) -> None:
    mode = OneDevice()
    with mode:
        WORK[name]()
    assert mode.calls > 100


def test_a_stray_tensor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Network.output

    def stray(self: Network, theta: torch.Tensor, batch: object) -> torch.Tensor:
        return output(self, theta, batch) + torch.zeros(3, dtype=theta.dtype)  # type: ignore[arg-type]

    monkeypatch.setattr(Network, "output", stray)
    with OneDevice(__name__.split(".")[0]), pytest.raises(UserCodeError, match=r"torch\.zeros without its device"):
        Network(nn.Linear(4, 3, device="cpu"), F.cross_entropy, data)


def test_numbers_leave_by_cpu_alone() -> None:
    here = __name__.split(".")[0]
    with OneDevice(package=here):
        drawn = standard_normal((3,), torch.Generator().manual_seed(0), torch.float64, "cpu")
        assert drawn.cpu().double().numpy().shape == (3,)
        fresh = drawn + 1
        with pytest.raises(StrayTensor, match=r"\.numpy\(\) of a tensor"):
            fresh.numpy()
