"""Products with curvature matrices against dense ones, built another way, and against an established library."""

from __future__ import annotations

import os
from importlib import import_module

import pytest
import torch
from models import NETWORKS, mlp
from torch import Tensor, nn
from torch.nn import functional as F

from nqm.nets.curvature import CURVATURES, EmpiricalFisher, Fisher, GaussNewton, Hessian, curvature_of
from nqm.nets.network import Network

TIGHT = {"rtol": 1e-9, "atol": 1e-12}


def dense(network: Network, kind: str) -> Tensor:
    """The matrix by full Jacobians and Hessians, one example at a time."""
    total = torch.zeros(network.dim, network.dim, dtype=network.theta.dtype)
    for i in range(network.examples):
        batch = network.take(slice(i, i + 1))
        if kind == "gauss_newton":
            J = torch.autograd.functional.jacobian(lambda t, b=batch: network.output(t, b)[0], network.theta)
            out = network.output(network.theta, batch)[0].detach()
            bend = torch.autograd.functional.hessian(lambda o, b=batch: network.loss(o[None], b[1]), out)
            total += J.T @ bend @ J
        elif kind == "hessian":
            total += torch.autograd.functional.hessian(lambda t, b=batch: network.batch_loss(t, b), network.theta)
        else:
            g = torch.autograd.functional.jacobian(lambda t, b=batch: network.batch_loss(t, b), network.theta)
            total += torch.outer(g, g)
    return total / network.examples


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["gauss_newton", "hessian", "empirical_fisher"])
def test_products_match_dense_matrices(name: str, kind: str) -> None:
    network = NETWORKS[name]()
    network.chunk = 16  # several pieces, unequal
    matrix = dense(network, kind)
    assert torch.linalg.matrix_norm(matrix) > 1e-3
    operator = curvature_of(network, kind, vectors=3)
    v = torch.randn(5, network.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(operator(v), v @ matrix, **TIGHT)
    torch.testing.assert_close(operator(v[0]), v[0] @ matrix, **TIGHT)
    assert operator.products == 6


@pytest.mark.parametrize("name", NETWORKS)
def test_hessian_of_the_linearised_network_is_gauss_newton(name: str) -> None:
    network = NETWORKS[name]()
    v = torch.randn(3, network.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    there = GaussNewton(network)(v)
    torch.testing.assert_close(Hessian(network.linearised())(v), there, **TIGHT)
    assert (Hessian(network)(v) - there).norm() > 1e-3 * there.norm()  # the network itself bends


@pytest.mark.parametrize("name", ["mlp", "attention", "regression", "bernoulli"])
def test_fisher_averages_to_gauss_newton(name: str) -> None:
    """z-scores of v' F v over independent draws, against v' G v; the empirical Fisher must be far off."""
    if name == "bernoulli":
        torch.manual_seed(5)
        y = (torch.rand(16, 1) < 0.5).double()
        network = Network(nn.Linear(4, 1), nn.BCEWithLogitsLoss(), (torch.randn(16, 4), y), dtype=torch.float64)
    else:
        network = NETWORKS[name]()
    v = torch.randn(4, network.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    draws = torch.stack([(Fisher(network, samples=1, seed=s)(v) * v).sum(1) for s in range(120)])
    exact = (GaussNewton(network)(v) * v).sum(1)
    z = (draws.mean(0) - exact) / (draws.std(0) / 120**0.5)
    assert z.abs().max() < 4
    wrong = ((EmpiricalFisher(network)(v) * v).sum(1) - exact) / (draws.std(0) / 120**0.5)
    assert wrong.abs().max() > 6


@pytest.mark.slow
def test_fisher_is_one_matrix() -> None:
    network = mlp()
    network.chunk = 10
    operator = Fisher(network, vectors=4, samples=2, seed=3)
    matrix = operator.dense()
    torch.testing.assert_close(matrix, matrix.T)
    v = torch.randn(network.dim, dtype=torch.float64)
    torch.testing.assert_close(operator(v), matrix @ v)


def test_single_precision_is_close() -> None:
    network = mlp()
    single = Network(network.model, network.loss, network.data, dtype=torch.float32)
    v = torch.randn(3, network.dim, dtype=torch.float64)
    for kind in ("gauss_newton", "hessian", "empirical_fisher"):
        there = curvature_of(network, kind)(v)
        torch.testing.assert_close(curvature_of(single, kind)(v), there, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        ("gauss_newton", "GGNLinearOperator"),
        ("hessian", "HessianLinearOperator"),
        ("empirical_fisher", "EFLinearOperator"),
    ],
)
def test_against_curvlinops(name: str, kind: str, theirs: str) -> None:
    required = bool(os.environ.get("NQM_REQUIRE_TORCH"))  # `make test` has it
    curvlinops = import_module("curvlinops") if required else pytest.importorskip("curvlinops")
    if name == "attention":
        pytest.skip("their products do not pass through fused attention")
    if name == "regression" and kind == "empirical_fisher":
        pytest.skip("theirs is in units of another likelihood")
    network = NETWORKS[name]()
    loss = nn.CrossEntropyLoss() if network.likelihood == "categorical" else nn.MSELoss()
    params = list(network.model.parameters())
    operator = getattr(curvlinops, theirs)(network.model, loss, params, [network.data])
    v = torch.randn(network.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(curvature_of(network, kind)(v), operator @ v, **TIGHT)


def test_a_loss_of_the_model_has_no_gauss_newton() -> None:
    network = Network(nn.Linear(4, 3), lambda m, b: F.cross_entropy(m(b[0]), b[1]), mlp_data(), of="model")
    assert isinstance(curvature_of(network), Hessian)
    for kind in ("gauss_newton", "fisher"):
        with pytest.raises(ValueError, match=r"loss of the model|likelihood"):
            curvature_of(network, kind)
    with pytest.raises(ValueError, match="curvature must be one of"):
        curvature_of(network, "kfac")
    assert set(CURVATURES) == {"gauss_newton", "hessian", "fisher", "empirical_fisher"}


def mlp_data() -> tuple[Tensor, Tensor]:
    return torch.randn(10, 4), torch.arange(10) % 3
