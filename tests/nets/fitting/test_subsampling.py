"""Fits on some of the examples: unbiased numbers, intervals that hold those of all the data, and a planted bug."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from models import mlp

from nqm.nets import Fit, Network, curvature_of, fit
from nqm.nets.fitting.sampled import NUMBERS
from nqm.nets.fitting.subsampling import GROUPS, sample_of, sampling_errors
from nqm.types import Array, Wrong

EXAMPLES, SAMPLE, SEEDS = 400, 100, 100


def exact(network: Network) -> tuple[Array, torch.Tensor, torch.Tensor]:
    """The numbers of all examples of a network by dense matrices, its gradient, and all its eigenvectors."""
    single = torch.cat(list(network.example_gradients()))
    g = single.mean(0)
    values, vectors = torch.linalg.eigh(curvature_of(network).dense())
    square, trace = float(g @ g), float(((single - g) ** 2).sum(1).mean())
    top = vectors.T.flip(0)[:8]
    return np.array([network.full_loss(), square, trace, trace / square, float(values[-1])]), g, top


@pytest.fixture(scope="module")
def runs() -> tuple[Array, Array]:
    """The true numbers, and (seed, number, (value, low, high)) of samples."""
    network, rows = mlp(EXAMPLES), []
    for seed in range(SEEDS):
        sample = sample_of(network, SAMPLE, seed)
        _, g, top = exact(sample)
        found = sampling_errors(sample, EXAMPLES, g, top, curvature=None, seed=0)
        rows.append([(e.value, e.low, e.high) for e in (getattr(found, name) for name in NUMBERS)])
    return exact(network)[0], np.array(rows)


@pytest.mark.slow
def test_intervals_hold_the_numbers_of_all_the_data(runs: tuple[Array, Array]) -> None:
    truth, found = runs
    held = ((found[:, :, 1] <= truth) & (truth <= found[:, :, 2])).mean(0)
    assert (held >= 0.8).all(), dict(zip(NUMBERS, held, strict=True))
    assert (held <= 0.97).all(), dict(zip(NUMBERS, held, strict=True))
    narrow = (
        found[:, :, :1] + (found[:, :, 1:] - found[:, :, :1]) / 3
    )  # a planted bug: an error that is three times too small
    assert (((narrow[:, :, 0] <= truth) & (truth <= narrow[:, :, 1])).mean(0) < 0.8).all()


@pytest.mark.slow
def test_loss_signal_and_noise_have_no_bias(runs: tuple[Array, Array]) -> None:
    truth, found = runs
    z = (found[:, :3, 0].mean(0) - truth[:3]) / (found[:, :3, 0].std(0) / SEEDS**0.5)
    assert np.abs(z).max() < 4


def test_a_sample_of_all_examples_is_exact() -> None:
    network = mlp(60)
    sample = sample_of(network, 60, 0)
    truth, g, top = exact(sample)
    found = sampling_errors(sample, 60, g, top, curvature=None, seed=0)
    values = np.array([getattr(found, name).value for name in NUMBERS])
    np.testing.assert_allclose(values, truth, rtol=1e-9)
    ends = np.array([(getattr(found, name).low, getattr(found, name).high) for name in NUMBERS])
    np.testing.assert_allclose(ends, np.stack([truth, truth], axis=1), rtol=1e-9)


def test_a_fit_states_its_sampling_error(tmp_path: Path) -> None:
    network = mlp(200)
    found = fit(network, sample=80, steps=6, noise_vectors=2, noise_steps=3, descent=3, test=False)
    assert found.examples == 80
    assert found.sampled is not None
    assert found.sampled.population == 200
    assert any("80 of 200 examples were measured" in note for note in found.provenance.notes)
    found.save(tmp_path / "some.json")
    assert Fit.load(tmp_path / "some.json").sampled == found.sampled
    assert found.to_dict()["sampled"] == found.sampled.to_dict()


def test_wrong_samples_are_refused() -> None:
    for size, sentence in ((2 * GROUPS - 1, "sample"), (500, "has 200")):
        with pytest.raises(Wrong, match=sentence) as told:
            fit(mlp(200), sample=size)
        assert told.value.argument == "sample"
