"""K-FAC against the dense Fisher matrix where it is exact, against loops over layers and examples, and against curvlinops."""

from __future__ import annotations

import math

import pytest
import torch
from models import cnn, mlp, regression
from torch import Tensor, nn
from torch.nn import functional as F

from nqm.nets.curvature import EmpiricalFisher, GaussNewton
from nqm.nets.network import Network
from nqm.nets.training.kronecker import Statistics, layers_of, others, statistics
from nqm.nets.training.rules.kfac import KFACRule, inverse, kfac
from nqm.nets.training.stacks import Plain, Stacked

DOUBLE = torch.float64


def found(network: Network, index: Tensor | None = None, seed: int | None = None) -> Statistics:
    """Statistics of one trial at the network's weights, on all its data unless an index is given."""
    index = torch.arange(network.examples) if index is None else index
    generators = None if seed is None else [torch.Generator().manual_seed(seed)]
    return statistics(Plain(network), layers_of(network), network.theta[None], index[None], generators)


def places(network: Network, layer: object) -> Tensor:
    """Where in the flat vector the entries of a layer's matrix lie, column after column."""
    numbers = network.unflatten(torch.arange(network.dim, dtype=DOUBLE)[None])
    return layer.matrix(numbers)[0].T.reshape(-1).long()  # type: ignore[attr-defined]


def block(network: Network, dense: Tensor, layer: object) -> Tensor:
    where = places(network, layer)
    return dense[where][:, where]


@pytest.mark.parametrize("make", [mlp, regression], ids=["classes", "numbers"])
def test_exact_for_a_single_example(make: object) -> None:
    """The gradient of one example is g a', so that every layer's block of the empirical Fisher matrix is aa' (x) gg'."""
    whole = make()  # type: ignore[operator]
    network = Network(whole.model, whole.loss, whole.take(slice(3, 4)), dtype=DOUBLE)
    dense, got = EmpiricalFisher(network).dense(), found(network)
    for layer in layers_of(network):
        A, G = got.factors[layer.name]
        torch.testing.assert_close(torch.kron(A[0], G[0]), block(network, dense, layer), rtol=1e-10, atol=1e-14)


def test_exact_in_the_mean_for_a_gaussian_linear_layer() -> None:
    """Squared error bends alike in every output and for every input: the Fisher matrix is A (x) (2 / outputs) I."""
    torch.manual_seed(0)
    network = Network(nn.Linear(4, 3), F.mse_loss, (torch.randn(4000, 4), torch.randn(4000, 3)), dtype=DOUBLE)
    dense, (layer,) = GaussNewton(network).dense(), layers_of(network)
    A, G = found(network, seed=1).factors[layer.name]
    expected = 2 / 3 * torch.eye(3, dtype=DOUBLE)
    torch.testing.assert_close(torch.kron(A[0], expected), block(network, dense, layer), rtol=1e-10, atol=1e-12)
    spread = (
        2 / 3 * torch.where(expected > 0, math.sqrt(2.0), 1.0) / math.sqrt(4000)
    )  # of a sample covariance of normals
    assert ((G[0] - expected) / spread).abs().max() < 4
    assert ((1.1 * G[0] - expected) / spread).abs().max() > 4  # the test sees a tenth


def test_exact_in_the_mean_for_softmax_of_one_input() -> None:
    """With the same input everywhere the Fisher matrix is aa' (x) (diag p - pp')."""
    torch.manual_seed(1)
    n, x = 5000, torch.randn(1, 4)
    network = Network(nn.Linear(4, 3), F.cross_entropy, (x.expand(n, -1), torch.arange(n) % 3), dtype=DOUBLE)
    dense, (layer,) = GaussNewton(network).dense(), layers_of(network)
    p = network.output(network.theta, (x.double(),))[0].softmax(0)
    A, G = found(network, seed=2).factors[layer.name]
    torch.testing.assert_close(
        torch.kron(A[0], p.diag() - torch.outer(p, p)), block(network, dense, layer), rtol=1e-9, atol=1e-12
    )
    slopes = p[None] - torch.eye(3, dtype=DOUBLE)  # g for each class that may be drawn
    outer = slopes[:, :, None] * slopes[:, None, :]
    mean, square = (p[:, None, None] * outer).sum(0), (p[:, None, None] * outer**2).sum(0)
    z = (G[0] - mean) / ((square - mean**2) / n).sqrt()
    assert z.abs().max() < 4


