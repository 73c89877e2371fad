"""The best schedule under a forecast: exact gradients, nothing better found at random, and the forms it is written in."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from known_laws import KINDS, PEAKS, Kind, known_forecast

from nqm.engine.schedule import Schedule
from nqm.logs import BestSchedule
from nqm.logs.best import compact, corners, step_batch_sizes
from nqm.logs.planning import _plan
from nqm.text.objects import parse_schedule
from nqm.types import Wrong

STEPS = 8000


def best(kind: Kind, **asked: object) -> BestSchedule:
    return known_forecast(kind).optimal_schedule(STEPS, **{"pieces": 12, **asked})  # type: ignore[arg-type]


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_is_the_derivative_of_the_loss(kind: Kind, trained: bool) -> None:
    trunk = np.full(3000, PEAKS[kind][0]) if trained else None
    plan = _plan(known_forecast(kind), STEPS, None, 0.0, 6, None, trunk, None)
    knots = PEAKS[kind][0] * np.linspace(0.9, 0.2, 7)
    loss, slope = plan.slope(knots)
    assert loss == pytest.approx(plan.loss(plan.rates_of(knots)), rel=3e-4)  # Blocks hold the rate: 4 of them a piece.
    for i in range(7):
        step = np.zeros(7)
        step[i] = 1e-5 * knots[0]
        ends = [plan.slope(knots + sign * step)[0] for sign in (1, -1)]
        assert slope[i] == pytest.approx((ends[0] - ends[1]) / (2 * step[i]), rel=1e-4, abs=1e-7 / knots[0])


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_the_best_of_few_lines_is_not_above_a_usual_schedule(pieces: int) -> None:
    forecast = known_forecast(KINDS[0])
    found = forecast.optimal_schedule(STEPS, pieces=pieces)
    assert all(row["above"] > -1e-4 * found.loss for row in found.rivals)
    assert found.schedule.steps == STEPS


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_better_is_found_at_random(kind: Kind) -> None:
    found, rng = best(kind), np.random.default_rng(0)
    plan = _plan(known_forecast(kind), STEPS, None, 0.0, 12, None, None, None)
    tried = [
        plan.loss(plan.rates_of(plan.max_lr * np.sort(rng.random(13) ** rng.choice([0.1, 1, 3]))[::-1]))
        for _ in range(200)
    ]
    assert found.loss <= min(tried) + 1e-6
    assert all(row["above"] > -1e-6 for row in found.rivals)
    assert {row["schedule"] for row in found.rivals} == {"cosine", "linear", "WSD"}
    for row in found.rivals:  # What the picture draws ends where the table says.
        assert found.compared[row["schedule"]].loss[-1] == pytest.approx(row["loss"], rel=1e-4)
        assert found.compared[row["schedule"]].rates.max() == pytest.approx(row["peak"], rel=1e-9)
    drawn = found.plot().axes
    labels = [line.get_label() for line in drawn[0].lines]
    assert labels == [f"{row['schedule']}, {row['loss']:.4f}" for row in found.rivals] + [f"best, {found.loss:.4f}"]
    assert len(drawn[1].lines) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_rates_keep_to_what_was_asked(kind: Kind) -> None:
    peak = PEAKS[kind][0]
    found = best(kind, min_lr=peak / 10, max_lr=peak)
    after = found.rates[500:]
    assert after.max() <= peak * (1 + 1e-12)
    assert after.min() >= peak / 10 * (1 - 1e-12)
    assert np.all(np.diff(after) <= 1e-12 * peak)
    free = best(kind, min_lr=peak / 10, max_lr=peak, monotone=False)
    assert free.loss <= found.loss + 1e-5
    trunk = peak * np.minimum(1, np.arange(1, 3001) / 500)
    rest = best(kind, trunk=trunk)
    np.testing.assert_allclose(rest.rates[:3000], trunk)
    assert rest.trained == 3000


@pytest.mark.slow
def test_more_pieces_are_no_worse() -> None:
    losses = [best("norm", pieces=n).loss for n in (3, 12, 48)]
    assert losses[0] >= losses[1] - 1e-6 >= losses[2] - 2e-6


def test_the_schedule_as_text_and_as_a_table() -> None:
    found = best("norm")
    text = parse_schedule(found.text())
    assert text.steps == found.steps
    # Lines are within 0.4% of the largest rate, and a step takes the value at its beginning.
    np.testing.assert_allclose(text.multipliers("lr", STEPS), found.schedule.multipliers("lr", STEPS), atol=0.01)
    rows = found.table()
    assert sum(row["steps"] for row in rows) == STEPS
    assert max(row["lr"] for row in rows) == pytest.approx(found.peak)


def test_torch_follows_the_snippet() -> None:
    torch = pytest.importorskip("torch")
    found = best("norm")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=found.peak)
    scope: dict[str, object] = {"optimizer": optimizer}
    exec(found.torch(), scope)  # The snippet is ours; it runs as a user would paste it.
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scope["scheduler"].step()  # type: ignore[attr-defined]
    np.testing.assert_allclose(rates, found.rates, atol=0.01 * found.peak)


def test_batch_sizes_as_megatron_has_them() -> None:
    ramp = Schedule([100, 100, 50], batch_size=[1, 1, 2])
    assert step_batch_sizes(ramp, 768, tokens_per_example=1000) == "0:768 153600K:1536"
    assert [compact(n) for n in (0, 999, 1_500_000, 250 * 10**9)] == ["0", "999", "1500K", "250B"]
    with pytest.raises(Wrong, match="no batch size"):
        known_forecast("norm", None).optimal_schedule(STEPS, pieces=3).megatron()


def as_megatron_reads(text: str, seq_length: int) -> list[tuple[int, int]]:
    """(examples, batch size) by the rules of Megatron's parser, as its documentation states them.

    Entries are separated by blanks or commas, a threshold and a batch size by a colon. Numbers may end with K, M, B or T; the
    float before the letter is multiplied and cut to a whole number. Thresholds are tokens, of which whole sequences count.
    The first is 0 and they increase strictly; batch sizes are positive.
    """
    units = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}

    def whole(number: str) -> int:
        letter = number[-1].upper()
        return int(float(number[:-1]) * units[letter]) if letter in units else int(float(number))

    found = []
    for entry in text.replace(",", " ").split():
        threshold, _, size = entry.partition(":")
        found.append((whole(threshold) // seq_length, whole(size)))
    assert found[0][0] == 0
    assert all(a[0] < b[0] for a, b in itertools.pairwise(found))
    assert all(size > 0 for _, size in found)
    return found


@given(
    pieces=st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 2**16)), min_size=1, max_size=12),
    tokens=st.integers(1, 2**17),
)
@example(pieces=[(1, 1), (1, 2), (333_333, 7), (1, 3)], tokens=4096)
def test_megatron_reads_the_ramp_that_was_meant(pieces: list[tuple[int, int]], tokens: int) -> None:
    """Every batch size begins at the example at which the schedule changes it, to the example."""
    lengths, sizes = zip(*pieces, strict=True)
    read = as_megatron_reads(step_batch_sizes(Schedule(lengths, batch_size=sizes), 1.0, tokens), tokens)
    seen, meant = 0, []
    for length, size in pieces:
        if not meant or meant[-1][1] != size:
            meant.append((seen, size))
        seen += length * size
    assert read == meant


def test_an_example_has_a_token() -> None:
    for tokens in (0.5, math.inf, -1):
        with pytest.raises(Wrong, match="at least one token") as caught:
            step_batch_sizes(Schedule([10], batch_size=[2]), 1.0, tokens)
        assert caught.value.argument == "tokens_per_example"


def test_a_line_whose_ends_are_printed_alike_is_constant() -> None:
    found = best("norm", min_lr=0.2 * PEAKS["norm"][1])
    for part in found.text().split(" + "):
        if part.startswith("linear"):
            start, end = part.rstrip(")").split("start=")[1].split(", end=")
            assert start != end


def test_corners_are_the_corners() -> None:
    values = np.concatenate(
        [np.linspace(0, 1, 100, endpoint=False), np.ones(200), np.linspace(1, 0, 100, endpoint=False)]
    )
    assert [row[:2] for row in corners(values)] == [(0, 100), (100, 300), (300, 400)]


@pytest.mark.parametrize(
    ("asked", "argument"),
    [
        ({"max_lr": -1}, "max_lr"), ({"min_lr": 1.0}, "min_lr"), ({"pieces": 0}, "pieces"), ({"warmup": 9000}, "steps"),
        ({"trunk": np.ones(9000)}, "steps"), ({"max_lr": float("nan")}, "max_lr"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned(asked: dict[str, object], argument: str) -> None:
    with pytest.raises(Wrong) as caught:
        best("norm", **asked)
    assert caught.value.argument == argument
