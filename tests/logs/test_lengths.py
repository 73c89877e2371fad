"""Loss against the length of training: that of the best schedule of each length, and what a tenth more would buy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from known_laws import LAST, known_forecast

from nqm.logs import Forecast
from nqm.types import Wrong


@pytest.fixture(scope="module")
def found() -> Forecast:
    return known_forecast("norm")


@pytest.mark.slow
def test_each_length_is_its_best_schedule(found: Forecast) -> None:
    by_length = found.losses_by_length([8000, 4000, 8000], min_lr=1e-4)
    assert by_length.steps.tolist() == [4000, 8000]
    for i, steps in enumerate((4000, 8000)):
        best, longer = (found.optimal_schedule(n, min_lr=1e-4) for n in (steps, steps * 11 // 10))
        assert by_length.loss[i] == best.loss
        assert (by_length.low[i], by_length.high[i]) == (best.low, best.high)
        assert by_length.gain[i] == best.loss - longer.loss
        assert by_length.sentences[i] == best.outlook.sentence
    assert by_length.loss[0] > by_length.loss[1]
    assert by_length.gain[0] > by_length.gain[1] > 0


def test_the_gain_is_the_slope_of_the_power_law() -> None:
    """Without noise the best rate is the largest, and the loss is the signal: a tenth more steps buy its difference."""
    found = known_forecast("plain")
    law = found.law
    theta = law.theta.copy()
    theta[4] = -40.0  # N
    quiet = type(found)(
        found.logs, type(found.fitted)(type(law)(law.metric, theta), *list(vars(found.fitted).values())[1:]), 64.0
    )
    lengths = [5000, 20_000]
    by_length = quiet.losses_by_length(lengths)
    warm = quiet.warmup

    def loss(steps: int) -> float:
        time = quiet.peaks[1] * (steps - warm + (warm + 1) / 2)
        return law["floor"] + law["A"] * (1 + time / law["s0"]) ** -law["alpha"]

    np.testing.assert_allclose(by_length.loss, [loss(n) for n in lengths], rtol=1e-5)
    np.testing.assert_allclose(by_length.gain, [loss(n) - loss(n * 11 // 10) for n in lengths], rtol=1e-3)


@pytest.mark.slow
def test_lengths_by_default_and_in_every_form(found: Forecast, tmp_path: Path) -> None:
    by_length = found.losses_by_length()
    assert by_length.steps.tolist() == [LAST // 2, LAST, 2 * LAST, 4 * LAST]
    assert [row["gain_of_10_percent"] for row in by_length.table()] == by_length.gain.tolist()
    assert by_length.to_dict()["gain"] == by_length.gain.tolist()
    assert "where 10% more steps buy" in repr(by_length)
    by_length.plot(str(tmp_path / "lengths.png"))
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")
    assert "4 times as long as the longest log" in by_length.sentences[-1]


@pytest.mark.parametrize(("lengths", "argument"), [([], "lengths"), ([0], "steps"), ([4000.5], "steps")])
def test_wrong_lengths(lengths: list[int], argument: str, found: Forecast) -> None:
    with pytest.raises(Wrong) as error:
        found.losses_by_length(lengths)
    assert error.value.argument == argument
