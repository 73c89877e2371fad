"""Sources of gradients: how replicas start, and how many modes are sampled one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nqm import SGD, NormalisedSGD, Quadratic, Spectrum
from nqm.sampling.laws import law
from nqm.sampling.sources import Additive


def test_starts() -> None:
    problem = Quadratic(Spectrum([1.0, 0.1], s=[4.0, 9.0]))
    fixed = problem.sample(SGD(0.5), math.inf, 10, replicas=3, start="fixed")
    assert np.abs(fixed.loss - problem.run(SGD(0.5), math.inf, 10).loss).max() < 1e-15
    assert fixed.stderr.max() < 1e-15
    assert problem.sample(SGD(0.5), math.inf, 10, replicas=1000).stderr.min() > 0
    with pytest.raises(ValueError, match="start must be 'gaussian' or 'fixed'"):
        problem.sample(SGD(0.5), 1, 10, start="zero")  # type: ignore[arg-type]


def test_multiplicities_count() -> None:
    many, alike = Spectrum([1.0, 0.2], count=[1, 400]), Spectrum(np.append(1.0, np.full(400, 0.2)))
    assert Additive(many, SGD(0.1), law("gaussian")).modes == 401
    run, same = (Quadratic(s).sample(SGD(0.5), 4, 10, replicas=20) for s in (many, alike))
    assert run.loss.tolist() == same.loss.tolist()
    nodes = Spectrum.power_law(10**7)
    source = Additive(nodes, SGD(0.1), law("gaussian"))
    assert source.modes == len(nodes)
    assert source.initial_loss == pytest.approx(nodes.initial_loss)
    sampled = Quadratic(nodes).sample(SGD(0.5), 64, [50], replicas=500)
    assert abs(sampled.loss - Quadratic(nodes).run(SGD(0.5), 64, [50]).loss)[0] < 4 * sampled.stderr[0]


def test_nodes_that_stand_for_many_modes_are_refused_where_each_mode_counts() -> None:
    nodes = Quadratic(Spectrum.power_law(10**7))
    with pytest.raises(
        ValueError, match=r"NormalisedSGD.*sampled mode by mode, with at most 100,000 whole modes"
    ) as error:
        nodes.sample(NormalisedSGD(0.1), 4, 10)
    assert error.value.argument == "spectrum"  # type: ignore[attr-defined]
