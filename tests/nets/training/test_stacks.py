"""Gradients of stacks of trials against those of single networks, and their minibatches."""

from __future__ import annotations

import pytest
import torch
from models import NETWORKS, mlp
from torch import Tensor, nn
from torch.nn import functional as F

from nqm.nets.network import Network
from nqm.nets.training.stacks import Draws, Plain, Slopes, Stacked


def of_model() -> Network:
    x, y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    torch.manual_seed(0)
    return Network(
        nn.Linear(4, 3), lambda m, b: F.cross_entropy(m(b[0]), b[1]), (x, y), of="model", dtype=torch.float64
    )


CASES = {**NETWORKS, "of_model": of_model}


def stack(network: Network, trials: int = 3) -> Tensor:
    noise = torch.randn(trials, network.dim, generator=torch.Generator().manual_seed(1), dtype=network.theta.dtype)
    return network.theta + 0.05 * noise


@pytest.mark.parametrize("kind", [Plain, Stacked])
@pytest.mark.parametrize("name", list(CASES))
def test_gradients_are_those_of_single_networks(name: str, kind: type[Slopes]) -> None:
    network = CASES[name]()
    theta = stack(network)
    own = torch.randint(network.examples, (3, 4), generator=torch.Generator().manual_seed(2))
    for index in (own, own[:1]):
        got = kind(network)(theta, index)
        rows = index.expand(3, -1)
        wanted = [network.gradient(row, network.take(chosen)) for row, chosen in zip(theta, rows, strict=True)]
        torch.testing.assert_close(got, torch.stack(wanted), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [Plain, Stacked])
def test_accumulated_gradients_are_those_of_the_batch(kind: type[Slopes]) -> None:
    network = mlp()
    theta, index = stack(network, 5), torch.arange(50).reshape(5, 10) % 24
    pieces = kind(mlp(chunk=4))
    assert [piece.shape[1] for piece, _ in pieces.pieces(index)] == [4, 4, 2]
    torch.testing.assert_close(pieces(theta, index), kind(network)(theta, index))


def test_a_stack_larger_than_the_chunk_goes_in_parts() -> None:
    network = mlp()
    theta, index = stack(network, 5), torch.arange(30).reshape(5, 6) % 24
    torch.testing.assert_close(Stacked(mlp(chunk=13))(theta, index), Stacked(network)(theta, index))


def test_a_loaded_module_is_the_network() -> None:
    network = mlp()
    before, batch, (_, theta, other) = network.theta.clone(), network.take(slice(5)), stack(network)
    output = network.loaded(theta)
    torch.testing.assert_close(output(batch), network.output(theta, batch))
    assert network.loaded(other)(batch).equal(output(batch))  # the same module, with the weights of the last call
    torch.testing.assert_close(network.theta, before)
    torch.testing.assert_close(network.model.state_dict(), network.state_dict())  # the network's own module stays


def test_batches_depend_on_the_seed_alone() -> None:
    several, alone = Draws(100, [3, 8, 3]), Draws(100, [8])
    first, one = several(5), alone(5)
    assert first.shape == (3, 5)
    torch.testing.assert_close(first[0], first[2])
    torch.testing.assert_close(first[1], one[0])
    several.keep([1])
    torch.testing.assert_close(several(5), alone(5))
    assert Draws(100, [4, 4, 4])(5).shape == (1, 5)  # one batch serves all


def test_epochs_hold_every_example_once() -> None:
    draws = Draws(12, [0, 1], replacement=False)
    drawn = torch.cat([draws(4) for _ in range(3)], dim=1)
    assert [sorted(row.tolist()) for row in drawn] == [list(range(12))] * 2


def test_parts_of_a_stack_are_named() -> None:
    network = mlp()
    theta = stack(network)
    for name, part in network.unflatten(theta).items():
        torch.testing.assert_close(part[2], network.unflatten(theta[2])[name])
