"""Results read well: one line, a card in a notebook, a data frame; and the notebook among the examples runs."""

from __future__ import annotations

import builtins
import importlib.util
import json
import math
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import check_reads_well

from nqm import (
    SGD,
    Axis,
    HeavyBall,
    LeastSquares,
    Quadratic,
    Spectrum,
    Wrong,
    constant,
    cosine,
    linear,
    optimal_schedule,
    phase_map,
    step,
    steps_to_target,
    sweep,
    tune,
    warmup,
)  # fmt: skip
from nqm.engine.run import Run
from nqm.show import plot_sweeps
from nqm.show.notebook import NOTEBOOK_ROWS, card, small_table

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SPECTRUM = Spectrum.power_law(1000)
PROBLEM = Quadratic(SPECTRUM)


def test_problems() -> None:
    modes = "1,000 modes, curvature 0.001 to 1, trace 7.485, initial loss 3.743"
    check_reads_well(SPECTRUM, modes, rows=1000)
    check_reads_well(PROBLEM, modes)
    check_reads_well(LeastSquares(SPECTRUM, 0.25), modes, "label noise 0.25")
    check_reads_well(Spectrum([2.0], [1.0]), "1 mode, curvature 2 to 2", rows=1)
    wide = Spectrum.power_law(1e12)
    check_reads_well(wide, f"1e+12 modes on {len(wide):,} nodes", rows=len(wide))


def test_schedules() -> None:
    check_reads_well(constant(10), "10 steps in 1 piece: lr x 1")
    check_reads_well(warmup(100) + cosine(900), "1,000 steps in 999 pieces: lr x 0.01 -> 3.046e-06")
    check_reads_well(step(900, 2.0, at=[300, 600]).on("batch_size"), "900 steps in 3 pieces: batch_size x 1 -> 4")
    both = linear(4) & step(4, 0.5, at=[2]).on("momentum")
    check_reads_well(both, "4 steps in 4 pieces: lr x 1 -> 0.25, momentum x 1 -> 0.5")


@pytest.mark.slow
def test_a_run_says_where_it_went() -> None:
    run = PROBLEM.run(HeavyBall(0.1, 0.9), 64, 1000)
    first, last = f"{run.loss[0]:.4g}", f"{run.loss[-1]:.4g}"
    said = f"Run(HeavyBall(lr=0.1, momentum=0.9), batch_size=64, 1,000 steps: loss {first} -> {last}, finished)"
    check_reads_well(run, said, rows=len(run.steps), pictures=1)
    assert list(run.table()[0]) == ["steps", "loss", "signal", "noise", "noise_scale", "curvature_noise_scale"]
    check_reads_well(PROBLEM.run(SGD(1.0), math.inf, 10), "batch_size=inf", rows=11, pictures=1)


def test_a_run_that_diverges_says_why() -> None:
    run = PROBLEM.run(SGD(3.0), 64, 20)
    html = check_reads_well(run, ", diverged)", rows=21, pictures=1)
    assert "diverges: the spectral radius is 2 at curvature 1; lower the learning rate below 2" in html


def test_a_sampled_run_says_so() -> None:
    run = PROBLEM.sample(SGD(1.0), 64, 20, replicas=10)
    check_reads_well(run, "mean of 10 replicas", rows=21, pictures=1)
    assert list(run.table()[0])[:3] == ["steps", "loss", "stderr"]


def test_a_run_without_bands_is_drawn() -> None:
    """The run of a network's prediction knows no modes of its own."""
    run = PROBLEM.run(SGD(1.0), 64, 20)
    names = ("band_edges", "band_signal", "band_noise", "noise_scale", "curvature_noise_scale")
    bare = replace(run, **dict.fromkeys(names))
    check_reads_well(bare, "finished", rows=21, pictures=1)
    assert [len(r.plot().axes) for r in (run, bare)] == [2, 1]


def test_answers() -> None:
    check_reads_well(steps_to_target(PROBLEM, SGD(1.0), 2**20, 0.1), "Hit(reached 0.1 at step ")
    check_reads_well(steps_to_target(PROBLEM, SGD(1.0), 4, 0.01), "Hit(never reaches 0.01: ", "lower the learning rate")
    html = check_reads_well(tune(PROBLEM, SGD(), 1024, 0.1), "Tuned(SGD(lr=", "batch_size=1,024: reached 0.1 at step ")
    assert html.count("<tr>") <= NOTEBOOK_ROWS
    found = optimal_schedule(PROBLEM, SGD(), 64, 0.1, pieces=3)
    said = f"reached 0.1 at step {found.steps:,} with 3 pieces"
    check_reads_well(found, said, rows=len(found.schedule.lengths), pictures=1)


def test_a_sweep_says_its_critical_batch_size() -> None:
    found = sweep(PROBLEM, SGD(), [2**k for k in range(4, 16, 2)], target=0.1)
    steps = [f"{found.steps[i]:,.0f}" for i in (0, -1)]
    critical = f"critical batch size {float(f'{found.critical_batch_size():.3g}'):g}"
    said = f"SGD() to loss 0.1, batch sizes 16 to 16,384: {steps[0]} -> {steps[1]} steps, {critical}"
    check_reads_well(found, said, rows=len(found.table()), pictures=1)


