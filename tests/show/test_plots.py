"""Pictures: what they show, that nothing is cut off, that files are written or refused, that bytes repeat."""

import inspect
import io
import itertools
import math
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

import nqm
import nqm.show
from nqm import (
    EMA,
    SGD,
    Axis,
    HeavyBall,
    Outcome,
    Preconditioned,
    Quadratic,
    Schedule,
    Scheduled,
    Spectrum,
    Wrong,
    cosine,
    optimal_schedule,
    phase_map,
    sweep,
)  # fmt: skip
from nqm.cli.output import show_sweeps
from nqm.logs import forecast, read_logs
from nqm.problems.bounds import bayes_bound, paper_bound
from nqm.search.sweeps import Sweep
from nqm.show.chart import Line, Panel, chart, save
from nqm.show.numbers import rounded, shown
from nqm.show.plots import plot_lr, plot_run, plot_schedule, plot_sweeps

SMALL = Quadratic(Spectrum.power_law(40))
SIZES = [1, 4, 16, 64, 256, 1024]


@pytest.fixture(scope="module")
def sweeps():
    return [sweep(SMALL, optimizer, SIZES, target=0.02) for optimizer in (SGD(), Preconditioned(SGD(), 0.5))]


def drawn(figure, panel=0):
    """Points of the lines on a panel."""
    return [np.array(line.get_xydata()) for line in figure.axes[panel].get_lines()]


def shows(figure, points, panel=0):
    """Whether some line on the panel is exactly these points."""
    points = np.asarray(points, dtype=float)
    return any(line.shape == points.shape and np.allclose(line, points, rtol=1e-12) for line in drawn(figure, panel))


def check_print(figure):
    """Every word is at least 8 points high, every axis has a name, and nothing lies outside the page."""
    figure.canvas.draw()
    for text in figure.findobj(Text):
        assert not text.get_text() or text.get_fontsize() >= 8, text
    assert all(axes.get_xlabel() for axes in figure.axes)
    assert figure.axes[0].get_ylabel()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0


def test_a_run_shows_loss_signal_noise_and_floor():
    run = SMALL.run(EMA(HeavyBall(0.1, 0.9), 0.99), batch_size=4, steps=10_000)
    figure = run.plot()
    for values in (run.loss, run.signal, run.noise / 4, np.full(len(run.steps), run.floor)):
        assert shows(figure, np.c_[run.steps, values])
    bands = run.band_signal + run.band_noise / 4
    assert all(shows(figure, np.c_[run.steps, band], panel=1) for band in bands if band.any())
    assert np.allclose(bands.sum(0), run.loss)  # so the second panel is the first one taken apart
    check_print(figure)


@pytest.mark.parametrize(
    ("optimizer", "batch_size", "steps"),
    [
        (SGD(2.5), 4, 2000),  # diverges past the largest number
        (SGD(0.1), math.inf, 100),  # no noise
        (SGD(0.1), 4, 0),
        (SGD(0.1), 4, [7]),
        (SGD(1.0), 1, [0, 1]),
    ],
)
def test_odd_runs_are_drawn_too(optimizer, batch_size, steps):
    check_print(plot_run(SMALL.run(optimizer, batch_size, steps)))


def test_a_sweep_shows_its_bounds_and_critical_batch_size(sweeps):
    figure = plot_sweeps(sweeps)
    spectrum, target = SMALL.spectrum, 0.02
    for found in sweeps:
        assert shows(figure, np.c_[found.batch_sizes, found.steps])
        # The mark lies where the curve is at twice the steps of perfect scaling.
        critical = found.critical_batch_size()
        marks = [line for line in drawn(figure) if len(line) == 1 and line[0, 0] == critical]
        assert marks[0][0, 1] == pytest.approx(2 * found.bend.fewest / critical, rel=0.01)
        assert inside(figure, found.bend.fewest)
    assert inside(figure, bayes_bound(spectrum, target, 1.0))
    assert not figure.legends
    assert figure.axes[0].get_legend() is None
    names = {text.get_text(): text for text in figure.axes[0].texts}
    assert {"SGD", "Preconditioned(SGD, power=0.5)", "lower bound (Bayes)", "perfect scaling"} < set(names)
    sizes = sorted((found.critical_batch_size() for found in sweeps), reverse=True)
    assert [f"{shown(rounded(size))}" in names for size in sizes] == [True, True]
    headline = figure.axes[0].get_title().replace("\n", " ")
    assert headline.startswith(
        f"Preconditioned(SGD, power=0.5) scales to batch size {shown(rounded(sizes[0]))}, SGD to "
    )
    check_print(figure)


