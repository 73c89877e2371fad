"""Ranges of settings: their scales, their ends, what lies beyond; and the points in them."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from nqm.lab.space import EDGE, Space, edges, inside, points, volume

SPACES = {
    "log": Space(1e-3, 10, "log"),
    "1-x": Space(0.5, 0.999, "1-x"),
    "linear": Space(-1, 3, "linear"),
}


@pytest.mark.parametrize("name", SPACES)
@given(u=st.floats(0, 1))
def test_at_and_where_are_inverse(name: str, u: float) -> None:
    space = SPACES[name]
    assert abs(space.where(space.at(u)) - u) < 1e-5  # settings keep six digits


def test_scales_are_what_they_are_called() -> None:
    """Equal steps multiply a learning rate, and divide 1 - momentum, by the same factor."""
    rates = [SPACES["log"].at(u) for u in (0.25, 0.5, 0.75)]
    memories = [1 / (1 - SPACES["1-x"].at(u)) for u in (0.25, 0.5, 0.75)]
    for a, b, c in (rates, memories):
        assert b / a == pytest.approx(c / b, rel=1e-5)
    assert SPACES["linear"].at(0.5) == 1


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("end", ["low", "high"])
def test_edges_and_widening(name: str, end: str) -> None:
    space = SPACES[name]
    near, far = (EDGE / 2, 2 * EDGE) if end == "low" else (1 - EDGE / 2, 1 - 2 * EDGE)
    assert space.edge(space.at(near)) == end
    assert space.edge(space.at(far)) is None
    wider = space.widened([end])
    assert wider.width > space.width
    assert wider.edge(space.at(near)) is None
    other = "high" if end == "low" else "low"
    assert getattr(wider, other) == getattr(space, other)


def test_widening_by_a_factor_of_four() -> None:
    assert SPACES["log"].widened(["low", "high"]) == Space(1e-3 / 4, 40, "log")
    assert 1 - SPACES["1-x"].widened(["high"]).high == pytest.approx(0.001 / 4)


def test_nothing_lies_beyond_what_is_possible() -> None:
    assert SPACES["1-x"].widened(["low"]).low == 0  # 1 - 4 x 0.5 would be below
    none = Space(0, 0.9, "1-x")
    assert none.edge(0.001) is None
    assert none.widened(["low"]).low == 0
    assert Space(0, 1, "linear").edge(0.01) is None
    assert Space(0.5, 1, "linear").widened(["low"]).low == 0


@pytest.mark.parametrize(
    ("low", "high", "scale", "why"),
    [
        (1, 1, "log", "low must be below high"),
        (0, 1, "log", "above 0"),
        (0.5, 1, "1-x", "high below 1"),
        (-0.1, 0.5, "1-x", "low must be 0 or more"),
        (0, math.inf, "linear", "finite"),
        (1, 2, "sqrt", "scale must be one of"),
    ],
)
def test_refused(low: float, high: float, scale: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Space(low, high, scale)


BOX = {"lr": SPACES["log"], "momentum": SPACES["1-x"]}


def test_points_repeat_and_go_on() -> None:
    many = list(islice(points([BOX], (3, 0)), 200))
    assert many[:10] == list(islice(points([BOX], (3, 0)), 10))
    assert many[:10] != list(islice(points([BOX], (4, 0)), 10))
    assert all(inside(p, BOX) for p in many)


def test_points_fill_the_box() -> None:
    """Better than random: each half of each setting has half of the points, which chance leaves 2% of seeds."""
    u = np.array([[BOX[n].where(p[n]) for n in BOX] for p in islice(points([BOX], (0, 0)), 64)])
    counts = (u < 0.5).sum(0)
    assert counts.tolist() == [32, 32]
    assert binom.pmf(32, 64, 0.5) ** 2 < 0.02


def test_points_of_a_wider_box_are_new() -> None:
    wider = {**BOX, "lr": BOX["lr"].widened(["high"])}
    found = list(islice(points([BOX, wider], (0, 1)), 20))
    assert len(found) == 20
    assert all(10 < p["lr"] <= 40 for p in found)
    assert volume(wider) / volume(BOX) == pytest.approx(1 + math.log(4) / math.log(1e4))


def test_points_come_to_an_end() -> None:
    assert list(points([{}], (0, 0))) == [{}]  # nothing is searched
    assert list(points([BOX, BOX], (0, 1), most=100)) == []  # nothing is new


def test_edges_of_settings() -> None:
    assert edges({"lr": 9.9, "momentum": 0.9, "fixed": 3}, BOX, 100) == {"lr": "high"}
    assert edges({"lr": 4, "momentum": 0.9}, BOX, 100) == {}
    assert edges({"lr": 4, "momentum": 0.9}, BOX, 8) == {"lr": "high"}  # the last of eight
