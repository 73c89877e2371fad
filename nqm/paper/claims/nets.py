"""What claims about networks share: a small network on real data, and one thread to measure it on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from ...nets.network import Network

NEEDS = ("torch", "nets")


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: claims share the processors, and threads that wait for one another spin."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def digits(width: int, examples: int, steps: int, seed: int) -> Network:
    """An MLP with one hidden layer of tanh on scikit-learn's digits, in float64, after some steps of SGD."""
    import torch
    from torch import nn

    from ...nets.workloads import workload

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 10))

    return replace(workload("digits"), model=model).network(steps, seed=seed, examples=examples, dtype=torch.float64)


def gauss_newton(network: Network) -> Tensor:
    """``mean J' (diag p - p p') J`` from whole Jacobians, which shares nothing with the products of `GaussNewton`."""
    import torch

    theta, (x, _) = network.theta, network.data
    jacobian = torch.func.jacrev(lambda t, one: network.output(t, (one[None],))[0])
    J = torch.func.vmap(jacobian, in_dims=(None, 0))(theta, x)
    with torch.no_grad():
        p = network.output(theta, (x,)).softmax(1)
    bend = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return (J.transpose(1, 2) @ (bend @ J)).mean(0)


def gap(found: Tensor, wanted: Tensor) -> float:
    """``|A - B| / |B|`` in the norm of Frobenius."""
    return float((found - wanted).norm() / wanted.norm())


def listed(values: Sequence[int]) -> str:
    """``0, 30 and 300``.

    >>> listed([0, 30, 300]), listed([7])
    ('0, 30 and 300', '7')
    """
    *most, last = [f"{value:,}" for value in values]
    return f"{', '.join(most)} and {last}" if most else last
