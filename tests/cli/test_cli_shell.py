"""The command line in a shell, and the page about it."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys

import click
import pytest
from cli.shell import BROKEN, ROOT, SMALL, call, told_without_output

import nqm
from nqm.cli import main
from nqm.cli.options import verbs
from nqm.text.objects import KNOWN_OPTIMIZERS, KNOWN_SCHEDULES, KNOWN_SPECTRA

pytestmark = pytest.mark.usefixtures("elsewhere")

# In a shell.


def shell(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path, **env},
    )


@pytest.mark.parametrize("args", [["--help"], [], ["sweep", "--help"], ["--version"], ["tune", "SGD(", "-b", "3"]])
def test_help_and_wrong_calls_import_nothing_heavy(args):
    heavy = ("scipy", "matplotlib", "numba", "torch", "rich")
    code = (
        "import sys\nfrom nqm.cli import main\n"
        f"try:\n    main({args!r}, prog_name='nqm')\nexcept SystemExit:\n    pass\n"
        f"found = [m for m in {heavy!r} if m in sys.modules]\nassert not found, found\nsys.stderr.write('clean')"
    )
    assert shell("-c", code).stderr.endswith("clean")


def test_the_module_is_the_command():
    assert shell("-m", "nqm", "--version").stdout == f"nqm {nqm.__version__}\n"


@pytest.mark.slow
def test_a_pipe_gets_plain_text_in_full_however_narrow():
    args = ("-m", "nqm", "sweep", "SGD", "HeavyBall", "--target", "0.1", "--batch-sizes", "4,64", "--spectrum", SMALL)
    narrow, wide = shell(*args, COLUMNS="20"), shell(*args, COLUMNS="300")
    assert narrow.returncode == 0, narrow.stderr
    assert narrow.stdout == wide.stdout
    assert "\x1b" not in narrow.stdout
    assert "…" not in narrow.stdout
    assert narrow.stdout.isascii()
    assert wide.stderr == ""  # Progress is for terminals, and the first call has compiled the loops.
    assert not re.search(r" $", narrow.stdout, re.MULTILINE)


@pytest.mark.slow
def test_compiling_is_announced_on_standard_error(tmp_path):
    pytest.importorskip("numba")
    args = ("-m", "nqm", "steps", "SGD(0.1)", "-b", "64", "--target", "0.1", "--spectrum", "Spectrum([1])", "--json")
    first, second = (shell(*args, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    (line,) = first.stderr.splitlines()
    assert line.startswith("nqm is compiling its inner loops")
    assert second.stderr == ""  # The second call finds the loops in the cache.
    assert first.stdout == second.stdout


def test_compiling_is_announced_once_and_only_for_own_loops(caplog):
    numba, events = pytest.importorskip("numba"), pytest.importorskip("numba.core.event")
    from nqm.engine.kernels import compiling, pairs

    notice = compiling.CompileNotice()
    said = []
    for function in (numba.njit(shell), pairs.square_pairs, pairs.move_pairs):
        notice.on_start(events.Event("numba:compile", events.EventStatus.START, {"dispatcher": function}))
        said.append(len(caplog.records))
    assert said == [0, 1, 1]


LONG = ["spectrum", "power_law(16000)", "--csv", "-"]
TABLES = ["curve", "SGD(0.1)", "-b", "8", "--steps", "1000", "--points", "1000", "--csv", "-"]


@pytest.mark.skipif(os.name != "posix", reason="pipes are those of POSIX")
@pytest.mark.parametrize(
    ("args", "buffered", "both"),
    [(LONG, "", False), (LONG, "1", False), (LONG, "", True), (["--help"], "", False), (["claims", "--list"], "1", False),
     (TABLES, "", True), (["steps", "SGD(", "-b", "8"], "", True), (["steps", "SGD(", "-b", "8"], "1", True)],
)  # fmt: skip
def test_a_pipe_that_closes_is_silent(args, buffered, both):
    command = [sys.executable, "-m", "nqm", *args]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": buffered}
    errors = subprocess.STDOUT if both else subprocess.PIPE
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env) as process:
        assert process.stdout is not None
        process.stdout.close()
        said = "" if process.stderr is None else process.stderr.read()
        wrong = args[0] == "steps"
        assert process.wait(60) == (2 if wrong else 141)
        assert said == "" or wrong


@pytest.mark.skipif(os.name != "posix", reason="the shell is that of POSIX")
@pytest.mark.parametrize(
    "verb", ["sweep SGD HeavyBall --target 0.1 --batch-sizes 4,64", "curve 'SGD(0.1)' -b 8 --steps 9"]
)
def test_head_takes_a_line_and_nothing_else_is_said(verb):
    line = f'"$0" -m nqm {verb} --spectrum "{SMALL}" | head -1'
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, timeout=120, env=env)
    assert (found.returncode, len(found.stdout.splitlines())) == (0, 1)
    assert found.stderr == ""


def test_a_pipe_that_breaks_elsewhere_is_told(monkeypatch):
    """Such as the pipe to a process that shares the work."""

    def breaks(*args: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("nqm.search.steps_to_target", breaks)
    result = call("steps", "SGD(0.1)", "-b", 64, "--target", 1)
    assert (result.exit_code, result.stderr) == (1, "Error: the system refused: Broken pipe\n")


@pytest.mark.skipif(os.name != "posix", reason="the shell is that of POSIX")
def test_an_output_that_was_closed_from_the_beginning_is_one_line():
    found = subprocess.run(
        ["sh", "-c", '"$0" -m nqm spectrum >&-', sys.executable], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "Error: standard output is closed, and not everything could be printed\n"


CHEAP = {
    "curve": ("SGD(0.1)", "-b", 8, "--steps", 5), "steps": ("SGD(0.1)", "-b", 64, "--target", 1),
    "tune": ("SGD", "-b", 64, "--target", 1), "schedule": ("SGD", "-b", 64, "--steps", 20, "--pieces", 2),
    "sweep": ("SGD", "--target", 1, "--batch-sizes", "16,64"),
    "map": ("SGD", "--target", 1, "--x", "lr=0.1..1..2", "--y", "batch_size=4..64..2"), "spectrum": (),
}  # fmt: skip


@pytest.mark.parametrize("number", BROKEN)
@pytest.mark.parametrize("verb", CHEAP)
def test_what_cannot_be_printed_is_told(verb, number, capfd):
    for more in ((), ("--json",)):
        args = (verb, *CHEAP[verb], "--spectrum", SMALL, *more)
        assert BROKEN[number] in told_without_output(args, number, capfd)


@pytest.mark.parametrize("number", BROKEN)
@pytest.mark.parametrize("args", [[], ["--help"], ["--version"], *([*verb.split(), "--help"] for verb in verbs(main))])
def test_help_that_cannot_be_printed_is_told(args, number, capfd):
    assert BROKEN[number] in told_without_output(args, number, capfd)


@pytest.mark.parametrize("shell_name", ["zsh", "fish"])
def test_completion_script(shell_name):
    found = shell("-m", "nqm", _NQM_COMPLETE=f"{shell_name}_source")
    assert "_NQM_COMPLETE" in found.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("nqm sw", "sweep"),
        ("nqm tune hea", "HeavyBall"),
        ("nqm tune SGD --ta", "--target"),
        ("nqm steps SGD --until s", "settled"),
    ],
)
def test_completion(words, expected):
    last = str(len(words.split()) - 1)
    found = shell("-m", "nqm", _NQM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=last)
    assert f"plain,{expected}" in found.stdout.splitlines()


# The page about it.


def page(name: str = "generate"):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_not_drifted(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    module = page()
    for path, made in ((ROOT / "docs" / "cli.md", module.page), (ROOT / "docs" / "results.md", module.results_page)):
        assert path.read_text() == made(), "run python docs/generate.py"


def test_the_page_names_every_verb_option_and_constructor():
    text = (ROOT / "docs" / "cli.md").read_text()
    for verb, command in verbs(main).items():
        section = text.split(f"## nqm {verb}\n")[1].split("\n## ")[0]
        for option in command.params:
            if isinstance(option, click.Option):
                assert all(f"`{flag}`" in section for flag in option.opts)
    for name in (*KNOWN_OPTIMIZERS, *KNOWN_SCHEDULES, *KNOWN_SPECTRA):
        assert f"| `{name}` |" in text


def test_nothing_of_the_help_renders_as_code():
    prose = re.sub(r"```.*?```", "", (ROOT / "docs" / "cli.md").read_text(), flags=re.DOTALL)
    indented = [line for line in prose.splitlines() if line.startswith(("    ", "\t"))]
    assert len(indented) == len(verbs(main))
    assert all(line.startswith("    nqm ") for line in indented)  # how each verb is called


@pytest.mark.slow
def test_the_check_fails_on_drift(tmp_path):
    script = tmp_path / "generate.py"
    for file in [*(ROOT / "docs").glob("*.py"), *(ROOT / "docs").glob("*.md")]:
        if file.name != "cli.md":  # This page is missing, which is a drift.
            shutil.copy(file, tmp_path)
    for name in ("checks", "results"):
        shutil.copytree(ROOT / "docs" / name, tmp_path / name)
    assert shell(str(script), "--check").returncode == 1
    assert shell(str(script)).returncode == 0
    assert shell(str(script), "--check").returncode == 0
    for name in ("cli.md", "nets.md", "results.md", "forecast.md"):
        kept = (tmp_path / name).read_text()
        (tmp_path / name).write_text(kept.replace("steps", "step").replace("perfect scaling", "scaling"))
        assert f"{name} has drifted" in shell(str(script), "--check").stderr
        (tmp_path / name).write_text(kept)
