"""Text to objects: what is written comes back, what is wrong is one sentence, and nothing is ever run."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from catalogue import ROWS
from hypothesis import given
from hypothesis import strategies as st
from text.refusals import little_memory, refusal

from nqm import (
    EMA,
    SGD,
    HeavyBall,
    Lookahead,
    Nesterov,
    Polyak,
    Preconditioned,
    Spectrum,
    constant,
    cosine,
    free,
    linear,
    warmup,
)
from nqm import step as step_schedule
from nqm.text.imports import UserCodeError
from nqm.text.objects import KNOWN_OPTIMIZERS, parse_optimizer, parse_schedule, parse_spectrum
from nqm.text.tokens import MAX_LENGTH, MAX_NESTING
from nqm.text.values import parse_batch_sizes, parse_number
from nqm.types import Wrong

# Optimizers.


@pytest.mark.parametrize("name", ROWS)
def test_an_optimizer_is_read_as_it_prints(name):
    assert parse_optimizer(str(ROWS[name])) == ROWS[name]


six_digits = st.floats(1e-6, 1e6).map(lambda v: float(f"{v:.6g}"))
fractions = st.floats(0.0, 0.999).map(lambda v: float(f"{v:.6g}"))
plain = st.one_of(
    st.builds(SGD, st.one_of(st.just(free), six_digits)),
    st.builds(HeavyBall, st.one_of(st.just(free), six_digits), st.one_of(st.just(free), fractions)),
    st.builds(Nesterov, six_digits, fractions),
)
nested = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.builds(EMA, inner, st.one_of(st.just(free), fractions)),
        st.builds(Lookahead, inner, fractions, st.integers(1, 100)),
        st.builds(Preconditioned, inner, fractions),
        st.builds(Polyak, inner, st.integers(1, 1000)),
    ),
    max_leaves=6,
)


@given(nested)
def test_any_nesting_is_read_as_it_prints(optimizer):
    assert parse_optimizer(str(optimizer)) == optimizer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SGD", SGD()),
        ("  SGD ( ) ", SGD()),
        ("SGD(0.5,)", SGD(0.5)),
        ("SGD(lr=2**-3)", SGD(0.125)),
        ("SGD(2^-3)", SGD(0.125)),
        ("SGD(+.5)", SGD(0.5)),
        ("SGD(1_000)", SGD(1000)),
        ("SGD(lr=free)", SGD()),
        ("EMA(SGD)", EMA(SGD())),
        ("EMA(decay=1 - 2^-7, inner=HeavyBall)", EMA(HeavyBall(), 1 - 2**-7)),
        ("EMA(HeavyBall(momentum=0.9),\n    decay=0.99)", EMA(HeavyBall(momentum=0.9), 0.99)),
        ("HeavyBall((1 + 2) * 0.1 / 3, 0.9)", HeavyBall((1 + 2) * 0.1 / 3, 0.9)),
    ],
)
def test_ways_to_write_an_optimizer(text, expected):
    assert parse_optimizer(text) == expected


def test_whole_numbers_stay_whole():
    assert repr(parse_optimizer("Polyak(SGD, 10^2)")) == repr(Polyak(SGD(), 100))  # a step, not a fraction of the run


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "such as EMA(HeavyBall(momentum=0.9))"),
        ("sgd", "did you mean SGD?"),
        ("HevyBall(0.1)", "did you mean HeavyBall?"),
        ("Adamax", "there are Adam, AdamW"),
        ("Optimizer", "no optimizer 'Optimizer'"),
        ("Wrapper(SGD)", "no optimizer 'Wrapper'"),
        ("EMA", "EMA needs inner"),
        ("EMA(0.9)", "inner must be an optimizer"),
        ("EMA(SGD, SGD)", "decay must be in [0, 1)"),
        ("SGD(1, 2)", "takes at most 1 (lr)"),
        ("SGD(lr=1, lr=2)", "named once"),
        ("SGD(0.1, lr=2)", "got lr twice"),
        ("HeavyBall(mometum=0.9)", "did you mean momentum?"),
        ("SGD(-1)", "lr must be positive"),
        ("SGD(0)", "lr must be positive"),
        ("SGD(inf)", "lr must be finite and positive"),
        ("SGD(1e999)", "beyond the largest float"),
        ("SGD(nan)", "'nan' is not a number"),
        ("SGD(inf - inf)", "is not a number"),
        ("SGD(1 / 0)", "not a finite number"),
        ("SGD((-8)**0.5)", "float can hold"),
        ("SGD(True)", "'True' is not a number"),
        ("SGD(None)", "'None' is not a number"),
        ("SGD('one')", "lr must be positive, got 'one'"),
        ("SGD('0.1')", "has no meaning here"),
        ("SGD([0.1])", "is not a number"),
        ("SGD(0.1j)", "nothing else, got '1j'"),
        ("HeavyBall(0.1, momentum=1)", "momentum must be in [0, 1)"),
        ("Lookahead(SGD, 0.5, 2.5)", "period must be a whole number"),
        ("SGD(9**9**9)", "exponent"),
        ("SGD(2**-9999)", "exponent"),
        ("SGD(" + "9" * 1900 + ")", "float can hold"),
        ("SGD(" + "9" * 1900 + " * " + "9" * 50 + ")", "float can hold"),
        ("SGD(*[1])", "is not a number"),
        ("SGD(**free)", "named once"),
        ("SGD.lr", "is not an optimizer"),
        ("SGD(0.1).lr", "is not an optimizer"),
        ("SGD()()", "is not an optimizer"),
        ("SGD()[0]", "is not an optimizer"),
        ("[SGD]", "is not an optimizer"),
        ("SGD + SGD", "is not an optimizer"),
        ("1", "is not an optimizer"),
        ("SGD if 1 else SGD", "is not an optimizer"),
        ("lambda: SGD", "has no meaning here"),
        ("lambda x=1, *y", "as an optimizer"),
        ("f'{SGD}'", "has no meaning here"),
        ("f'SGD'", "is not an optimizer"),
        ("SGD(x for x in y)", "is not a number"),
        ("SGD(lr:=1)", "has no meaning here"),
        ("SGD; SGD", "has no meaning here"),
        ("SGD # comment", "has no meaning here"),
        ("SGD(\\x41)", "has no meaning here"),
        ("SGD(\uff10.\uff11)", "has no meaning here"),
        ("\uff33\uff27\uff24", "has no meaning here"),
        ("Ω0", "has no meaning here"),
        ("SGD(0.1", "never closed"),
        ("SGD)", "as an optimizer"),
        ("SGD(01)", "as an optimizer"),
        ("SGD(1 2)", "as an optimizer"),
        ("S\0GD", "has no meaning here"),
        ("SGD(\ud800)", "has no meaning here"),
        ("__import__('os').system('true')", "is not an optimizer"),
        ("__import__('os')", "no optimizer '__import__'"),
        ("().__class__.__bases__", "is not an optimizer"),
        ("open('/etc/passwd')", "has no meaning here"),
        ("EMA(" * 60 + "SGD" + ")" * 60, f"nested more than {MAX_NESTING} deep"),
        ("(" * 1000, f"nested more than {MAX_NESTING} deep"),
        ("SGD(" + "-" * 1900 + "1)", "too deeply nested"),
        ("SGD(" + "not " * 450 + "1)", "too deeply nested"),
        ("SGD(" + "1" * MAX_LENGTH + ")", "at most 2,000 characters"),
    ],
)
def test_a_wrong_optimizer_is_one_sentence(text, part):
    assert part in refusal(parse_optimizer, text)


@pytest.mark.parametrize("value", [None, 3, b"SGD", ["SGD"], SGD()])
@pytest.mark.parametrize("function", [parse_optimizer, parse_schedule, parse_spectrum, parse_number, parse_batch_sizes])
def test_only_text_is_text(function, value):
    refusal(function, value)


def test_nesting_up_to_the_limit_is_read():
    depth = MAX_NESTING - 1
    assert str(parse_optimizer("EMA(" * depth + "SGD()" + ")" * depth)).count("EMA(") == depth


def test_every_optimizer_of_the_package_is_known():
    assert {"EMA", "HeavyBall", "Lookahead", "Nesterov", "Polyak", "Preconditioned", "SGD", "ScheduleFree"} <= set(
        KNOWN_OPTIMIZERS
    )


# A user's own.

OWN = """
from dataclasses import dataclass
from nqm import Optimizer, rate, SGD

