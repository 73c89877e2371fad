"""Fits in the metric of K-FAC: its preconditioner as dense matrices, and predictions against the lab's own K-FAC."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqm import SGD, AdamW, HeavyBall, Quadratic, Spectrum, step
from nqm.engine.schedule import Schedule
from nqm.nets import KFAC, Fit, Network, curvature_of, fit, workload
from nqm.nets.fitting.kfac_metric import KFACMetric
from nqm.nets.fitting.kfac_state import KFACState
from nqm.nets.fitting.kfac_steps import NaturalRun
from nqm.nets.natural import parse_trained
from nqm.nets.rescaled import Rescaled
from nqm.nets.training.kronecker_root import KroneckerRoot, factors_at
from nqm.nets.training.rules.kfac import DEFAULTS, KFAC_RANGES, KFACRule
from nqm.nets.training.stacks import Plain
from nqm.types import Array, Wrong

DAMPING = 0.02


class Mixed(nn.Module):
    """An embedding, a layer norm, and linear layers with and without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(6, 4), nn.LayerNorm(4)
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(self.norm(self.embed(x)))))


def mixed() -> Network:
    torch.manual_seed(0)
    data = torch.randint(6, (40,)), torch.randint(3, (40,))
    return Network(Mixed().double(), F.cross_entropy, data)


def convolutional() -> Network:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(18, 3)).double()
    return Network(model, F.cross_entropy, (torch.randn(30, 1, 7, 7).double(), torch.randint(3, (30,))))


NETWORKS = {"mixed": mixed, "convolutional": convolutional}


