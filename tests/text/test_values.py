"""Text to numbers: a number is read as people write it, and what is not one is refused in one sentence."""

from __future__ import annotations

import math

import pytest
from text.refusals import refusal

from nqm import (
    SGD,
    Polyak,
)
from nqm.text.objects import parse_optimizer, parse_schedule, parse_spectrum
from nqm.text.values import parse_batch_sizes, parse_number
from nqm.web.fields import NumberValue, Refused


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024), ("2^10", 1024), ("2**10", 1024), ("1e3", 1000), (" .5", 0.5), ("inf", math.inf), ("-1/4", -0.25),
        ("1,024", 1024), (" 1,048,576 ", 2**20), ("-1,024.5", -1024.5), ("1k", 1000), ("1K", 1000), ("4M", 4_000_000),
        ("2B", 2 * 10**9), ("1.5k", 1500), ("2^1k", 2.0**1000), ("10k/4", 2500),
    ],
)  # fmt: skip
def test_numbers(text, value):
    assert parse_number(text) == value


def test_the_page_reads_the_same_numbers():
    for text, value in (("1,024", 1024), ("4M", 4_000_000), ("2^10", 1024), ("1e6", 1_000_000)):
        assert NumberValue(0, 10**7, whole=True).read(text, "steps") == value
    with pytest.raises(Refused, match="1024, 1,024, 1k, 4M"):
        NumberValue(0, 10**7).read("many", "steps")


def test_a_suffix_is_a_number_inside_a_constructor_too():
    assert parse_spectrum("power_law(1k)").dim == 1000
    assert parse_schedule("constant(4M)").steps == 4_000_000
    assert repr(parse_optimizer("Polyak(SGD, 1k)")) == repr(Polyak(SGD(), 1000))  # a step, not a fraction of the run


@pytest.mark.parametrize(
    "text", ["", "x", "nan", "1,2", "2^^3", "1e", "0x10", "1 2", "free", "SGD", "[1]", "9^9^9", "\u0661", "1,02",
             "1,0240", "0,5", "01,024", "1,024,", "10,24", "1m", "1kk", "k", "1 k", "5G", "1024,1", "1e400", "1e300*1e300",
             "007", "000"]
)  # fmt: skip
def test_wrong_numbers(text):
    assert "1024, 1,024, 1k, 4M, 2^10, 1e6 or 1/8" in refusal(parse_number, text)


def test_a_number_beyond_floats_is_not_infinity():
    assert "a number in '1e400' is beyond the largest float, 1.8e+308" in refusal(parse_number, "1e400")
    assert parse_number("-inf") == -math.inf


def test_the_letter_after_a_number_is_said():
    assert "k for a thousand, M for a million or B for a billion, and nothing else, got '4m'" in refusal(
        parse_number, "4m"
    )


@pytest.mark.parametrize("text", ["power_law(1,000)", "power_law(10, 00)", "Spectrum([1, 000])"])
def test_zeros_after_a_comma_are_no_number(text):
    # Python reads 000 as 0, so that power_law(1,000) would be one mode without a word.
    assert "a comma separates numbers, so write 1024 and not 1,024" in refusal(parse_spectrum, text)


def test_nan_is_no_optimizer():
    assert refusal(parse_optimizer, "SGD(nan)") == "'nan' is not a number"
    assert refusal(parse_optimizer, "SGD(inf)") == "SGD: lr must be finite and positive, got inf"


def test_batch_sizes():
    assert parse_batch_sizes("4,16, 2^6") == [4, 16, 64]
    assert parse_batch_sizes("2^2..2^20") == [2**e for e in range(2, 21, 2)]
    assert parse_batch_sizes("2^2..2^4..2") == [4, 8, 16]
    assert parse_batch_sizes("10..99") == [10, 40]
    assert parse_batch_sizes("7..7") == [7]
    assert parse_batch_sizes("inf") == [math.inf]
    assert parse_batch_sizes("1k,4k, 1M") == [1000, 4000, 1_000_000]
    assert parse_batch_sizes("1,024..4,096..2") == [1024, 2048, 4096]  # no comma separates in a range
    assert parse_batch_sizes("64,256") == [64, 256]  # in a list it does


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("1,024", "write 1024 and not 1,024"), ("16, 1,024,4096", "write 1024 and not 1,024"), ("2,048,1,536", "2048"),
        ("512,1,536", "write 1536 if that is one number, or write batch sizes in increasing order"),
        ("16, 512, 2,560, 8k", "write 2560 if that is one number"),
    ],
)  # fmt: skip
def test_a_comma_between_thousands_is_refused_in_a_list(text, part):
    assert part in refusal(parse_batch_sizes, text)


def test_a_list_that_is_not_ambiguous_may_have_any_order():
    assert parse_batch_sizes("64,16,4") == [64, 16, 4]
    assert parse_batch_sizes("1024,512,256") == [1024, 512, 256]
    assert parse_batch_sizes("1,16,256") == [1, 16, 256]


def test_a_range_has_dots():
    assert "two dots, as in 16..64, got '16-64'" in refusal(parse_batch_sizes, "16-64")


@pytest.mark.parametrize(
    "text", ["", ",", "4,", "0", "-4", "4,-1", "..", "4..", "16..4", "4..16..1", "4..inf", "0..4", "1..2..3..4",
             "1..1e300..1.0001", "nan", "4..nan", "a..b", "4;5", "1," * 1500]
)  # fmt: skip
def test_wrong_batch_sizes(text):
    refusal(parse_batch_sizes, text)
