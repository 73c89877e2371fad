"""The boundary for errors: a wrong call, a failure of the machine, the user's own code and a bug are told apart.

Each is planted: a function that a verb calls is replaced by one that raises.
"""

from __future__ import annotations

import builtins
import errno
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
from cli.shell import ROOT, call, one_line, told

from nqm.cli.errors import ReaderGone
from nqm.lab import LabError
from nqm.text.imports import UserCodeError
from nqm.types import Wrong

STEPS = ("steps", "SGD(0.1)", "-b", 8, "--target", 0.1)

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def planted(monkeypatch):
    """Let ``nqm steps`` raise what is planted."""

    def plant(error: BaseException) -> None:
        def raises(*args: object, **kwargs: object) -> None:
            raise error

        monkeypatch.setattr("nqm.search.steps_to_target", raises)

    return plant


def broadcast() -> Exception:
    try:
        np.ones(2) + np.ones(3)
    except ValueError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("not enough values to unpack"),
        TypeError("unsupported operand"),
        broadcast(),
        ZeroDivisionError("a slip\nof ours"),
        KeyError("lr"),
        AssertionError(),
        RecursionError("too deep"),
        ImportError("cannot import name 'gone' from 'nqm.search'", name="nqm.search"),
        np.linalg.LinAlgError("singular matrix"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_bug_is_told_as_a_bug_and_not_as_the_users_mistake(planted, error):
    planted(error)
    line = told(call(*STEPS), status=1)
    assert f"this is a bug in nqm, {type(error).__name__}: {' '.join(str(error).split())}" in line
    assert line.endswith("; NQM_DEBUG=1 shows where")


def test_the_debugger_sees_the_traceback(planted, monkeypatch):
    planted(ZeroDivisionError("a slip"))
    monkeypatch.setenv("NQM_DEBUG", "1")
    result = call(*STEPS)
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert result.stderr.strip().splitlines()[-1].startswith("Error: this is a bug in nqm, ZeroDivisionError: a slip")


def test_a_bug_while_text_is_read_is_a_bug(monkeypatch):
    monkeypatch.setattr("nqm.text.objects.make", lambda *_: {}["gone"])
    assert "this is a bug in nqm, KeyError: 'gone'" in told(call("tune", "SGD", "-b", 8, "--target", 1), status=1)


def test_a_wrong_call_is_status_2_and_names_its_option(planted):
    planted(Wrong("it is too small", argument="target"))
    assert told(call(*STEPS)) == "Error: Invalid value for '--target': it is too small (see nqm steps --help)"
    planted(Wrong("the optimizer does not fit", argument="optimizer"))
    assert "Invalid value for 'OPTIMIZER': the optimizer does not fit" in told(call(*STEPS))
    planted(Wrong("two things do not fit", argument="what the command line does not know"))
    assert told(call(*STEPS)) == "Error: two things do not fit"
    planted(Wrong("it does not fit"))
    assert told(call(*STEPS)) == "Error: it does not fit"


@pytest.mark.parametrize(
    ("error", "sentence", "status"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "a.csv"), "there is no file 'a.csv'", 1),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "a"), "'a' is a folder, not a file", 1),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"), "'a/b' leads through a file", 1),
        (PermissionError(errno.EACCES, "Permission denied", "a.csv"), "no permission to open 'a.csv'", 1),
        (OSError(errno.ENOSPC, "No space left on device"), "the device is full", 1),
        (OSError(errno.ENOSPC, "No space left", "a.csv"), "device is full, and 'a.csv' could not be written", 1),
        (OSError(errno.EIO, "Input/output error", "a.csv"), "'a.csv': Input/output error", 1),
        (OSError("odd"), "odd", 1),
        (MemoryError(), "not enough memory; ask for fewer", 1),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory; ask for fewer", 1),
        (BrokenProcessPool("terminated abruptly"), "was killed, perhaps for want of memory", 1),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "pip install 'nqm[nets]'", 1),
        (ImportError("libcudart.so: cannot open", name="torch._C"), "pip install 'nqm[nets]'", 1),
        (ModuleNotFoundError("No module named 'starlette'", name="starlette"), "pip install 'nqm[web]'", 1),
        (ModuleNotFoundError("No module named 'distributed'", name="distributed"), "pip install 'nqm[cluster]'", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_the_machine_refuses_has_a_sentence_of_its_own(planted, error, sentence, status):
    planted(error)
    line = told(call(*STEPS), status)
    assert sentence in line
    assert "bug" not in line


def test_the_users_own_exception_is_shown_with_its_traceback(elsewhere):
    (elsewhere / "own_fails.py").write_text("def deep():\n    return 1 / 0\n\ndeep()\n")
    result = call("curve", "own_fails:Mine", "-b", 8, "--steps", 5)
    assert result.exit_code == 1
    assert result.stdout == ""
    *frames, line = result.stderr.strip().splitlines()
    assert line == "Error: importing own_fails failed with ZeroDivisionError: division by zero (own_fails.py, line 2)"
    assert frames[0] == "Traceback (most recent call last):"
    assert "return 1 / 0" in result.stderr
    assert str(Path("nqm") / "cli") not in result.stderr
    assert "bug" not in result.stderr


def test_the_users_own_exception_inside_a_verb(planted):
    planted(UserCodeError("calling mine:f failed with KeyError: 'x'", "Traceback ...\nKeyError: 'x'\n"))
    result = call(*STEPS)
    assert result.exit_code == 1
    assert result.stderr == "Traceback ...\nKeyError: 'x'\nError: calling mine:f failed with KeyError: 'x'\n"


def test_what_the_lab_cannot_do_has_its_own_sentence(elsewhere, monkeypatch):
    def raises(*args: object) -> None:
        raise LabError("cannot write to the store")

    (elsewhere / "some.db").write_text("")
    monkeypatch.setattr("nqm.lab.results.Results.open", raises)
    assert told(call("lab", "status", "some.db"), status=1) == "Error: cannot write to the store"
    monkeypatch.setattr("nqm.lab.results.Results.open", lambda *args: {}["gone"])
    assert "this is a bug in nqm, KeyError" in told(call("lab", "status", "some.db"), status=1)


def compiled_code(*args: object, **kwargs: object) -> None:
    """What numba's dispatcher does to Ctrl-C."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        raise SystemError("returned a result with an exception set") from error


def plain_code(*args: object, **kwargs: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("interrupted", [plain_code, compiled_code])
def test_an_interrupt_is_a_line_and_status_130(interrupted, monkeypatch):
    monkeypatch.setattr("nqm.search.steps_to_target", interrupted)
    result = call(*STEPS)
    assert result.exit_code == 130
    assert one_line(result) == "Error: interrupted"


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize(("module", "said"), [("numpy", ""), ("numba", "\nError: interrupted\n")])
def test_an_interrupt_while_modules_are_imported_has_no_traceback(module, said, elsewhere):
    """A module of that name sends Ctrl-C when it is imported: before the program can say anything, or by a verb."""
    (elsewhere / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(elsewhere)])}
    command = [sys.executable, "-m", "nqm", *map(str, STEPS)]
    found = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    assert (found.stdout, found.stderr) == ("", said)
    assert found.returncode in (130, -signal.SIGINT)  # A shell says 130 for both.


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_an_interrupt_of_another_program_that_imports_nqm_is_its_own(elsewhere):
    (elsewhere / "numpy.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n")
    (elsewhere / "mine.py").write_text("try:\n    import nqm\nexcept KeyboardInterrupt:\n    print('mine')\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(elsewhere)])}
    found = subprocess.run(
        [sys.executable, "mine.py", "-m", "nqm"], capture_output=True, text=True, env=env, timeout=60
    )
    assert (found.stdout, found.stderr) == ("mine\n", "")


@pytest.mark.parametrize(("missing", "args"), [("torch", ("fit", "digits")), ("uvicorn", ("serve", "--no-open"))])
def test_a_missing_extra_says_what_to_install(missing, args, monkeypatch):
    real = builtins.__import__

    def without(name: str, *rest: object, **named: object) -> object:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **named)  # type: ignore[arg-type]

    for name in [n for n in sys.modules if n.startswith(("nqm.nets.", "nqm.web."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    line = told(call(*args), status=1)
    assert f"this needs {missing}, which cannot be imported" in line
    assert "pip install 'nqm[" in line


def test_an_input_file_that_is_missing_or_a_folder(elsewhere):
    (elsewhere / "folder.json").mkdir()
    assert "nowhere.json" in told(call("predict", "nowhere.json", "SGD(0.1)", "-b", 8, "--steps", 5))
    assert "is a directory" in told(call("predict", "folder.json", "SGD(0.1)", "-b", 8, "--steps", 5))
    assert "folder.json" in told(call("spectrum", "folder.json"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_device_is_one_line():
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "nqm", "spectrum", "power_law(16000)", "--csv", "-"]
    with open("/dev/full", "w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=env, timeout=60)
    assert found.returncode == 1
    assert found.stderr == "Error: the device is full, and standard output could not be written\n"


def test_what_an_own_optimizer_raises_when_it_is_run_is_the_users(elsewhere: Path) -> None:
    (elsewhere / "raising.py").write_text(
        "from nqm import SGD, Wrong\n"
        "class Raises(SGD):\n"
        "    def system(self, h, t):\n"
        "        return {}['matrix']\n"
        "class Refuses(SGD):\n"
        "    def system(self, h, t):\n"
        "        raise Wrong('it takes no curvature', argument='h')\n"
    )
    result = call("steps", "raising:Raises(0.1)", "-b", 8, "--target", 0.1)
    assert result.exit_code == 1
    assert "return {}['matrix']" in result.stderr
    assert result.stderr.strip().splitlines()[-1] == (
        "Error: your code failed with KeyError: 'matrix' (raising.py, line 4)"
    )
    assert told(call("steps", "raising:Refuses(0.1)", "-b", 8, "--target", 0.1)) == "Error: it takes no curvature"


DOCUMENTED = {
    "there is an answer": (STEPS, 0),
    "there is no answer": (("steps", "SGD(3)", "-b", 8, "--target", 0.1), 1),
    "the machine failed": (MemoryError(), 1),
    "standard output was closed": (OSError(errno.EBADF, "Bad file descriptor"), 1),
    "a package is not installed": (ModuleNotFoundError("No module named 'torch'", name="torch"), 1),
    "your own code raised": (UserCodeError("f failed", "Traceback ...\n"), 1),
    "nqm has a bug": (KeyError("lr"), 1),
    "the call was wrong": (Wrong("it does not fit"), 2),
    "Ctrl-C interrupted it": (KeyboardInterrupt(), 130),
    "the program that read the output": (ReaderGone(), 141),
}
"""How each row of the table of exit statuses in docs/cli.md begins, what brings it about, and the status it promises."""


def test_the_table_of_exit_statuses_is_true(planted):
    table = (ROOT / "docs" / "cli.md").read_text().split("| status | meaning |\n|---|---|\n")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in table.splitlines()]
    assert len(rows) == len(DOCUMENTED)
    for (status, meaning), (beginning, (cause, expected)) in zip(rows, DOCUMENTED.items(), strict=True):
        assert meaning.startswith(beginning)
        if isinstance(cause, BaseException):
            planted(cause)
        result = call(*(cause if isinstance(cause, tuple) else STEPS))
        assert result.exit_code == expected == int(status), (meaning, result.output)


def test_a_port_that_is_taken_and_a_missing_file_are_what_the_table_says(elsewhere):
    pytest.importorskip("uvicorn")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1, port {port}" in told(call("serve", "--no-open", "--port", port), status=1)
    assert "does not exist" in told(call("predict", "gone.json", "SGD(0.1)", "-b", 8, "--steps", 5), status=2)
    assert "no spectrum file 'gone.csv'" in told(call("spectrum", "gone.csv"), status=2)


def test_a_file_on_a_full_device_is_named():
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    result = call("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", "/dev/full")
    assert result.exit_code == 1
    assert "ran to step 5" in result.stdout  # The answer is not lost.
    assert one_line(result) == "Error: the device is full, and '/dev/full' could not be written"