@dataclass(frozen=True)
class Half(Optimizer):
    lr: object = rate()
    def system(self, h, t):
        return [[-self.lr * h / 2]], [-self.lr / 2]
    def initial(self):
        return [1.0]
    def readout(self, t):
        return [1.0]

class Picky(Half):
    def __post_init__(self):
        raise RuntimeError("never in the mood")

class NotOne:
    pass

thing = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a module of the user's as the current directory."""
    (tmp_path / "own_rules.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("1 / 0\n")
    (tmp_path / "own_quits.py").write_text("import sys; sys.exit('bye')\n")
    (tmp_path / "own_folder").mkdir()
    (tmp_path / "own_folder" / "inside.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    yield tmp_path
    for name in [n for n in sys.modules if n.startswith("own_")]:
        del sys.modules[name]


def read_own(text):
    return parse_optimizer(text, allow_import=True)


def test_an_optimizer_of_ones_own(own):
    assert str(read_own("own_rules:Half")) == "Half()"
    assert str(read_own("own_rules:Half(lr=0.1)")) == "Half(lr=0.1)"
    assert str(read_own("own_folder.inside:Half(2^-1)")) == "Half(lr=0.5)"
    both = read_own("EMA(Lookahead(own_rules:Half(0.1), 0.5, 5), decay=0.9)")
    assert str(both) == "EMA(Lookahead(Half(lr=0.1), alpha=0.5, period=5), decay=0.9)"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("own_nowhere:Half", "cannot import 'own_nowhere'"),
        ("own_rules.py:Half", "name the module: own_rules:Half"),
        ("own_rules:Hafl", "did you mean Half?"),
        ("own_rules:NotOne", "derives from nqm.Optimizer"),
        ("own_rules:thing", "derives from nqm.Optimizer"),
        ("own_rules:Optimizer", "abstract"),
        ("own_rules:Half(rate=1)", "no argument of own_rules:Half called 'rate'"),
        ("own_rules:Half(-1)", "lr must be positive"),
        ("EMA(own_rules:)", "has no meaning here"),
        ("own_rules:Half:Half", "has no meaning here"),
    ],
)
def test_a_wrong_optimizer_of_ones_own_is_one_sentence(own, text, part):
    assert part in refusal(read_own, text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("own_broken:Half", "importing own_broken failed with ZeroDivisionError: division by zero"),
        ("own_quits:Half", "bye"),
        ("own_rules:Picky(0.1)", "making own_rules:Picky failed with RuntimeError: never in the mood"),
    ],
)
def test_what_a_users_own_code_raises_is_the_users(own, text, part):
    with pytest.raises(UserCodeError) as caught:
        read_own(text)
    assert part in str(caught.value)
    assert ".py" in caught.value.traceback
    assert "nqm/text" not in caught.value.traceback


