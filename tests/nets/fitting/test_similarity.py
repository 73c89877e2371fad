"""Likeness of curvature between checkpoints, against dense matrices."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from models import cnn, mlp
from reading import check_reads_well

from benchmarks import fisher
from nqm import SGD
from nqm.nets.curvature import GaussNewton
from nqm.nets.estimates import Measure
from nqm.nets.fitting.similarity import Similarity, checkpoints, curvature_similarity, spectra_distance
from nqm.nets.network import Network
from nqm.nets.workloads import workload
from nqm.types import Array

STEPS = (0, 3, 40)
K, PROBES = 6, 5


@cache
def trained() -> list[Network]:
    return checkpoints(mlp(), SGD(0.5), 8, STEPS, seed=1)


@cache
def found() -> Similarity:
    return curvature_similarity(trained(), k=K, probes=PROBES, lanczos_steps=66, seed=3, tol=1e-12)


@cache
def dense() -> list[Array]:
    return [GaussNewton(network).dense().numpy() for network in trained()]


def cut(matrix: Array) -> Array:
    """The part of a matrix in its k largest eigenvectors."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors[:, -K:] * values[-K:]) @ vectors[:, -K:].T


def projector(matrix: Array) -> Array:
    top = np.linalg.eigh(matrix)[1][:, -K:]
    return top @ top.T


def test_checkpoints_are_those_of_one_training() -> None:
    networks = trained()
    assert [n.step for n in networks] == list(STEPS)
    assert torch.equal(networks[0].theta, mlp().theta)
    alone = checkpoints(mlp(), SGD(0.5), 8, [40], seed=1)[0]
    assert torch.equal(alone.theta, networks[2].theta)
    assert networks[2].full_loss() < networks[0].full_loss()
    later = checkpoints(networks[1], SGD(0.5), 8, [2], seed=1)[0]
    assert later.step == 5


def test_top_subspaces_against_dense_matrices() -> None:
    s = found()
    for i, a in enumerate(dense()):
        assert s.values[i] == pytest.approx(np.linalg.eigvalsh(a)[::-1][:K], rel=1e-9)
        for j, b in enumerate(dense()):
            assert s.overlap[i, j] == pytest.approx(np.trace(projector(a) @ projector(b)) / K, abs=1e-8)
            inner = (cut(a) * cut(b)).sum() / (np.linalg.norm(cut(a)) * np.linalg.norm(cut(b)))
            assert s.alignment[i, j] == pytest.approx(inner, abs=1e-8)
    assert s.overlap[0, 2] < 0.9  # the comparison sees that they differ
    assert s.residuals.max() < 1e-8


def test_traces_and_spectra_against_dense_matrices() -> None:
    s = found()
    z = torch.randn(PROBES, 66, generator=torch.Generator().manual_seed(3), dtype=torch.float64).numpy()
    measures = []
    for i, a in enumerate(dense()):
        assert s.trace[i].value == pytest.approx(np.einsum("pi,ij,pj->p", z, a, z).mean(), rel=1e-9)
        assert s.trace[i].low < s.trace[i].value < s.trace[i].high
        values, vectors = np.linalg.eigh(a)
        weights = (z @ vectors) ** 2
        measures.append(Measure(np.tile(values, PROBES), weights.ravel(), np.repeat(np.arange(PROBES), 66)))
    for i, a in enumerate(measures):
        for j, b in enumerate(measures):
            assert s.distance[i, j] == pytest.approx(spectra_distance(a, b), abs=1e-6)


def test_distance_of_spectra_is_that_of_eigenvalues_in_order() -> None:
    rng = np.random.default_rng(0)
    a, b = np.sort(rng.random(20)), np.sort(3 * rng.random(20))

    def counted(values: Array) -> Measure:
        return Measure(rng.permutation(values), np.ones(20), np.zeros(20, int))

    known = np.abs(a - b).sum() / (a.sum() + b.sum())
    assert spectra_distance(counted(a), counted(b)) == pytest.approx(known, rel=1e-12)
    assert spectra_distance(counted(a), counted(a)) == 0
    assert spectra_distance(counted(a), counted(a * 1e-12)) == pytest.approx(1, abs=1e-10)


