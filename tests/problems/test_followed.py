"""Mean fields against sampled losses that are kept in a file, and what results say about them."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nqm import (
    EMA,
    SGD,
    Adam,
    Clipped,
    NormalisedSGD,
    Optimizer,
    Quadratic,
    Sign,
    Spectrum,
    steps_to_target,
    tune,
)
from nqm.engine.mean_field import FINE_DETAIL, Linearised, MeanField, Seen, Start
from nqm.optimizers.adam import preconditioner
from nqm.problems.doubts import averaged_gradients, norm_of_gradient
from nqm.problems.followed import Followed
from nqm.text.objects import parse_optimizer
from nqm.types import Array

SAMPLED = Path(__file__).parents[2] / "docs" / "checks" / "mean_field.csv"


@dataclass(frozen=True)
class Sampled:
    """Losses of one run that ``python -m benchmarks.mean_field sample`` wrote."""

    optimizer: Optimizer
    dim: int
    exponent: float
    batch_size: float
    start: Start
    steps: Array
    loss: Array
    stderr: Array

    @property
    def followed(self) -> Followed:
        return Followed(power_law(self.dim, self.exponent), self.optimizer, self.batch_size, start=self.start)

    def error(self, losses: Array | None = None) -> Array:
        """Relative error of the mean field, or of other losses."""
        found = self.followed.losses(self.steps, FINE_DETAIL) if losses is None else losses
        return found / self.loss - 1


@cache
def power_law(dim: int, exponent: float = 1.0) -> Quadratic:
    return Quadratic(Spectrum.power_law(dim, exponent))


@cache
def sampled(which: str) -> tuple[Sampled, ...]:
    groups: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    with SAMPLED.open() as file:
        for row in csv.DictReader(file):
            if row["set"] == which:
                key = row["optimizer"], row["dim"], row["exponent"], row["batch_size"], row["start"]
                groups.setdefault(key, []).append(tuple(float(row[name]) for name in ("steps", "loss", "stderr")))
    found = []
    for (optimizer, dim, exponent, size, start), rows in groups.items():
        steps, loss, stderr = np.array(rows).T
        law: Start = "fixed" if start == "fixed" else "gaussian"
        run = Sampled(
            parse_optimizer(optimizer), int(dim), float(exponent), float(size), law, steps.astype(int), loss, stderr
        )
        found.append(run)
    return tuple(found)


def close(run: Sampled, error: Array) -> Array:
    """Which losses are within 1% or 3 standard errors."""
    return np.abs(error) <= np.maximum(0.01, 3 * run.stderr / run.loss)


@dataclass(frozen=True)
class Uncorrected(Adam):
    """A planted bug: neither average is corrected for its bias."""

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        P, gain = self.lr * preconditioner(averages[0], 1e9, self.beta1, self.beta2, self.eps), 1 - self.beta1
        return Linearised([[-P * gain * seen.h, -P * self.beta1], [gain * seen.h, -gain]], [-P * gain, gain])


@pytest.mark.slow
def test_twelve_settings_of_adam_agree_with_sampling() -> None:
    runs = sampled("settings")
    assert len(runs) == 24
    near, quiet = [], []
    for run in runs:
        error = run.error()
        near += close(run, error).tolist()
        told = [bool(run.followed.doubts(int(t), int(t))) for t in run.steps]
        quiet += np.abs(error[~np.array(told)]).tolist()
    assert np.mean(near) >= 0.9
    assert max(quiet) < 0.05, "outside of what the result itself calls fast"
    assert len(quiet) > 0.8 * len(near)


@pytest.mark.slow
def test_on_other_spectra_results_say_where_they_are_wrong() -> None:
    """Random settings, on which no constant of a rule was chosen."""
    runs = sampled("elsewhere")
    assert len(runs) == 24
    silent, told = [], []
    for run in runs:
        warned = np.array([bool(run.followed.doubts(int(t), int(t))) for t in run.steps])
        near = close(run, run.error())
        silent += near[~warned].tolist()
        told += near[warned].tolist()
    assert np.mean(silent) > 0.95
    assert not all(told), "some warnings are true"
    assert len(silent) > len(told)


@pytest.mark.slow
def test_the_compared_file_is_what_mean_fields_give() -> None:
    with SAMPLED.with_name("mean_field_compared.csv").open() as file:
        kept = {
            (r["optimizer"], r["start"], r["steps"]): float(r["followed"])
            for r in csv.DictReader(file)
            if r["set"] == "settings"
        }
    for run in sampled("settings")[::5]:
        found = run.followed.losses(run.steps, run.followed.resolved(run.steps)[0])
        for t, loss in zip(run.steps, found, strict=True):
            assert abs(loss / kept[str(run.optimizer), run.start, str(t)] - 1) < 1e-4  # Six digits are kept.


@pytest.mark.parametrize("bug", ["uncorrected", "other start"])
def test_planted_bugs_disagree_with_sampling(bug: str) -> None:
    near = []
    for run in sampled("settings")[:6]:
        assert isinstance(run.optimizer, Adam)
        if bug == "uncorrected":
            adam = run.optimizer
            followed = Followed(
                power_law(run.dim), Uncorrected(adam.lr, adam.beta1, adam.beta2), run.batch_size, None, run.start
            )
        else:
            other: Start = "gaussian" if run.start == "fixed" else "fixed"
            followed = Followed(power_law(run.dim), run.optimizer, run.batch_size, None, other)
        near += close(run, run.error(followed.losses(run.steps, FINE_DETAIL))).tolist()
    assert np.mean(near) < 0.7


@pytest.mark.slow
def test_the_error_vanishes_as_beta2_goes_to_1() -> None:
    """Root mean square error on few modes after 1,000 steps, where averages are full and standard errors below 0.5%."""
    errors: dict[float, list[float]] = {}
    for run in sampled("grid"):
        assert isinstance(run.optimizer, Adam)
        if run.dim <= 10 and run.batch_size >= 1024:
            errors.setdefault(run.optimizer.beta2, []).extend(run.error()[run.steps == 1000].tolist())
    size = {beta2: math.sqrt(np.mean(np.square(e))) for beta2, e in sorted(errors.items())}
    assert list(size) == [0.5, 0.9, 0.97, 0.99, 0.999]
    assert size[0.5] > 2 * size[0.9] > 4 * size[0.97] > 8 * size[0.99]
    assert size[0.999] < 0.01


def test_the_gradients_in_an_average() -> None:
    field = power_law(3).field(Adam(0.1, beta2=0.9), 4)
    for t in (1, 2, 7, 500):
        w = 0.9 ** np.arange(t)
        assert abs(float(averaged_gradients(field, t)) / (w.sum() ** 2 / (w**2).sum()) - 1) < 1e-12
    assert averaged_gradients(power_law(3).field(Sign(0.1), 4), 5) == math.inf


def test_the_scatter_of_a_norm_is_that_of_drawn_gradients() -> None:
    field = MeanField(SGD(0.1), Spectrum([1.0, 0.3, 0.1], count=[1, 2, 5]), 4.0)
    norm, scatter = norm_of_gradient(field, field.start())
    rng, h = np.random.default_rng(0), np.repeat([1.0, 0.3, 0.1], [1, 2, 5])
    g = h * rng.normal(size=(400_000, 8)) + np.sqrt(h / 4) * rng.normal(size=(400_000, 8))
    squares = (g**2).sum(axis=1)
    stderr = squares.std() / math.sqrt(len(squares))
    assert abs(norm**2 - squares.mean()) < 4 * stderr
    assert (
        abs(scatter * norm**2 / squares.std() - 1) < 0.01
    )  # The standard error of a standard deviation is about 0.3%.


def test_nothing_is_said_where_the_mean_field_is_accurate() -> None:
    for run in sampled("settings")[:2]:
        assert np.abs(run.error()).max() < 0.01
        message = run.followed.whole.run(run.optimizer, run.batch_size, run.steps, start=run.start).message
        assert "by mean field" in message
        assert "off" not in message


WARNED = {
    "short": (Adam(0.01, beta2=0.9), 64, "averages over 19 gradients are short: steady losses were up to 15% off"),
    "fast": (Adam(0.1), 4096, "the loss moves fast while averages hold few gradients, and may be"),
    "norm": (Clipped(Adam(0.01), 0.5), 2**16, "few modes carry the norm of the gradient"),
    "normalised": (NormalisedSGD(0.1), 64, "few modes carry the norm of the gradient"),
    "signs": (EMA(Sign(0.01, 0.9), 0.5), 64, "signs of averages are taken as independent"),
}


@pytest.mark.parametrize("name", WARNED)
def test_a_run_says_where_it_may_be_wrong(name: str) -> None:
    optimizer, size, sentence = WARNED[name]
    assert sentence in power_law(100).run(optimizer, size, 300).message


@pytest.mark.parametrize(
    "optimizer", [Sign(0.01), Clipped(Adam(0.01), 1e4), Adam(0.01, beta2=0.9999)], ids=["sign", "never clips", "long"]
)
def test_a_run_is_silent_where_a_rule_does_not_apply(optimizer: Optimizer) -> None:
    assert power_law(100).run(optimizer, 64, 1000).message == "ran to step 1,000; by mean field"


def test_first_hits_and_tuned_settings_say_so_too() -> None:
    assert "the loss moves fast" in steps_to_target(power_law(100), Adam(0.1), 64, 0.1).message
    assert "the loss moves fast" not in steps_to_target(power_law(100), Adam(0.001), 64, 0.5).message
    assert "averages over 3 gradients are short" in tune(power_law(100), Adam(beta2=0.5), 64, 0.1).message
