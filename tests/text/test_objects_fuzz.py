"""Whatever is typed: text is read or refused in one sentence, without much memory."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from text.refusals import little_memory, refusal

from nqm.text.objects import parse_optimizer, parse_schedule, parse_spectrum
from nqm.text.values import parse_batch_sizes, parse_number
from nqm.types import Wrong

# Whatever is typed.

VALID = {
    parse_optimizer: [
        "SGD(0.1)",
        "EMA(HeavyBall(momentum=0.9), decay=0.99)",
        "Lookahead(SGD, 0.5, 5)",
        "Polyak(SGD, 2^3)",
    ],
    parse_schedule: ["warmup(10) + cosine(90)", 'step(90, 2.0, at=[30, 60]).on("batch_size") & linear(90)'],
    parse_spectrum: ["power_law(100, exponent=1.2)", "power_law(100).binned(10)", "Spectrum([1, 0.1], c=[1, 2])"],
    parse_number: ["2^10", "1e-3", "1 - 2**-7"],
    parse_batch_sizes: ["2^2..2^20", "4,16,64", "2^2..2^20..2"],
}
PIECES = [
    "SGD", "EMA", "HeavyBall", "Polyak", "power_law", "Spectrum", "cosine", "step", "wsd", "constant", "binned", "on",
    "free", "inf", "nan", "lr", "at", "inner", "tol", "lambda", "for", "in", "if", "not", "None", "True", "yield",
    "await", "os:path", "__class__", "3", "0.5", "1e400", "9**9**9", "2^10", "1e-5", "0", "99", "10000", "(", ")",
    "(", ")", "[", "]", ",", "=", "==", "+", "-", "*", "**", "/", "^", "&", ".", "..", ":", ":=", "'on'", '"lr"', "'",
    "{", "}", "@", "%", "!", "\\", "#", ";", "\n", "\t", " ", "\0", "é", "Ω0", "\u202e",
]  # fmt: skip


def survives(function, text):
    """Either it is read or it is refused in a sentence; nothing else, and without much memory."""
    with little_memory(), contextlib.suppress(Wrong):
        function(text)


@pytest.mark.parametrize("function", VALID, ids=lambda f: f.__name__)
@given(text=st.text(max_size=80))
@example(text="\ud800")
def test_any_text_is_read_or_refused(function, text):
    survives(function, text)


@pytest.mark.parametrize("function", VALID, ids=lambda f: f.__name__)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=14))
def test_any_pieces_are_read_or_refused(function, pieces):
    survives(function, "".join(pieces))


@pytest.mark.parametrize("function", VALID, ids=lambda f: f.__name__)
@given(data=st.data())
def test_any_slip_of_the_pen_is_read_or_refused(function, data):
    text = data.draw(st.sampled_from(VALID[function]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.sampled_from(["", *PIECES])) + text[at + cut :]
    survives(function, text)


def test_no_text_runs_anything(tmp_path, monkeypatch):
    """The classic escapes, with a file that would tell."""
    monkeypatch.chdir(tmp_path)
    for text in (
        "__import__('os').mkdir('run')",
        "SGD(lr=__import__('os').mkdir('run'))",
        "[].__class__.__base__.__subclasses__()",
        "(lambda: open('run', 'w'))()",
        "SGD(lr=open('run', 'w'))",
        "os:mkdir('run')",
        "SGD(os:mkdir('run'))",
    ):
        for function in VALID:
            refusal(function, text)
    assert not list(Path(tmp_path).iterdir())