def dense(network: Network, damping: float = DAMPING) -> tuple[KroneckerRoot, Tensor]:
    """The root of K-FAC's preconditioner, and the preconditioner itself by the lab's rule, column by column."""
    factors = factors_at(network, network.theta, draws=2)
    rule = KFACRule(network, network.theta[None], [{"lr": 1.0, "damping": damping}], [0])
    rule.factors = {name: (A[None], G[None]) for name, (A, G) in factors.pairs.items()}
    rule.diagonal = factors.diagonal[None]
    rule.inverses = {layer.name: rule.inverse(layer) for layer in rule.layers}
    columns = [rule.precondition(row[None])[0] for row in torch.eye(network.dim, dtype=torch.float64)]
    return KroneckerRoot(network, factors, damping), torch.stack(columns)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_root_squared_is_the_preconditioner_of_the_rule(name: str) -> None:
    network = NETWORKS[name]()
    root, P = dense(network)
    eye = torch.eye(network.dim, dtype=torch.float64)
    half = root.apply(eye)
    torch.testing.assert_close(half, half.mT, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(half @ half, P, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(root.unapply(half), eye, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(root.apply(eye[3]), half[3], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_derivatives_in_the_metric_are_those_of_dense_matrices(name: str) -> None:
    network = NETWORKS[name]()
    root, _ = dense(network)
    scaled, half = Rescaled(network, root), root.apply(torch.eye(network.dim, dtype=torch.float64))
    assert scaled.full_loss() == pytest.approx(network.full_loss(), rel=1e-12)
    torch.testing.assert_close(scaled.gradient(), half @ network.gradient())
    G = curvature_of(network).dense()
    torch.testing.assert_close(curvature_of(scaled).dense(), half @ G @ half, rtol=1e-8, atol=1e-10)
    rows, plain = (torch.cat(list(one.example_gradients())) for one in (scaled, network))
    torch.testing.assert_close(rows, plain @ half)


def test_the_diagonal_is_that_of_the_fisher_matrix() -> None:
    """For cross-entropy the Fisher matrix is the Gauss-Newton matrix."""
    network = mixed()
    found = network.unflatten(factors_at(network, network.theta, draws=600).diagonal)
    expected = network.unflatten(curvature_of(network).dense().diagonal())
    for name in ("norm.weight", "norm.bias"):
        torch.testing.assert_close(found[name], expected[name], rtol=0.3, atol=1e-3)


def quadratic_network() -> Network:
    """A linear model with squared losses: a quadratic, on which everything but the following of P is exact."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 6, generator=generator, dtype=torch.float64) * torch.tensor([3.0, 2, 1, 1, 0.5, 0.3])
    y = x @ torch.randn(6, 2, generator=generator, dtype=torch.float64)
    y = y + 0.5 * torch.randn(300, 2, generator=generator, dtype=torch.float64)
    torch.manual_seed(0)
    return Network(nn.Linear(6, 2).double(), F.mse_loss, (x, y))


def frozen(network: Network, optimizer: KFAC, size: float, times: list[int], seeds: int) -> Array:
    """Losses of trainings whose preconditioner is that of the checkpoint, (seed, step)."""
    root, rows = KFACState(network, optimizer).root, list[list[float]]()
    for seed in range(seeds):
        rng, theta, row = np.random.default_rng(seed), network.theta.clone(), list[float]()
        v, t = torch.zeros_like(theta), 0
        for last in times:
            while t < last:
                index = None if math.isinf(size) else torch.from_numpy(rng.integers(network.examples, size=int(size)))
                g = network.gradient(theta, None if index is None else network.take(index))
                d = root.apply(root.apply(g))
                length = optimizer.lr**2 * float(d @ g)
                clip = min(1.0, math.sqrt(optimizer.kl_clip / length)) if optimizer.kl_clip else 1.0
                v = optimizer.momentum * v + clip * d
                theta = theta - optimizer.lr * v
                t += 1
            row.append(network.full_loss(theta))
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("clip", [0.0, 0.01])
def test_full_gradients_on_a_quadratic(clip: float) -> None:
    network, one, times = quadratic_network(), KFAC(0.1, momentum=0.5, kl_clip=clip), [1, 3, 10, 30]
    predicted = fit(network, optimizer=one, descent=0).predict(one, math.inf, times, bent=False).loss
    (real,) = frozen(network, one, math.inf, times, 1)
    np.testing.assert_allclose(predicted, real, rtol=1e-6)
    assert real[-1] < 0.9 * network.full_loss()


Noisy = tuple[Network, KFAC, list[int], float, Array]  # network, optimizer, steps, loss at the minimum, losses


@pytest.fixture(scope="module")
def noisy() -> Noisy:
    """Trainings at the minimum, where the loss is what noise adds; that is small, so that noise does not change with it."""
    network, times = quadratic_network(), [3, 10, 30]
    root = KFACState(network, KFAC()).root
    theta = network.theta
    for _ in range(300):
        theta = theta - 0.5 * root.apply(root.apply(network.gradient(theta)))
    network, least = network.at(theta - 0.01 * torch.ones_like(theta)), network.full_loss(theta)
    one = KFAC(0.2, momentum=0.5, kl_clip=0.001)
    return network, one, times, least, frozen(network, one, 64, times, 400) - least


@pytest.mark.parametrize("planted", [None, "momentum", "clip", "noise", "bound"])
def test_noise_on_a_quadratic_is_that_of_many_trainings(noisy: Noisy, planted: str | None) -> None:
    """Every planted bug must show."""
    network, one, times, least, losses = noisy
    wrong = {
        None: (one, 64), "momentum": (replace(one, momentum=0.4), 64), "clip": (replace(one, kl_clip=0.0), 64),
        "noise": (one, 80), "bound": (replace(one, kl_clip=0.0013), 64),
    }  # fmt: skip
    found = fit(network, optimizer=one, descent=0, noise_vectors=12)
    predicted = found.predict(*wrong[planted], times, bent=False).loss - least
    mean, error = losses.mean(0), losses.std(0, ddof=1) / math.sqrt(len(losses))
    off = np.abs(predicted - mean) / (3 * error + 0.03 * mean)
    assert bool(np.all(off < 1)) == (planted is None), (predicted, mean, error)


def test_settings_are_those_of_the_rule() -> None:
    """Defaults agree, and every value outside of a range of the rule is refused."""
    one = KFAC(0.1)
    assert {name: value for name, value in one.rule_settings().items() if name != "lr"}.items() <= DEFAULTS.items()
    bad = {"positive": 0.0, "in [0, 1)": 1.0, "0 or more": -1.0, "true or false": 2.0, "a whole number, 1 or more": 1.5}
    for name in one.rule_settings():
        with pytest.raises(Wrong):
            KFAC(**{"lr": 0.1, name: bad[KFAC_RANGES[name]]})
    with pytest.raises(Wrong, match="no value of lr"):
        KFAC().rule_settings()
    with pytest.raises(Wrong, match="layers of a network"):
        Quadratic(Spectrum([1.0])).sample(one, 4, 3, replicas=2)


def test_a_network_is_trained_by_the_rule() -> None:
    network = quadratic_network()
    run = network.run(KFAC(0.1, momentum=0.5), math.inf, [1, 4], seeds=1)
    rule, slopes = (
        KFACRule(network, network.theta[None], [{"lr": 0.1, "momentum": 0.5, "empirical": 0}], [3]),
        Plain(network),
    )
    for t in range(4):
        rule.step(slopes, torch.arange(network.examples)[None], t)
    # Targets are drawn at random for the factors, so the two differ a little.
    assert run.loss[-1] == pytest.approx(network.full_loss(rule.theta[0]), rel=0.02)
    with pytest.raises(Wrong, match="take no schedule"):
        network.run(KFAC(0.1), 8, 4, step(4, 0.5, [2]))


@pytest.fixture(scope="module")
def digits() -> tuple[Network, Fit]:
    network = workload("digits").network(100, examples=600)
    return network, fit(network, optimizer=KFAC(), descent=60, steps=20, noise_vectors=4)


def test_a_file_has_the_metric(digits: tuple[Network, Fit], tmp_path: Path) -> None:
    found, asked = digits[1], (KFAC(0.1, momentum=0.5), 64, [0, 5, 50])
    for name in ("a.json", "a.npz"):
        found.save(tmp_path / name)
        again = Fit.load(tmp_path / name)
        np.testing.assert_array_equal(again.predict(*asked).loss, found.predict(*asked).loss)
        assert isinstance(again.metric, KFACMetric)
        assert again.metric.optimizer == KFAC()
        assert again.metric.plain_noise_scale == found.metric.plain_noise_scale  # type: ignore[union-attr]


def test_wrong_use_gets_a_sentence(digits: tuple[Network, Fit]) -> None:
    network, found = digits
    for other in (SGD(0.1), HeavyBall(0.1, 0.5), AdamW(0.01)):
        with pytest.raises(Wrong, match="in the metric of KFAC"):
            found.predict(other, 64, 10)
        with pytest.raises(Wrong, match="in the metric of KFAC"):
            found.first_hits(other, 64, found.loss / 2)
    with pytest.raises(Wrong, match=r"damping of KFAC.* differs"):
        found.predict(KFAC(0.1, damping=0.1), 64, 10)
    with pytest.raises(Wrong, match="fit in its own metric"):
        fit(network, descent=0, test=False, steps=4).predict(KFAC(0.1), 64, 10)
    text = Network(network.model, network.loss, network.data, likelihood=None)
    text.likelihood = None
    with pytest.raises(Wrong, match="draws targets from the model"):
        fit(text, optimizer=KFAC(), descent=0)


def test_the_drift_and_the_schedule_matter(digits: tuple[Network, Fit]) -> None:
    found, one, times = digits[1], KFAC(0.1), [10, 40]
    metric = found.metric
    assert isinstance(metric, KFACMetric)
    assert metric.drift[-1] == pytest.approx(1.0, abs=1e-3)
    assert metric.drift[0] > 1.1  # the Fisher matrix of digits falls with the loss
    usual = found.predict(one, 256, times).loss
    still = replace(found, metric=replace(metric, drift=np.ones_like(metric.drift)))
    assert still.predict(one, 256, times).loss[-1] > 1.01 * usual[-1]
    halved = found.predict(one, 256, times, step(40, 0.5, [20])).loss
    assert halved[0] == pytest.approx(usual[0], rel=1e-12)
    assert halved[1] > 1.01 * usual[1]


def test_an_interval_does_not_depend_on_later_steps(digits: tuple[Network, Fit]) -> None:
    """Also if a later step is past the edge of stability, for which its own interval allows."""
    _, found = digits
    top = float(found.spectrum.h.max())
    rough = KFAC(2.2 / top, damping=found.metric.optimizer.damping, kl_clip=0.0)  # type: ignore[union-attr]
    alone, both = found.predict(rough, 256, [1]), found.predict(rough, 256, [1, 8])
    assert both.run.outcome.ok
    assert "times the largest stable one" in both.message
    np.testing.assert_allclose([alone.low[-1], alone.high[-1]], [both.low[0], both.high[0]], rtol=1e-12)
    with pytest.raises(Wrong, match="not of momentum"):
        found.predict(rough, 16, [5], Schedule([5], [1.0], [0.5]))


def test_advice_is_in_the_family_of_the_fit(digits: tuple[Network, Fit]) -> None:
    found = digits[1]
    advice = found.advise(64, 0.6 * found.loss, batch_sizes=(64,))
    assert isinstance(advice.optimizer, KFAC)
    hits = found.first_hits(advice.optimizer, 64, 0.6 * found.loss)
    assert hits.low <= hits.steps <= hits.high < 200


def test_sampled_trainings_agree_with_the_expected_loss(digits: tuple[Network, Fit]) -> None:
    """At small steps the mean of sampled trainings is the expected loss."""
    from nqm.nets.fitting.adaptive import AdaptiveTrainings

    one = KFAC(0.02, momentum=0.5)
    walk = AdaptiveTrainings(NaturalRun(digits[1], one, 64), 400, np.random.default_rng(0))
    for _ in range(20):
        walk.step()
    losses = walk.losses()
    expected, error = digits[1].predict(one, 64, [20]).loss[0], losses.std() / math.sqrt(len(losses))
    assert abs(losses.mean() - expected) < 4 * error + 0.005 * expected


def test_text_names_the_optimizer() -> None:
    assert parse_trained("KFAC(0.1, momentum=0.5)") == KFAC(0.1, momentum=0.5)
    assert parse_trained("HeavyBall(momentum=0.9)") == HeavyBall(momentum=0.9)
    with pytest.raises(Wrong, match="damping must be"):
        parse_trained("KFAC(damping=-1)")


@pytest.mark.slow
@pytest.mark.parametrize("setting", [(0.03, 0.5, 256), (0.1, 0.0, 64), (0.1, 0.0, 512)], ids=str)
def test_trainings_of_digits_are_predicted(digits: tuple[Network, Fit], setting: tuple[float, float, int]) -> None:
    network, found = digits
    lr, momentum, size = setting
    one = KFAC(lr, momentum=momentum)
    real = network.run(one, size, [10, 20], seeds=6)
    ahead = found.predict(one, size, [10, 20])
    np.testing.assert_allclose(ahead.loss, real.loss, rtol=0.08)
    assert real.loss[-1] < 0.8 * found.loss
