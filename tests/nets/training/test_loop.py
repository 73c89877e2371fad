"""Training against PyTorch's own optimizers, and its bookkeeping."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from models import mlp

from nqm import EMA, SGD, Adam, HeavyBall, Outcome, Polyak, Preconditioned
from nqm.nets.training.loop import Batches, train, walk


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD(0.3), lambda p: torch.optim.SGD(p, 0.3)),
        (HeavyBall(0.1, 0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        (Adam(0.05, 0.9, 0.99, 1e-8), lambda p: torch.optim.Adam(p, 0.05, betas=(0.9, 0.99))),
    ],
    ids=["sgd", "heavy_ball", "adam"],
)
def test_steps_are_those_of_pytorch(ours: object, theirs: object) -> None:
    network = mlp()
    model = network.model
    optimizer = theirs(model.parameters())  # type: ignore[operator]
    batches = Batches(network.examples, (7,))
    for _ in range(20):
        x, y = network.take(batches(4))
        optimizer.zero_grad()
        network.loss(model(x), y).backward()
        optimizer.step()
    there = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    ((_, here),) = walk(network, ours, 4, [20], batches=Batches(network.examples, (7,)))  # type: ignore[arg-type]
    torch.testing.assert_close(here, there, rtol=1e-8, atol=1e-10)


def test_a_run_reports_seeds_and_errors() -> None:
    network = mlp()
    run = network.run(EMA(SGD(0.2), 0.9), 4, [0, 10, 30], seeds=3)
    assert run.replicas == 3
    assert run.loss[0] == pytest.approx(network.full_loss())
    assert run.stderr is not None
    assert run.stderr[0] == pytest.approx(0.0, abs=1e-12)
    assert run.stderr[-1] > 0
    again = train(network, EMA(SGD(0.2), 0.9), 4, [0, 10, 30], seeds=3)
    np.testing.assert_array_equal(run.loss, again.loss)


def test_divergence_is_a_value() -> None:
    run = train(mlp(), SGD(1e6), 4, 50, seeds=1)
    assert run.outcome is Outcome.finished or "diverges" in run.message


def test_epochs_go_through_all_examples() -> None:
    batches = Batches(12, (0,), replacement=False)
    assert sorted(int(i) for _ in range(3) for i in batches(4)) == list(range(12))
    with pytest.raises(ValueError, match="without replacement"):
        batches(13)


def test_what_cannot_be_trained_says_so() -> None:
    with pytest.raises(ValueError, match="Preconditioned optimizers are predicted only"):
        train(mlp(), Preconditioned(SGD(0.1), 0.5), 4, 3)
    with pytest.raises(ValueError, match="whole batch_size"):
        train(mlp(), SGD(0.1), 4.5, 3)
    with pytest.raises(ValueError, match="depends on the length"):
        train(mlp(), Polyak(SGD(0.1), 0.5), 4, 30)
    with pytest.raises(ValueError, match="lr"):
        train(mlp(), SGD(), 4, 3)
