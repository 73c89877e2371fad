"""Lanczos against dense eigen-decompositions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from models import mlp

from nqm.nets.curvature import GaussNewton
from nqm.nets.krylov import STORES, Store, lanczos, top_eigenpairs
from nqm.types import Array, Wrong


def matrix(n: int = 60, seed: int = 0) -> torch.Tensor:
    """Eigenvalues i^-1.5, turned at random: clusters near zero, where Lanczos without reorthogonalisation loses itself."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]
    return (q * torch.arange(1, n + 1, dtype=torch.float64) ** -1.5) @ q.T


def test_all_steps_give_the_whole_spectrum() -> None:
    A = matrix()
    start = torch.randn(2, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for found, v in zip(lanczos(lambda v: v @ A, start, 60, keep=True), start, strict=True):
        nodes, weights = found.quadrature()
        values, vectors = np.linalg.eigh(A.numpy())
        np.testing.assert_allclose(nodes, values, atol=1e-12)
        np.testing.assert_allclose(weights, (vectors.T @ v.numpy()) ** 2, rtol=1e-4, atol=1e-10)
        assert found.basis is not None
        torch.testing.assert_close(found.basis @ found.basis.T, torch.eye(60, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("steps", [3, 10, 25])
def test_k_steps_integrate_powers_up_to_2k_minus_1(steps: int) -> None:
    A = matrix()
    v = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    nodes, weights = lanczos(lambda v: v @ A, v, steps)[0].quadrature()
    power, total = v, weights.sum()
    for degree in range(2 * steps):
        assert (weights * nodes**degree).sum() == pytest.approx(float(v @ power), rel=1e-10), degree
        power = A @ power
    assert total == pytest.approx(float(v @ v), rel=1e-13)
    power = v.numpy() @ np.linalg.matrix_power(A.numpy(), 2 * steps) @ v.numpy()
    if steps == 3:  # and no further; with more steps the error of the next power is below rounding
        assert abs((weights * nodes ** (2 * steps)).sum() / power - 1) > 1e-3


def test_an_invariant_space_ends_it() -> None:
    A = torch.diag(torch.tensor([3.0, 3.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    v = torch.tensor([1.0, 2.0, 1.0, 0.0, 0.0, 2.0], dtype=torch.float64)
    (found,) = lanczos(lambda v: v @ A, v, 6)
    nodes, weights = found.quadrature()
    np.testing.assert_allclose(nodes, [0, 1, 3], atol=1e-12)
    np.testing.assert_allclose(weights, [4, 1, 5], atol=1e-12)


def test_top_eigenpairs_put_back_into_the_equation() -> None:
    A = matrix(120, seed=3)
    values, vectors, errors = top_eigenpairs(lambda v: v @ A, 120, 5, dtype=torch.float64, tol=1e-8)
    np.testing.assert_allclose(values, np.arange(1, 6) ** -1.5, rtol=1e-8)
    assert (vectors @ A - torch.as_tensor(values)[:, None] * vectors).norm(dim=1).max() < 2e-8
    assert errors.max() < 1e-8


def test_ritz_values_of_a_network() -> None:
    network = mlp()
    operator = GaussNewton(network)
    values, _, _ = top_eigenpairs(operator, network.dim, 3, dtype=torch.float64, tol=1e-9)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(operator.dense().numpy())[::-1][:3], rtol=1e-9)


def test_interrupt_keeps_what_is_done() -> None:
    A, calls = matrix(), []

    def product(v: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 7:
            raise KeyboardInterrupt
        return v @ A

    v = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (found,) = lanczos(product, v, 30)
    (there,) = lanczos(lambda v: v @ A, v, 7)
    np.testing.assert_array_equal(found.alpha, there.alpha)


def test_a_zero_start_is_refused() -> None:
    with pytest.raises(ValueError, match="not zero"):
        lanczos(lambda v: v, torch.zeros(4), 2)


def test_residuals_are_those_of_the_ritz_pairs() -> None:
    A = matrix()
    v = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (found,) = lanczos(lambda v: v @ A, v, 12, keep=True)
    values, vectors = found.ritz()
    there = torch.linalg.vector_norm(vectors @ A - torch.as_tensor(values.copy())[:, None] * vectors, dim=1)
    np.testing.assert_allclose(found.residuals(), there.numpy(), atol=1e-12)
    assert found.residuals()[0] < 1e-3 < found.residuals().max()


def test_eigenpairs_take_no_product_that_is_not_needed() -> None:
    """Lanczos goes on while a residual is too large, and does not begin again."""
    A, rows = torch.diag(torch.linspace(0, 1, 120, dtype=torch.float64) ** 2), []

    def product(v: torch.Tensor) -> torch.Tensor:
        rows.append(len(v))
        return v @ A

    values, _, errors = top_eigenpairs(product, 120, 2, dtype=torch.float64, tol=1e-4)
    assert errors.max() <= 1e-4 * values[0]
    *steps, last = rows
    assert set(steps) == {1}
    assert last == 2  # the vectors themselves
    start = torch.randn(120, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (sooner,) = lanczos(lambda v: v @ A, start, len(steps) - 1)
    assert sooner.residuals()[:2].max() > 1e-4 * values[0]


@pytest.mark.parametrize("store", STORES)
def test_where_the_basis_is_kept(store: Store) -> None:
    """The stated error of the basis is that of its Gram matrix, and nodes are close to those in working precision."""
    A = matrix(200).float()
    start = torch.randn(2, 200, generator=torch.Generator().manual_seed(1))
    exact = lanczos(lambda v: v @ A, start, 30, keep=True)
    found = lanczos(lambda v: v @ A, start, 30, keep=True, store=store)
    for one, other in zip(found, exact, strict=True):
        assert one.basis is not None
        assert one.basis.dtype == (torch.bfloat16 if store.endswith("bf16") else torch.float32)
        Q = one.basis.double()
        off = float((Q @ Q.T - torch.eye(len(Q), dtype=torch.float64)).abs().max())
        assert one.error == (0.0 if store == "working" else pytest.approx(off, abs=1e-6))
        assert off < (1e-2 if store.endswith("bf16") else 1e-5)
        np.testing.assert_allclose(one.quadrature()[0][-5:], other.quadrature()[0][-5:], rtol=1e-3)
        values, vectors = one.ritz(3)
        rest = torch.linalg.vector_norm(vectors @ A - torch.as_tensor(values[:3]).float()[:, None] * vectors, dim=1)
        assert float(rest.max()) < 1e-2 * values[0]


def test_no_copies_of_eigenvalues_from_a_rounded_basis() -> None:
    """Without reorthogonalisation copies of the largest eigenvalue appear; against a rounded basis they do not."""
    A = torch.diag(torch.cat([torch.tensor([100.0, 10.0]), torch.linspace(0, 1, 1998)]))
    start = torch.randn(2000, generator=torch.Generator().manual_seed(3))
    nodes = lanczos(lambda v: v @ A, start, 60, store="bf16")[0].quadrature()[0]
    assert int((nodes > 50).sum()) == 1
    assert int((nodes > 5).sum()) == 2
    plain = _unorthogonalised(A, start, 60)
    assert int((plain > 50).sum()) > 1  # the planted bug


def _unorthogonalised(A: torch.Tensor, start: torch.Tensor, steps: int) -> Array:
    """Ritz values of Lanczos by its three-term recurrence alone."""
    alpha, beta, v, before, b = [], [], start / start.norm(), torch.zeros_like(start), 0.0
    for _ in range(steps):
        w = A @ v
        a = float(w @ v)
        w = w - a * v - b * before
        alpha.append(a)
        b = float(w.norm())
        beta.append(b)
        v, before = w / b, v
    return np.linalg.eigvalsh(np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1))


def test_an_unknown_store_is_refused() -> None:
    with pytest.raises(Wrong, match="store must be one of working, host, bf16, host-bf16, got 'disk'"):
        lanczos(lambda v: v, torch.ones(3), 2, store="disk")  # type: ignore[arg-type]
