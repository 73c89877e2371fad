"""How close the monitor's noise scale is to the exact one, how often its intervals hold it, and what it costs.

    python -m benchmarks.monitor accuracy             one training of each setting, by microbatches and by passes of its own
    python -m benchmarks.monitor seeds                mean error, bias and coverage over 48 seeds of each setting
    python -m benchmarks.monitor seeds fashion_mlp 16 48        the same for one workload and the seeds 16 to 47
    python -m benchmarks.monitor cost

The exact noise scale is that of all single-example gradients at the weights of each step. Steps are weighted as the monitor's
smoothing weights them: sum w tr C / sum w |g|^2. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqm.nets import Monitor, Network, workload
from nqm.types import Array

STEPS = 200
SETTINGS = [
    # workload, examples, steps before the first, batch size, learning rate
    ("digits", 1797, 0, 64, 0.1), ("digits", 1797, 60, 64, 0.1), ("digits", 1797, 60, 256, 0.1),
    ("digits", 1797, 400, 256, 0.1),
    ("fashion_mlp", 2000, 0, 64, 0.05), ("fashion_mlp", 2000, 60, 256, 0.05), ("fashion_mlp", 2000, 400, 256, 0.05),
]  # fmt: skip
SEEDS = 48  # trainings of each setting whose errors are averaged


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def exact(network: Network, model: nn.Module) -> tuple[float, float]:
    """tr C and |g|^2 over all examples at the weights of a stack of linear layers and activations.

    The gradient of one example in the weights of a layer is delta a', with the layer's inputs a and the derivative delta in its
    outputs, so its squared norm is |delta|^2 (|a|^2 + 1), bias included. No single-example gradient is formed.
    """
    assert isinstance(model, nn.Sequential)
    x, y = network.data
    hidden, seen = x.flatten(1), []
    for layer in model:
        if isinstance(layer, nn.Linear):
            inputs = hidden.detach()
            hidden = layer(hidden)
            seen.append((inputs, hidden))
        else:
            hidden = layer(hidden)
    grads = torch.autograd.grad(F.cross_entropy(hidden, y, reduction="sum"), [out for _, out in seen])
    squares, g2 = 0.0, 0.0
    for (a, _), delta in zip(seen, grads, strict=True):
        squares += float(((delta**2).sum(1) * ((a**2).sum(1) + 1)).double().mean())
        g2 += float(((delta.T @ a / len(a)) ** 2).sum().double()) + float((delta.mean(0) ** 2).sum())
    return squares - g2, g2


def checked(network: Network, model: nn.Module) -> None:
    """Compare `exact` with all single-example gradients, once for each setting."""
    theta = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    squares, total = 0.0, torch.zeros(network.dim, dtype=torch.float64)
    for rows in network.example_gradients(theta):
        squares += float((rows.double() ** 2).sum())
        total += rows.double().sum(0)
    g2 = float((total / network.examples) @ (total / network.examples))
    np.testing.assert_allclose(exact(network, model), (squares / network.examples - g2, g2), rtol=1e-3)


def followed(
    name: str, examples: int, start: int, batch: int, lr: float, seed: int, *, own: bool = False, steps: int = STEPS
) -> tuple[Monitor, Array]:
    """A training under a monitor, and the exact noise and signal before each of its steps."""
    network = workload(name).network(start, examples=examples, seed=seed)
    model = workload(name).fresh_model(seed)
    model.load_state_dict(network.state_dict())
    optimizer, (x, y) = torch.optim.SGD(model.parameters(), lr), network.data
    monitor = Monitor(model, optimizer, loss_of=loss_of if own else None, every=1, memory=STEPS // 2)
    if seed == 0:
        checked(network, model)
    rng, truth = np.random.default_rng([7, seed]), []
    for _ in range(steps):
        truth.append(exact(network, model))
        picks = torch.as_tensor(rng.integers(examples, size=batch))
        optimizer.zero_grad()
        for part in picks.chunk(1 if own else 8):
            (loss_of(model, (x[part], y[part])) * len(part) / batch).backward()
        monitor.step(batch=(x[picks], y[picks]))
        optimizer.step()
    return monitor, np.array(truth)


def smoothed(truth: Array) -> Array:
    """The exact noise and signal averaged over all steps, with the weights of the monitor."""
    weights = np.exp(-np.arange(len(truth))[::-1] / (STEPS // 2))
    return weights @ truth / weights.sum()


def accuracy() -> None:
    print("workload, examples, from step, batch size: monitor (90% interval), exact, error; exact mean of ratios")
    for setting in SETTINGS:
        for own in (False, True):
            monitor, truth = followed(*setting, seed=0, own=own)
            noise, signal = smoothed(truth)
            found, there = monitor.noise_scale, float(noise / signal)
            ratios = float(np.mean(truth[:, 0] / truth[:, 1]))
            kind = "own passes" if own else "microbatches"
            print(
                f"{setting[:4]} {kind}: {found}, {there:.4g}, {found.value / there - 1:+.1%}; {ratios:.4g}", flush=True
            )


def seeds(name: str = "", first: str = "0", last: str = str(SEEDS)) -> None:
    """Over many trainings of each setting: mean errors, whether they are bias or chance, and how often intervals hold.

    The estimate of each step is unbiased for the weights of that step, so the weighted mean M of (estimate - exact) over steps is
    0 on average: ``z`` is the mean of M over its standard error, for noise and for signal. The mean of the relative error is
    another number, because the exact averages depend on the batches that were drawn, too.
    """
    count = int(last) - int(first)
    for setting in [one for one in SETTINGS if name in ("", one[0])]:
        errors, off, held, unbounded = [], [], 0, 0
        for seed in range(int(first), int(last)):
            monitor, truth = followed(*setting, seed=seed)
            averages, smooth, found = smoothed(truth), monitor._ratios["noise_scale"], monitor.noise_scale
            there = float(averages[0] / averages[1])
            held += found.low <= there <= found.high
            unbounded += math.isinf(found.high)
            off.append(np.array([smooth.noise, smooth.signal]) - averages)
            errors.append((*(off[-1] / averages), found.value / there - 1))
        rows, root = np.array(errors), count**0.5
        z = np.mean(off, 0) / np.std(off, 0, ddof=1) * root
        parts = zip(("noise", "signal", "ratio"), rows.mean(0), rows.std(0, ddof=1), strict=True)
        said = ", ".join(f"{part} {m:+.1%} +- {sd / root:.1%}" for part, m, sd in parts)
        print(
            f"{setting[:4]}, {count} seeds: mean error of {said} (sd {rows[:, 2].std(ddof=1):.1%}, median "
            f"{np.median(rows[:, 2]):+.1%}); z of noise {z[0]:+.1f}, signal {z[1]:+.1f}; held in {held / count:.0%}, "
            f"{unbounded} without upper end",
            flush=True,
        )


def cpu(work: Callable[[], object], repeat: int) -> list[float]:
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return times


class Block(nn.Module):
    """A Transformer of two layers on sequences of 32 tokens, 0.9 million weights."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(tokens))).transpose(1, 2)


