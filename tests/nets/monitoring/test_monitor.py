"""The monitor against gradients computed directly; that training does not notice it; and what it refuses."""

from __future__ import annotations

import json
import math
import random
from collections import UserDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nqm.logs import read_logs
from nqm.nets import Monitor, watch
from nqm.types import Wrong


def model_of(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def noisy_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def batch_of(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 6, generator=generator), torch.randint(3, (count,), generator=generator)


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def gradients(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The gradient of each microbatch as a row, in float64."""
    rows, copied = [], model_of()
    copied.load_state_dict(model.state_dict())  # whose calls no monitor sees
    model = copied
    for batch in batches:
        found = torch.autograd.grad(loss_of(model, batch), list(model.parameters()))
        rows.append(torch.cat([g.reshape(-1) for g in found]).double())
    return torch.stack(rows)


def direct(rows: Tensor, size: int, metric: Tensor | None = None) -> tuple[float, float]:
    """Noise and signal as McCandlish et al. write them: from the mean of squared norms and the squared norm of the mean."""
    metric = torch.ones(rows.shape[1], dtype=rows.dtype) if metric is None else metric
    k, small, big = len(rows), (rows**2 * metric).sum(1).mean(), (rows.mean(0) ** 2 * metric).sum()
    signal = (k * big - small) / (k - 1)
    return float((small - big) / (1 / size - 1 / (k * size))), float(signal)


def accumulate(model: nn.Module, batches: list[tuple[Tensor, Tensor]], scale: float = 1.0) -> None:
    for batch in batches:
        (scale * loss_of(model, batch) / len(batches)).backward()


@pytest.mark.parametrize("kind", ["sgd", "adam", "groups"])
def test_accumulated_parts_against_direct_sums(kind: str) -> None:
    model = model_of()
    if kind == "groups":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.4}]
        )
    else:
        optimizer = torch.optim.SGD(model.parameters(), 0.1) if kind == "sgd" else torch.optim.Adam(model.parameters())
    monitor = Monitor(model, optimizer, every=1)
    for t in range(4):
        batches = [batch_of(5, 10 * t + i) for i in range(3)]
        rows = gradients(model, batches)
        weights: Tensor | None = None
        if kind == "groups":
            weights = torch.cat([torch.full((56,), 0.1), torch.full((27,), 0.4)]).double()
        elif kind == "adam" and t:
            state = [optimizer.state[p] for p in model.parameters()]
            v = torch.cat([s["exp_avg_sq"].reshape(-1) for s in state]).double() / (1 - 0.999**t)
            weights = 1e-3 / (v.sqrt() + 1e-8)
        optimizer.zero_grad()
        accumulate(model, batches)
        row = monitor.step(0.5)
        assert row is not None
        np.testing.assert_allclose((row["noise"], row["signal"]), direct(rows, 5), rtol=2e-5, atol=1e-6)
        assert ("metric_noise" in row) == (weights is not None)
        if weights is not None:
            found = row["metric_noise"], row["metric_signal"]
            np.testing.assert_allclose(found, direct(rows, 5, weights), rtol=1e-4, atol=1e-7)
        assert row["batch_size"] == 15
        optimizer.step()


def test_a_planted_bug_would_show() -> None:
    """The same comparison with a wrong size of the microbatches must fail."""
    model = model_of()
    monitor = Monitor(model, torch.optim.SGD(model.parameters(), 0.1), batch_size=6)
    batches = [batch_of(5, i) for i in range(3)]
    accumulate(model, batches)
    row = monitor.step()
    assert row is not None
    assert abs(row["noise"] / direct(gradients(model, batches), 5)[0] - 1) > 0.1  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_microbatches_of_different_sizes(reduction: str) -> None:
    """The mean over many draws of ragged microbatches is that of equal ones."""
    model, sizes = model_of(), (3, 9, 6)
    x, y = batch_of(4000, 99)
    rows = []
    for i in range(0, 4000, 500):
        rows.append(gradients(model, [(x[j : j + 1], y[j : j + 1]) for j in range(i, i + 500)]))
    single = torch.cat(rows)
    exact = float(single.var(0, unbiased=False).sum()), float((single.mean(0) ** 2).sum())
    found, rng = [], np.random.default_rng(0)
    monitor = Monitor(model, torch.optim.SGD(model.parameters(), 0.1), reduction=reduction, every=1)
    for _ in range(400):
        model.zero_grad()
        for size in sizes:
            picks = torch.as_tensor(rng.integers(4000, size=size))
            loss = F.cross_entropy(model(x[picks]), y[picks], reduction=reduction)
            (loss / (3 if reduction == "mean" else sum(sizes))).backward()
        row = monitor.step()
        assert row is not None
        found.append((row["noise"], row["signal"]))
    z = (np.mean(found, 0) - exact) / (np.std(found, 0) / 400**0.5)
    assert np.abs(z).max() < 4


def test_sizes_that_differ_are_not_guessed() -> None:
    """A sum over examples and a mean of means are the same for equal sizes only, so without ``reduction`` the step is skipped."""
    model = model_of()
    monitor = Monitor(model, torch.optim.SGD(model.parameters(), 0.1), every=1)
    x, y = batch_of(24, 0)
    for low, high in ((0, 4), (4, 16), (16, 24)):
        F.cross_entropy(model(x[low:high]), y[low:high], reduction="sum").backward()
    with pytest.warns(UserWarning, match=r"passes have 4 to 12 examples.*reduction='mean'.*or 'sum'"):
        assert monitor.step() is None
    assert monitor.skipped == 1


@pytest.mark.parametrize("unit", ["mean", "sum"])
def test_the_noise_scale_does_not_depend_on_the_unit_of_the_loss(unit: str) -> None:
    """A loss that is a sum has 8^2 times the noise and the signal of a mean over microbatches of 8, and the same noise scale."""
    model = model_of()
    monitor = Monitor(model, torch.optim.SGD(model.parameters(), 0.1), every=1)
    batches = [batch_of(8, i) for i in range(3)]
    for x, y in batches:
        (F.cross_entropy(model(x), y, reduction=unit) / 3).backward()
    row = monitor.step()
    assert row is not None
    noise, signal = direct(gradients(model, batches), 8)
    factor = 64 if unit == "sum" else 1
    np.testing.assert_allclose((row["noise"], row["signal"]), (factor * noise, factor * signal), rtol=1e-4)


TRAININGS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], Monitor | None]] = {
    "none": lambda model, optimizer: None,
    "gathered": lambda model, optimizer: Monitor(model, optimizer, every=1),
    "own": lambda model, optimizer: Monitor(model, optimizer, loss_of=loss_of, every=2, curvature_every=4),
}


def trained(kind: str) -> tuple[dict[str, Tensor], list[float]]:
    """Weights and buffers after ten clipped steps of Adam, and what the generators give then."""
    model = noisy_model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002  the global generator must be left as it was
    monitor = TRAININGS[kind](model, optimizer)
    for t in range(10):
        optimizer.zero_grad()
        batches = [batch_of(8, 2 * t), batch_of(8, 2 * t + 1)]
        accumulate(model, batches)
        if monitor:
            monitor.step(1.0, batch=batches[0])
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    after = [float(torch.rand(())), random.random(), float(np.random.rand())]  # noqa: NPY002
    return {name: value.clone() for name, value in model.state_dict().items()}, after


@pytest.mark.parametrize("kind", ["gathered", "own"])
def test_training_is_bitwise_the_same(kind: str) -> None:
    plain, numbers = trained("none")
    watched, others = trained(kind)
    assert numbers == others
    assert all(torch.equal(plain[name], watched[name]) for name in plain)


@pytest.mark.parametrize("factor", [1.0, 2.0**-12, 0.37])
def test_a_factor_of_the_gradient_is_undone(factor: float) -> None:
    """Unscaled by a scaler (a power of two): in units of the unscaled gradient; clipped: in those of the gradient before."""
    model = model_of()
    monitor = Monitor(model, torch.optim.SGD(model.parameters(), 0.1))
    batches = [batch_of(5, i) for i in range(3)]
    rows = gradients(model, batches)
    accumulate(model, batches, scale=2.0**12 if factor == 2.0**-12 else 1.0)
    with torch.no_grad():
        for p in model.parameters():
            p.grad *= factor  # type: ignore[operator]
    row = monitor.step()
    assert row is not None
    np.testing.assert_allclose((row["noise"], row["signal"]), direct(rows, 5), rtol=1e-4, atol=1e-6)


def test_with_a_scaler_of_torch() -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    monitor, batches = Monitor(model, optimizer), [batch_of(5, i) for i in range(3)]
    rows = gradients(model, batches)
    for batch in batches:
        scaler.scale(loss_of(model, batch) / 3).backward()
    scaler.unscale_(optimizer)
    row = monitor.step()
    assert row is not None
    np.testing.assert_allclose((row["noise"], row["signal"]), direct(rows, 5), rtol=1e-4, atol=1e-6)
    scaler.step(optimizer)


def test_what_cannot_be_measured_is_skipped_and_said() -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor, batches = Monitor(model, optimizer, every=1), [batch_of(5, i) for i in range(3)]
    accumulate(model, batches)
    monitor.step()
    accumulate(model, batches)  # without zero_grad
    with pytest.warns(UserWarning, match=r"step 2 was not measured.*call zero_grad"):
        assert monitor.step() is None
    optimizer.zero_grad()
    accumulate(model, batches, scale=math.inf)
    with pytest.warns(UserWarning, match="NaN or infinite"):
        assert monitor.step() is None
    optimizer.zero_grad()
    accumulate(model, batches)
    nn.utils.clip_grad_value_(model.parameters(), 0.02)
    assert monitor.step() is None  # for the same reason as the first, which is told once
    assert monitor.skipped == 3
    optimizer.zero_grad()
    accumulate(model, batches)
    assert monitor.step()["skipped"] == 3  # type: ignore[index]


def test_wrong_calls_get_a_sentence() -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(Wrong, match="one backward pass on one rank"):
        _one_pass(model, optimizer)
    with pytest.raises(Wrong, match="no backward pass was seen"):
        Monitor(model, optimizer).step()
    monitor = Monitor(model, optimizer)
    for i in range(2):
        (loss_of(model, batch_of(5, i)) + loss_of(model, batch_of(5, i + 9))).backward()
    with pytest.raises(Wrong, match="called 4 times with tensors in a step of 2 backward passes"):
        monitor.step()
    monitor.close()
    with pytest.raises(Wrong, match="need the batch"):
        Monitor(model, optimizer, loss_of=loss_of).step()
    with pytest.raises(Wrong, match="needs two examples"):
        Monitor(model, optimizer, loss_of=loss_of).step(batch=batch_of(1, 0))
    with pytest.raises(Wrong, match="batch has str 'cat' where a tensor is needed"):
        Monitor(model, optimizer, loss_of=loss_of).step(batch=(*batch_of(2, 0), ["cat", "cat"]))
    with pytest.raises(Wrong, match="every must be a whole number from 1, got 0"):
        Monitor(model, optimizer, every=0)
    with pytest.raises(Wrong, match="curvature_every needs loss_of"):
        Monitor(model, optimizer, curvature_every=10)
    with pytest.raises(Wrong, match="reduction must be"):
        Monitor(model, optimizer, reduction="none")
    with pytest.raises(Wrong, match="are not the model's"):
        Monitor(model_of(1), optimizer)
    with pytest.raises(Wrong, match=r"must be a torch\.nn\.Module"):
        Monitor(loss_of, optimizer)  # type: ignore[arg-type]
    summed = Monitor(model, optimizer, loss_of=lambda m, b: len(b[0]) * loss_of(m, b), curvature_every=1)  # type: ignore[arg-type]
    with pytest.raises(Wrong, match="loss_of is a sum"):
        summed.step(batch=batch_of(16, 0))


def _one_pass(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    monitor = Monitor(model, optimizer)
    optimizer.zero_grad()
    loss_of(model, batch_of(5, 0)).backward()
    monitor.step()


def test_a_pass_of_its_own_against_direct_sums() -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = Monitor(model, optimizer, loss_of=loss_of, pieces=4, every=1, curvature_every=1)
    x, y = batch = batch_of(22, 0)
    pieces = [(x[i : i + 5], y[i : i + 5]) for i in range(0, 20, 5)]
    loss_of(model, batch).backward()
    row = monitor.step(batch=batch)
    assert row is not None
    rows = gradients(model, pieces)
    np.testing.assert_allclose((row["noise"], row["signal"]), direct(rows, 5), rtol=2e-5, atol=1e-6)
    assert row["batch_size"] == 22
    theta = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).double()
    names = [(name, p.shape) for name, p in model.named_parameters()]

    def flat_loss(flat: Tensor) -> Tensor:
        parts = flat.split([s.numel() for _, s in names])
        named = {n: part.view(s) for (n, s), part in zip(names, parts, strict=True)}
        return F.cross_entropy(torch.func.functional_call(model, named, (x[:20].double(),)), y[:20])

    H = torch.autograd.functional.hessian(flat_loss, theta)
    assert row["largest_curvature"] == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-3)  # type: ignore[arg-type]
    small, big = ((rows @ H) * rows).sum(1).mean(), rows.mean(0) @ H @ rows.mean(0)
    signal = (4 * big - small) / 3
    noise = (small - big) / (1 / 5 - 1 / 20)
    np.testing.assert_allclose(monitor._ratios["curvature_noise_scale"].rows[0, 4:], (noise, signal), rtol=1e-3)


@pytest.mark.filterwarnings("error")
def test_a_batch_may_be_any_mapping_and_a_loss_may_have_its_graph() -> None:
    """As tokenizers of Hugging Face return them, and as a loop has it at hand."""
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss_by_name(model: nn.Module, batch: object) -> Tensor:
        return F.cross_entropy(model(batch["x"]), batch["y"])  # type: ignore[index]

    monitor = Monitor(model, optimizer, loss_of=loss_by_name)
    x, y = batch_of(16, 0)
    loss = loss_by_name(model, {"x": x, "y": y})
    row = monitor.step(loss, batch=UserDict(x=x, y=y))
    assert row is not None
    assert row["loss"] == pytest.approx(float(loss.detach()))
    plain = Monitor(model, optimizer, loss_of=loss_of).step(batch=(x, y))
    assert plain is not None
    assert row["noise"] == pytest.approx(plain["noise"], rel=1e-6)


def test_file_is_a_log_and_can_be_watched(tmp_path: Path) -> None:
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    file = tmp_path / "runs" / "mine.jsonl"
    with Monitor(model, optimizer, file=file, every=2) as monitor:
        for t in range(20):
            optimizer.zero_grad()
            batches = [batch_of(16, 4 * t + i) for i in range(4)]
            accumulate(model, batches)
            monitor.step(math.exp(-t))
            optimizer.step()
    (log,) = read_logs(file)
    assert log.step.tolist() == list(range(1, 21, 2))
    assert log.batch_size == 64
    assert np.allclose(log.logged_rates, 1e-2)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["loss"] for line in lines] == log.loss.tolist()
    found = watch(file)
    assert found.scale == "metric_noise_scale"
    assert found.critical_batch_size.value == monitor.metric_noise_scale.value
    assert not model._forward_pre_hooks  # closed


def test_it_continues_from_a_checkpoint() -> None:
    def run(monitor: Monitor, model: nn.Module, first: int, last: int) -> None:
        for t in range(first, last):
            model.zero_grad()
            accumulate(model, [batch_of(4, 2 * t), batch_of(4, 2 * t + 1)])
            monitor.step()

    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    whole = Monitor(model, optimizer, every=2)
    run(whole, model, 0, 9)
    whole.close()
    half = Monitor(model, optimizer, every=2)
    run(half, model, 0, 5)
    half.close()
    rest = Monitor(model, optimizer, every=2)
    rest.load_state_dict(json.loads(json.dumps(half.state_dict())))
    run(rest, model, 5, 9)
    assert rest.noise_scale == whole.noise_scale
    assert rest.steps == 9
    assert "noise scale" in repr(rest)


def test_how_often_it_measures() -> None:
    """Every step at first and every fifth from step 500 on, so that a fifth of the steps so far has 20 measurements or more."""
    model = model_of()
    monitor = Monitor(model, torch.optim.SGD(model.parameters(), 0.1))
    due = np.array([step for step in range(1, 2001) if monitor._due(step)])
    for step in (100, 150, 300, 500, 1000, 2000):
        assert ((due > 0.8 * step) & (due <= step)).sum() >= 20 - (step == 300)
    assert (np.diff(due[due > 501]) == 5).all()
    assert [step for step in range(1, 42) if Monitor(model, monitor.optimizer, loss_of=loss_of)._due(step)] == [
        1,
        21,
        41,
    ]
    with pytest.raises(Wrong, match="window is a share of the steps so far"):
        Monitor(model, monitor.optimizer, window=100)
    with pytest.raises(Wrong, match="earlier version"):
        monitor.load_state_dict({"steps": 1, "skipped": 0, "smoothed": {}})


def test_tied_frozen_and_sparse_parameters() -> None:
    """A tied weight is one parameter with one gradient, a frozen one has none, and a sparse gradient counts as a dense one."""
    torch.manual_seed(0)
    embed = nn.Embedding(7, 4, sparse=True)
    model = nn.Sequential(embed, nn.Linear(4, 4), nn.Linear(4, 7, bias=False))
    model[2].weight = embed.weight
    model[1].bias.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    monitor, rows = Monitor(model, optimizer), []
    tokens = torch.arange(24).reshape(3, 8) % 7
    for part in tokens:
        loss = F.cross_entropy(model(part), part)
        found = torch.autograd.grad(loss, [embed.weight, model[1].weight], retain_graph=True)
        rows.append(torch.cat([g.to_dense().reshape(-1) for g in found]).double())
    monitor._seen.clear()  # of the calls above; their gradients were returned and not added, so they do not count
    for part in tokens:
        (F.cross_entropy(model(part), part) / 3).backward()
    row = monitor.step()
    assert row is not None
    np.testing.assert_allclose((row["noise"], row["signal"]), direct(torch.stack(rows), 8), rtol=1e-4, atol=1e-6)
