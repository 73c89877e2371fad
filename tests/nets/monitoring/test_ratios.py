"""Noise and signal from parts, and the interval of their smoothed ratio, against simulation and direct sums."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from nqm.nets.monitoring import ratios
from nqm.nets.monitoring.ratios import GradientParts, RecentRatio, fieller
from nqm.types import Array, Wrong

MEAN = np.array([1.0, -0.5, 0.25, 0.0])
ROOT = np.diag([2.0, 1.0, 3.0, 0.5]) + 0.3
NOISE, SIGNAL = float((ROOT @ ROOT.T).trace()), float(MEAN @ MEAN)


def parts(rng: np.random.Generator, weights: Array, sizes: Array, count: int) -> list[GradientParts]:
    """Sums over microbatches whose gradients have the mean MEAN and the covariance ROOT ROOT' / size."""
    draws = rng.standard_normal((count, len(sizes), 4)) @ ROOT.T / np.sqrt(sizes)[:, None]
    x = weights[:, None] * (MEAN + draws)
    a = weights.sum(), (weights**2).sum(), (weights**2 / sizes).sum()
    squares, wholes = (x**2).sum((1, 2)), (x.sum(1) ** 2).sum(1)
    return [GradientParts(s, w, *a) for s, w in zip(squares, wholes, strict=True)]


@pytest.mark.parametrize(("weights", "sizes"), [([0.25] * 4, [8] * 4), ([0.5, 0.5], [4, 12]), ([0.25, 0.75], [4, 12])])
def test_estimates_are_unbiased(weights: list[float], sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    found = np.array([p.estimates() for p in parts(rng, np.array(weights), np.array(sizes, float), 20_000)])
    z = (found.mean(0) - [NOISE, SIGNAL]) / (found.std(0) / len(found) ** 0.5)
    assert np.abs(z).max() < 4
    wrong = np.array(
        [
            GradientParts(p.squares, p.whole, p.a1, p.a2, 2 * p.d).estimates()
            for p in parts(rng, np.array(weights), np.array(sizes, float), 20_000)
        ]
    )
    assert abs(wrong[:, 0].mean() - NOISE) / (wrong[:, 0].std() / len(wrong) ** 0.5) > 6


def test_batches_without_replacement() -> None:
    """Against the mean over all ways to draw two disjoint microbatches from six examples."""
    from itertools import permutations

    rows = np.random.default_rng(1).standard_normal((6, 3)) + 0.5
    found = []
    for order in permutations(range(6), 4):
        x = np.stack([rows[list(order[:2])].mean(0), rows[list(order[2:])].mean(0)]) / 2
        found.append(GradientParts((x**2).sum(), (x.sum(0) ** 2).sum(), 1.0, 0.5, 0.25).estimates(6))
    mean = rows.mean(0)
    exact = ((rows - mean) ** 2).sum() / 6, (mean**2).sum()
    np.testing.assert_allclose(np.mean(found, axis=0), exact, rtol=1e-12)


def test_one_part_is_refused() -> None:
    with pytest.raises(Wrong, match="one part alone"):
        GradientParts(1.0, 1.0, 1.0, 1.0, 0.1).estimates()


def test_the_window_is_a_share_of_the_steps_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against means over the window, and the covariance from successive differences, written out."""
    monkeypatch.setattr(ratios, "DRIFT_LEVEL", 1 - 1e-12)
    rng, ratio = np.random.default_rng(2), RecentRatio(0.2)
    steps, rows = np.arange(1, 502, 5), rng.uniform(1, 1.1, (101, 2))
    for step, row in zip(steps, rows, strict=True):
        ratio.add(int(step), *row)
    found, inside = ratio.estimate(), steps > 0.8 * 501
    assert found.steps == (steps[inside][0], 501)
    noise, signal = rows[inside].mean(0)
    assert found.value == pytest.approx(noise / signal, rel=1e-12)
    differences = np.diff(rows[inside], axis=0)
    covariance = differences.T @ differences / 2 / len(differences) / inside.sum()
    low, high = fieller(noise, signal, covariance, float(stdtrit(2 / 3 * len(differences), 0.95)))
    drift = ratios.FLUCTUATION * (501 / steps[inside].mean()) ** ratios.SCALE_DRIFT_POWER
    assert (found.low, found.high) == (pytest.approx(low / drift, rel=1e-12), pytest.approx(high * drift, rel=1e-12))
    other = RecentRatio(0.2)
    other.load_state_dict(json.loads(json.dumps(ratio.state_dict())))
    for both in (ratio, other):
        both.add(506, 1.0, 2.0)
    assert other.estimate() == ratio.estimate()


def test_a_long_training_needs_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 measurements are joined into at most 256 rows, and the answer stays that of all measurements of the window."""
    monkeypatch.setattr(ratios, "DRIFT_LEVEL", 1 - 1e-12)
    rng, ratio = np.random.default_rng(5), RecentRatio(0.2)
    steps, rows = np.arange(1, 100_001, 5), rng.normal([8, 2], [1, 0.5], (20_000, 2))
    for step, row in zip(steps, rows, strict=True):
        ratio.add(int(step), *row)
    found = ratio.estimate()
    assert len(ratio.rows) <= ratios.MOST_ROWS
    assert found.steps is not None
    assert found.steps[0] == pytest.approx(80_000, rel=0.01)
    inside = steps >= found.steps[0]
    noise, signal = rows[inside].mean(0)
    assert found.value == pytest.approx(noise / signal, rel=1e-9)
    error = (rows[inside] @ [1, -4]).std() / inside.sum() ** 0.5 / 2  # of the ratio, to first order
    drift = ratios.FLUCTUATION * (1 / 0.9) ** ratios.SCALE_DRIFT_POWER
    assert (found.low * drift, found.high / drift) == pytest.approx((4 - 1.645 * error, 4 + 1.645 * error), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(40, 64), (200, 64), (200, 16)])
