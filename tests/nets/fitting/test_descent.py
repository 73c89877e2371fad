"""A descent whose curvature grows: it is braked, and with a larger momentum it still comes as far as it is asked to."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from models import mlp

from nqm import Quadratic, Spectrum
from nqm.nets.fitting import descent
from nqm.nets.fitting.descent import Descent, Sharpness, descend, steps_to
from nqm.nets.fitting.model import Fit
from nqm.nets.fitting.probing import fit
from nqm.nets.training.loop import Batches, walk
from nqm.types import Array, Wrong

LR, REACH = 0.02, 0.8  # the network of these tests descends steadily with this rate, times three where it is carried
GROWTH = 6.0  # of the curvature, as the tests pretend


@cache
def braked(most: float = descent.MOST_MOMENTUM, growth: float = GROWTH) -> Descent:
    """A descent of a network whose curvature is said to have grown at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sharpness, "growth", lambda *_: growth)
        patch.setattr(descent, "MOST_MOMENTUM", most)
        return descend(mlp(), LR, steps_to(REACH / LR), reach=REACH)


def walked(path: Descent) -> Array:
    """The losses of a training on full gradients, with the schedule that a descent reports."""
    network = mlp()
    training = walk(
        network, path.optimizer, math.inf, path.steps, path.schedule, batches=Batches(network.examples, (0,))
    )
    return np.array([network.full_loss(theta) for _, theta in training])


def test_a_braked_descent_comes_as_far_as_it_is_asked_to() -> None:
    found, slow, free = braked(), braked(descent.DESCENT_MOMENTUM), braked(growth=1.0)
    for path in (found, slow, free):
        assert path.reach * (1 + 1e-9) >= REACH
    usual = steps_to(REACH / LR)
    assert free.steps[-1] == usual
    assert usual < found.steps[-1] < 2 * usual < slow.steps[-1] < descent.LONGEST * usual
    assert found.reach == pytest.approx(sum(rates(found)), rel=1e-12)
    assert found.loss[-1] == pytest.approx(slow.loss[-1], rel=0.03)  # of the same network, at about the same reach


def rates(path: Descent) -> list[float]:
    """Effective rates by step, put together from the rules by hand."""
    first = int(path.steps[np.flatnonzero(np.isfinite(path.sharpness))[1]])  # type: ignore[arg-type]
    rise = [LR * (1 / 30) ** (1 - t / 20) if t < 20 else LR for t in range(int(path.steps[-1]))]
    brakes = [1.0 if t < first else 1.5 / GROWTH for t in range(len(rise))]
    return [lr * b / (0.5 if t < path.hastened else 0.125) for t, (lr, b) in enumerate(zip(rise, brakes, strict=True))]


def test_curvature_is_measured_at_every_point_of_the_added_steps() -> None:
    path = braked()
    assert path.sharpness is not None
    added, known = path.steps >= path.hastened, np.isfinite(path.sharpness)
    assert added.sum() > 3
    assert known[added].all()
    assert not known[~added].all()
    usual = braked(growth=1.0)  # not braked, so its last point is one of five as before
    assert usual.sharpness is not None
    assert np.isfinite(usual.sharpness).sum() == 1 + len(usual.steps) // descent.NOISE_EVERY


def test_its_schedule_repeats_it() -> None:
    path = braked()
    np.testing.assert_allclose(walked(path), path.loss, rtol=1e-5)
    wrong = replace(path, hastened=0)  # the planted bug: the quadratic does not see that momentum rose
    assert np.abs(walked(wrong)[-1] / path.loss[-1] - 1) > 1e-2


def test_momentum_rises_only_after_the_usual_steps() -> None:
    """The bend is made with the schedule, so a quadratic that descends by itself is bent by nothing."""
    spectrum = Spectrum([1.0, 0.3, 0.05], [1.0, 1.0, 1.0], [0.2, 0.5, 2.0])
    sharp = np.array([1.0, 4.0, math.nan, 4.0])
    path = Descent(1.0, 0.5, np.array([0, 20, 40, 60]), np.ones(4), rising=20, sharpness=sharp, hastened=40)
    assert path.schedule is not None
    momenta = 0.5 * path.schedule.multipliers("momentum", 60)
    assert [m for m, after in pairwise(momenta) if m != after] == [0.5]
    assert momenta[39:41] == pytest.approx([0.5, 1 - 0.5 * 1.5 / 4])
    run = Quadratic(spectrum).run(path.optimizer, math.inf, path.steps.tolist(), path.schedule)
    bend = descent.Bend(replace(path, loss=run.signal), Quadratic(spectrum), 0.0)
    np.testing.assert_allclose(bend.q, bend.loss, rtol=1e-12)
    other = descent.Bend(replace(path, loss=run.signal, hastened=0), Quadratic(spectrum), 0.0)
    assert other.q[0] > 1.1 * bend.q[0]


@pytest.mark.parametrize("ending", ["npz", "json"])
def test_a_file_has_it(tmp_path: Path, ending: str) -> None:
    given, file = fit(mlp(), steps=4, noise_vectors=1, noise_steps=2, descent=5, test=False), tmp_path / f"fit.{ending}"
    given.save(file)
    read = Fit.load(file)
    assert read.descent is not None
    assert read.descent.hastened == 5
    assert read.descent.reach == given.descent.reach  # type: ignore[union-attr]
    replace(given, descent=replace(read.descent, hastened=-1)).save(file)
    with pytest.raises(Wrong, match="hastened from step -1 on, and no step is negative"):
        Fit.load(file)
