"""Endpoints answer what the library answers, say how to get it elsewhere, and name what is wrong with a question."""

from __future__ import annotations

import io
import json
import math
import shlex
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fits import fit_bytes, fit_json, small_fit

import nqm
from nqm.cli import main
from nqm.nets.fitting.model import Fit
from nqm.text.objects import known_optimizers, known_schedules, parse_optimizer
from nqm.web import limits
from nqm.web.api import respond
from nqm.web.bodies import BODIES, schemas
from nqm.web.describe import describe

SMALL = {"spectrum": "power_law(100)"}
PROBLEM = nqm.Quadratic(nqm.Spectrum.power_law(100))
HEAVY = "HeavyBall(0.1, momentum=1 - 2^-3)"


def strict(content: bytes) -> Any:
    """JSON without NaN and infinities, which it does not have."""
    return json.loads(content, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def post(endpoint: str, **body: Any) -> Any:
    status, content = respond(endpoint, json.dumps(body).encode())
    answer = strict(content)
    assert status == 200, answer
    return answer


def refused(endpoint: str, **body: Any) -> tuple[int, str, str | None]:
    status, content = respond(endpoint, json.dumps(body).encode())
    answer = strict(content)
    assert set(answer) == {"error", "field", "argument"}, answer
    assert "\n" not in answer["error"]
    return status, answer["error"], answer["field"]


def close(here: Any, there: Any) -> bool:
    """Equal but for rounding in the twelfth digit."""
    if isinstance(here, dict):
        return here.keys() == there.keys() and all(close(here[k], there[k]) for k in here)
    if isinstance(here, list):
        return len(here) == len(there) and all(map(close, here, there))
    if isinstance(here, float) and isinstance(there, int | float):
        return math.isclose(here, there, rel_tol=1e-12)
    return here == there


# The same numbers as in Python, by calls that share nothing with the endpoint but the engine.


def test_a_curve_is_the_run() -> None:
    answer = post("curve", problem=SMALL, optimizer=HEAVY, batch_size="2^5", steps=1000)
    run = PROBLEM.run(nqm.HeavyBall(0.1, 0.875), 32, 1000)
    assert answer["loss"] == run.loss.tolist()
    assert answer["steps"] == run.steps.tolist()
    assert answer["noise_loss"] == (run.noise / 32).tolist()
    assert np.add(answer["signal"], answer["noise_loss"]) == pytest.approx(run.loss, rel=1e-13)
    assert np.sum(answer["band_signal"], 0) + np.sum(answer["band_noise_loss"], 0) == pytest.approx(run.loss, rel=1e-12)
    assert answer["stability_limit"] == pytest.approx(2 * 1.875)
    assert answer["floor"] == run.floor
    assert answer["optimizer"] == "HeavyBall(lr=0.1, momentum=0.875)"
    assert answer["multipliers"] is None


def test_a_quick_curve_is_good_to_a_millionth() -> None:
    body = {
        "problem": {"spectrum": "power_law(3000)"},
        "optimizer": "EMA(HeavyBall(0.1, 0.9), 0.99)",
        "batch_size": 64,
        "steps": 5000,
    }
    exact, quick = post("curve", **body), post("curve", **body, quick=True)
    assert quick["quick"]
    assert not exact["quick"]
    assert quick["loss"] != exact["loss"]
    assert quick["loss"] == pytest.approx(exact["loss"], rel=1e-5)


def test_a_long_curve_of_a_regression_is_on_nodes() -> None:
    problem = {"spectrum": "power_law(2000, noise_exponent=2)", "kind": "least_squares", "label_noise": 0.5}
    exact = nqm.LeastSquares(nqm.Spectrum.power_law(2000), 0.5)
    body = {"problem": problem, "optimizer": "SGD(0.1)", "batch_size": 4, "points": 4}
    for steps, quick, nodes in [(200, False, False), (200, True, True), (60_000, False, True)]:
        answer = post("curve", **body, steps=steps, quick=quick)
        assert answer["quick"] is nodes
        assert (answer["stability_limit"] is None) is quick
        if steps == 200:
            assert answer["loss"] == pytest.approx(exact.run(nqm.SGD(0.1), 4, 200, points=4).loss, rel=1e-9)
    assert answer["stability_limit"] == pytest.approx(exact.stability_limit(nqm.SGD(), 4), rel=1e-8)


def test_a_curve_with_pieces_and_one_with_text() -> None:
    pieces = {"lengths": [10, 20], "lr": [1, 0.5], "batch_size": [1, 2]}
    answer = post(
        "curve", problem=SMALL, optimizer="SGD(0.5)", batch_size=8, steps=40, grid="linear", points=41, schedule=pieces
    )
    plan = nqm.Schedule([10, 20], lr=[1, 0.5], batch_size=[1, 2])
    assert answer["loss"] == PROBLEM.run(nqm.SGD(0.5), 8, 40, plan, "linear", 41).loss.tolist()
    assert answer["multipliers"]["lr"] == plan.multipliers("lr", 41).tolist()
    text = "step(30, 0.5, at=[10]) & step(30, 2, at=[10]).on('batch_size')"
    again = post(
        "curve", problem=SMALL, optimizer="SGD(0.5)", batch_size=8, steps=40, grid="linear", points=41, schedule=text
    )
    assert again["loss"] == answer["loss"]


def test_a_sampled_curve() -> None:
    answer = post("curve", problem=SMALL, optimizer="Adam(0.01, 0.9)", batch_size=8, steps=30, replicas=16, seed=3)
    run = PROBLEM.sample(nqm.Adam(0.01, 0.9), 8, 30, replicas=16, seed=3)
    assert answer["loss"] == run.loss.tolist()
    assert answer["replicas"] == 16
    assert answer["signal"] is answer["noise_loss"] is answer["stability_limit"] is None


def test_a_diverging_curve_is_an_answer() -> None:
    answer = post("curve", problem=SMALL, optimizer="SGD(3)", batch_size=8, steps=10_000)
    assert answer["outcome"] == "diverged"
    assert "lower the learning rate below 2" in answer["message"]
    assert answer["loss"][-1] is None


def test_steps_tune_and_schedule() -> None:
    hit = nqm.steps_to_target(PROBLEM, nqm.SGD(0.1), 64, 0.1)
    answer = post("steps", problem=SMALL, optimizer="SGD(0.1)", batch_size=64, target=0.1)
    assert {k: answer[k] for k in hit.to_dict()} == hit.to_dict()
    tuned = nqm.tune(PROBLEM, nqm.EMA(nqm.SGD()), 64, examples=1e4).to_dict()
    answer = post("tune", problem=SMALL, optimizer="EMA(SGD)", batch_size=64, examples=1e4)
    assert close({k: answer[k] for k in tuned}, tuned)
    best = nqm.optimal_schedule(PROBLEM, nqm.SGD(), 8, 0.05, pieces=4)
    answer = post("schedule", problem=SMALL, optimizer="SGD", batch_size=8, target=0.05, pieces=4)
    assert answer["steps"] == best.steps
    again = post(
        "curve",
        problem=SMALL,
        optimizer=answer["optimizer"],
        batch_size=8,
        steps=best.steps,
        schedule=answer["schedule"],
        points=2,
    )
    assert again["loss"][-1] == pytest.approx(best.loss, rel=1e-5)  # the optimizer's text has six digits


def test_a_sweep_is_the_sweep() -> None:
    answer = post(
        "sweep", problem=SMALL, optimizers=["SGD", "HeavyBall(momentum=0.5)"], target=0.05, batch_sizes=[4, 64, 1024]
    )
    for shown, optimizer in zip(answer["sweeps"], (nqm.SGD(), nqm.HeavyBall(momentum=0.5)), strict=True):
        found = nqm.sweep(PROBLEM, optimizer, [4, 64, 1024], target=0.05)
        assert close({k: shown[k] for k in found.to_dict()}, found.to_dict())
        assert shown["settings"]["lr"] == shown["lr"]
        assert shown["bounds"]["bayes"] == pytest.approx(found.bounds()["bayes"])
        fewest = min(shown["examples"])
        assert np.multiply(shown["perfect_scaling"], shown["batch_sizes"]) == pytest.approx(fewest)
    assert answer["sweeps"][1]["settings"]["momentum"] == [0.5] * 3


def test_a_sweep_that_reaches_nothing() -> None:
    (shown,) = post("sweep", problem=SMALL, optimizers=["SGD(1)"], target=1e-9, batch_sizes="4,16")["sweeps"]
    assert shown["steps"] == shown["perfect_scaling"] == [None, None]
    assert shown["settings"] == {}


def test_a_map_takes_a_setting_that_an_axis_replaces() -> None:
    axes = {
        "x": {"name": "lr", "low": 0.01, "high": 4, "n": 5},
        "y": {"name": "momentum", "low": 0, "high": "1 - 2^-5", "n": 3},
    }
    answer = post("map", problem=SMALL, optimizer=HEAVY, target=0.05, batch_size=64, **axes)
    x, y = nqm.Axis("lr", 0.01, 4, 5), nqm.Axis("momentum", 0, 1 - 2**-5, 3)
    found = nqm.phase_map(PROBLEM, nqm.HeavyBall(), x, y, 64, target=0.05)
    assert {k: answer[k] for k in found.to_dict()} == found.to_dict()


def test_what_a_spectrum_is_made_of() -> None:
    answer = post("spectrum")
    paper = nqm.Spectrum.power_law(10_000)
    assert answer["initial_loss"] == paper.initial_loss
    assert answer["noise_scale"] == pytest.approx(paper.trace / (paper.h**2).sum())
    shown = answer["nodes_shown"]
    assert len(shown["h"]) <= limits.SHOWN
    assert shown["h"][0] == 1
    assert shown["h"][-1] == 1e-4
    assert sum(answer["bands"]["signal"]) == pytest.approx(paper.initial_loss)
    assert sum(answer["bands"]["count"]) == 10_000
    assert answer["fit"] is None


# The command and the lines of Python give the same answer.

ELSEWHERE = {
    "curve": {"problem": SMALL, "optimizer": HEAVY, "batch_size": "2^5", "steps": 100, "schedule": "cosine(100)", "points": 20},
    "curve of pieces": {
        "problem": SMALL, "optimizer": HEAVY, "batch_size": 1 / 3, "steps": 9, "schedule": {"lengths": [3, 4], "lr": [1, 0.1]},
    },
    "curve without noise": {"problem": SMALL, "optimizer": "SGD(1/3)", "batch_size": "inf", "steps": 100, "grid": "linear"},
    "curve sampled": {"problem": SMALL, "optimizer": "Sign(0.01)", "batch_size": 4, "steps": 20, "replicas": 8, "seed": 2},
    "curve quick": {"problem": {"spectrum": "power_law(10^3)"}, "optimizer": HEAVY, "batch_size": 4, "steps": 100, "quick": True},
    "curve of a regression": {
        "problem": {**SMALL, "kind": "least_squares", "label_noise": 0.3}, "optimizer": "SGD(0.1)", "batch_size": 4, "steps": 100,
    },
    "curve of a regression, quick": {
        "problem": {**SMALL, "kind": "least_squares"}, "optimizer": "SGD(0.1)", "batch_size": 4, "steps": 100, "points": 5,
        "quick": True,
    },
    "steps": {"problem": SMALL, "optimizer": "SGD(0.1)", "batch_size": 64, "target": 0.1, "until": "settled"},
    "steps of a regression": {
        "problem": {**SMALL, "kind": "least_squares"}, "optimizer": "SGD(0.1)", "batch_size": 64, "target": 0.5, "quick": True,
    },
    "tune": {"problem": SMALL, "optimizer": "Preconditioned(SGD, power=0.5)", "batch_size": 64, "steps": 200},
    "sweep": {
        "problem": {"spectrum": "Spectrum([1, 0.1], c=[2, 0.3])"}, "optimizers": ["SGD", "EMA(SGD)"], "target": 0.01,
        "batch_sizes": "4,1e3",
    },
    "schedule": {"problem": SMALL, "optimizer": "HeavyBall(momentum=0.5)", "batch_size": 8, "target": 0.05, "pieces": 3},
    "map": {
        "problem": SMALL, "optimizer": "EMA(SGD)", "batch_size": 4, "target": 0.1,
        "x": {"name": "lr", "low": 0.01, "high": 1, "n": 3}, "y": {"name": "decay", "low": 0, "high": 0.9, "n": 3},
    },
    "spectrum": {"problem": {"spectrum": "power_law(10**3, exponent=1.5).binned(20)"}},
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_command_gives_the_same_answer(name: str) -> None:
    answer = post(name.split()[0], **ELSEWHERE[name])
    words = shlex.split(answer["command"])
    assert words[0] == "nqm"
    words = [word for word in words[1:] if word != "--json"]
    done = CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False)
    printed = json.loads(done.stdout)
    if "sweeps" in printed:
        answer, printed = (dict(enumerate(a["sweeps"])) for a in (answer, printed))
        answer = {i: {k: one[k] for k in printed[i]} for i, one in answer.items()}
    assert close({k: answer[k] for k in printed}, printed)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_lines_of_python_give_the_same_answer(name: str) -> None:
    answer = post(name.split()[0], **ELSEWHERE[name])
    space: dict[str, Any] = {}
    exec(answer["python"], space)
    found = space["answer"]
    if isinstance(found, list):
        for one, shown in zip(found, answer["sweeps"], strict=True):
            assert close({k: shown[k] for k in one.to_dict()}, one.to_dict())
    else:
        there = found.summary() if isinstance(found, nqm.Spectrum) else found.to_dict()
        assert close({k: answer[k] for k in there}, there)


# Files.


def upload(content: bytes, name: str = "") -> tuple[int, Any]:
    status, answer = respond("upload", content, name)
    return status, strict(answer)


def test_a_fit_is_opened_predicted_and_swept() -> None:
    status, opened = upload(fit_bytes(), "../digits net.json")
    assert status == 200
    assert opened["kind"] == "fit"
    assert opened["name"] == "digits_net.json"
    assert opened["fit"]["loss"] == 0.6
    assert opened["noise_scale"] == pytest.approx(small_fit().noise_scale.value)
    given = {"spectrum": {"upload": opened["id"]}}
    found = small_fit().predict(nqm.SGD(0.1), 32, 100)
    answer = post("predict", problem=given, optimizer="SGD(0.1)", batch_size=32, steps=100)
    assert close({k: answer[k] for k in found.to_dict()}, found.to_dict())
    curve = post("curve", problem=given, optimizer="SGD(0.1)", batch_size=32, steps=100)
    assert curve["loss"] == small_fit().problem.run(nqm.SGD(0.1), 32, 100).loss.tolist()
    inline = {"spectrum": {"file": opened["file"], "name": "digits.json"}}
    assert post("curve", problem=inline, optimizer="SGD(0.1)", batch_size=32, steps=100)["loss"] == curve["loss"]


def test_commands_on_a_fit_give_the_same_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for ending in (".json", ".npz"):
        small_fit().save(tmp_path / f"net{ending}")
        _, opened = upload(fit_bytes(ending), f"net{ending}")
        given = {"spectrum": {"upload": opened["id"]}}
        for endpoint, body in {
            "predict": {"optimizer": "SGD(0.1)", "batch_size": 32, "steps": 50, "epochs": True},
            "curve": {"optimizer": "SGD(0.1)", "batch_size": 32, "steps": 50},
        }.items():
            answer = post(endpoint, problem=given, **body)
            done = CliRunner().invoke(main, [*shlex.split(answer["command"])[1:], "--json"], catch_exceptions=False)
            printed = json.loads(done.stdout)
            assert close({k: answer[k] for k in printed}, printed)
            space: dict[str, Any] = {}
            exec(answer["python"], space)
            assert close(space["answer"].loss.tolist(), answer["loss"])


@pytest.mark.parametrize("ending", [".json", ".npz"])
def test_a_spectrum_is_opened(ending: str, tmp_path: Path) -> None:
    spectrum = nqm.Spectrum([2.0, 0.5], [1.0, 3.0], count=[1, 7])
    spectrum.save(tmp_path / f"s{ending}")
    status, opened = upload((tmp_path / f"s{ending}").read_bytes(), f"s{ending}")
    assert (status, opened["kind"], opened["name"]) == (200, "spectrum", f"s{ending}")
    assert opened["file"]["c"] == [1, 3]
    assert opened["trace"] == spectrum.trace
    assert upload((tmp_path / f"s{ending}").read_bytes())[1]["id"] == opened["id"]


def archive(**columns: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **columns)
    return out.getvalue()


def bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("h.npy", b"\0" * 2**26)
    return out.getvalue()


class Evil:
    """Pickled, it would run code when read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path("/tmp/nqm-was-unpickled").touch, ()


WRONG_FILES = {
    "empty": (b"", "JSON|Expecting"),
    "text": (b"not a file", "Expecting"),
    "a list": (b"[1]", "JSON object"),
    "no h": (b'{"c": [1]}', "no column h"),
    "negative": (b'{"h": [-1]}', "must be positive"),
    "nested": (b'{"h": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "no file of nqm"),
    "broken archive": (b"PK\x03\x04 and nothing else", "zip"),
    "pickle in archive": (archive(h=np.array([Evil()], dtype=object)), "pickle"),
    "bomb": (bomb(), "unpacked"),
    "too many modes": (json.dumps({"h": [1.0] * (limits.NODES + 1)}).encode(), "20,000 modes"),
    "not a fit of ours": (b'{"format": "nqm fit 99"}', "format"),
    "huge number": (b'{"h": [1' + b"0" * 400 + b"]}", "numbers"),
    "latin": ("{\"h\": [1], \"note\": \"é\"}".encode("latin-1"), "decode"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_wrong_file_is_refused(name: str) -> None:
    content, words = WRONG_FILES[name]
    status, answer = upload(content)
    assert status == 422
    assert any(word in answer["error"] for word in words.split("|")), answer
    assert not Path("/tmp/nqm-was-unpickled").exists()


def test_a_file_that_is_too_large_is_refused() -> None:
    status, answer = upload(b" " * (limits.UPLOAD_BYTES + 1))
    assert status == 413
    assert f"{limits.UPLOAD_BYTES:,}" in answer["error"]


@pytest.mark.parametrize("name", sorted(fit_json()))
@pytest.mark.parametrize("value", [None, [], -1, "x", [1e300], "gone"], ids=repr)
def test_a_damaged_fit_is_refused_or_harmless(name: str, value: Any) -> None:
    """Never an internal error: neither when it is opened, nor when it is computed with."""
    data = fit_json()
    data[name] = value
    if value == "gone":
        del data[name]
    status, opened = upload(json.dumps(data).encode())
    assert status in (200, 422)
    if status == 200:
        body = {
            "problem": {"spectrum": {"upload": opened["id"]}},
            "optimizer": "SGD(0.1)",
            "batch_size": 32,
            "steps": 10,
        }
        assert respond("predict", json.dumps(body).encode())[0] in (200, 422)
        assert respond("curve", json.dumps(body).encode())[0] in (200, 422)


# What is wrong is named.

CURVE = {"problem": SMALL, "optimizer": "SGD(0.1)", "batch_size": 8, "steps": 10}
MAP = {
    "problem": SMALL, "optimizer": "HeavyBall", "target": 0.1, "batch_size": 8,
    "x": {"name": "lr", "low": 0.1, "high": 1}, "y": {"name": "momentum", "low": 0, "high": 0.9},
}  # fmt: skip
WRONG: list[tuple[str, dict[str, Any], str | None, str]] = [
    ("curve", {"optimizer": None}, "optimizer", "is missing"),
    ("curve", {"optimizer": "SDG(0.1)"}, "optimizer", "did you mean SGD?"),
    ("curve", {"optimizer": "os:system"}, "optimizer", "not imported"),
    ("curve", {"optimizer": "SGD(__import__('os'))"}, "optimizer", ""),
    ("curve", {"optimizer": "SGD"}, "optimizer", "free"),
    ("curve", {"optimizer": 3}, "optimizer", "must be text"),
    ("curve", {"optimizer": "SGD(" + "0" * limits.TEXT + ")"}, "optimizer", "2,000 characters"),
    ("curve", {"optimizer": "EMA(" * 6 + "SGD(0.1)" + ", 0.9)" * 6}, "optimizer", "slots"),
    ("curve", {"batch_size": 0}, "batch_size", "from 1e-12"),
    ("curve", {"batch_size": "many"}, "batch_size", "number"),
    ("curve", {"steps": 2.5}, "steps", "whole number"),
    ("curve", {"steps": 10**10}, "steps", "1e+09"),
    ("curve", {"steps": True}, "steps", "whole number"),
    ("curve", {"points": 1001}, "points", "from 2 to 1000"),
    ("curve", {"grid": "cubic"}, "grid", "log, linear"),
    ("curve", {"quick": "yes"}, "quick", "true or false"),
    ("curve", {"stpes": 1}, "stpes", "did you mean steps?"),
    ("curve", {"schedule": "cosine"}, "schedule", "steps"),
    ("curve", {"schedule": {"lengths": [1] * 1001}}, "schedule.lengths", "1 to 1,000 entries"),
    ("curve", {"schedule": {"lengths": [1, 2], "lr": [1]* 3}}, "schedule", "3 values for 2 pieces"),
    ("curve", {"problem": {"spectrum": "/etc/passwd"}}, "problem.spectrum", "no files are read"),
    ("curve", {"problem": {"spectrum": "power_law(0)"}}, "problem.spectrum", "whole number from 1"),
    ("curve", {"problem": {"spectrum": {"upload": "nothing"}}}, "problem.spectrum", "open the file again"),
    ("curve", {"problem": {"spectrum": {}}}, "problem.spectrum", "exactly one of"),
    ("curve", {"problem": {"spectrum": {"file": {"h": []}}}}, "problem.spectrum", "non-empty"),
    ("curve", {"problem": {"label_noise": 1}}, "problem.label_noise", "least_squares"),
    ("curve", {"problem": {"spectrum": "power_law(9, noise_exponent=2)", "kind": "least_squares"}}, "problem.label_noise",
     "noise; set label_noise"),
    ("spectrum", {"problem": {"kind": "least_squares"}}, "problem.kind", "kind"),
    ("map", {"problem": {"kind": "least_squares"}}, "problem.kind", "fixed variance"),
    ("curve", {"problem": []}, "problem", "must be an object"),
    ("predict", {}, "problem.spectrum", "nqm fit"),
    ("steps", {"target": -1}, "target", "from 1e-300"),
    ("tune", {"target": 0.1}, None, "exactly one goal"),
    ("schedule", {"pieces": 101}, "pieces", "from 1 to 100"),
    ("schedule", {"problem": {"kind": "least_squares"}}, "problem.kind", "quadratic"),
    ("schedule", {"optimizer": "Polyak(SGD)"}, "optimizer", "all alike"),
    ("sweep", {"optimizers": ["SGD"] * 7, "target": 1}, "optimizers", "1 to 6 entries"),
    ("sweep", {"optimizers": ["SGD", "SDG"], "target": 1}, "optimizers.1", "did you mean SGD?"),
    ("sweep", {"optimizers": ["SGD"], "target": 1, "batch_sizes": "1..1000..1.1"}, "batch_sizes", "40 at most"),
    ("map", {"x": {"name": "lr", "low": 0.1, "high": 1, "n": 65}}, "x.n", "from 2 to 64"),
    ("map", {"x": {"name": "lr", "low": 2, "high": 1}}, "x", "low to a higher"),
    ("map", {"x": {"name": "decay", "low": 0.1, "high": 0.5}}, "optimizer", "no parameter 'decay'"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_what_is_wrong_is_named(case: int) -> None:
    endpoint, change, field, words = WRONG[case]
    known = {**(MAP if endpoint == "map" else CURVE), **change}
    allowed = {*BODIES[endpoint].fields, *change}
    status, sentence, blamed = refused(endpoint, **{k: v for k, v in known.items() if k in allowed})
    assert status == 422
    assert words in sentence
    assert blamed == field


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"steps": NaN}', b"\xff", b"[" * 100_000, b"9" * 5000])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    status, content = respond("curve", body)
    assert status == 400
    assert "body" in strict(content)["error"]


# Menus.


def test_every_optimizer_can_be_made_from_its_description() -> None:
    told = describe()
    assert {o["name"] for o in told["optimizers"]} == set(known_optimizers())
    for one in told["optimizers"]:
        assert one["sentence"].endswith(".")
        inner = ["SGD(0.1)"] * one["wraps"]
        middles = {"log": lambda p: math.sqrt(p["low"] * p["high"]), "linear": lambda p: 0.5, "memory": lambda p: 0.9}
        shown = []
        for p in one["parameters"]:
            assert p["sentence"].endswith(".")
            if p["scale"] == "choice":
                shown += [f'{p["name"]}="{choice}"' for choice in p["choices"][:1]]
                continue
            assert p["low"] < p["high"]
            value = middles[p["scale"]](p)
            shown.append(f"{p['name']}={round(value) if p['whole'] else value}")
        optimizer = parse_optimizer(f"{one['name']}({', '.join(inner + shown)})")
        assert optimizer.linear == one["linear"]


def test_menus_have_everything() -> None:
    told = describe()
    assert {s["name"] for s in told["schedules"]} == set(known_schedules())
    assert all(sentence.endswith(".") for sentence in told["terms"].values())
    assert set(told["outcomes"]) == {outcome.name for outcome in nqm.Outcome}
    assert told["limits"]["points"] == limits.POINTS
    json.dumps(told, allow_nan=False)


def test_schemas_name_every_field_and_bound() -> None:
    found = schemas()
    assert set(found) == {f"/api/{name}" for name in BODIES}
    curve = found["/api/curve"]
    assert curve["required"] == ["optimizer", "batch_size", "steps"]
    assert curve["properties"]["points"]["anyOf"][0] == {"type": "integer", "minimum": 2, "maximum": limits.POINTS}
    json.dumps(found, allow_nan=False)


def test_fits_of_the_library_are_told_from_spectra(tmp_path: Path) -> None:
    from nqm.nets.fitting.model import is_fit

    for ending in (".json", ".npz"):
        small_fit().save(tmp_path / f"fit{ending}")
        nqm.Spectrum([1.0]).save(tmp_path / f"spectrum{ending}")
        assert is_fit(tmp_path / f"fit{ending}")
        assert not is_fit(tmp_path / f"spectrum{ending}")
        done = CliRunner().invoke(main, ["spectrum", str(tmp_path / f"fit{ending}"), "--json"], catch_exceptions=False)
        assert json.loads(done.stdout)["trace"] == pytest.approx(Fit.load(tmp_path / f"fit{ending}").spectrum.trace)
    assert not is_fit(tmp_path / "missing.json")