def inside(figure, examples):
    """Whether the line steps = examples / B is drawn, and cut at the lower edge of the picture and not before."""
    bottom = figure.axes[0].get_ylim()[0]
    on = [line for line in drawn(figure) if len(line) > 1 and np.allclose(line[:, 0] * line[:, 1], examples, rtol=1e-9)]
    return any(line[-1, 1] == pytest.approx(bottom) or line[-1, 0] == SIZES[-1] for line in on)


@pytest.mark.parametrize("ends", [[100, 99, 98], [100, 1, 99, 98, 2], [7] * 12])
def test_names_at_the_ends_of_curves_do_not_touch(sweeps, ends):
    """Names keep the order of the curves, and a name whose curve has room stays at its curve."""
    found = [
        replace(sweeps[0], steps=np.array([end, end]), batch_sizes=np.array([1.0, 2.0])) for end in map(float, ends)
    ]
    figure = plot_sweeps(found, bounds=False)
    figure.canvas.draw()
    names = [text for text in figure.axes[0].texts if text.get_text() == "SGD"]
    assert len(names) == len(ends)
    boxes = sorted((Text.get_window_extent(text) for text in names), key=lambda box: box.y0)
    assert all(high.y0 >= low.y1 - 2 for low, high in itertools.pairwise(boxes))
    order = np.argsort([text.xy[1] for text in names], kind="stable")
    assert np.all(np.diff([Text.get_window_extent(names[i]).y0 for i in order]) > 0)
    check_print(figure)


def test_both_bounds_are_drawn_where_they_differ():
    spectrum, target = Spectrum.power_law(40), 1.5  # the start is worth much against so loose a target
    found = sweep(Quadratic(spectrum), SGD(), [1, 4, 16], target=target)
    figure = plot_sweeps([found])
    for bound in (paper_bound, bayes_bound):
        assert any(np.allclose(line[:, 0] * line[:, 1], bound(spectrum, target, 1.0)) for line in drawn(figure))
    assert len(drawn(plot_sweeps([found], bounds=False))) < len(drawn(figure))
    figure.canvas.draw()
    one, other = (Text.get_window_extent(text) for text in figure.axes[0].texts if "bound" in text.get_text())
    assert not one.overlaps(other)


def test_batch_sizes_are_ticked_at_powers_of_two(sweeps):
    axes = plot_sweeps(sweeps).axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    for axis in (axes.xaxis, axes.yaxis):
        ticks = axis.get_ticklocs()
        assert len(ticks) >= 2
        assert np.array_equal(np.log2(ticks), np.rint(np.log2(ticks)))
        assert [label.get_text() for label in axis.get_ticklabels()] == [f"$2^{{{int(np.log2(t))}}}$" for t in ticks]


def test_sweeps_with_holes_with_other_targets_and_in_great_number(sweeps):
    never = sweep(SMALL, HeavyBall(0.1, 0.9), [1, 2], target=1e-5)
    assert np.isnan(never.steps).all()
    check_print(plot_sweeps(never))
    check_print(plot_lr(never))
    check_print(plot_sweeps([sweeps[0], never]))
    check_print(plot_sweeps(sweeps * 5))
    holes = sweep(SMALL, SGD(0.1), [1, 16, 1024], target=0.02)
    assert np.isnan(holes.steps).tolist() == [True, False, False]
    check_print(plot_sweeps(holes))
    check_print(plot_sweeps(sweep(SMALL, SGD(), [64], target=0.02)))
    with pytest.raises(ValueError, match="no sweep"):
        plot_sweeps([])


