"""Blocks of constant rate: they keep every sum of rates, hold the rate to its share, and end at every reading."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import law_of, plain_loop

from nqm.logs import course as module
from nqm.logs.course import BLOCK_GROWTH, DECAY_SHARE, RATE_SHARE, SHORTEST, Course
from nqm.logs.law import RateMetric


def check_course(rates: np.ndarray, steps: np.ndarray, weight_decay: float, sizes: np.ndarray | float) -> None:
    """Check what the law relies on, against the rates of the single steps."""
    course = Course.of(rates, steps, weight_decay, sizes)
    last = int(steps[-1])
    rates = rates[:last]
    ends = np.cumsum(course.lengths).astype(int)
    starts = ends - course.lengths.astype(int)
    assert ends[-1] == last
    assert np.all(course.lengths >= 1)
    assert course.peak == rates.max()
    each = np.broadcast_to(np.asarray(sizes, dtype=float), last if np.ndim(sizes) == 0 else np.shape(sizes))
    for i, (a, b) in enumerate(zip(starts, ends, strict=True)):
        inside = rates[a:b]
        assert course.lr[i] == pytest.approx(inside.mean(), rel=1e-9, abs=1e-12 * rates.max())
        assert np.abs(np.diff(inside)).sum() <= RATE_SHARE * rates.max() * (1 + 1e-9)
        assert b - a <= max(SHORTEST, a / BLOCK_GROWTH + 1)
        # A block ends at the first step that passes a multiple of the share: it holds less than the share and one step.
        assert 2 * weight_decay * inside[1:].sum() <= DECAY_SHARE * (1 + 1e-9)
        assert np.all(each[a:b] == course.batch_size[i])
    for step, block in zip(steps, course.blocks, strict=True):
        assert (ends[block] if block >= 0 else 0) == step


pieces = st.lists(st.tuples(st.integers(1, 80), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5)


@settings(max_examples=100, deadline=None)
@given(pieces=pieces, reads=st.sets(st.integers(0, 400), min_size=1, max_size=8), decay=st.sampled_from([0.0, 0.1, 30.0]),
       varied=st.booleans())  # fmt: skip
def test_any_course(pieces, reads: set[int], decay: float, varied: bool) -> None:
    rates = np.concatenate([np.linspace(a, b, n) for n, a, b in pieces] + [[0.5]])
    steps = np.array(sorted({min(t, len(rates)) for t in reads} | {1}))
    sizes = np.repeat([1.0, 2.0, 0.5], -(-len(rates) // 3))[: int(steps[-1])] if varied else 3.0
    check_course(rates, steps, decay, sizes)


def test_a_planted_cut_one_step_late_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = module.cuts
    rates, steps = np.linspace(1, 0.1, 200), np.array([100, 200])
    check_course(rates, steps, 0.0, 1.0)

    def late(rates: np.ndarray, steps: np.ndarray, weight_decay: float) -> np.ndarray:
        return np.unique(np.minimum(cut(rates, steps, weight_decay) + 1, len(rates)))

    monkeypatch.setattr(module, "cuts", late)
    with pytest.raises(AssertionError):
        check_course(rates, steps, 0.0, 1.0)


def test_a_drop_lies_between_two_blocks() -> None:
    rates = np.append(np.full(500, 0.3), np.full(500, 0.03))
    course = Course.of(rates, np.array([1000]))
    assert set(course.lr.round(12)) == {0.3, 0.03}


def test_a_long_course_has_few_blocks() -> None:
    """Blocks grow with the step, and the rate moves 50 times 2% at most: 100,000 steps are some 400 blocks."""
    t = np.arange(1, 100_001)
    course = Course.of(1 + np.cos(np.pi * t / 100_000), np.array([100_000]), 0.0)
    assert len(course.lengths) < 450


@pytest.mark.parametrize("kind", ["norm", "plain"])
def test_finer_blocks_change_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a block is of second order in its share: a quarter of the share leaves a sixteenth of it."""
    t = np.arange(1, 401)
    rates = 2e-3 * (0.55 + 0.45 * np.cos(np.pi * t / 400))
    metric = RateMetric(kind, 0.1 if kind == "norm" else 0.0)  # type: ignore[arg-type]
    law = law_of(metric)
    exact = plain_loop(law, rates.tolist(), [400], continuous=True)[0]
    errors = []
    for share in (0.16, 0.04):
        monkeypatch.setattr(module, "RATE_SHARE", share)
        monkeypatch.setattr(module, "SHORTEST", 400)
        monkeypatch.setattr(module, "BLOCK_GROWTH", 1)
        errors.append(abs(law.loss(Course.of(rates, np.array([400]), 0.0))[0] / exact - 1))
    assert errors[1] < errors[0] / 4
    assert errors[1] < 1e-4
