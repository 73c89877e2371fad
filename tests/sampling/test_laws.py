"""Every law has mean 0 and variance 1 (z-scores over a seeded draw), its own fourth moment, and a name that is parsed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nqm import SGD, LeastSquares, Spectrum
from nqm.sampling.laws import LAWS, Law, law
from nqm.types import Wrong

SIZE = 400_000
KURTOSIS = {  # E x^4, and the skewness E x^3
    "gaussian": (3.0, 0.0),
    "rademacher": (1.0, 0.0),
    "laplace": (6.0, 0.0),
    "exponential": (9.0, 2.0),
    "student_t(12)": (3 + 6 / 8, 0.0),
    "student_t(df=9)": (3 + 6 / 5, 0.0),
}


def drawn(name: Any, shape: tuple[int, ...] = (SIZE,)) -> Any:
    return law(name).draw(np.random.default_rng(11), np.full(shape, np.nan))


def z(values: Any, expected: float) -> float:
    spread = values.std()
    return 0.0 if spread == 0 and values[0] == expected else (values.mean() - expected) / (spread / math.sqrt(SIZE))


@pytest.mark.parametrize("name", KURTOSIS)
def test_moments(name: str) -> None:
    x = drawn(name)
    fourth, third = KURTOSIS[name]
    assert abs(z(x, 0.0)) < 4
    assert abs(z(x**2, 1.0)) < 4
    assert abs(z(x**3, third)) < 4
    assert abs(z(x**4, fourth)) < 4
    assert abs(z(1.05 * x**2, 1.0)) > 4  # a law that is 5% too loud would show


@pytest.mark.parametrize("name", [*KURTOSIS, "cauchy", "student_t(1.5)"])
def test_draws_fill_the_array_they_are_given(name: str) -> None:
    out = np.full((3, 7), np.nan)
    found = law(name).draw(np.random.default_rng(0), out[1:])
    assert np.isfinite(out[1:]).all()
    assert np.isnan(out[0]).all()
    assert np.shares_memory(found, out)


def test_laws_without_moments_say_so() -> None:
    assert "no mean and no variance" in law("cauchy").warning
    assert "no mean" in law("student_t(1)").warning
    assert "no variance" in law("student_t(2)").warning
    assert not any(law(name).warning for name in KURTOSIS)
    x = drawn("cauchy")  # half of a Cauchy law lies within 1 of its centre
    assert abs(np.mean(np.abs(x) < 1) - 0.5) < 4 * 0.5 / math.sqrt(SIZE)


def test_a_function_of_ones_own() -> None:
    def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return rng.uniform(-math.sqrt(3), math.sqrt(3), shape)

    found = law(uniform)
    assert found.name == "uniform"
    assert abs(z(drawn(uniform) ** 2, 1.0)) < 4
    assert law(found) is found
    assert isinstance(found, Law)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda rng, shape: rng.normal(0.5, 1.0, shape), "draws have mean 0.5"),
        (lambda rng, shape: rng.normal(0.0, 2.0, shape), "variance 4"),
        (lambda rng, shape: rng.standard_cauchy(shape), "mean 0 and variance 1"),
        (lambda rng, shape: np.zeros(shape), "variance 0"),
        (lambda rng, shape: rng.normal(size=3), "of that shape, got shape"),
        (lambda rng, shape: np.full(shape, np.nan), "not finite"),
        (lambda rng, shape: "noise", "of that shape"),
    ],
)
def test_a_function_that_is_no_law_is_refused(function: Any, match: str) -> None:
    with pytest.raises(Wrong, match=match) as error:
        law(function)
    assert error.value.argument == "noise"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("gausian", "did you mean gaussian"),
        ("student_t", "takes one number, df, as in student_t"),
        ("student_t(0)", "df must be positive"),
        ("student_t(-1)", "df must be positive"),
        ("student_t(5, 6)", "takes one number"),
        ("student_t(nu=5)", "one number, df,.*nu=5"),
        ("gaussian(2)", "gaussian takes no number"),
        ("student_t(5", "no law"),
        ("student_t(nan)", "df must be positive"),
        ("student_t(gaussian)", "takes one number"),
        ("student_t(1/0)", "takes one number"),
        ("student_t(5/)", "takes one number"),
        ("student_t(1/2/3)", "takes one number"),
        ("__import__('os')", "no law"),
        ("law.draw", "no law"),
        ("", "no law ''"),
        ("1 + 1", "no law"),
    ],
)
def test_text_that_names_no_law_is_refused(text: str, match: str) -> None:
    with pytest.raises(Wrong, match=match) as error:
        law(text)
    assert error.value.argument == "noise"


def test_a_law_may_be_written_as_a_call() -> None:
    assert law("gaussian()") is law(" gaussian ") is law("gaussian")
    assert law("cauchy( )").name == "student_t(1)"
    assert law("student_t(5/2)").name == law("student_t(df = 5 / 2)").name == "student_t(2.5)"


def test_a_wrong_law_is_refused_as_the_argument_it_was_given_as() -> None:
    problem = LeastSquares(Spectrum([1.0, 0.5]))
    for wrong in ("gausian", 3, lambda rng, shape: 1 + rng.standard_normal(shape)):
        with pytest.raises(Wrong, match="features: ") as error:
            problem.sample(SGD(0.1), 4, 5, features=wrong)  # type: ignore[arg-type]
        assert error.value.argument == "features"


def test_every_law_is_tested() -> None:
    assert {name.split("(")[0] for name in KURTOSIS} | {"cauchy"} == {*LAWS, "student_t"}
