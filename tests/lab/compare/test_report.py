"""Predictions for a study from a fit, pictures of both, and the report; the fit is made by hand, so torch is not needed."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab_curves import SIZES, hyperbola, never_at

from nqm import EMA, SGD, Adam, HeavyBall, Preconditioned, Quadratic, Spectrum, sweep
from nqm.lab import Entry, Study
from nqm.lab.compare import findings, predicted
from nqm.lab.compare.plots import OPEN, colors, plot_rates, plot_steps
from nqm.lab.compare.predictions import family_of
from nqm.lab.compare.report import bands, critical_rows, html, toml
from nqm.nets.estimates import Measure
from nqm.nets.fitting.metric import AdamMetric
from nqm.nets.fitting.model import Fit, Provenance

H = 1 / np.arange(1.0, 51.0)
OFFSET = 0.3


def made(power: float = 0.4) -> Fit:
    """The fit of a quadratic with unit start and C = H: signal nodes g^2 = h^2, noise nodes c = h."""
    probe = np.zeros(len(H), dtype=int)
    top = {"h": H[:8], "c": H[:8], "g": H[:8], "adam": H[:8] ** -power}
    loss = OFFSET + float(H.sum()) / 2
    return Fit(Measure(H, H**2, probe), Measure(H, H, probe), loss, 1000, top, provenance=Provenance(step=0))


def to(target: float, **more: Any) -> Study:
    """A study of some optimizers with this target."""
    optimizers = {label: Entry(label, {}) for label in ("SGD", "HeavyBall", "Adam", "KFAC", "Lion")}
    return Study("study", "digits", target, (8,), optimizers, **more)


@pytest.mark.slow
def test_a_fitted_quadratic_is_predicted_by_first_hits() -> None:
    """Trainings arrive before the expected loss that the engine sweeps does, and with it where there is hardly any noise."""
    curves = [hyperbola(name, 64, 100) for name in ("SGD", "EMA(SGD)", "HeavyBall", "Adam")]
    found = predicted([made()], to(OFFSET + 0.1), curves)
    exact = Quadratic(Spectrum(H))
    for name, family in (("SGD", SGD()), ("EMA(SGD)", EMA(SGD())), ("Adam", Preconditioned(HeavyBall(), 0.4))):
        expected = sweep(exact, family, SIZES.tolist(), target=0.1).steps
        assert (found.sweeps[name].steps <= expected + 1).all()
        assert (found.sweeps[name].steps > 0.3 * expected).all()
        assert found.sweeps[name].steps[-1] == pytest.approx(expected[-1], rel=0.15)
    assert found.notes == ()
    ratio = found.sweeps["SGD"].steps / curves[0].steps
    assert found.errors(curves)["SGD"] == pytest.approx(float(np.median(ratio)))


def test_what_a_fit_cannot_speak_about_is_said() -> None:
    curves = [hyperbola("KFAC", 64, 100)]
    fit = made()
    assert "KFAC is not predicted" in predicted([fit], to(OFFSET + 0.1), curves).notes[0]
    assert "training loss" in predicted([fit], to(OFFSET + 0.1, metric="val_error"), curves).notes[0]
    assert "below" in predicted([fit], to(OFFSET / 2), curves).notes[0]
    assert "not below the loss" in predicted([fit], to(100.0), curves).notes[0]
    assert "begin at step 300" in predicted([fit], to(OFFSET + 0.1, options={"start": 300}), curves).notes[0]
    assert "power" in str(family_of(hyperbola("Adam", 64, 100), made(-0.2), {}))
    with pytest.raises(ValueError, match="the study trains 'digits'"):
        predicted([replace(fit, provenance=Provenance(network="mnist_cnn"))], to(OFFSET + 0.1), curves)


@pytest.mark.slow
def test_each_optimizer_is_predicted_by_the_fit_that_can() -> None:
    """With a fit in the metric of Adam beside a plain one, Adam is predicted as by the first alone and SGD as by the second alone."""
    curves = [hyperbola(name, 64, 100) for name in ("SGD", "Adam")]
    ones, none = np.ones(4), np.empty(0)
    metric = AdamMetric(Adam(0.05), 100, H, H, 0 * H, 0 * H, none, none, ones / 2, ones * 8, np.ones(2))
    plain, adam, study = made(), replace(made(), metric=metric), to(OFFSET + 1.0)
    both = predicted([plain, adam], study, curves)
    alone = {name: predicted([one], study, curves) for name, one in (("SGD", plain), ("Adam", adam))}
    for name, one in alone.items():
        np.testing.assert_array_equal(both.sweeps[name].steps, one.sweeps[name].steps)
    assert both.sweeps["Adam"].steps[0] != alone["SGD"].sweeps["Adam"].steps[0]
    assert both.notes == ()
    assert "SGD is not predicted: the fit is in the metric of Adam" in alone["Adam"].notes[0]


def test_settings_that_the_study_fixed_are_not_tuned() -> None:
    assert family_of(hyperbola("HeavyBall", 64, 100), made(), {"momentum": 0.9, "damping": 1.0}) == HeavyBall(
        momentum=0.9
    )
    assert family_of(hyperbola("EMA(SGD)", 64, 100), made(), {}) == EMA(SGD())


@pytest.mark.slow
def test_an_average_is_drawn_in_the_colour_of_what_it_averages(tmp_path: Path) -> None:
    curves = [hyperbola(name, 64, 100) for name in ("SGD", "EMA(SGD)", "Lion")]
    assert colors(curves)[0] == colors(curves)[1] != colors(curves)[2]
    found = predicted([made()], to(OFFSET + 0.1), curves)
    for draw in (plot_steps(curves, "loss 0.4", found, str(tmp_path / "a.png")), plot_rates(curves, found)):
        labels = [text.get_text() for legend in draw.legends for text in legend.get_texts()]
        assert {"SGD", "predicted from a fit"} <= set(labels)
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_what_decides_nothing_is_hollow_and_a_bound_is_a_triangle() -> None:
    sgd, fast = hyperbola("SGD", 64, 100), hyperbola("HeavyBall", 300, 50)
    edge = replace(fast, at_edge=(("lr high",), *((),) * 7), unfinished=(*(False,) * 7, True))
    curves = [never_at(sgd, 6, 7, allowed=90), edge]
    figure = plot_steps(curves, "loss 0.4")
    drawn = {
        line.get_marker(): (line.get_xdata().tolist(), line.get_ydata().tolist())
        for line in figure.axes[0].get_lines()
        if line.get_linestyle() == "None" and line.get_markerfacecolor() == "white"
    }
    assert drawn == {"o": ([8.0, 1024.0], edge.steps[[0, 7]].tolist()), "^": ([512.0, 1024.0], [90.0, 90.0])}
    labels = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert set(OPEN.values()) <= labels
    rates = plot_rates(curves).axes[0].get_lines()
    assert [9 for line in rates if line.get_markerfacecolor() == "white" and line.get_linestyle() == "None"] == [9]
    sound = plot_steps([sgd, fast], "loss 0.4")
    assert not set(OPEN.values()) & {text.get_text() for legend in sound.legends for text in legend.get_texts()}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.images: list[str] = []
        self.loaded: list[str] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        got = dict(attrs)
        if tag == "img":
            self.images.append(str(got["src"]))
        self.loaded += [v for k, v in got.items() if k in ("src", "href") and v and not v.startswith("data:")]

    def handle_data(self, data: str) -> None:
        self.said += data


@pytest.mark.slow
def test_the_report_is_one_file_that_loads_nothing_and_runs_nothing() -> None:
    curves = [hyperbola(name, 64, 100) for name in ("SGD", "HeavyBall")]
    evil = "<script>alert(1)</script>"
    found = predicted([made()], to(OFFSET + 0.1), curves)
    text = html(evil, {"workload": evil}, "loss 0.4", curves, findings(curves), evil, found)
    page = _Page()
    page.feed(text)
    assert "<script" not in text
    assert page.loaded == []
    assert len(page.images) == 2
    assert page.said.count(evil) == 4  # title, heading, the pair and the study, as text
    for curve in curves:
        assert str(int(curve.steps[0])) in page.said.replace(",", "")
    assert [row["optimizer"] for row in critical_rows(curves)] == ["SGD", "HeavyBall"]


@pytest.mark.parametrize(
    ("seeds", "said"),
    [(0, "no setting was tried with"), (1, "one fresh seed"), (3, "75% or more"), (5, "93.8% or more")],
)
def test_bands_say_what_they_hold(seeds: int, said: str) -> None:
    curve = hyperbola("SGD", 64, 100)
    fewer = replace(curve, seeds=tuple(s[:seeds] for s in curve.seeds))
    assert said in bands([fewer])


def test_a_dollar_in_a_label_begins_no_formula(tmp_path: Path) -> None:
    plot_steps([hyperbola(r"$\frac$", 64, 100)], "loss 0.4", None, str(tmp_path / "a.png"))


def test_the_study_of_a_report_can_be_run_again() -> None:
    table = {"lr": {"low": 0.01, "high": 10.0}, "momentum": 0.9, "averages": [0.9, 0.99]}
    optimizers = {"HeavyBall": table, "mine, slow": {"optimizer": "SGD", "lr": 0.1}}
    about = {"workload": "digits", "target": 0.1, "batch_sizes": [8, 32]}
    study = Study.from_dict({"study": about, "optimizers": optimizers}, "small")
    again = Study.from_dict(tomllib.loads(toml(study.to_dict())))
    assert again == study
    assert again.key == study.key


def test_the_report_in_the_documentation_is_that_of_the_example_study() -> None:
    root = Path(__file__).parents[3]
    study = toml(Study.load(root / "examples" / "studies" / "digits.toml").to_dict())
    shown = unescape((root / "docs" / "results" / "digits.html").read_text())
    without_versions = re.compile('^version = ".*"\n', re.MULTILINE)  # They change with every change of the training.
    assert without_versions.sub("", study).strip() in without_versions.sub("", shown)