@pytest.mark.slow
def test_best_rates_are_drawn_as_set_and_effective():
    found = sweep(SMALL, HeavyBall(), [16, 1024], target=0.02)
    for effective, values in ((True, found.effective_lr), (False, found.lr)):
        figure = plot_lr([found], effective=effective)
        assert shows(figure, np.c_[found.batch_sizes, values])
        check_print(figure)


@pytest.mark.slow
def test_a_schedule_is_drawn_as_stairs():
    def scheduled(schedule):
        return Scheduled(schedule, schedule.steps, 0.1, HeavyBall(0.5, 0.9), 8, Outcome.finished, "")

    figure = plot_schedule(scheduled(Schedule([10, 20, 30], [1.0, 0.5, 0.25])))
    assert shows(figure, [[0, 0.5], [10, 0.25], [30, 0.125], [60, 0.125]])
    assert figure.axes[0].get_lines()[0].get_drawstyle() == "steps-post"
    check_print(figure)
    figure = plot_schedule(scheduled(Schedule([10, 10], batch_size=[1.0, 4.0])))
    assert len(figure.axes) == 1
    assert shows(figure, [[0, 8], [10, 32], [20, 32]])
    figure = plot_schedule(scheduled(Schedule([10, 10], [1.0, 1e-3], batch_size=[1.0, 4.0])))
    assert len(figure.axes) == 2
    assert figure.axes[0].get_yscale() == "log"
    check_print(figure)
    check_print(plot_schedule(scheduled(Schedule([5]))))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "pdf", "svg", "PNG"])
def test_files_are_written_into_new_folders_and_repeat(ending, tmp_path):
    files = [tmp_path / "a" / "deep" / f"one.{ending}", tmp_path / f"two.{ending}"]
    for file in files:
        chart([Panel([Line([1, 2, 4], [4, 2, 1], "line")], "x", "y", "log2", "log")], str(file))
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert len(first) > 5000
    if ending == "png":
        image = imread(files[0])
        assert image.shape[1] == pytest.approx(5.5 * 200, abs=1)
        assert np.unique(image.reshape(-1, image.shape[2]), axis=0).shape[0] > 20  # not blank


@pytest.mark.parametrize("name", ["picture.bmp", "picture", "picture.png.txt", ""])
def test_a_bad_ending_is_refused_before_any_work(name):
    with pytest.raises(ValueError, match=r"\.png, \.pdf, \.svg"):
        plot_run(SMALL.run(SGD(0.1), 1, 10), f"some/{name}")


