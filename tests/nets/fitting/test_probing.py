"""Prediction is measurement where the model is exact: z-scores over thousands of real trainings on minibatches.

Second moments of the weights along every eigenvector of the curvature, as in the tests of the sampling twin. Noise of a
linear model does not change as long as the weights stay close to the optimum, beside the residuals; far from it, the same
fit gives `LeastSquares`, whose noise follows the loss.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqm import EMA, SGD, HeavyBall, LeastSquares, Nesterov, Quadratic, Spectrum
from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.probing import fit
from nqm.nets.natural import KFAC
from nqm.nets.network import Network
from nqm.nets.training.loop import Batches, walk
from nqm.nets.trees import grad, tree_map, vmap
from nqm.types import Wrong

TIMES = [1, 2, 5, 12, 25]
REPLICAS = 2_000


def optimizers(unit: float) -> list[Any]:
    """One of each kind, with learning rates in a unit."""
    return [
        SGD(0.1 * unit), HeavyBall(0.03 * unit, 0.7), Nesterov(0.03 * unit, 0.7), EMA(SGD(0.1 * unit), 0.8),
        EMA(HeavyBall(0.03 * unit, 0.5), 0.8),
    ]  # fmt: skip


class Replicas:
    """Trainings of one network side by side, each with its own weights and batches; `walk` steps all of them."""

    def __init__(self, network: Network, count: int) -> None:
        self.network, self.count = network, count
        self.theta = network.theta.expand(count, -1).clone()

    def take(self, index: Tensor) -> Any:
        return tree_map(lambda t: t[index.view(self.count, -1)], self.network.data)

    def gradient(self, theta: Tensor, batch: Any) -> Tensor:
        return vmap(grad(self.network.batch_loss))(theta, batch).detach()


def trained(network: Network, optimizer: Any, batch_size: int, seed: int, replicas: int = REPLICAS) -> list[Tensor]:
    """Weights at the reported times, (replicas, parameters) each."""
    batches, together = Batches(network.examples, (11, seed)), Replicas(network, replicas)
    stepped = walk(together, optimizer, replicas * batch_size, TIMES, batches=batches)  # type: ignore[arg-type]
    return [theta for _, theta in stepped]


def half_square(out: Tensor, y: Tensor) -> Tensor:
    return ((out - y) ** 2).mean() / 2


class Affine(nn.Module):
    """A linear model without an offset, whose weights a test can set."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


def linear(examples: int, label_noise: float, away: float, d: int = 8) -> Network:
    """Linear least squares on Gaussian features of variance 1/i, this far from its optimum."""
    generator = torch.Generator().manual_seed(4)
    h = torch.arange(1, d + 1, dtype=torch.float64) ** -1.0
    x = h**0.5 * torch.randn(examples, d, generator=generator, dtype=torch.float64)
    y = x.sum(1) + label_noise**0.5 * torch.randn(examples, generator=generator, dtype=torch.float64)
    best = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    push = torch.where(torch.arange(d) % 2 == 0, 1.0, -1.0)
    return Network(Affine(best + away * push), half_square, (x, y), dtype=torch.float64, chunk=examples)


@cache
def near() -> tuple[Network, Network]:
    """Close to the optimum: noise as at the checkpoint."""
    network = linear(2_000, 1.0, 0.004)
    return network, network


