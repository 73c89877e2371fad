"""The curvature in the basis of a run: rotations as a user gives them, and what is behind a preconditioner."""

from __future__ import annotations

import numpy as np
import pytest

from nqm import SGD, HeavyBall, Preconditioned, Quadratic, ScheduleFree, Spectrum

H = np.append(np.geomspace(1.0, 1e-3, 28), [1e-4, 1e-6])
MODES = Spectrum(H, c=H * np.linspace(0.5, 2.0, 30), s=np.linspace(0.1, 1.5, 30) * H[::-1] ** 0.2)


def test_rotations() -> None:
    problem, row = Quadratic(Spectrum([1.0, 0.5, 0.2])), HeavyBall(0.3, 0.8)
    plain = problem.sample(row, 4, 20, replicas=8).loss
    swap = np.eye(3)[[2, 0, 1]]
    for rotation in (7, np.int64(7), "random", swap):
        assert np.abs(problem.sample(row, 4, 20, replicas=8, rotation=rotation).loss / plain - 1).max() < 1e-12
    with pytest.raises(ValueError, match=r"orthogonal, but an entry of R R' differs from the identity by 3"):
        problem.sample(row, 4, 20, rotation=2 * np.eye(3))
    with pytest.raises(ValueError, match="3 x 3"):
        problem.sample(row, 4, 20, rotation=np.eye(2))
    with pytest.raises(ValueError, match="rotation must be"):
        problem.sample(row, 4, 20, rotation="some")
    with pytest.raises(ValueError, match=r"at most 2,000 modes; this one has 2,001"):
        Quadratic(Spectrum.power_law(2001)).sample(row, 4, 20, rotation=1)


def test_nested_preconditioners_meet_the_curvature_behind_the_outer_one() -> None:
    outer = Preconditioned(Preconditioned(SGD(0.4), 0.5), 0.25)
    one = Preconditioned(SGD(0.4), 0.625)  # 1 - (1 - 0.25)(1 - 0.5)
    problem = Quadratic(MODES)
    a, b = (problem.sample(o, 0.5, 20, replicas=10).loss for o in (outer, one))
    assert np.abs(a / b - 1).max() < 1e-12
    assert ScheduleFree(0.1, 0.5).linear
    assert outer.elementwise