def test_nothing_is_imported_unless_allowed(own):
    for text in ("own_rules:Half", "EMA(own_rules:Half(0.1))", "EMA(SGD, own_rules:Half)"):
        assert "is not imported here" in refusal(parse_optimizer, text)
    assert "own_rules" not in sys.modules


# Schedules.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("warmup(100) + cosine(900)", warmup(100) + cosine(900)),
        ("constant(10, 0.5)", constant(10, 0.5)),
        (
            'step(900, 2.0, at=[300, 600]).on("batch_size") & linear(900)',
            step_schedule(900, 2.0, [300, 600]).on("batch_size") & linear(900),
        ),
        ("(linear(5) + constant(5)).on('momentum')", (linear(5) + constant(5)).on("momentum")),
        ("Schedule([1, 2], lr=[1, 0.5])", constant(1) + constant(2, 0.5)),
        ("wsd(10, 3, 3)", warmup(3) + constant(4) + linear(3)),
        ("exponential(2^2, end=1e-2)", parse_schedule("exponential(4, 0.01)")),
    ],
)
def test_schedules(text, expected):
    found = parse_schedule(text).to_dict()
    assert found.keys() == expected.to_dict().keys()
    for name, values in expected.to_dict().items():
        np.testing.assert_array_equal(found[name], values)


def test_a_long_sum_of_schedules_is_read():
    assert parse_schedule(" + ".join(["constant(9)"] * 140)).steps == 9 * 140


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "such as warmup(100) + cosine(900)"),
        ("cosin(10)", "did you mean cosine?"),
        ("SGD", "there are Schedule, constant, cosine"),
        ("own_rules:Half", "no schedule 'own_rules:Half'"),
        ("cosine", "cosine needs steps"),
        ("wsd(10)", "needs warmup_steps and decay_steps"),
        ("cosine(10, finish=0)", "there are steps, end"),
        ("cosine(0)", "from 1 to 1,000,000,000,000"),
        ("cosine(2.5)", "whole number"),
        ("cosine(inf)", "at most 1,000,000 pieces"),
        ("cosine(1e9)", "at most 1,000,000 pieces"),
        ("constant(inf)", "at most 1,000,000,000,000 steps"),
        ("Schedule([1e300])", "at most 1,000,000,000,000 steps"),
        ("Schedule([])", "at least 1"),
        ("Schedule([1], ends=[1])", "no argument of Schedule called 'ends'"),
        ("Schedule([1, 2], lr=[1, 2, 3])", "3 values for 2 pieces"),
        pytest.param("linear(600000) + linear(600000)", "at most 1,000,000 pieces", marks=pytest.mark.slow),
        ("wsd(inf, inf, 1)", "at most"),
        ("cosine([10])", "must be one number"),
        ("step(10, 2, at=3)", "at must be a list"),
        ("step(10, 2, at=[20])", "at must rise"),
        ("step(10, 2, at=[inf])", "step:"),
        ("constant(10, -1)", "not negative"),
        ("constant(10) * 2", "is not a schedule"),
        ("constant(10) + 2", "is not a schedule"),
        ("constant(10).to_dict()", "after a schedule comes"),
        ("constant(10).on(lr)", "after a schedule comes"),
        ("constant(10).on('lr', 'lr')", "after a schedule comes"),
        ("constant(10).on('depth')", "lr, momentum or batch_size"),
        ("constant(10).lr", "is not a schedule"),
        ("lambda t=1, *x", "as a schedule"),
    ],
)
def test_a_wrong_schedule_is_one_sentence(text, part):
    assert part in refusal(parse_schedule, text)