@pytest.mark.slow
def test_a_sweep_says_what_it_missed_and_why() -> None:
    found = sweep(PROBLEM, SGD(lr=1.0), [4, 2**20], target=0.1, most_added=0)
    html = check_reads_well(found, "1 of 2 did not reach it", rows=2, pictures=1)
    assert html.count("never reaches 0.1: the steady-state loss at batch size 4") == 1
    none = sweep(PROBLEM, SGD(lr=1.0), [4], target=0.1)
    check_reads_well(none, "batch sizes 4 to 4: none reached it", rows=1, pictures=1)


@pytest.mark.slow
def test_a_map_says_its_best_cell() -> None:
    axes = Axis("lr", 0.01, 1, 4), Axis("momentum", 0, 0.9, 5)
    found = phase_map(PROBLEM, HeavyBall(), *axes, target=0.1, batch_size=1024)
    best = found.best()
    assert best is not None
    said = f"4 lr x 5 momentum to loss 0.1: fewest steps {best['steps']:,} at {best['optimizer']}"
    check_reads_well(found, said, rows=20, pictures=1)
    axes = Axis("lr", 10, 20, 2), Axis("momentum", 0, 0.1, 2)
    check_reads_well(
        phase_map(PROBLEM, HeavyBall(), *axes, target=0.1, batch_size=4), "no cell reaches it", rows=4, pictures=1
    )


def test_what_a_user_wrote_is_escaped() -> None:
    run = replace(PROBLEM.run(SGD(3.0), 64, 2), message="<script>alert(1)</script>")
    html = card(run)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<b>" not in small_table([{"<b>": "<b>"}])[0]


def test_columns_without_a_value_are_omitted() -> None:
    shown = small_table([{"a": 1, "b": None, "message": "reached"}, {"a": 0, "b": ""}])[0]
    assert "<th>a</th>" in shown
    assert "<th>b</th>" not in shown
    assert "reached" not in shown
    assert "<td>0</td>" in shown


def test_a_figure_shows_itself_in_a_notebook() -> None:
    """Pictures are made without pyplot, so a notebook would print their address."""
    figure: Any = plot_sweeps(sweep(PROBLEM, SGD(), [16, 64], target=0.1))
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert pickle.loads(pickle.dumps(figure))._repr_png_().startswith(b"\x89PNG")


def test_results_are_still_sent_between_processes() -> None:
    run = PROBLEM.run(SGD(1.0), 64, 20)
    again: Run = pickle.loads(pickle.dumps(run))
    assert repr(again) == repr(run)
    assert np.array_equal(again.loss, run.loss)


def test_pandas_has_the_types_of_the_numbers() -> None:
    pytest.importorskip("pandas")
    found = sweep(PROBLEM, SGD(lr=1.0), [4, 2**20], target=0.1, most_added=0).to_pandas()
    assert found["batch_size"].dtype == np.int64
    assert found["lr"].dtype == float
    assert np.isnan(found["steps"][0])
    assert found["steps"][1] == steps_to_target(PROBLEM, SGD(1.0), 2**20, 0.1).steps


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    true = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return true(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(Wrong, match="to_pandas needs pandas: pip install pandas, "):
        SPECTRUM.to_pandas()


# The notebook among the examples.


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def notebooks() -> Any:
    """The module that runs notebooks and stores their outputs."""
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_pictures(output: dict[str, Any]) -> dict[str, Any]:
    """The output of a cell as text: pictures depend on the version of matplotlib, and are only there or not."""
    data = {kind: "".join(text) for kind, text in output["data"].items()}
    data |= {kind: "a picture" for kind in data if kind == "image/png"}
    return {kind: re.sub(r'base64,[^"]*', "base64,a picture", text) for kind, text in data.items()}


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_well_formed_and_has_its_outputs(path: Path) -> None:
    book = json.loads(path.read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in book["cells"]]
    assert len(set(names)) == len(names)
    for cell in book["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        assert isinstance(cell["metadata"], dict)
        assert all(isinstance(line, str) for line in cell["source"])
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        (output,) = cell["outputs"]  # Every cell ends with what it found.
        assert output["output_type"] == "execute_result"
        for text in without_pictures(output).values():
            assert "/" + "home" not in text
            assert "Error" not in text


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_its_cells_give(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    again = [cell for cell in notebooks().executed(path)["cells"] if cell["cell_type"] == "code"]
    told = [[without_pictures(output) for output in cell["outputs"]] for cell in again]
    kept = [[without_pictures(output) for output in cell["outputs"]] for cell in code_cells(path)]
    assert kept == told, "run python docs/notebooks.py"
    html = [output["text/html"] for (output,) in told if "text/html" in output]
    assert sum("<table>" in text for text in html) >= 3
    assert sum("data:image/png;base64," in text for text in html) >= 3
    assert any("image/png" in output for (output,) in told)
    assert not list(tmp_path.iterdir())


def test_the_notebook_says_what_is_true() -> None:
    """Its sentences: the marks lie in the order of the picture, and the schedule saves most of the steps."""
    space: dict[str, Any] = {}
    for cell in code_cells(ROOT / "examples" / "05_notebook.ipynb"):
        notebooks().run_cell("".join(cell["source"]), space)
    assert 64 < space["critical"]["SGD()"] < space["critical"]["HeavyBall()"]
    assert space["best"].steps < 0.25 * space["constant"]
    lr = space["best"].schedule.lr
    assert np.all(np.diff(lr) < 1e-3)  # The first pieces may both be at the bound.
    assert lr[-1] < 0.05 * lr[0]
