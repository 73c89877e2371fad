"""Trainings that are kept: the same as `train` makes, found again, and made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import mlp

from nqm import EMA, SGD, HeavyBall
from nqm.nets.fitting import validation
from nqm.nets.fitting.probing import fit
from nqm.nets.fitting.validation import Trainings, check
from nqm.nets.training.loop import train


def test_kept_trainings_are_those_of_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, file = mlp(), tmp_path / "kept.jsonl"
    asked = (EMA(SGD(0.1), 0.9), 4, [0, 3, 10])
    there = train(network, *asked, seeds=2, seed=5)
    first = Trainings(network, file).run(*asked, seeds=2, seed=5)
    np.testing.assert_array_equal(first.loss, there.loss)
    np.testing.assert_array_equal(first.stderr, there.stderr)
    made = []
    right = validation.losses
    monkeypatch.setattr(validation, "losses", lambda *a, **k: made.append(1) or right(*a, **k))
    again = Trainings(network, file)
    np.testing.assert_array_equal(again.run(*asked, seeds=2, seed=5).loss, there.loss)
    assert not made
    again.run(*asked, seeds=3, seed=5)  # one more seed
    assert len(made) == 1
    Trainings(network.at(network.theta + 0.1), file).run(*asked, seeds=1, seed=5)  # another checkpoint
    again.run(HeavyBall(0.1, 0.5), 4, [3], seeds=1)
    assert len(made) == 3
    assert len(file.read_text().splitlines()) == 5


def test_divergence_is_kept_too(tmp_path: Path) -> None:
    network, file = mlp(), tmp_path / "kept.jsonl"
    asked = (HeavyBall(1e200, 0.9), 4, [1, 5, 20])
    first, again = (Trainings(network, file).run(*asked, seeds=1) for _ in range(2))
    assert not np.isfinite(first.loss[-1])
    np.testing.assert_array_equal(first.loss, again.loss)
    assert not again.outcome.ok


def test_wrong_settings_and_files_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="whole batch_size"):
        Trainings(mlp()).run(SGD(0.1), 1.5, [3], seeds=1)
    (tmp_path / "a").write_text("loss\n")
    with pytest.raises(ValueError, match="not a file of trainings"):
        Trainings(mlp(), tmp_path / "a")


def test_a_check_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    network, file = mlp(), tmp_path / "kept.jsonl"
    found = fit(network, steps=6, noise_vectors=2, noise_steps=3, descent=10)
    pairs = [(SGD(0.01), 4), (HeavyBall(0.01, 0.5), 8)]
    whole = check(network, found, pairs, steps=[5, 20], seeds=2)

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    part = check(network, found, pairs, steps=[5, 20], seeds=2, store=file, progress=stop)
    assert len(part.rows) == 1
    assert len(file.read_text().splitlines()) == 2
    again = check(network, found, pairs, steps=[5, 20], seeds=2, store=file)
    np.testing.assert_array_equal(again.errors, whole.errors)
    row = again.summary()[-1]
    assert row["median_error"] == pytest.approx(np.median(np.abs(whole.errors[:, -1])))
    assert row["largest_error"] == pytest.approx(np.abs(whole.errors[:, -1]).max())
    plain = [
        abs(found.predict(o, b, [20], bent=False).loss[0] / row.trained.loss[-1] - 1)
        for (o, b), row in zip(pairs, whole.rows, strict=True)
    ]
    assert again.summary()[-1]["plain_largest_error"] == pytest.approx(max(plain))