@cache
def bent() -> tuple[Network, Network]:
    """A small network near a minimum of its loss, where residuals stay, and its linearisation, which is what is trained."""
    torch.manual_seed(6)
    x = torch.randn(600, 2, dtype=torch.float64)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:] ** 2 / 2 + torch.randn(600, 1, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    network = Network(model, half_square, (x, y), dtype=torch.float64)
    for _, theta in walk(network, HeavyBall(0.2, 0.9), math.inf, [1500], batches=Batches(600, (0,))):
        network = network.at(theta)
    return network, network.linearised()


def modes(found: Fit) -> Spectrum:
    """The fit's nodes as eigenvalues: those of the signal are the spectrum, those of the noise are added to the nearest."""
    signal, noise = found.signal, found.noise
    nearest = np.abs(np.log(np.maximum(noise.h, 1e-12)[:, None] / signal.h)).argmin(1)
    c = np.bincount(nearest, noise.weight / noise.probes, len(signal.h))
    order = np.argsort(-signal.h)
    return Spectrum(signal.h[order], c[order], (signal.weight / signal.h**2)[order])


def moments(found: Fit, optimizer: Any, batch_size: int, noise: float = 1.0) -> Any:
    """Second moments of the distance to the optimum along the settled curvatures, as the fit gives them, (times, modes)."""
    spectrum, known = modes(found), found.provenance.noise_eigenvectors
    signal, own = Quadratic(spectrum).moments(optimizer, TIMES, batch_size)
    return (signal + noise * own / batch_size)[:, :known]


def measured(found: Fit, networks: tuple[Network, Network], optimizer: Any, batch_size: int, seed: int) -> Any:
    """The same in real training along eigenvectors of a dense matrix, and standard errors."""
    network, real = networks
    h, vectors = np.linalg.eigh(dense(network))
    best = network.theta.numpy() - vectors @ (vectors.T @ network.gradient().numpy() / h)
    top = vectors[:, ::-1][:, : found.provenance.noise_eigenvectors]
    squares = np.stack([((t.numpy() - best) @ top) ** 2 for t in trained(real, optimizer, batch_size, seed)])
    return squares.mean(1), squares.std(1) / REPLICAS**0.5


def dense(network: Network) -> Any:
    """mean J'J, by the outputs' whole Jacobian."""
    J = torch.func.jacrev(lambda t: network.output(t, network.data).flatten())(network.theta)
    return (J.T @ J).numpy() / network.examples


def rms(z: Any) -> float:
    return math.sqrt(float(np.mean(z**2)))


@pytest.mark.slow
@pytest.mark.parametrize(("make", "batch_size"), [(near, 16), (bent, 64)], ids=["least_squares", "linearised_network"])
def test_prediction_is_measurement_on_every_mode(make: Any, batch_size: int) -> None:
    networks = make()
    found = fit(networks[0], steps=networks[0].dim, descent=0)
    assert found.provenance.noise_eigenvectors >= 8
    z, wrong = [], []
    for seed, optimizer in enumerate(optimizers(1 / float(found.spectrum.h.max()))):
        mean, stderr = measured(found, networks, optimizer, batch_size, seed)
        z.append((mean - moments(found, optimizer, batch_size)) / stderr)
        wrong.append((mean - moments(found, optimizer, batch_size, noise=1.1)) / stderr)
    assert 0.8 < rms(np.array(z)) < 1.2
    assert np.abs(z).max() < 5
    assert rms(np.array(wrong)) > 1.5  # noise that is 10% too large


@pytest.mark.slow
def test_noise_that_follows_the_loss() -> None:
    """Far from the optimum and at a small batch: least squares on the fit's spectrum is right, fixed noise is not."""
    network = linear(20_000, 0.1, 1.0)
    found = fit(network, steps=network.dim, descent=0)
    signal = found.signal
    own = Spectrum(signal.h, signal.h, signal.weight / signal.h**2)
    problem, (x, y) = LeastSquares(own, label_noise=2 * found.offset), network.data
    z, fixed = [], []
    for seed, optimizer in enumerate((SGD(0.2), HeavyBall(0.06, 0.7), EMA(SGD(0.2), 0.8))):
        thetas = torch.stack(trained(network, optimizer, 4, seed))
        cross, square, both = x.T @ y / len(y), float(y @ y) / len(y), x.T @ x / len(y)
        losses = (((thetas @ both) * thetas).sum(-1) / 2 - thetas @ cross + square / 2).numpy()  # over all the data
        stderr = losses.std(1) / REPLICAS**0.5
        z.append((problem.run(optimizer, 4, TIMES).loss + found.offset - losses.mean(1)) / stderr)
        fixed.append((found.predict(optimizer, 4, TIMES).loss - losses.mean(1)) / stderr)
    assert 0.5 < rms(np.array(z)) < 1.6  # fifteen numbers, those of one run alike
    assert np.abs(z).max() < 4
    assert np.abs(fixed).max() > 8


@pytest.mark.parametrize("more", [{}, {"descent": 0, "test": False}])
def test_equal_gradients_have_no_noise(more: dict[str, Any], tmp_path: Path) -> None:
    """Every example is the same, so the batch size makes no difference, and a sentence says so."""
    torch.manual_seed(0)
    x, y = torch.randn(1, 5).repeat(64, 1), torch.full((64,), 1)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    found = fit(Network(model, F.cross_entropy, (x, y)), **more)
    assert found.noise_scale.value == found.noise_scale.high == 0
    assert "the batch size makes no difference" in " ".join(found.provenance.notes)
    small, large = (found.predict(SGD(0.1), size, 20) for size in (1, math.inf))
    np.testing.assert_allclose(small.loss, large.loss, rtol=1e-6)
    assert found.advise(16, 0.9 * found.loss, SGD(), batch_sizes=[16]).steps is not None
    found.plot()
    found.save(tmp_path / "fit.json")
    assert Fit.load(tmp_path / "fit.json").noise_scale.value == 0


def test_a_batch_size_belongs_to_an_optimizer_that_starts_here() -> None:
    network = Network(nn.Linear(3, 2), F.cross_entropy, (torch.randn(8, 3), torch.zeros(8, dtype=torch.int64)))
    for optimizer in (None, torch.optim.AdamW(network.model.parameters()), KFAC()):
        with pytest.raises(
            Wrong, match=r"a fit is for every batch size; batch_size is for an optimizer that starts here"
        ):
            fit(network, optimizer=optimizer, batch_size=4)