def loops(own: bool, adam: bool) -> Iterator[tuple[str, float]]:
    """CPU seconds of a step without and with a monitor, in turn, so that both see the same machine."""
    torch.manual_seed(0)
    model = Block()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4) if adam else torch.optim.SGD(model.parameters(), 1e-2)
    tokens = torch.randint(64, (64, 32))

    def step(monitor: Monitor | None) -> None:
        optimizer.zero_grad()
        for part in tokens.chunk(1 if own else 4):
            (loss_of(model, (part, part)) * len(part) / 64).backward()
        if monitor:
            monitor.step(batch=(tokens, tokens))
        optimizer.step()

    rounds = 20 if own else 10
    for _ in range(6 if own else 12):
        yield "plain", sum(cpu(lambda: step(None), rounds)) / rounds
        with Monitor(model, optimizer, loss_of=loss_of if own else None) as monitor:
            yield "watched", sum(cpu(lambda m=monitor: step(m), rounds)) / rounds


def cost() -> None:
    torch.set_num_threads(1)
    for own in (False, True):
        for adam in (False, True):
            times: dict[str, list[float]] = {}
            for kind, seconds in loops(own, adam):
                times.setdefault(kind, []).append(seconds)
            plain, watched = (np.array(times[kind]) for kind in ("plain", "watched"))
            ratio = watched / plain - 1
            error = ratio.std(ddof=1) / len(ratio) ** 0.5
            what = "own passes every 20 steps" if own else "4 microbatches"
            name = "AdamW" if adam else "SGD"
            print(
                f"{what}, {name}: {1000 * plain.mean():.0f} ms a step, {ratio.mean():+.1%} with the monitor (+- {error:.1%})"
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = {"accuracy": accuracy, "seeds": seeds, "cost": cost}
    if sys.argv[1:2] == ["seeds"]:
        seeds(*sys.argv[2:])
        sys.exit()
    for chosen in sys.argv[1:] or known:
        if chosen not in known:
            sys.exit(f"no measurement {chosen!r}; there are {', '.join(known)}")
        print(f"# {chosen}", flush=True)
        known[chosen]()