def test_intervals_hold_the_ratio(count: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for drift, and for all steps: shortening the window by chance costs little."""
    monkeypatch.setattr(ratios, "SCALE_DRIFT_POWER", 0.0)
    monkeypatch.setattr(ratios, "FLUCTUATION", 1.0)
    rng, exact, held, runs = np.random.default_rng(3), NOISE / SIGNAL, 0, 400
    for _ in range(runs):
        ratio = RecentRatio(1.0)
        for step, p in enumerate(parts(rng, np.full(4, 0.25), np.full(4, size / 4), count), 1):
            ratio.add(step, *p.estimates())
        found = ratio.estimate()
        held += found.low <= exact <= found.high
    assert 0.83 < held / runs < 0.97  # 0.9 and twice its standard error, and the skewness of few measurements


def growing(rng: np.random.Generator, ratio: RecentRatio, power: float, steps: int = 500) -> None:
    """Add a training whose noise scale is step^power, as the signal falls."""
    for step in range(1, steps + 1):
        noise, signal = rng.normal([1, step**-power], [0.1, 0.3 * step**-power])
        ratio.add(step, noise, signal)


@pytest.mark.slow
@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_intervals_hold_a_noise_scale_that_drifts(power: float) -> None:
    """The ratio of the last step is held as the signal falls; that of the whole past, the former answer, is far below."""
    held, rng = 0, np.random.default_rng(6)
    for _ in range(100):
        ratio = RecentRatio(0.2)
        growing(rng, ratio, power)
        found = ratio.estimate()
        held += found.low <= 500**power <= found.high
    assert held >= 85
    whole = RecentRatio(1.0)
    growing(rng, whole, power)
    noise, signal = whole.rows[:, 4:].mean(0)
    assert (noise / signal < 0.6 * 500**power) == (power > 0)


def test_a_jump_shortens_the_window() -> None:
    """A learning rate that falls at step 450 changes the signal at once; the window is shorter than the fifth it would be."""
    ratio = RecentRatio(0.2)
    rng = np.random.default_rng(7)
    for step in range(1, 501):
        ratio.add(step, *rng.normal([1, 0.1 if step <= 450 else 0.01], [0.02, 0.004]))
    found = ratio.estimate()
    assert found.steps is not None
    assert 440 <= found.steps[0] <= 490
    assert found.low < 100 < found.high


def test_fieller_against_a_scan() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        noise, signal = rng.uniform(0.5, 5), rng.normal(0.5, 1)
        root = rng.normal(size=(2, 2)) * 0.4
        covariance = root @ root.T
        low, high = fieller(noise, signal, covariance, 1.6)
        r = np.concatenate([np.linspace(0, 50, 200_001), [1e6]])
        inside = (noise - r * signal) ** 2 <= 1.6**2 * (
            covariance[0, 0] - 2 * r * covariance[0, 1] + r**2 * covariance[1, 1]
        )
        if math.isinf(high):
            assert inside[-1] or signal <= 0
            continue
        assert not inside[-1]
        if inside.any() and high < 50:
            assert r[inside].min() == pytest.approx(low, abs=3e-4)
            assert r[inside].max() == pytest.approx(high, abs=3e-4)


def test_no_signal_has_no_upper_end() -> None:
    ratio = RecentRatio(0.5)
    assert math.isnan(ratio.estimate().value)
    ratio.add(1, 1.0, -0.2)
    assert ratio.estimate().value == math.inf
    for step, sign in enumerate((1, -1, 1, -1), 2):
        ratio.add(step, 1.0 + 0.01 * sign, 0.2 * sign)
    found = ratio.estimate()
    assert found.high == math.inf
    assert found.low > 0


def test_the_documented_coverage_is_that_of_the_answers() -> None:
    """The table of docs/monitor.md counted again from docs/checks/monitor.csv, and the bar on trainings that chose nothing."""
    docs = Path(__file__).parents[3] / "docs"
    text = (docs / "monitor.md").read_text(encoding="utf-8")
    with (docs / "checks" / "monitor.csv").open(encoding="utf-8") as file:
        answers = [row for row in csv.DictReader(file) if row["every"] == "default"]

    def holds(row: dict[str, str], kind: str) -> bool:
        return float(row["low"]) <= float(row[kind]) <= float(row["high"])

    lines = re.findall(
        r"\| `(\w+)` \| (\w+) \| ([a-z ]+) \| (\d+), (\d+) of (\d+) \| (\d+) \| (\d+), (\d+) of (\d+) \| (\d+) \|", text
    )
    for name, draws, scale, *counts in lines:
        mine = [
            row
            for row in answers
            if (row["training"], row["draws"], row["scale"].replace("_", " ")) == (name, draws, scale)
        ]
        found = list[int]()
        for late in (False, True):
            some = [row for row in mine if (int(row["step"]) > 200) == late]
            found += [sum(holds(row, kind) for row in some) for kind in ("exact", "exact_around")]
            found += [len(some), sum(row["high"] == "inf" for row in some)]
        assert found == list(map(int, counts)), name
    assert len(lines) == len({(row["training"], row["draws"], row["scale"]) for row in answers})
    free = [row for row in answers if row["training"] in ("llama", "cnn") and row["draws"] == "replacement"]
    free = [row for row in free if row["scale"] == "noise_scale"]
    held = [sum(holds(row, kind) for row in free) for kind in ("exact", "exact_around")]
    assert f"hold {held[0]} of {len(free)} exact numbers of a step, and {held[1]} of {len(free)}" in text
    assert held[0] >= 0.85 * len(free)