def test_a_folder_that_cannot_be_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    figure = chart([Panel([Line([1], [1])], "x", "y")])
    with pytest.raises(ValueError, match="cannot write the picture"):
        save(figure, tmp_path / "file" / "picture.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match="cannot write the picture"):
        save(figure, tmp_path / "folder.png")


@pytest.mark.slow
def test_the_package_stays_light_and_pyplot_stays_out():
    code = """
import sys, nqm
assert not {"matplotlib", "scipy"} & set(sys.modules)
import nqm.show.plots
assert "matplotlib" not in sys.modules
nqm.Quadratic(nqm.Spectrum([1.0])).run(nqm.SGD(0.1), 1, 10).plot()
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def words(figure):
    """Every text of a picture."""
    return " ".join(text.get_text() for text in figure.findobj(Text))


def test_a_schedule_names_its_optimizer_batch_size_and_result():
    found = Scheduled(Schedule([10, 20], [1.0, 0.01]), 30, 0.1, SGD(0.5), 2**20, Outcome.reached, "reached 0.1")
    figure = plot_schedule(found)
    for told in ("SGD(lr=0.5), batch size 1,048,576", "reached 0.1", "learning rate", "step"):
        assert told in words(figure)
    check_print(figure)
    assert "batch size as drawn" in words(
        plot_schedule(replace(found, schedule=Schedule([10, 10], batch_size=[1.0, 4.0])))
    )


@pytest.mark.parametrize(
    ("low", "high", "fewest"), [(1.0, 1.2, 3), (0.13, 0.16, 3), (1.0, 6.0, 3), (0.03, 2.0, 4), (1e-8, 1.0, 3)]
)
def test_every_logarithmic_axis_has_labels_enough(low, high, fewest):
    figure = chart([Panel([Line([1, 2, 3], [low, high, low])], "x", "y", "linear", "log")])
    figure.canvas.draw()
    axis = figure.axes[0].yaxis
    low, high = axis.get_view_interval()
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    labels = [t.label1.get_text() for t in ticks if low <= t.get_loc() <= high and t.label1.get_text()]
    assert len(labels) >= fewest, labels


def test_the_line_in_proportion_to_batch_size_ends_inside_the_picture_with_its_name():
    found = sweep(SMALL, SGD(), [16, 1024, 2**20], target=0.02)
    figure = plot_lr([found])
    axes = figure.axes[0]
    guide = next(line for line in axes.get_lines() if line.get_linestyle() == ":")
    assert axes.get_ylim()[0] < min(guide.get_ydata()) < max(guide.get_ydata()) < axes.get_ylim()[1]
    assert "proportional to B" in words(figure)


def test_one_batch_size_has_one_text_in_picture_and_table(sweeps, monkeypatch):
    monkeypatch.setattr(Sweep, "critical_batch_size", lambda self, definition="20%": 79.23)
    texts = [text.get_text() for text in plot_sweeps(sweeps).axes[0].texts]
    assert texts.count("79") == 2
    with redirect_stdout(io.StringIO()) as printed:
        show_sweeps([sweeps[0]], settings=False)
    table = printed.getvalue().partition("Regimes")[0]
    assert " 79 " in table
    assert "79.2" not in table


def test_a_map_shows_its_cells_its_edge_and_its_best() -> None:
    problem = Quadratic(Spectrum.power_law(50))
    found = phase_map(
        problem, HeavyBall(), Axis("lr", 0.01, 8, 6), Axis("momentum", 0, 0.9, 4), batch_size=64, target=0.1
    )
    axes: Any = found.plot().axes[0]
    (mesh,) = axes.collections
    drawn = mesh.get_array()
    assert np.array_equal(np.ma.getmaskarray(drawn), np.isnan(found.steps))
    assert np.array_equal(drawn.compressed(), found.steps[np.isfinite(found.steps)])
    sides = mesh.get_coordinates()
    assert np.all((sides[0, :-1, 0] < found.x.values) & (found.x.values < sides[0, 1:, 0]))
    memory = 1 / (1 - found.y.values)
    assert np.all((sides[:-1, 0, 1] < memory) & (memory < sides[1:, 0, 1]))
    best = found.best()
    assert best is not None
    edge, fewest = axes.lines
    assert edge.get_xdata() == pytest.approx(found.boundary[:, 0])
    assert (fewest.get_xdata()[0], fewest.get_ydata()[0]) == pytest.approx((best["x"], 1 / (1 - best["y"])))
    assert axes.get_ylabel() == "1 / (1 - momentum)"


def test_panels_stand_in_rows() -> None:
    """Five panels in rows of three: two rows, and the sixth place is empty."""
    panels = [Panel([Line([1, 2], [1, 2], "a")], "x", "y", title=f"{i}") for i in range(5)]
    axes = chart(panels, columns=3).axes
    assert [one.get_title() for one in axes if one.axison] == ["0", "1", "2", "3", "4"]
    assert len({round(one.get_position().y0, 3) for one in axes}) == 2


# On axes of the caller's own.


@pytest.fixture(scope="module")
def results(sweeps):
    """A result of each kind, by name, with the number of its panels."""
    known = forecast(read_logs("example"))
    axes = Axis("lr", 0.1, 1, 3), Axis("momentum", 0, 0.9, 3)
    return {
        "run": (SMALL.run(HeavyBall(0.1, 0.9), 16, 200), 2),
        "sampled": (SMALL.sample(SGD(0.1), 16, 50, replicas=8, workers=1), 1),
        "sweep": (sweeps[0], 1),
        "schedule": (optimal_schedule(SMALL, SGD(), 64, 0.1, pieces=2), 1),
        "map": (phase_map(SMALL, HeavyBall(), *axes, target=0.1, batch_size=64), 1),
        "forecast": (known, 2),
        "outlook": (known.predict(cosine(500), peak=1e-3), 2),
        "lengths": (known.losses_by_length([300, 400]), 2),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "sampled", "sweep", "schedule", "map", "forecast", "outlook", "lengths"])
def test_a_result_is_drawn_on_axes_of_the_callers_own(results, kind):
    result, panels = results[kind]
    own, mine = result.plot(), Figure()
    left, right = mine.subplots(1, 2)
    assert result.plot(ax=left) is mine
    assert [line.shape for line in lines_of(left)] == [line.shape for line in lines_of(own.axes[0])]
    assert all(np.array_equal(a, b) for a, b in zip(lines_of(left), lines_of(own.axes[0]), strict=True))
    assert left.get_xlabel() == (own.axes[0].get_xlabel() or own.axes[panels - 1].get_xlabel())
    assert left.get_ylabel() == own.axes[0].get_ylabel()
    assert not right.get_lines()
    if panels == 2:
        both = Figure().subplots(2)
        assert result.plot(ax=both) is both[0].figure
        assert len(both[1].get_lines()) == len(own.axes[1].get_lines())
        with pytest.raises(Wrong, match="ax must be one of matplotlib's axes, or 2 for the panels of this plot, got 3"):
            result.plot(ax=Figure().subplots(3))


def lines_of(axes):
    return [np.array(line.get_xydata()) for line in axes.get_lines()]


def test_several_results_share_axes_and_a_file_may_be_written_too(sweeps, tmp_path):
    ax = Figure().subplots()
    for found in sweeps:
        found.plot(ax=ax)
    assert len(ax.get_lines()) == sum(len(found.plot().axes[0].get_lines()) for found in sweeps)
    plot_lr(sweeps, tmp_path / "rates.png", ax=Figure().subplots())
    assert (tmp_path / "rates.png").exists()
    for wrong in (3, [], "axes", Figure()):
        with pytest.raises(Wrong, match="ax must be axes of matplotlib") as caught:
            sweeps[0].plot(ax=wrong)
        assert caught.value.argument == "ax"


def test_every_plot_takes_axes():
    """Every public class that has a plot, and every function that draws one."""
    rooms = (nqm, nqm.logs, nqm.nets, nqm.lab)
    classes = [thing for room in rooms for name in room.__all__ if inspect.isclass(thing := getattr(room, name))]
    plots = [kind.plot for kind in classes if hasattr(kind, "plot")]
    functions = [getattr(nqm.show, name) for name in nqm.show.__all__ if name.startswith("plot_")]
    assert len(plots) > 10
    assert functions
    for plot in (*plots, *functions):
        assert "ax" in inspect.signature(plot).parameters, plot


def test_labels_of_large_and_small_ticks_are_on_one_height() -> None:
    """On a short log axis 1 and 10 are large ticks, and 2, 5 and 20 small ones."""
    figure = chart([Panel([Line(np.array([1.0, 30.0]), np.array([1.0, 30.0]), "a", "black")], "x", "y", "log", "log")])
    figure.canvas.draw()
    axes = figure.axes[0]
    for axis, side in ((axes.xaxis, "y1"), (axes.yaxis, "x1")):
        ends = {
            major: {round(getattr(label.get_window_extent(), side), 1) for label in axis.get_ticklabels(minor=not major)
                    if label.get_text()}
            for major in (True, False)
        }  # fmt: skip
        assert ends[True]
        assert ends[True] == ends[False]
