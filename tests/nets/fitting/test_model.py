"""Fits: measures against dense matrices, predictions against real training where the model is exact, files."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import mlp, regression
from torch import nn

from nqm import EMA, SGD, HeavyBall, Nesterov
from nqm.nets.curvature import GaussNewton
from nqm.nets.estimates import Measure, bootstrap
from nqm.nets.fitting.model import Fit, Provenance
from nqm.nets.fitting.noise_vectors import noise_draws, random_noise
from nqm.nets.fitting.prediction import Horizon
from nqm.nets.fitting.probing import fit
from nqm.nets.network import Network
from nqm.nets.training.loop import train
from nqm.types import Wrong


class Point(nn.Module):
    """Bare parameters."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(1, 2, d))


def quadratic(examples: int = 50, d: int = 12) -> Network:
    """Loss 1/2 w'Aw - b_j'w on example j: a quadratic whose gradient noise does not depend on w."""
    generator = torch.Generator().manual_seed(0)
    q = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0]
    A = (q * torch.arange(1, d + 1, dtype=torch.float64) ** -1.0) @ q.T
    b = 2 * torch.randn(examples, d, generator=generator, dtype=torch.float64)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return (model.w @ A @ model.w) / 2 - (batch @ model.w).mean()

    return Network(Point(d), loss, b, of="model", dtype=torch.float64)