def test_a_checkpoint_is_like_itself_and_scale_is_told_from_direction() -> None:
    s = found()
    assert np.diag(s.overlap) == pytest.approx(np.ones(3), abs=1e-9)
    assert np.diag(s.alignment) == pytest.approx(np.ones(3), abs=1e-9)
    assert np.diag(s.distance).max() < 1e-15
    network = trained()[1]
    double = Network(network.model, lambda o, y: 2 * network.loss(o, y), network.data, dtype=torch.float64)
    both = curvature_similarity([network, double.at(network.theta)], k=K, probes=2, lanczos_steps=30)
    (row,) = both.table()
    assert row["trace_ratio"] == pytest.approx(2, rel=1e-9)
    assert row["alignment"] == pytest.approx(1, abs=1e-6)
    assert row["distance"] == pytest.approx(1 / 3, rel=1e-6)


def test_results_read_well() -> None:
    check_reads_well(found(), f"checkpoints, {K} largest curvatures of the ", rows=len(found().steps) - 1)


def test_results_are_plain_numbers_and_repeat() -> None:
    again = curvature_similarity(trained(), k=K, probes=PROBES, lanczos_steps=66, seed=3, tol=1e-12)
    assert again.to_dict() == found().to_dict()
    assert [row["step"] for row in found().table()] == [3, 40]
    done = []
    curvature_similarity(
        trained()[:2], k=2, probes=1, lanczos_steps=2, curvature="empirical_fisher", progress=lambda *x: done.append(x)
    )
    assert done == [(1, 2), (2, 2)]


def test_low_rank_is_no_surprise() -> None:
    network = mlp(n=1)  # two independent directions of three classes
    s = curvature_similarity([network, network.at(network.theta * 1.1)], k=5, probes=1, lanczos_steps=5)
    assert (s.values[:, 2:] < 1e-9 * s.values[:, :1]).all()
    assert s.alignment[0, 0] == pytest.approx(1)
    assert 0 < s.alignment[0, 1] < 1


def test_wrong_calls_say_what_to_change() -> None:
    network = mlp()
    with pytest.raises(ValueError, match="two checkpoints or more, got 1"):
        curvature_similarity([network])
    with pytest.raises(ValueError, match="one model at several checkpoints"):
        curvature_similarity([network, cnn()])
    with pytest.raises(ValueError, match="k must be a whole number from 1 to 66, got 67"):
        curvature_similarity([network, network], k=67)
    with pytest.raises(ValueError, match="probes must be a whole number from 1, got 0"):
        curvature_similarity([network, network], probes=0)
    with pytest.raises(ValueError, match=r"steps must be increasing whole numbers from 0 on, got \[3, 1\]"):
        checkpoints(network, SGD(0.1), 4, [3, 1])


@pytest.mark.slow
def test_an_interrupted_measurement_of_trainings_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m benchmarks.fisher`` on a small network: its rows are those of one call, whenever it was interrupted."""
    small = {"RATES": (0.3,), "SEEDS": (0, 1), "EPOCHS": (0, 1, 3), "EXAMPLES": 96, "SAMPLE": 48, "EIGENPAIRS": 4}
    for name, value in small.items():
        monkeypatch.setattr(fisher, name, value)
    monkeypatch.setattr(fisher, "workload", lambda _: workload("digits"))
    folder, out = tmp_path / "kept", tmp_path / "table.csv"
    calls = 0
    while calls < 10 and len(list(folder.glob("*epoch*.pt"))) < 6:
        fisher.main(["--folder", str(folder), "--out", str(out), "--checkpoints", "1"])
        calls += 1
    assert calls == 6  # one checkpoint in each call
    task, expected = workload("digits"), []
    for seed in (0, 1):
        start = task.network(0, seed=seed, examples=96)
        times = [epoch * 96 // task.batch_size for epoch in (0, 1, 3)]
        networks = [n.first(48) for n in checkpoints(start, SGD(0.3), task.batch_size, times, seed=seed)]
        expected += curvature_similarity(networks, k=4, probes=4, lanczos_steps=3, tol=0.01, seed=seed).table()
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["before"], row["epoch"]) for row in rows] == [
        ("0", "0", "1"), ("0", "1", "3"), ("1", "0", "1"), ("1", "1", "3"),
    ]  # fmt: skip
    for name in ("alignment", "overlap", "trace_ratio", "distance", "loss"):
        assert [float(row[name]) for row in rows] == pytest.approx([row[name] for row in expected], rel=1e-6)
