"""Files that a user opens are read, used, or refused with a sentence."""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import close, post, strict, upload
from click.testing import CliRunner
from fits import fit_bytes, fit_json, small_fit
from pages import DIGITS

import nqm
from nqm.cli import main
from nqm.nets.fitting.model import Fit, is_fit
from nqm.web.api import respond
from nqm.web.limits import REQUEST


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
    "too many modes": (json.dumps({"h": [1.0] * (REQUEST.nodes + 1)}).encode(), "20,000 modes"),
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
    status, answer = upload(b" " * (REQUEST.upload_bytes + 1))
    assert status == 413
    assert f"{REQUEST.upload_bytes:,}" in answer["error"]


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


def test_fits_of_the_library_are_told_from_spectra(tmp_path: Path) -> None:
    for ending in (".json", ".npz"):
        small_fit().save(tmp_path / f"fit{ending}")
        nqm.Spectrum([1.0]).save(tmp_path / f"spectrum{ending}")
        assert is_fit(tmp_path / f"fit{ending}")
        assert not is_fit(tmp_path / f"spectrum{ending}")
        done = CliRunner().invoke(main, ["spectrum", str(tmp_path / f"fit{ending}"), "--json"], catch_exceptions=False)
        assert json.loads(done.stdout)["trace"] == pytest.approx(Fit.load(tmp_path / f"fit{ending}").spectrum.trace)
    assert not is_fit(tmp_path / "missing.json")


def test_the_sample_is_a_fit_of_this_version(tmp_path: Path) -> None:
    """``make sample`` writes it again, with the command that its name stands for: ``nqm fit digits``."""
    data, fit = strict(DIGITS.read_bytes()), Fit.load(DIGITS)
    fit.save(tmp_path / "again.json")
    again = strict((tmp_path / "again.json").read_bytes())
    assert data == again  # nothing was renamed, and nothing is missing
    assert fit.tested is not None
    assert fit.descent is not None
    assert fit.descent.rising > 0
    assert fit.descent.sharpness is not None
    assert np.isnan(fit.descent.sharpness).any()  # a fresh fit measures curvature at a few steps alone


def test_a_fit_of_negative_losses_is_opened() -> None:
    """A loss may be negative, as a log density is; the page refused such a descent, which the library predicts from."""
    data = fit_json()
    data["descent_loss"] = [value - 10 for value in data["descent_loss"]]
    data["loss"] -= 10
    status, opened = upload(json.dumps(data).encode())
    assert status == 200
    body = {"problem": {"spectrum": {"upload": opened["id"]}}, "optimizer": "SGD(0.01)", "batch_size": 32, "steps": 10}
    status, answer = respond("predict", json.dumps(body).encode())
    assert status == 200
    message = json.loads(answer)["message"]
    assert "the loss is -" in message
    assert "not known, because it is a factor of the loss" in message
