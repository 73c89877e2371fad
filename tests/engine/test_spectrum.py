"""Spectra: exact sums up to 10^12 modes, the paper's bins, compression against the full thing, files, refusals."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import relative_error

from nqm import EMA, SGD, HeavyBall, Lookahead, Nesterov, Optimizer, Polyak, Preconditioned, Quadratic, Spectrum, Wrong

PAPER = Spectrum.power_law(10_000)


def test_the_papers_numbers() -> None:
    assert len(PAPER) == PAPER.dim == 10_000
    assert PAPER.trace == pytest.approx(9.787606, abs=5e-7)  # six digits were given
    assert PAPER.initial_loss == pytest.approx(4.893803, abs=5e-7)
    assert np.array_equal(PAPER.h, 1 / np.arange(1.0, 10_001))
    assert np.array_equal(PAPER.c, PAPER.h)
    bins = PAPER.binned(100)
    assert bins.trace == pytest.approx(9.404991, abs=5e-7)
    assert bins.initial_loss == pytest.approx(4.702496, abs=5e-7)
    assert bins.dim == 10_000
    assert relative_error(bins.c, bins.h) < 1e-12  # a mean of ones over up to 900 modes


def power_sum(d: int, a: float) -> float:
    """sum i^-a for i = 1 .. d, in 30 digits."""
    with mpmath.workdps(30):
        return float(mpmath.harmonic(d) if a == 1 else mpmath.zeta(a) - mpmath.zeta(a, d + 1))


@pytest.mark.parametrize("d", [16_384, 16_385, 10**5, 10**7, 10**9, 10**12])
@pytest.mark.parametrize("a", [0.5, 1.0, 1.5, 3.0])
def test_sums_over_a_power_law(d: int, a: float) -> None:
    spectrum = Spectrum.power_law(d, a, noise_exponent=0.7, start_exponent=0.2, scale=3.0, noise=0.5, start=2.0)
    # 1e-12: 12 Gauss nodes for each doubling of i reproduce powers of i to rounding; the sum has 500 terms.
    assert spectrum.dim == pytest.approx(d, rel=1e-12)
    assert spectrum.trace == pytest.approx(3 * power_sum(d, a), rel=1e-12)
    assert spectrum.initial_loss == pytest.approx(3 * power_sum(d, a + 0.2), rel=1e-12)
    assert spectrum.noise_mass.sum() == pytest.approx(3 * 1.5 * power_sum(d, a + 0.7) / 2, rel=1e-12)


def euler_maclaurin(f: Any, d: int, head: int = 400) -> float:
    """sum f(i) for i = 1 .. d of a smooth f: term by term at first, then by the integral and end corrections."""
    with mpmath.workdps(25):
        start = sum(f(mpmath.mpf(i)) for i in range(1, head))
        a, b = mpmath.mpf(head), mpmath.mpf(d)
        points = [a * 4**i for i in range(int(mpmath.log(b / a, 4)) + 1)] + [b]
        total = start + mpmath.quad(f, points) + (f(a) + f(b)) / 2
        for k, bernoulli in ((1, mpmath.mpf(1) / 12), (3, -mpmath.mpf(1) / 720), (5, mpmath.mpf(1) / 30240)):
            total += bernoulli * (mpmath.diff(f, b, k, h=b / 10**4) - mpmath.diff(f, a, k, h=a / 10**4))
        return float(total)


@pytest.mark.parametrize("t", [10, 10**4, 10**8])
def test_a_run_on_10_to_the_12_modes(t: int) -> None:
    d, lr = 10**12, 0.5
    run = Quadratic(Spectrum.power_law(d)).run(SGD(lr), 1.0, [t])

    def decay(i: Any) -> Any:
        return mpmath.exp(2 * t * mpmath.log1p(-lr / i))

    assert run.signal[0] == pytest.approx(euler_maclaurin(lambda i: decay(i) / (2 * i), d), rel=1e-9)
    noise = euler_maclaurin(lambda i: lr * (1 - decay(i)) / (2 * i * (2 - lr / i)), d)
    assert run.noise[0] == pytest.approx(noise, rel=1e-9)


def test_cost_does_not_grow_with_size() -> None:
    assert len(Spectrum.power_law(10**12)) < 2500
    begin = time.perf_counter()
    for _ in range(5):
        Spectrum.power_law(10**15)
    assert time.perf_counter() - begin < 1.0  # milliseconds each; a loop over modes would take years


TUNED: list[tuple[Optimizer, int, float]] = [
    (SGD(1.0), 10_000, 64),
    (SGD(1.99), 7_000, 2.0**20),
    (HeavyBall(1.52, 0.97363), 349, 16384),  # the authors' best settings
    (HeavyBall(0.123, 0.99215), 1280, 4096),
    (HeavyBall(0.00811, 0.99766), 5203, 1024),
    (Nesterov(0.9, 0.9), 1000, 4096),
    (EMA(SGD(1.0), 0.999), 10_000, 64),
    (Polyak(SGD(1.0), 0.5), 10_000, 64),
    (Lookahead(SGD(1.0), 0.5, 5), 10_000, 64),
    (Preconditioned(SGD(1.0), 0.5), 1364, 1024),
]


def compression_error(full: Spectrum, short: Spectrum, row: Optimizer, t: int, batch_size: float) -> float:
    ours, theirs = (Quadratic(s).run(row, batch_size, t, points=40).loss for s in (short, full))
    return relative_error(ours, theirs)


@pytest.mark.parametrize("tol", [1e-6, 1e-9])
def test_compression_holds_its_promise(tol: float) -> None:
    short = PAPER.compress(tol)
    assert len(short) < 400
    assert short.dim == pytest.approx(PAPER.dim, rel=1e-12)
    assert short.trace == pytest.approx(PAPER.trace, rel=1e-12)
    errors = {f"{row} {t}": compression_error(PAPER, short, row, t, B) for row, t, B in TUNED}
    assert max(errors.values()) < tol, errors


def test_a_large_power_law_is_its_modes() -> None:
    d = 40_000  # beyond what is kept mode by mode
    full, short = Spectrum(1 / np.arange(1.0, d + 1)), Spectrum.power_law(d)
    errors = {f"{row} {t}": compression_error(full, short, row, t, B) for row, t, B in TUNED[:5]}
    assert max(errors.values()) < 1e-9, errors


def rough(seed: int, n: int = 400) -> Spectrum:
    """Curvatures over five decades with ties, noise and start that jump from mode to mode, some of it missing."""
    rng = np.random.default_rng(seed)
    h = np.round(10 ** rng.uniform(-5, 0, n), 7)
    c = h * rng.lognormal(0, 1, n) * (rng.random(n) < 0.8)
    return Spectrum(np.maximum(h, 1e-7), c, rng.lognormal(0, 1, n) * (rng.random(n) < 0.8), rng.integers(1, 9, n))


@pytest.mark.parametrize("seed", range(3))
def test_compression_of_rough_spectra(seed: int) -> None:
    full = rough(seed)
    short = full.compress(1e-8)
    assert len(short) <= len(full)
    for row, t, B in TUNED:
        if isinstance(row, SGD | EMA | Polyak | Lookahead):
            assert compression_error(full, short, row, t, B) < 1e-8


def test_compression_keeps_small_spectra() -> None:
    few = Spectrum([3.0, 1.0, 2.0])
    assert few.compress(1e-6) is few


@given(st.lists(st.floats(1e-8, 1e8), min_size=1, max_size=40), st.integers(2, 60), st.integers(0, 2**32 - 1))
def test_bins_are_edges_below(h: list[float], n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    full = Spectrum(h, np.array(h) * 2, rng.random(len(h)) + 0.1, rng.integers(1, 5, len(h)))
    bins = full.binned(n)
    assert len(bins) <= min(n, len(h))
    assert bins.dim == pytest.approx(full.dim, rel=1e-12)
    assert bins.trace <= full.trace * (1 + 1e-9)
    assert (bins.count * bins.s).sum() == pytest.approx((full.count * full.s).sum(), rel=1e-12)
    assert relative_error(bins.c, 2 * bins.h) < 1e-12
    ratio = (full.h.max() / full.h.min()) ** (1 / (n - 1))
    assert bins.trace * ratio >= full.trace * (1 - 1e-9)


def test_arrays_are_frozen_and_copied() -> None:
    h = np.array([1.0, 2.0])
    spectrum = Spectrum(h)
    h[0] = 5.0
    assert spectrum.h.tolist() == [1.0, 2.0]
    for name in ("h", "c", "s", "count"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(spectrum, name)[0] = 3.0
        with pytest.raises(AttributeError):
            setattr(spectrum, name, h)


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_files(tmp_path: Path, ending: str) -> None:
    spectrum = Spectrum(
        [1.0, 0.1 + 0.2, 1e-300], c=[0, 1, 2], s=[1 / 3, 0, 5], count=[1, 2.5, 1e12], note={"from": "a test"}
    )
    path = tmp_path / f"s.{ending}"
    spectrum.save(path)
    again = Spectrum.load(path)
    for name in ("h", "c", "s", "count"):
        assert np.array_equal(getattr(again, name), getattr(spectrum, name))
    assert again.note == {"from": "a test"}


@pytest.mark.parametrize("ending", ["JSON", "Npz"])
def test_the_ending_of_a_file_may_be_in_capitals(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"s.{ending}"
    Spectrum([1.0, 0.5]).save(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert Spectrum.load(path).h.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("name", "content"), [("s.csv", "h,c\n1.0,2.0\n"), ("s.CSV", "h,c\r\n1,2\r\n"), ("s.json", '{"h": [1], "c": [2]}')]
)
def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content.encode())
    assert Spectrum.load(tmp_path / name).c.tolist() == [2.0]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: Spectrum([1, 2], c=[1, 2, 3]), "c"),
        (lambda: Spectrum([1], s=-1), "s"),
        (lambda: Spectrum([1], count="many"), "count"),
        (lambda: Spectrum([]), "h"),
        (lambda: Spectrum([math.inf]), "h"),
        (lambda: Spectrum([1e200], s=1e200), "h"),
        (lambda: Spectrum([1]).save("s.txt"), "path"),
        (lambda: Spectrum.load("nowhere.csv"), "path"),
        (lambda: Spectrum.load(__file__), "path"),
    ],
)
def test_a_refusal_names_its_argument(call: Any, argument: str) -> None:
    with pytest.raises(Wrong) as error:
        call()
    assert error.value.argument == argument


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("# curvatures\nh, c\n1.0,2.0\n\n0.5,1.5\n")
    spectrum = Spectrum.load(path)
    assert spectrum.h.tolist() == [1.0, 0.5]
    assert spectrum.c.tolist() == [2.0, 1.5]
    assert spectrum.s.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "", "empty"),
        ("a.csv", "c\n1\n", "no column h"),
        ("a.csv", "h,k\n1,2\n", "k"),
        ("a.csv", "h,c\n1\n", "2 columns"),
        ("a.csv", "# made by hand\nh,c\n1,1\n1,x\n", "not a spectrum: 'x' in column c of line 4 is not a number"),
        ("a.csv", "h\n-1\n", "h must be positive"),
        ("a.csv", "h\n", "h"),
        ("a.json", "", "not a spectrum: it is empty"),
        ("a.json", '{"h": [1,\n2', "not a spectrum: it is not complete JSON, and reading stops at line 2, column 2"),
        ("a.json", "\udcff\udcfe", "not a spectrum: it is not text in UTF-8"),
        ("a.csv", "\udcff\udcfe", "not a spectrum: it is not text in UTF-8"),
        ("a.json", "[1, 2]", "object"),
        ("a.json", '{"c": [1]}', "no column h"),
        ("a.json", '{"h": "text"}', "h must be"),
        ("a.json", '{"h": [1, [2]]}', "h must be"),
        ("a.json", '{"h": [1], "c": [1, 2]}', "c has 2"),
        ("a.npz", "this is no archive", "not a spectrum: it is not an .npz archive"),
        ("a.txt", "h\n1\n", r"\.json"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, content: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=says):
        Spectrum.load(path)


def test_missing_files_and_endings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no spectrum file"):
        Spectrum.load(tmp_path / "nothing.json")
    with pytest.raises(ValueError, match="is a folder"):
        Spectrum.load(tmp_path)
    with pytest.raises(ValueError, match="json"):
        Spectrum([1.0]).save(tmp_path / "s.txt")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"h": []}, "h must be a non-empty"),
        ({"h": [1.0, math.nan]}, "h must be finite, got nan at index 1"),
        ({"h": [math.inf]}, "h must be finite"),
        ({"h": [1.0, 0.0]}, "h must be positive, got 0 at index 1"),
        ({"h": [-2.0]}, "h must be positive"),
        ({"h": "abc"}, "h must be"),
        ({"h": None}, "h must be"),
        ({"h": [[1.0]]}, "h must be"),
        ({"h": [1.0], "c": [-1.0]}, "c must not be negative"),
        ({"h": [1.0, 2.0], "s": [1.0, 2.0, 3.0]}, "s has 3 entries but h has 2"),
        ({"h": [1.0], "count": [math.nan]}, "count must be finite"),
        ({"h": [1e300], "s": [1e300]}, "overflow"),
    ],
)
def test_wrong_modes_are_refused_by_name(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Spectrum(**arguments)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.one_of(st.floats(), st.integers(), st.none(), st.text(max_size=2)), max_size=4),
    st.lists(st.lists(st.floats(), max_size=2), max_size=2),
    st.complex_numbers(),
)


@given(anything, anything, anything, anything)
def test_a_spectrum_is_valid_or_a_value_error(h: Any, c: Any, s: Any, count: Any) -> None:
    try:
        spectrum = Spectrum(h, c, s, count)
    except ValueError as error:
        assert any(name in str(error) for name in ("h ", "c ", "s ", "count ", "overflow"))
        return
    assert np.all(spectrum.h > 0)
    assert math.isfinite(spectrum.initial_loss)


@given(anything, anything, anything)
def test_a_power_law_is_valid_or_a_value_error(d: Any, exponent: Any, scale: Any) -> None:
    if isinstance(d, int) and d > 10**7:
        d = 10**7
    try:
        spectrum = Spectrum.power_law(d, exponent, scale=scale)
    except ValueError:
        return
    assert spectrum.dim == pytest.approx(float(d), rel=1e-12)


@given(anything)
def test_bins_and_tolerances_are_valid_or_a_value_error(n: Any) -> None:
    for verb in (PAPER.binned, Spectrum([1.0]).compress):
        if isinstance(n, int) and n > 1000:
            n = 1000
        try:
            verb(n)
        except ValueError:
            pass


def test_json_is_plain(tmp_path: Path) -> None:
    Spectrum([1.0, 0.5]).save(tmp_path / "s.json")
    data = json.loads((tmp_path / "s.json").read_text())
    assert data == {"h": [1.0, 0.5], "c": [1.0, 0.5], "s": [1.0, 1.0], "count": [1.0, 1.0], "note": {}}


def test_compress_joins_modes_of_one_curvature_and_drops_those_without_any() -> None:
    rng = np.random.default_rng(3)
    h = np.repeat(np.geomspace(1, 1e-3, 60), 3)
    spectrum = Spectrum(h, c=rng.random(180), s=rng.random(180), count=rng.integers(0, 5, 180))
    for short in (spectrum.compress(1e-9), spectrum.compress(1e-9, head=8)):
        assert short.dim == pytest.approx(spectrum.dim, rel=1e-12)
        assert short.initial_loss == pytest.approx(spectrum.initial_loss, rel=1e-12)
        assert short.noise_mass.sum() == pytest.approx(spectrum.noise_mass.sum(), rel=1e-12)
        assert len(short) <= 60
    joined = spectrum.compress(1e-9)
    for at in np.unique(h):
        here, there = spectrum.h == at, joined.h == at
        for name in ("count", "signal_mass", "noise_mass"):
            assert getattr(joined, name)[there].sum() == pytest.approx(getattr(spectrum, name)[here].sum(), rel=1e-12)


def test_a_matrix_is_told_to_give_its_eigenvalues() -> None:
    H = np.array([[2.0, 1.0], [1.0, 2.0]])
    with pytest.raises(
        Wrong, match=r"got a matrix of 2 rows; give its eigenvalues above 0, of numpy\.linalg\.eigvalsh"
    ):
        Spectrum(H)
    assert Spectrum(np.linalg.eigvalsh(H)).trace == pytest.approx(4.0)
    with pytest.raises(Wrong, match=r"a non-empty list of numbers, got shape \(1, 2\)"):
        Spectrum(H[:1])