@pytest.mark.slow
def test_noise_vectors_have_the_covariance_of_example_gradients() -> None:
    network = mlp()
    network = network.at(network.theta + 0.5)  # away from where the gradient is small beside its noise
    rows = torch.cat(list(network.example_gradients()))
    C = torch.cov(rows.T, correction=0)
    network.chunk = 7
    n = 4000
    g = network.gradient()
    found = random_noise(network, noise_draws(network, n, torch.Generator().manual_seed(0)), g)
    torch.testing.assert_close(g, network.gradient(), rtol=1e-10, atol=1e-13)
    v = torch.randn(5, network.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    v[0] = g
    squares = (found @ v.T) ** 2
    z = (squares.mean(0) - (v @ C * v).sum(1)) / (squares.std(0) / n**0.5)
    assert z.abs().max() < 4
    uncentred = (squares.mean(0) - ((rows @ v.T) ** 2).mean(0)) / (squares.std(0) / n**0.5)
    assert uncentred.abs().max() > 4  # gradients that were not centred would show


def test_measures_against_dense_matrices() -> None:
    """Noise along the largest curvatures is that of the data, and that of the probes on the rest."""
    network = mlp()
    found = fit(network, steps=60, noise_steps=60, noise_vectors=3, probes=2, seed=1)
    G = GaussNewton(network).dense()
    g = network.gradient()
    noise = random_noise(network, noise_draws(network, 3, torch.Generator().manual_seed(1)), g)
    rows = torch.cat(list(network.example_gradients()))
    C, settled = torch.cov(rows.T, correction=0), found.provenance.noise_eigenvectors
    y = torch.linalg.eigh(G)[1].flip(1)[:, :settled]
    assert settled >= 10
    rest = noise - noise @ y @ y.T
    for power in range(4):
        M = torch.linalg.matrix_power(G, power)
        assert found.signal.integral(lambda h, p=power: h**p) == pytest.approx(float(g @ M @ g), rel=1e-9)
        there = (y.T @ M @ C @ y).trace() + ((rest @ M) * rest).sum(1)
        np.testing.assert_allclose(found.noise.each(lambda h, p=power: h**p), there.numpy(), rtol=1e-6)


@pytest.mark.slow
def test_exact_noise_along_the_largest_curvatures_takes_out_the_scatter() -> None:
    """tr GC by fits of other seeds, against the dense matrices; by plain probes it scatters much more."""
    network = mlp()
    G = GaussNewton(network).dense()
    exact = float((G @ torch.cov(torch.cat(list(network.example_gradients())).T, correction=0)).trace())
    found = [fit(network, noise_vectors=3, descent=0, seed=s).noise.integral(lambda h: h) for s in range(8)]
    draws = [noise_draws(network, 3, torch.Generator().manual_seed(s)) for s in range(8)]
    probes = torch.cat([random_noise(network, e, network.gradient()) for e in draws])
    plain = ((probes @ G) * probes).sum(1).view(8, 3).mean(1).std()
    spread = float(np.std(found, ddof=1))
    assert abs(np.mean(found) - exact) < 4 * spread / 8**0.5 + 1e-6 * exact
    assert spread < 0.1 * float(plain)


def test_dense_density_and_top() -> None:
    network = mlp()
    found = fit(network, steps=60, noise_steps=60, noise_vectors=3, probes=2, seed=1)
    G = GaussNewton(network).dense()
    assert found.density is not None
    assert found.density.probes == 2
    values, vectors = np.linalg.eigh(G.numpy())
    np.testing.assert_allclose(found.top["h"][:3], values[::-1][:3], rtol=1e-8)
    rows = torch.cat(list(network.example_gradients())).numpy()
    d = (rows**2).mean(0) ** 0.5 + 1e-8
    np.testing.assert_allclose(found.top["adam"][:3], (vectors[:, ::-1][:, :3].T ** 2 / d).sum(1), rtol=1e-5)
    np.testing.assert_allclose(found.top["c"][:3], (rows @ vectors[:, ::-1][:, :3]).var(0), rtol=1e-5)


def test_the_power_of_adam_is_a_half_where_it_must_be() -> None:
    """Noise of variance h^2 along each coordinate, curvature h^2 too: the root of the second moment is h, p = 1/2."""
    d, n = 8, 4000
    h = torch.arange(1, d + 1, dtype=torch.float64) ** -1.0
    noise = h * torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(model: Any, batch: Any) -> torch.Tensor:
        return ((h * model.w) ** 2).sum() / 2 - (batch @ model.w).mean()

    model = Point(d)
    model.w.data *= 1e-3
    found = fit(Network(model, loss, noise, of="model", dtype=torch.float64), steps=16, noise_steps=4, descent=0)
    power, spread = found.adam_power
    assert power == pytest.approx(0.5, abs=0.05)
    assert spread < 0.1
    assert found.noise_exponent[0] == pytest.approx(1.0, abs=0.05)


def test_the_offset_is_the_least_loss() -> None:
    network = quadratic()
    found = fit(network, steps=12, noise_steps=12)
    b = network.data.mean(0)
    A = torch.autograd.functional.hessian(lambda w: network.batch_loss(w, network.data), network.theta)
    best = -0.5 * float(b @ torch.linalg.solve(A, b))
    assert found.offset == pytest.approx(best, rel=1e-9)
    assert found.loss == pytest.approx(network.full_loss())


@cache
def fitted() -> Fit:
    return fit(quadratic(), steps=12, noise_steps=12, noise_vectors=200)


OPTIMIZERS = [SGD(0.5), HeavyBall(0.2, 0.8), Nesterov(0.2, 0.8), EMA(SGD(0.7), 0.9), EMA(HeavyBall(0.1, 0.5), 0.8)]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_prediction_is_measurement_on_a_quadratic(optimizer: Any) -> None:
    network = quadratic()
    found = fitted()
    there = train(network, optimizer, 8, [1, 5, 20], seeds=100, seed=1)
    here = found.problem.run(optimizer, 8, [1, 5, 20])
    assert there.stderr is not None
    # The noise vectors' own scatter counts too: about sqrt(2/200) of the noise part on each mode, less on several.
    spread = np.hypot(there.stderr, 0.07 * here.noise / 8)
    z = (here.loss + found.offset - there.loss) / spread
    assert np.abs(z).max() < 4
    wrong = (here.signal + 2 * here.noise / 8 + found.offset - there.loss) / spread
    assert np.abs(wrong).max() > 4


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_prediction_is_measurement_on_a_linearised_network(optimizer: Any) -> None:
    """Without noise, on a squared error, to rounding: its Gauss-Newton matrix is the Hessian of the linearised network."""
    network = regression()
    network = network.at(0.5 * network.theta)
    found = fit(network, steps=44, noise_steps=3, noise_vectors=1)
    there = train(network.linearised(), optimizer, float("inf"), [1, 5, 20, 60], seeds=1)
    here = found.problem.run(optimizer, float("inf"), [1, 5, 20, 60])
    np.testing.assert_allclose(here.loss + found.offset, there.loss, rtol=1e-5)
    real = train(network, optimizer, float("inf"), [60], seeds=1)
    assert abs(real.loss[0] - there.loss[-1]) > 1e-3 * there.loss[-1]  # the network itself bends


@pytest.mark.parametrize("ending", [".json", ".npz"])
def test_files_come_back(ending: str, tmp_path: Path) -> None:
    found = fit(mlp(), steps=6, noise_steps=4, noise_vectors=2, probes=1)
    found.save(tmp_path / f"a{ending}")
    again = Fit.load(tmp_path / f"a{ending}")
    assert again.to_dict() == found.to_dict()
    np.testing.assert_array_equal(again.spectrum.h, found.spectrum.h)
    np.testing.assert_array_equal(again.spectrum.s, found.spectrum.s)
    assert again.density is not None
    again.spectrum.save(tmp_path / "s.json")


DAMAGE: dict[str, tuple[str, Callable[[str], str]]] = {
    "cut": ("its text is not JSON from line 1, column 90", lambda text: text[:900]),
    "empty": ("its text is not JSON from line 1, column 1 on", lambda text: ""),
    "list": ("its text is a JSON list, not an object", lambda text: "[1]"),
    "spectrum": ("it has no entry 'format'", lambda text: '{"h": [1]}'),
    "other": ("its format is 'other', and that of a fit is 'nqm fit 1'", lambda text: '{"format": "other"}'),
    "missing": ("its entry 'signal' is missing", lambda text: text.replace('"signal_h"', '"signal_x"')),
    "text": ("its contents are damaged", lambda text: text.replace('"signal_h": [', '"signal_h": ["no", ')),
    "nested": ("its contents are damaged", lambda text: text.replace('"note": {', '"note": 3, "x": {')),
    "longer": ("it has 7 nodes with 6 weights of 6 probes", lambda text: text.replace('"signal_h": [', '"signal_h": [1, ')),
}  # fmt: skip


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_file_is_told_in_words_of_ours(damage: str, tmp_path: Path) -> None:
    sentence, change = DAMAGE[damage]
    path = tmp_path / "fit.json"
    fit(mlp(), steps=6, noise_steps=4, noise_vectors=2).save(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(Wrong, match=re.escape(sentence)) as told:
        Fit.load(path)
    assert told.value.argument == "path"
    assert "'fit.json' is not a fit that can be read" in str(told.value)
    assert "make it again with `nqm fit`" in str(told.value)


@pytest.mark.parametrize("contents", [b"no", b"", b"PK\x03\x04" + bytes(40)], ids=["text", "empty", "zip"])
def test_a_damaged_archive_is_told_in_words_of_ours(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "fit.npz").write_bytes(contents)
    with pytest.raises(
        Wrong, match=r"'fit\.npz' is not a fit that can be read: its contents are damaged; make it again"
    ):
        Fit.load(tmp_path / "fit.npz")


def test_wrong_files_and_calls_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no fit file"):
        Fit.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match="noise_vectors must be"):
        fit(mlp(), noise_vectors=0)
    with pytest.raises(ValueError, match=r"\.json or \.npz"):
        fit(mlp(), steps=3, noise_steps=2).save(tmp_path / "fit.pkl")


def test_bootstrap_covers() -> None:
    """The interval of a mean of 8 normal values holds the truth about nine times in ten."""
    rng = np.random.default_rng(0)
    inside = 0
    for i in range(300):
        found = bootstrap(rng.standard_normal(8) + 3, seed=i)
        inside += found.low < 3 < found.high
    assert 0.8 < inside / 300 < 0.97
    assert np.isnan(bootstrap(np.array([1.0])).low)


def test_an_interrupt_keeps_the_steps_made() -> None:
    network, calls = mlp(), []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 12:
            raise KeyboardInterrupt

    found = fit(network, steps=20, noise_steps=15, noise_vectors=2, progress=progress)
    assert found.provenance.lanczos_steps == 12
    assert isinstance(found.noise, Measure)
    assert found.provenance.noise_steps == 15


class Counting(nn.Linear):
    """Changes a buffer in its forward pass, and so cannot be differentiated as a function."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, input: Any) -> Any:
        self.calls += 1
        return super().forward(input)


class Looking(nn.Linear):
    """Decides by a value, which no vmap can."""

    def forward(self, input: Any) -> Any:
        out = super().forward(input)
        return 2 * out if out.mean().item() > 1e9 else out


def late(x: torch.Tensor) -> torch.Tensor:
    """The inputs with one that is enormous, after those that are tried first."""
    return torch.where(torch.arange(len(x))[:, None] == 20, -1e30, x)


@pytest.mark.parametrize(
    ("model", "spoil", "sentence"),
    [
        (lambda: nn.Linear(4, 3), late, "loss over all 30 examples is nan"),
        (lambda: nn.Linear(4, 3), lambda x: 1e30 * x, "the largest curvature along the gradient is 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_first(model: Any, spoil: Any, sentence: str) -> None:
    """Passes over all the data come after a trial on a few examples."""
    torch.manual_seed(0)
    x, y = torch.randn(30, 4), torch.arange(30) % 3

    def loss(o: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(o * o if spoil is late else o, y)

    network = Network(model(), loss, (spoil(x), y))
    with pytest.raises(ValueError, match=sentence):
        fit(network, steps=3, descent=2)


@pytest.mark.parametrize("model", [lambda: Counting(), lambda: Looking(4, 3)], ids=["counting", "looking"])
def test_what_cannot_be_vectorised_is_measured_more_slowly(model: Any) -> None:
    torch.manual_seed(0)
    network = Network(model(), nn.functional.cross_entropy, (torch.randn(30, 4), torch.arange(30) % 3))
    found = fit(network, steps=3, descent=2)
    assert any("slower" in note for note in found.provenance.notes)
    assert found.noise_scale.value > 0


def test_a_fit_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """Written when provenance was a dict, the converged vectors were called settled, and the horizon was in the note."""
    found = Fit.load(Path(__file__).parents[1] / "data" / "fit_before_provenance.json")
    assert (found.provenance.network, found.provenance.step, found.provenance.noise_eigenvectors) == ("small", 7, 2)
    assert found.horizon == Horizon(30.0, 90.0, "12 checks of this fit")
    prediction = found.predict(SGD(0.1), 8, [0, 5, 20])
    # The version that wrote the file predicted these losses. Since then noise follows the loss, which changes little here.
    np.testing.assert_allclose(prediction.loss, [1.1596997489, 1.1316393836, 1.0680150940], rtol=1e-3)
    assert found.descent is not None
    assert found.descent.noise is None
    found.save(tmp_path / "again.npz")
    again = Fit.load(tmp_path / "again.npz")
    assert (again.provenance, again.horizon) == (found.provenance, found.horizon)


def test_entries_that_a_file_lacks_or_that_are_new_do_no_harm() -> None:
    assert Provenance.from_dict({"network": "small", "of_a_later_version": 1}) == Provenance(network="small")