# Spectra.


def test_spectra():
    assert len(parse_spectrum("power_law(10000)")) == 10_000
    assert parse_spectrum("Spectrum.power_law(10, exponent=1.2)").h.tolist() == Spectrum.power_law(10, 1.2).h.tolist()
    assert parse_spectrum("power_law(1e12)").dim == pytest.approx(1e12)
    assert parse_spectrum("power_law(10_000).binned(100)").trace == pytest.approx(9.404991, abs=5e-7)
    assert len(parse_spectrum("power_law(10^4).compress(tol=1e-9)")) < 300
    assert parse_spectrum("Spectrum([1, 0.1], c=[1, 2], s=3)").c.tolist() == [1, 2]


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_spectra_in_files(tmp_path, ending):
    path = tmp_path / f"mine.{ending}"
    Spectrum([1.0, 0.5], s=2.0).save(path)
    assert parse_spectrum(str(path)).s.tolist() == [2.0, 2.0]
    assert "no files are read here" in refusal(lambda t: parse_spectrum(t, allow_files=False), str(path))


def test_a_spectrum_in_csv(tmp_path):
    (tmp_path / "mine.csv").write_text("h,c\n1,2\n0.5,3\n")
    assert parse_spectrum(str(tmp_path / "mine.csv")).c.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "such as power_law(10000)"),
        ("powerlaw(10)", "did you mean power_law?"),
        ("power_law", "power_law needs d"),
        ("power_law(0)", "d must be a whole number"),
        ("power_law(-5)", "d must be a whole number"),
        ("power_law(inf)", "d must be"),
        ("power_law(1e16)", "d must be a whole number"),
        ("power_law(10, exponent=1e300)", "exponent"),
        ("power_law(10, [1])", "must be one number"),
        ("power_law(10, exponents=1)", "did you mean exponent?"),
        ("power_law(10).binned(1)", "n must be"),
        ("power_law(10).binned(inf)", "at most 1,000,000"),
        ("power_law(10).binned(n=1e12)", "at most 1,000,000"),
        ("power_law(10000).compress(0)", "tol must be at least"),
        ("power_law(10000).compress(1e-300)", "tol must be at least"),
        ("power_law(10000).compress(2)", "tol"),
        ("power_law(10).shrink(2)", "there are binned, compress"),
        ("power_law(10).save('x')", "there are binned, compress"),
        ("power_law(10).binned", "is not a spectrum"),
        ("Spectrum([1, -1])", "h must be positive"),
        ("Spectrum([])", "non-empty"),
        ("Spectrum([1], c=[1, 2])", "c has 2 entries"),
        ("Spectrum([1], note=3)", "no argument of Spectrum called 'note'"),
        ("missing.json", "no spectrum file 'missing.json'"),
        ("missing.txt", "no spectrum file"),
        ("/", "is a folder"),
        ("\0.json", "no spectrum file"),
        ("x" * 5000 + ".json", "too long"),
    ],
)
def test_a_wrong_spectrum_is_one_sentence(text, part):
    with little_memory(), pytest.raises(Wrong) as caught:  # A name of a file may be longer than a sentence.
        parse_spectrum(text)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bad.json", "{"),
        ("bad.json", "[1, 2]"),
        ("bad.json", '{"h": ["a"]}'),
        ("bad.json", '{"h": [NaN]}'),
        ("bad.json", '{"c": [1]}'),
        ("bad.json", "[" * 100_000),
        ("bad.npz", "not a zip file"),
        ("bad.csv", ""),
        ("bad.csv", "h\nx\n"),
        ("bad.csv", "k\n1\n"),
        ("bad.csv", "h\n"),
        ("bad.json", "\udcff\udcfe"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode(errors="surrogateescape"))
    refusal(parse_spectrum, str(path))
