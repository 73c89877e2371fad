"""Objects that a user names as module:name: what is missing is a wrong call, what their code raises is theirs."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from nqm.text.imports import UserCodeError, imported, user_code
from nqm.types import Wrong

MODULES = {
    "own_things": "from nqm import SGD\n\ndef thing():\n    return 3\n\nthings = 4\n",
    "own_broken": "def deep():\n    return {}['lost']\n\ndeep()\n",
    "own_wrong": "from nqm import SGD\n\nSGD(lr=-1)\n",
    "own_quits": "raise SystemExit('bye')\n",
    "own_needs_torch": "raise ModuleNotFoundError(\"No module named 'torch.nn'\", name='torch.nn')\n",
    "own_needs_more": "import nowhere_at_all\n",
}


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """The current folder with the user's modules."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    yield tmp_path
    for name in [n for n in sys.modules if n.startswith("own_")]:
        del sys.modules[name]


def test_a_name_of_the_current_folder():
    thing = imported("own_things:thing", "a function")
    assert callable(thing)
    assert thing() == 3


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("own_things", "'own_things' does not name a function; write it as module:name"),
        (":thing", "write it as module:name"),
        ("own_things:", "write it as module:name"),
        ("own_nowhere:thing", "cannot import 'own_nowhere' for own_nowhere:thing: No module named 'own_nowhere'"),
        ("own_things:thin", "there is no name in own_things called 'thin' (did you mean thing?); there are SGD, thing"),
        (
            "own_things.py:thing",
            "own_things.py:thing names a file; go to its folder and name the module: own_things:thing",
        ),
        ("folder/own_things.py:thing", "names a file; go to its folder and name the module: own_things:thing"),
        ("own_needs_torch:thing", "No module named 'torch.nn'; pip install 'nqm[nets]'"),
        ("own_needs_more:thing", "No module named 'nowhere_at_all'"),
        ("own_wrong:thing", "lr must be positive"),
    ],
)
def test_a_wrong_name_is_a_wrong_call(reference, sentence):
    with pytest.raises(Wrong) as caught:
        imported(reference, "a function")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_exception_of_the_users_has_the_users_frames():
    with pytest.raises(UserCodeError) as caught:
        imported("own_broken:thing", "a function")
    assert str(caught.value) == "importing own_broken failed with KeyError: 'lost' (own_broken.py, line 2)"
    assert caught.value.traceback.startswith("Traceback (most recent call last):\n")
    assert caught.value.traceback.endswith("KeyError: 'lost'\n")
    assert caught.value.traceback.count("own_broken.py") == 2
    for inner in (str(Path("nqm") / "text"), "importlib", "<frozen"):
        assert inner not in caught.value.traceback
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_exit_of_the_users_ends_nothing():
    with pytest.raises(UserCodeError, match="SystemExit: bye"):
        imported("own_quits:thing", "a function")


def test_an_error_travels_between_processes():
    error = pickle.loads(pickle.dumps(UserCodeError("it failed", "Traceback ...")))
    assert (str(error), error.traceback) == ("it failed", "Traceback ...")


def test_only_what_is_the_users_is_told_as_theirs():
    with pytest.raises(Wrong, match="too small"), user_code("calling mine"):
        raise Wrong("lr is too small")
    with pytest.raises(KeyboardInterrupt), user_code("calling mine"):
        raise KeyboardInterrupt
    with pytest.raises(UserCodeError, match="calling mine failed with ValueError: no"), user_code("calling mine"):
        raise ValueError("no")
