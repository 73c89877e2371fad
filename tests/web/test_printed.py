"""Every command and every line of Python that a view prints, run: they give every number of its headline.

A headline has numbers of answers, and numbers that were asked for, such as a target. All numbers of the first kind are computed
here twice, from what the printed commands print and from what the printed Python holds; those of the second kind are in the state.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from pages import SETTING

from nqm.cli import main
from nqm.optimizers.base import parameters
from nqm.show.numbers import shown
from nqm.text.objects import parse_optimizer

pytestmark = pytest.mark.slow

SMALL = "spectrum=power_law(300)&target=0.05&sizes=4,64,1024"
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
Answers = list[dict[str, Any]]


def about(value: float) -> str:
    """A number as sentences have it: to three digits, and whole from 10 on."""
    return shown(float(f"{value:.2g}")) if value < 10 else shown(round(float(f"{value:.3g}")))


def times(ratio: float) -> str:
    return shown(round(ratio)) if ratio >= 10 else f"{float(f'{ratio:.2g}'):g}"


def change(old: float, new: float) -> list[str]:
    """A change in percent, or from twice on as a factor."""
    return [times(new / old)] if new >= 2 * old else [str(max(1, round(100 * abs(new / old - 1))))]


def last(answer: dict[str, Any], name: str = "loss") -> float:
    return float(np.ravel(answer[name])[-1])


def sweeps_of(answers: Answers) -> Answers:
    return [sweep for answer in answers for sweep in answer["sweeps"]]


def of_steps(answers: Answers, state: dict[str, Any]) -> list[str]:
    at = [sweep["critical_batch_size"][state["critical"]] for sweep in sweeps_of(answers)]
    known = sorted(size for size in at if size is not None)
    return [*map(about, known), *([times(known[-1] / known[0])] if known else [])]


def of_settings(answers: Answers, state: dict[str, Any]) -> list[str]:
    found = []
    for sweep in sweeps_of(answers):
        sizes, rates = sweep["batch_sizes"], sweep["effective_lr"]
        momenta = [parameters(parse_optimizer(text)).get("momentum") for text in sweep["optimizers"]]
        found += [about(sizes[0]), about(sizes[-1]), times(max(rates) / min(rates))]
        found += [shown(float(one.value)) for one in momenta if one is not None]
    return found


def of_loss(answers: Answers, state: dict[str, Any]) -> list[str]:
    curve, *hits = answers
    reached = [shown(hit["steps"]) for hit in hits if hit["steps"] is not None]
    return [*reached, shown(last(curve)), *([] if curve["floor"] is None else [shown(curve["floor"])])]


def of_schedule(answers: Answers, state: dict[str, Any]) -> list[str]:
    ends = [last(answer) for answer in answers]
    pairs = [(old, new) for old in ends for new in ends]
    return [*map(shown, ends), *(text for old, new in pairs for text in (times(new / old), *change(old, new)))]


def of_map(answers: Answers, state: dict[str, Any]) -> list[str]:
    (answer,) = answers
    return [shown(answer["best"][name]) for name in ("steps", "x", "y")]


def of_network(answers: Answers, state: dict[str, Any]) -> list[str]:
    return [about(answers[0]["noise_scale"])]


def of_advice(answers: Answers, state: dict[str, Any]) -> list[str]:
    (answer,) = answers
    rates = [shown(float(f"{float(v):.3g}")) for v in re.findall(r"=([\d.e-]+)", answer["optimizer"])]
    return [*rates, *(shown(answer[name]) for name in ("steps", "low", "high", "target"))]


def of_runs(answers: Answers, state: dict[str, Any]) -> list[str]:
    return [shown(last(answer, name)) for answer in answers for name in ("loss", "low", "high")]


def of_batch(answers: Answers, state: dict[str, Any]) -> list[str]:
    (answer,) = answers
    sizes = [answer[at][name] for at in ("chosen", "present") for name in ("batch_size", "devices")]
    interval = [shown(answer[name]) for name in ("low", "high") if answer[name] is not None]
    return [*map(shown, sizes), *interval, *(f"{answer[name]:.2g}" for name in ("speed", "cost"))]


CALCULATED: dict[str, Callable[[Answers, dict[str, Any]], list[str]]] = {
    "steps": of_steps, "settings": of_settings, "loss": of_loss, "schedule": of_schedule, "map": of_map, "network": of_network,
    "advice": of_advice, "runs": of_runs, "batch": of_batch,
}  # fmt: skip
"""For each view the numbers that its headline may have."""


def numbers_in(text: str) -> list[str]:
    return [number.rstrip(",") for number in NUMBER.findall(text)]


def printed(page: Any) -> tuple[list[str], str]:
    """The commands and the Python that the page shows."""
    titles = page.page.locator("#code h3").all_inner_texts()
    texts = dict(zip(titles, page.page.locator("#code pre").all_inner_texts(), strict=True))
    return texts.get("Command line", "").splitlines(), texts["Python"]


def run_command(command: str) -> dict[str, Any] | str:
    """What a printed command prints, as JSON where it can."""
    words = shlex.split(command)
    assert words[0] == "nqm"
    picture = words[1:3] == ["forecast", "plot"]
    words += [] if "--json" in words or picture else ["--json"]
    done = CliRunner().invoke(main, words[1:], catch_exceptions=False)
    assert done.exit_code in (0, 1), (command, done.output)
    if picture:
        return done.stdout
    answer = json.loads(done.stdout)
    assert done.exit_code == 0 or answer["steps"] is None  # status 1 says that a target is not reached
    return answer


def run_python(source: str) -> tuple[Answers, dict[str, Any]]:
    """The answers that printed Python computes, as plain values, and all its names."""
    space: dict[str, Any] = {}
    exec(source, space)
    names = sorted((n for n in space if re.fullmatch(r"answer(_\d+)?", n)), key=lambda n: int(n.partition("_")[2] or 0))
    assert names
    return [plain(space[name]) for name in names], space


def plain(answer: Any) -> dict[str, Any]:
    if isinstance(answer, list):
        return {"sweeps": [one.to_dict() for one in answer]}
    if isinstance(answer, float):
        return {"number": answer}
    return answer.summary() if hasattr(answer, "summary") else answer.to_dict()


def check(page: Any, folder: Path, asked: tuple[str, ...] = ("target", "pieces", "batch", "goal")) -> list[str]:
    """Run all that is printed, and find every number of the headline in it; those numbers, of which there must be some, come back."""
    state, headline = page.page.evaluate("window.nqm.state()"), page.text("#headline")
    if page.page.locator("#save-file").count():
        with page.page.expect_download() as waiting:
            page.page.click("#save-file")
        waiting.value.save_as(folder / waiting.value.suggested_filename)
    commands, source = printed(page)
    answers, space = run_python(source)
    outputs = [run_command(command) for command in commands]
    wanted = numbers_in(headline)
    allowed = {shown(float(state[name])) for name in asked if state[name]} | {state[name] for name in asked}
    if state["view"] == "runs" and not state["shape"]:  # the error of the fit
        percent = f"{100 * answers[0]['number']:.2g}%"
        assert percent in headline
        assert percent in str(outputs[0])
        return [percent]
    if state["view"] == "runs":  # beside the best of the logs, which the file of the forecast has
        logged = min(log.loss[-1] for log in space["forecast"].logs)
        allowed |= {shown(logged), *change(logged, last(answers[0])), "90"}
    if "noise_scale" in space:
        scale = space["noise_scale"]
        allowed |= {about(scale.low), about(scale.high), "90"}
        assert about(scale.value) in headline
    calculated = CALCULATED[state["view"]]
    for found in (answers, [output for output in outputs if isinstance(output, dict)]):
        texts = set(calculated(found, state))
        missing = [number for number in wanted if number not in texts | allowed]
        assert not missing, (headline, missing, sorted(texts))
        assert texts & set(wanted), (headline, sorted(texts))
    return wanted


SIMPLE = {
    "steps": f"view=steps&o=SGD()&o=HeavyBall()&{SMALL}",
    "settings": f"view=settings&o=SGD()&o=HeavyBall()&{SMALL}",
    "loss": f"view=loss&{SETTING}&{SMALL}",
    "a loss that stays above its floor": f"view=loss&run=SGD(lr=1)&batch=1&steps=1000&{SMALL}",
    "a sampled loss": f"view=loss&run=Clipped(SGD(lr=0.1),norm=1)&batch=64&steps=100&{SMALL}",
    "a regression": f"view=loss&run=SGD(lr=0.3)&batch=64&steps=500&kind=least_squares&label_noise=1&{SMALL}",
    "schedule": f"view=schedule&{SETTING}&pieces=5&schedule=Schedule([2000,1000],[1,0.3])&{SMALL}",
    "a schedule as text": f"view=schedule&{SETTING}&pieces=2&schedule=cosine(3000)&{SMALL}",
    "map": f"view=map&run=SGD(lr=0.5)&x=lr&y=batch_size&xrange=0.01..4&yrange=64..4096&cells=6&{SMALL}",
    "a map of two settings": f"view=map&run=HeavyBall(lr=0.5,momentum=0.9)&batch=512&cells=6&{SMALL}",
    "network": f"view=network&{SMALL}",
    "batch": "view=batch&noise_low=500&noise_high=2000",
    "batch with a second timing": "view=batch&other_per_device=64&other_seconds=0.25",
}


@pytest.mark.parametrize("state", SIMPLE.values(), ids=SIMPLE)
def test_what_a_view_prints_gives_its_headline(state: str, open_page, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check(open_page(state), tmp_path)


def test_what_is_printed_about_a_network_gives_the_headlines(open_page, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = open_page("view=advice&batch=64&goal=0.12&advised=own&run=SGD(lr=0.5)&cells=6&o=SGD()&pieces=2", wait=False)
    page.page.click("#advice-sample")
    page.eventually(lambda: page.page.evaluate("Boolean(window.nqm.state().data)"), "the sample")
    page.settle()
    assert check(page, tmp_path)
    for view in ("network", "loss", "steps", "settings", "schedule", "map"):
        page.view(view)
        assert check(page, tmp_path), view


def test_what_is_printed_about_logs_gives_the_headlines(open_page, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = open_page("view=runs", wait=False)
    page.page.click("#runs-sample")
    page.eventually(lambda: page.page.evaluate("Boolean(window.nqm.state().data)"), "the sample")
    page.settle()
    assert check(page, tmp_path)
    for shape in ("cosine", "wsd", "linear", "step", "best", "own"):
        page.page.click(f"#shape-{shape}")
        page.settle()
        assert check(page, tmp_path), shape
    page.set("#setting-lr-0-text", "0.0002")
    assert check(page, tmp_path)
    page.view("loss")
    assert check(page, tmp_path)


@pytest.mark.parametrize("planted", ["steps", "python"])
def test_a_planted_difference_is_found(planted: str, open_page, tmp_path: Path, monkeypatch) -> None:
    """A command for another batch size, and Python for another target, are noticed."""
    monkeypatch.chdir(tmp_path)
    page = open_page(SIMPLE["loss"])
    commands, source = printed(page)
    wrong = [re.sub("-b 256", "-b 64", c) for c in commands], re.sub("batch_size=256", "batch_size=64", source)
    assert wrong != (commands, source)
    faked = (wrong[0], source) if planted == "steps" else (commands, wrong[1])
    monkeypatch.setitem(globals(), "printed", lambda page: faked)
    with pytest.raises(AssertionError):
        check(page, tmp_path)


def test_numbers_are_found_in_sentences() -> None:
    said = "SGD(lr=0.5) keeps scaling to 19,800; 59 times, 1.2e-05 (90%: 3 to 4)."
    assert numbers_in(said) == ["0.5", "19,800", "59", "1.2e-05", "90", "3", "4"]
    assert (about(147.3), about(16_384), about(5.95), times(59.2), times(1.234)) == ("147", "16,400", "6", "59", "1.2")
