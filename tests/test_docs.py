"""The documentation runs, names everything, links to what exists, and its tables are what the library computes."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checks_prose import CHECKS_NUMBERS
from click.testing import CliRunner
from prose import NUMBERS, Prose
from results_prose import RESULTS_NUMBERS

import nqm
from nqm.cli import main
from nqm.cli.options import verbs
from nqm.problems.bounds import bayes_bound
from nqm.text.objects import parse_optimizer

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
HEAD = re.compile(r"^# (\w+\.py)\n")  # a block that starts so is a file of its own
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[tuple[int, str, str]]:
    """(line, language, text) of the page's fenced blocks in these languages."""
    text = page.read_text()
    found = [(text.count("\n", 0, m.start()) + 2, m[1], m[2]) for m in FENCE.finditer(text)]
    return [block for block in found if block[1] in languages]


def code(page: Path) -> str:
    """What the page sets as code, in blocks or inline."""
    text = page.read_text()
    fenced = "\n".join(m[2] for m in FENCE.finditer(text))
    return fenced + "\n" + "\n".join(re.findall(r"`([^`\n]+)`", FENCE.sub("", text)))


def has_name(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def run_python(page: Path, folder: Path) -> None:
    """Run the page's Python blocks in order in one namespace; prompts are checked as doctests."""
    space: dict[str, Any] = {"__name__": "page"}
    for line, _, text in blocks(page, "python"):
        where = f"{name_of(page)}:{line}"
        if head := HEAD.match(text):
            (folder / head[1]).write_text(text)
        if ">>>" in text:
            case = doctest.DocTestParser().get_doctest(text, space, where, str(page), line - 1)
            report: list[str] = []
            doctest.DocTestRunner(optionflags=FLAGS).run(case, out=report.append, clear_globs=False)
            assert not report, f"{where}\n" + "".join(report)
            space.update(case.globs)
        else:
            exec(compile(text, where, "exec", dont_inherit=True), space)


def run_shell(page: Path) -> None:
    """Run the page's nqm commands."""
    for line, _, text in blocks(page, "sh"):
        for command in text.splitlines():
            if not command.startswith("nqm"):
                continue
            done = CliRunner().invoke(main, shlex.split(command, comments=True)[1:], catch_exceptions=False)
            assert done.exit_code == 0, f"{name_of(page)}:{line}: {command}\n{done.output}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, in which modules written by a page can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for module in tmp_path.glob("*.py"):
        sys.modules.pop(module.stem, None)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name_of)
def test_python_and_commands_run(page: Path, folder: Path) -> None:
    if page.name in ("nets.md", "monitor.md", "lab-training.md", "your-model.md"):
        pytest.importorskip("torch")
    if page.name == "your-model.md":
        pytest.importorskip("transformers")
        pytest.importorskip("lightning")
    run_python(page, folder)
    if page.name not in ("cli.md", "choose.md"):  # those have tests of their own
        run_shell(page)


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example prints what it found"
    for picture in re.findall(r"\w+\.png", script.read_text()):
        assert (tmp_path / picture).stat().st_size > 5000, picture


def test_every_public_name_is_documented() -> None:
    text = "\n".join(code(page) for page in DOCS)
    missing = [name for name in nqm.__all__ if not has_name(text, name)]
    assert not missing, f"add to docs/: {', '.join(missing)}"


def test_every_verb_and_option_is_documented() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    wanted = [f"nqm {verb}" for verb in verbs(main)]
    wanted += [o for command in verbs(main).values() for p in command.params for o in p.opts if o.startswith("-")]
    missing = [name for name in wanted if not has_name(text, name)]
    assert not missing, f"run docs/generate.py; docs/cli.md lacks {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_have_a_verb_and_options_that_exist(page: Path) -> None:
    """Commands inside sentences and tables too, which nothing runs."""
    known = verbs(main)
    for command in re.findall(r"^(?:\$ )?nqm [a-z].*$", code(page), re.M):
        words = [word.split("=")[0] for word in command.removeprefix("$ ").split()]
        verb = next((name for name in (" ".join(words[1:3]), words[1]) if name in known), None)
        if verb is None:
            assert words[1] in main.commands, f"{name_of(page)}: no such verb in {command!r}"
            continue
        options = {option for parameter in known[verb].params for option in (*parameter.opts, "--help")}
        wrong = [word for word in words if re.match(r"--[a-z]", word) and word not in options]
        assert not wrong, f"{name_of(page)}: {command!r} has {wrong[0]}, which nqm {verb} does not"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{name_of(page)} links to {target}, which is no heading"


