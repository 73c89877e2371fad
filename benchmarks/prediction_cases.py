"""Networks on which predictions of real training are measured, with their fits and trainings kept in a folder.

``python -m benchmarks.prediction_cases FOLDER [NAME ...]`` makes the fits and trainings of the named networks. Fits are made
with a descent as long as the longest training needs, and trainings that the folder has are not made again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from nqm import EMA, SGD, HeavyBall, Nesterov
from nqm.engine.run import Run
from nqm.nets import Network, fit, workload
from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.testing import with_test
from nqm.nets.fitting.validation import CHECKED_STEPS, Trainings
from nqm.nets.workloads.base import Workload
from nqm.nets.workloads.digits import data as digits_data
from nqm.nets.workloads.fashion import data as fashion_data
from nqm.optimizers import Optimizer

DESCENT = 700  # full gradients of the descents: 1,000 steps at 0.75 / largest curvature go half as far again
RATES = (0.1, 0.3, 0.75)  # effective learning rates x largest curvature at which four optimizers are trained
EDGE_RATES = (
    1.5,
    2.5,
    4.0,
)  # learning rates x largest curvature of SGD near and past the edge of stability, which is 2


def gelu_mlp() -> nn.Module:
    """An MLP with two hidden layers and GELU: 26,506 weights."""
    layers = (nn.Linear(784, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 10))
    return nn.Sequential(nn.Flatten(), *layers)


def relu_mlp() -> nn.Module:
    """An MLP with one hidden layer and ReLU: 2,410 weights."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


GELU = Workload("gelu_mlp", fashion_data, gelu_mlp, examples=4000, optimizer=SGD(0.05), batch_size=64, steps=500)
RELU = Workload("relu_mlp", digits_data, relu_mlp, examples=600, optimizer=SGD(0.1), batch_size=32, steps=0)


@dataclass(frozen=True)
class Case:
    """A network at a checkpoint, the batch sizes and the number of seeds of its trainings, and what it is used for."""

    network: Callable[[], Network]
    batch_sizes: tuple[int, ...] = (16, 64, 256, 1024)
    seeds: int = 3
    descent: int = (
        DESCENT  # full gradients of the fit's descent; more where curvature grows, because the descent is braked there
    )
    chosen_on: bool = False  # whether forms and constants were chosen on it; the others only check them


FEW = (16, 64, 256)  # batch sizes of cases that check with half as many settings
CASES = {
    "digits": Case(lambda: workload("digits").network(), chosen_on=True),
    "gelu_mlp": Case(GELU.network, chosen_on=True),
    "digits_10": Case(lambda: workload("digits").network(10), FEW, seeds=6, chosen_on=True),
    "relu_mlp": Case(RELU.network, FEW, seeds=6),
    "fashion_cnn": Case(lambda: workload("fashion_cnn").network(examples=2000), FEW, seeds=2),
    "digits_0": Case(lambda: workload("digits").network(0), FEW, seeds=6),
    "digits_1": Case(lambda: workload("digits").network(1), FEW, seeds=6),
    "digits_100": Case(lambda: workload("digits").network(100), FEW, seeds=6),
    "mnist_cnn": Case(lambda: workload("mnist_cnn").network(examples=2000), FEW, seeds=6),
    **{
        f"fashion_mlp_{step}": Case(
            lambda s=step: workload("fashion_mlp").network(s, examples=2000), FEW, seeds=2, descent=4 * DESCENT
        )
        for step in (0, 1, 10, 100)
    },
}


def settings_of(fit: Fit, batch_sizes: tuple[int, ...]) -> list[tuple[Optimizer, int]]:
    """Four optimizers at each rate with one or two batch sizes in turn, and SGD near and past the edge of stability."""
    found: list[tuple[Optimizer, int]] = []
    top, sizes = float(fit.spectrum.h.max()), len(batch_sizes)
    for i, rate in enumerate(RATES):
        lr, slow = float(f"{rate / top:.3g}"), float(f"{0.1 * rate / top:.3g}")
        for j, one in enumerate((SGD(lr), HeavyBall(slow, 0.9), Nesterov(slow, 0.9), EMA(SGD(lr), 0.98))):
            found += [(one, batch_sizes[(i + j + k) % sizes]) for k in ((0, 2) if sizes > 3 else (0,))]
    edge = [SGD(float(f"{rate / top:.3g}")) for rate in EDGE_RATES]
    return found + [(one, batch_sizes[k]) for one in edge for k in (0, -1)]


def fitted(folder: Path, name: str) -> tuple[Network, Fit]:
    """A network at its checkpoint and its fit, from the folder if it is there."""
    case, file = CASES[name], folder / f"{name}.npz"
    network = case.network()
    found = Fit.load(file) if file.exists() else fit(network, descent=case.descent, test=False)
    found = found if found.tested else with_test(network, found)
    found.save(file)
    return network, found


def made(folder: Path, name: str) -> tuple[Fit, list[Run]]:
    """The fit of a network and its trainings, from the folder where they are there."""
    (network, found), case = fitted(folder, name), CASES[name]
    trainings = Trainings(network, folder / "trainings.jsonl")
    pairs = settings_of(found, case.batch_sizes)
    return found, [trainings.run(o, b, CHECKED_STEPS, seeds=case.seeds) for o, b in pairs]


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    for wanted in sys.argv[2:] or CASES:
        found, runs = made(place, wanted)
        print(f"{wanted}: loss {found.loss:.4g}, {len(runs)} settings", flush=True)