def test_other_parameters_have_their_diagonal_in_the_mean() -> None:
    """B times the squared gradient of a batch of drawn targets: unbiased for the diagonal of the Fisher matrix."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.out = nn.Parameter(torch.randn(4)), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(x * self.scale)

    torch.manual_seed(2)
    network = Network(Scaled(), F.cross_entropy, (torch.randn(8, 4), torch.arange(8) % 3), dtype=DOUBLE)
    layers = layers_of(network)
    assert others(network, layers) == ["scale"]
    draws = torch.stack([8 * found(network, seed=s).drawn[0, :4] ** 2 for s in range(400)])
    z = (draws.mean(0) - GaussNewton(network).dense().diagonal()[:4]) / (draws.std(0) / 20)
    assert z.abs().max() < 4


def looped(network: Network) -> dict[str, tuple[Tensor, Tensor]]:
    """Factors of the empirical Fisher matrix, by a loop over layers, examples and places."""
    sums: dict[str, tuple[Tensor, Tensor]] = {}
    for layer in layers_of(network):
        kept: dict[str, Tensor] = {}

        def keep(module: nn.Module, x: tuple[Tensor, ...], out: Tensor, kept: dict[str, Tensor] = kept) -> None:
            out.retain_grad()
            kept.update(x=x[0], out=out)

        handle = layer.module.register_forward_hook(keep)
        A: Tensor | float = 0.0
        G: Tensor | float = 0.0
        for i in range(network.examples):
            batch = network.take(slice(i, i + 1))
            network.loss(network.model(batch[0]), batch[1]).backward()
            pairs = list(by_place(layer.module, kept["x"].detach()[0], kept["out"].grad[0]))  # type: ignore[index]
            for a, g in pairs:
                A = A + torch.outer(a, a) / network.examples
                G = G + torch.outer(g, g) / network.examples / len(pairs)
        handle.remove()
        assert isinstance(A, Tensor)
        assert isinstance(G, Tensor)
        sums[layer.name] = (A, G)
    return sums


def by_place(module: nn.Module, x: Tensor, g: Tensor) -> object:
    """(a, g) at each place where a layer is applied to one example."""
    one = torch.ones(1, dtype=x.dtype)
    if isinstance(module, nn.Linear):
        yield torch.cat([x, one]), g
        return
    assert isinstance(module, nn.Conv2d)
    (kh, kw), (sh, sw), (ph, pw) = module.kernel_size, module.stride, module.padding  # type: ignore[misc]
    padded = F.pad(x, (int(pw), int(pw), int(ph), int(ph)))
    for r in range(g.shape[1]):
        for c in range(g.shape[2]):
            patch = padded[:, r * sh : r * sh + kh, c * sw : c * sw + kw]
            yield torch.cat([patch.reshape(-1), one]), g[:, r, c]


def padded_cnn() -> Network:
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3)
    )
    return Network(model, F.cross_entropy, (torch.randn(5, 2, 5, 5), torch.arange(5) % 3), dtype=DOUBLE)


@pytest.mark.parametrize("make", [mlp, cnn, padded_cnn], ids=["mlp", "cnn", "padded"])
def test_factors_are_those_of_a_plain_loop(make: object) -> None:
    network = make()  # type: ignore[operator]
    expected, got = looped(network), found(network).factors
    assert list(got) == list(expected)
    for name, (A, G) in expected.items():
        torch.testing.assert_close(got[name][0][0], A, rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(got[name][1][0], G, rtol=1e-10, atol=1e-16)


def test_a_convolution_that_sees_all_is_a_linear_layer() -> None:
    torch.manual_seed(3)
    conv, x, y = nn.Conv2d(2, 3, 4), torch.randn(6, 2, 4, 4), torch.arange(6) % 3
    linear = nn.Linear(32, 3)
    linear.load_state_dict({"weight": conv.weight.reshape(3, 32), "bias": conv.bias})
    both = (nn.Sequential(conv, nn.Flatten()), nn.Sequential(nn.Flatten(), linear))
    one, other = (found(Network(model, F.cross_entropy, (x, y), dtype=DOUBLE), seed=0) for model in both)
    for mine, theirs in zip(*(next(iter(f.factors.values())) for f in (one, other)), strict=True):
        torch.testing.assert_close(mine, theirs)


def tokens() -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    return torch.randint(7, (6, 5)), torch.randint(3, (6, 5))


def test_an_embedding_is_a_linear_layer_of_one_hot_inputs() -> None:
    class Tagger(nn.Module):
        def __init__(self, first: nn.Module) -> None:
            super().__init__()
            self.first, self.out = first, nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.first(x).tanh()).movedim(-1, 1)

    x, y = tokens()
    embed, linear = Tagger(nn.Embedding(7, 4)), Tagger(nn.Linear(7, 4, bias=False))
    linear.load_state_dict({**embed.state_dict(), "first.weight": embed.first.weight.T})
    one = Network(embed, F.cross_entropy, (x, y), dtype=DOUBLE)
    other = Network(linear, F.cross_entropy, (F.one_hot(x, 7).double(), y), dtype=DOUBLE)
    mine, theirs = found(one, seed=1), found(other, seed=1)
    A, G = mine.factors["first"]
    torch.testing.assert_close(A[0].diag(), theirs.factors["first"][0][0])
    torch.testing.assert_close(G, theirs.factors["first"][1])
    settings, index = [{"lr": 0.3, "damping": 0.1}], torch.arange(6)[None]
    rules = [KFACRule(n, n.theta[None], settings, [0]) for n in (one, other)]
    for t in range(3):
        for rule, network in zip(rules, (one, other), strict=True):
            rule.step(Plain(network), index, t)
    here, there = one.unflatten(rules[0].theta), other.unflatten(rules[1].theta)
    torch.testing.assert_close(here["first.weight"][0].T, there["first.weight"][0])
    torch.testing.assert_close(here["out.weight"], there["out.weight"])


def test_tokens_of_a_sequence_have_their_fisher_matrix() -> None:
    """A loss that is a mean over T tokens: drawn one by one, the Fisher matrix is T times the gradients' covariance."""
    torch.manual_seed(6)

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(x).movedim(-1, 1)

    x = torch.randn(1, 1, 3).expand(600, 5, 3)  # one input everywhere, where K-FAC is exact
    network = Network(Head(), F.cross_entropy, (x, torch.randint(4, (600, 5))), dtype=DOUBLE)
    (layer,) = layers_of(network)
    A, G = found(network, seed=3).factors[layer.name]
    dense = block(network, GaussNewton(network).dense(), layer)
    assert float(torch.kron(A[0], G[0]).trace() / dense.trace()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("make", [mlp, cnn, regression], ids=["mlp", "cnn", "regression"])
def test_stacked_steps_are_those_of_single_trials(make: object) -> None:
    network = make()  # type: ignore[operator]
    settings = [
        {
            "lr": 0.1 * k, "damping": 0.1 / k, "momentum": 0.3 * (k - 1), "decay": 0.8, "kl_clip": 0.01 * (k - 1),
            "weight_decay": 0.1 * k, "damping_period": 1, "warmup": 3,
        }
        for k in (1, 2, 3)
    ]  # fmt: skip
    index = torch.arange(12).reshape(3, 4)
    start = network.theta + 0.1 * torch.arange(3)[:, None]
    stack = KFACRule(network, start, settings, [5, 6, 7])
    alone = [KFACRule(network, start[k : k + 1], settings[k : k + 1], [5 + k]) for k in range(3)]
    for t in range(4):
        if t == 2:
            stack.keep([0, 2])
            del alone[1]
            index = index[[0, 2]]
        stack.step(Stacked(network), index, t)
        for k, rule in enumerate(alone):
            rule.step(Plain(network), index[k : k + 1], t)
    torch.testing.assert_close(stack.theta, torch.cat([rule.theta for rule in alone]), rtol=1e-8, atol=1e-10)


def test_accumulated_statistics_are_those_of_the_batch() -> None:
    network, index = cnn(), torch.arange(20)[None]
    whole = found(network)
    network.chunk = 7
    pieces = statistics(Plain(network), layers_of(network), network.theta[None], index, None)
    for name, pair in whole.factors.items():
        torch.testing.assert_close(pieces.factors[name], pair)
    torch.testing.assert_close(pieces.g, whole.g)


def test_factors_of_a_part_of_the_batch() -> None:
    """The gradient is the whole batch's; the factors are those of its first examples."""
    network, index = mlp(), torch.arange(20)[None]
    rule = KFACRule(network, network.theta[None], [{"lr": 0.1, "empirical": 1, "factor_examples": 6}], [0])
    g = rule.gather(Plain(network), index)
    torch.testing.assert_close(g[0], network.gradient(network.theta, network.take(index[0])))
    torch.testing.assert_close(rule.factors, found(network, index[0, :6]).factors)


def test_factors_are_those_of_curvlinops() -> None:
    curvlinops = pytest.importorskip("curvlinops")
    network = padded_cnn()
    model, batch = network.model, network.data
    parameters = list(model.parameters())
    operator = curvlinops.KFACLinearOperator(
        model, nn.CrossEntropyLoss(), parameters, [batch], fisher_type="empirical", separate_weight_and_bias=False,
        check_deterministic=False,
    )  # fmt: skip
    v = torch.randn(network.dim, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    theirs = operator @ list(network.unflatten(v).values())
    parts, got = network.unflatten(v[None]), found(network).factors
    ours: dict[str, Tensor] = {}
    for layer in layers_of(network):
        A, G = got[layer.name]
        ours |= layer.parts(G @ layer.matrix(parts) @ A, network.shapes)
    for name, there in zip(network.shapes, theirs, strict=True):
        torch.testing.assert_close(ours[name][0], there, rtol=1e-9, atol=1e-12)


def test_what_has_no_factors_is_left_to_the_diagonal() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.layer(self.layer(x)))

    network = Network(Twice(), F.cross_entropy, (torch.randn(6, 4), torch.arange(6) % 3), dtype=DOUBLE)
    assert [layer.name for layer in layers_of(network)] == ["out"]
    assert others(network, layers_of(network)) == ["layer.weight", "layer.bias"]
    rule = KFACRule(network, network.theta[None], [{"lr": 0.1}], [0])
    rule.step(Plain(network), torch.arange(6)[None], 0)
    assert torch.isfinite(rule.theta).all()
    assert not torch.equal(
        network.unflatten(rule.theta)["layer.weight"][0], network.unflatten(network.theta)["layer.weight"]
    )


def test_inverses_of_hard_matrices() -> None:
    q, _ = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(0), dtype=DOUBLE))
    easy, hard = (q @ torch.logspace(0, low, 8, dtype=DOUBLE).diag() @ q.T for low in (-2, -7.5))
    got = inverse(torch.stack([easy, hard, -easy]).float())  # float32 cannot factorise the second
    for mine, matrix in zip(got[:2], (easy, hard), strict=True):
        wanted = torch.linalg.inv(matrix.float().double())
        torch.testing.assert_close(mine.double(), wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))
    assert torch.isnan(got[2]).all()  # not positive definite: the trial diverges and says so


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lr": 0.1, "damp": 1.0}, "no setting 'damp'; it has lr, momentum, damping"),
        ({"damping": 0.1}, "needs a value of lr"),
        ({"lr": 0.1, "damping": 0.0}, "damping must be positive"),
        ({"lr": 0.1, "momentum": 1.0}, r"momentum must be in \[0, 1\)"),
        ({"lr": 0.1, "factor_period": 1.5}, "a whole number, 1 or more"),
        ({"lr": 0.1, "empirical": 2}, "true or false"),
        ({"lr": 0.1, "kl_clip": -0.01}, "kl_clip must be 0 or more, got -0.01"),
        ({"lr": 0.1, "weight_decay": -1}, "weight_decay must be 0 or more, got -1"),
        ({"lr": 0.1, "warmup": 2.5}, "warmup must be a whole number, 0 or more, got 2.5"),
        ({"lr": 0.1, "damping_period": -5}, "damping_period must be a whole number, 0 or more, got -5"),
        ({"lr": 0.1, "staleness": 1}, r"staleness must be in \[0, 1\), got 1"),
    ],
    ids=["name", "lr", "damping", "momentum", "period", "empirical", "clip", "decay", "warmup", "tests", "staleness"],
)
def test_wrong_settings_are_named(settings: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kfac().check_settings(settings, None)


def test_a_network_it_does_not_fit_is_named() -> None:
    x, y = torch.randn(6, 4), torch.arange(6) % 2
    model = nn.Linear(4, 2)
    of_model = Network(model, lambda m, batch: F.cross_entropy(m(batch[0]), batch[1]), (x, y), of="model")
    with pytest.raises(ValueError, match="function of the model"):
        kfac().check_settings({"lr": 0.1}, of_model)
    unknown = Network(model, lambda out, target: F.cross_entropy(out, target), (x, y))
    with pytest.raises(ValueError, match="likelihood, or set empirical = 1"):
        kfac().check_settings({"lr": 0.1}, unknown)
    kfac().check_settings({"lr": 0.1, "empirical": 1}, unknown)