def anchors(page: Path) -> set[str]:
    """Headings as GitHub turns them into anchors."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_changelog_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[{re.escape(nqm.__version__)}\] - \d{{4}}-\d\d-\d\d$", text, re.M)
    assert f'version = "{nqm.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {nqm.__version__}" in (ROOT / "CITATION.cff").read_text()


CHOOSE = ROOT / "docs" / "choose.md"
BATCH_SIZES = [4**k for k in range(1, 11)]
CLOSE = 0.01  # of the page's numbers: searches are good to 0.1% in steps, critical batch sizes amplify that


def table(after: str) -> dict[str, list[float]]:
    """The rows of the first table after a line of the choose page: their first cell, and the numbers in the others."""
    text = CHOOSE.read_text()
    start = text.index("\n|", text.index(after)) + 1
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in text[start:].split("\n\n")[0].splitlines()
    ]
    return {name: [float(cell.replace(",", "") or "nan") for cell in cells] for name, *cells in rows[2:]}


def close(here: float, there: float) -> bool:
    """Within 1%, or within one step: steps are whole."""
    return abs(here - there) <= max(1.0 if there > 2 else 0.0, CLOSE * there)


PROBLEM = nqm.Quadratic(nqm.Spectrum.power_law(10_000))
TUNED = {name: cells for name, cells in table("## Steps to the target").items() if "bound" not in name}
WHOLE = ("SGD", "Preconditioned(SGD, 0.5)")  # quick enough for every batch size


@pytest.mark.parametrize("name", WHOLE)
def test_sweeps_on_the_choose_page(name: str) -> None:
    found = nqm.sweep(PROBLEM, parse_optimizer(name), BATCH_SIZES, target=0.01)
    for B, here, shown in zip(BATCH_SIZES, found.steps, TUNED[name], strict=True):
        assert close(here, shown), f"{name} at B = {B}: {here:g}, the page says {shown:g}"
    by: list[Any] = [found.critical_batch_size(d) for d in ("2x", "20%", "ratio")]
    by += [found.smallest_steps, found.examples.min()]
    for here, shown in zip(by, table("## How large a batch pays")[name], strict=True):
        assert close(here, shown), f"{name}: {here:g}, the page says {shown:g}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TUNED if name not in WHOLE])
def test_tuned_steps_on_the_choose_page(name: str) -> None:
    for B in [2**14] if "Polyak" in name else [2**6, 2**14]:  # a tail average is a run of its own at each horizon
        here, shown = nqm.tune(PROBLEM, parse_optimizer(name), B, 0.01).steps, TUNED[name][BATCH_SIZES.index(B)]
        assert here is not None
        assert close(here, shown), f"{name} at B = {B}: {here}, the page says {shown:g}"


def test_other_numbers_on_the_choose_page() -> None:
    bound = table("## Steps to the target")["Bayes bound, any method"]
    for B, shown in zip(BATCH_SIZES, bound, strict=True):
        assert abs(bayes_bound(PROBLEM.spectrum, 0.01, B) - shown) < 1
    shown = table("## An average or a schedule")["SGD, best 10-piece schedule"][2]
    assert close(nqm.optimal_schedule(PROBLEM, nqm.SGD(), 64, 0.01, pieces=10).steps, shown)
    rows = table("## A budget of examples")
    for optimizer in (nqm.SGD(), nqm.EMA(nqm.SGD())):
        name = str(optimizer).replace("SGD()", "SGD")
        assert close(nqm.tune(PROBLEM, optimizer, 64, examples=1e6).loss, rows[name][1])


def parse(command: str) -> None:
    """Let the verb of a command read its arguments; wrong ones raise."""
    verb, *arguments = shlex.split(command, comments=True)[1:]
    main.commands[verb].make_context(verb, list(arguments))


def test_commands_on_the_choose_page_are_valid(folder: Path) -> None:
    """Every command there parses; the tables themselves are checked above."""
    (folder / "digits.json").touch()  # which the first command of a section writes
    for _, _, text in blocks(CHOOSE, "sh"):
        for command in (line for line in text.splitlines() if line.startswith("nqm")):
            parse(command)


def test_commands_of_the_questions_are_valid(folder: Path) -> None:
    """Those of the table on the start page, but for the ones that need a study or a class of the reader's own."""
    for name in ("digits.json", "run.jsonl"):
        (folder / name).touch()
    questions = (ROOT / "docs" / "start.md").read_text().split("## Which question do you have?")[1].split("\n## ")[0]
    commands = re.findall(r"`(nqm \w+ [^`]+)`", questions)
    assert len(commands) > 10
    for command in commands:
        if not re.search(r"mine:|nqm lab", command):
            parse(command)


@pytest.mark.parametrize(
    "prose",
    [
        pytest.param(one, id=f"{one.page}: {one.sentence[:50]}", marks=[pytest.mark.slow] * one.slow)
        for one in (*NUMBERS, *CHECKS_NUMBERS, *RESULTS_NUMBERS)
    ],
)
def test_numbers_in_sentences(prose: Prose) -> None:
    if prose.needs:
        pytest.importorskip(prose.needs)
    prose.check()


@pytest.mark.parametrize(
    ("text", "computed", "holds"),
    [
        ("needs 6,673 steps", 6673.4, True), ("needs 6,674 steps", 6673.4, False), ("needs\n6,673 steps", 6673, True),
        ("needs 0.35 steps", 0.3534, True), ("needs 0.36 steps", 0.3534, False), ("needs some steps", 1, False),
        ("needs 1 steps, needs 2 steps", 1, False),
    ],
)  # fmt: skip
def test_a_wrong_number_in_a_sentence_is_found(text: str, computed: float, holds: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    prose = Prose(str(page), "needs {} steps", lambda: computed)
    if holds:
        prose.check()
    else:
        with pytest.raises(AssertionError, match=r"page\.md"):
            prose.check()
