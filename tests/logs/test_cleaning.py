"""Restarts, disorder, doubled and missing values: each is handled, and said with its number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nqm.logs import Log, read_logs
from nqm.logs.checks import neighbour_correlation
from nqm.logs.cleaning import ordered
from nqm.types import Wrong

Row = tuple[object, object, object]


def read(path: Path, rows: list[Row], **options: object) -> Log:
    (path / "run.csv").write_text("step,loss,lr\n" + "".join(f"{s},{x},{r}\n" for s, x, r in rows))
    (log,) = read_logs(path / "run.csv", **options)  # type: ignore[arg-type]
    return log


def line(steps: range | list[int], offset: float = 0.0) -> list[Row]:
    return [(s, 4 - 0.001 * s + offset, 0.1) for s in steps]


def test_after_a_restart_the_later_values_hold(tmp_path: Path) -> None:
    log = read(tmp_path, [*line(range(0, 101, 10)), *line(range(60, 201, 10), offset=0.5)])
    assert log.step.tolist() == list(range(0, 201, 10))
    np.testing.assert_allclose(log.loss[:6], [4 - 0.001 * s for s in range(0, 60, 10)])
    np.testing.assert_allclose(log.loss[6:], [4.5 - 0.001 * s for s in range(60, 201, 10)])
    assert "The steps go back 1 time, to 60; 5 earlier points were replaced by later ones." in log.remarks


def test_steps_that_begin_again_may_be_several_runs(tmp_path: Path) -> None:
    log = read(tmp_path, [*line(range(0, 50, 10)), *line(range(0, 50, 10), 0.5)])
    assert any("several runs in one file" in remark for remark in log.remarks)
    later = read(tmp_path, [*line(range(0, 50, 10)), *line(range(20, 50, 10), 0.5)])
    assert not any("several runs in one file" in remark for remark in later.remarks)


def test_two_restarts_to_one_checkpoint(tmp_path: Path) -> None:
    log = read(tmp_path, [*line(range(0, 100, 10)), *line(range(50, 80, 10), 0.5), *line(range(50, 200, 10), 1.0)])
    assert log.step.tolist() == list(range(0, 200, 10))
    np.testing.assert_allclose(log.loss[5:], [5 - 0.001 * s for s in range(50, 200, 10)])
    assert "The steps go back 2 times, to 50 and 50; 8 earlier points were replaced by later ones." in log.remarks


def test_a_restart_on_other_steps_replaces_its_range(tmp_path: Path) -> None:
    log = read(tmp_path, [*line(range(0, 101, 10)), *line(range(55, 201, 10), offset=0.5)])
    assert log.step.tolist() == [*range(0, 55, 10), *range(55, 201, 10)]
    assert any("5 earlier points were replaced" in remark for remark in log.remarks)


def test_a_restart_that_ends_early_keeps_the_points_after_it(tmp_path: Path) -> None:
    log = read(tmp_path, [*line(range(0, 101, 10)), *line(range(50, 80, 10), offset=0.5)])
    assert log.step.tolist() == list(range(0, 101, 10))
    assert log.loss[6] > log.loss[4]
    assert any("3 earlier points were replaced" in remark for remark in log.remarks)


@pytest.mark.parametrize(
    ("steps", "misplaced"),
    [
        ([10, 30, 20, 40, 50], 1),
        ([10, 20, 40, 50, 60, 30], 1),
        ([50, 40, 30, 20, 10], 4),
        ([40, 50, 60, 70, 10, 20, 30], 3),
    ],
)
def test_rows_out_of_order_are_sorted_and_all_kept(tmp_path: Path, steps: list[int], misplaced: int) -> None:
    log = read(tmp_path, line(steps))
    assert log.step.tolist() == sorted(steps)
    np.testing.assert_allclose(log.loss, [4 - 0.001 * s for s in sorted(steps)])
    said = "1 row out of order was" if misplaced == 1 else f"{misplaced} rows out of order were"
    assert f"{said} sorted by step." in log.remarks


def test_of_doubled_points_the_later_one_is_kept(tmp_path: Path) -> None:
    log = read(tmp_path, [(0, 4, 0.1), (1, 3, 0.1), (1, 2, 0.2), (1, 1, 0.3), (2, 0.5, 0.1)])
    assert (log.loss.tolist(), log.lr.tolist()) == ([4, 1, 0.5], [0.1, 0.3, 0.1])
    assert "2 doubled points were omitted; the later of two values at a step is kept." in log.remarks


def test_shuffled_rows_are_all_kept() -> None:
    step = np.random.default_rng(0).permutation(1000).astype(float)
    found = ordered(step)
    assert step[found.rows].tolist() == list(range(1000))
    assert (found.replaced, found.doubled) == (0, 0)
    assert found.misplaced == np.sum(step < np.maximum.accumulate(step))


def test_losses_that_are_missing_or_not_finite_are_omitted_and_said(tmp_path: Path) -> None:
    rows: list[Row] = [
        (0, 4, 0.1),
        (1, "nan", 0.1),
        (2, "", 0.1),
        (3, "inf", 0.1),
        (4, "None", 0.1),
        ("", 3, 0.1),
        (5, 2, 0.1),
    ]
    log = read(tmp_path, rows)
    assert log.step.tolist() == [0, 5]
    assert "1 row without a step was omitted (line 7)." in log.remarks
    assert "2 rows without a value in the column 'loss' were omitted (steps 2 and 4)." in log.remarks
    assert "2 rows with a loss that is NaN or infinite were omitted (steps 1 and 3)." in log.remarks


def test_rates_that_are_missing_are_interpolated_and_said(tmp_path: Path) -> None:
    log = read(tmp_path, [(0, 4, 0.4), (2, 3, ""), (4, 2, "nan"), (8, 1, 0.0)])
    np.testing.assert_allclose(log.rates, [0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.0], atol=1e-16)
    assert "At 2 points the learning rate was interpolated between logged rates." in log.remarks
    assert "1 learning rate was NaN or infinite, and was omitted." in log.remarks


def test_rates_of_rows_without_a_loss_are_used(tmp_path: Path) -> None:
    """A validation loss is logged seldom; the rate falls between two of them."""
    log = read(tmp_path, [(1, 4, 0.4), (2, "", 0.4), (3, "", 0.1), (5, 3, 0.1)])
    np.testing.assert_allclose(log.rates, [0.4, 0.4, 0.4, 0.1, 0.1])  # A drop acts after the step at which it is logged.
    straight = read(tmp_path, [(1, 4, 0.4), (2, "", 0.3), (3, "", 0.2), (4, 3, 0.1)])
    assert straight.lr.tolist() == [0.4, 0.1]  # The rates at the points say as much.


def test_rates_beyond_the_logged_ones_are_held_or_warmed_up(tmp_path: Path) -> None:
    log = read(tmp_path, [(0, 4, ""), (4, 3, 0.4), (6, 2, 0.2), (8, 1, "")])
    np.testing.assert_allclose(log.rates, [0.1, 0.2, 0.3, 0.4, 0.3, 0.2, 0.2, 0.2])
    assert any("last rate is logged at step 6; it is held up to step 8" in remark for remark in log.remarks)
    assert any("from step 4 on; before it, a linear warm-up" in remark for remark in log.remarks)


def test_spikes_are_kept_and_counted(tmp_path: Path) -> None:
    noise = 0.01 * np.random.default_rng(0).standard_normal(200)
    loss = 2 + 3 / np.sqrt(np.arange(1, 201)) + noise
    rows: list[Row] = [(s, x, 0.1) for s, x in enumerate(loss, 1)]
    assert not any("spike" in remark for remark in read(tmp_path, rows).remarks)
    rows[99], rows[150] = (100, 7.5, 0.1), (151, 3.0, 0.1)
    log = read(tmp_path, rows)
    assert log.step.size == 200
    assert any("2 spikes of the loss were kept (the highest is 7.5 at step 100)" in remark for remark in log.remarks)


def test_gaps_are_said(tmp_path: Path) -> None:
    log = read(tmp_path, line([*range(0, 100, 10), *range(500, 600, 10)]))
    assert "The log has 1 gap; the longest is from step 90 to step 500." in log.remarks
    assert not any("gap" in remark for remark in read(tmp_path, line([2**i for i in range(20)])).remarks)


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.99])
def test_smoothed_losses_are_recognised(tmp_path: Path, decay: float) -> None:
    """The correlation of neighbouring changes of white noise is -0.5; an average with decay w has (w - 1) / 2."""
    step = np.arange(1, 2001)
    loss = 2 + 3 * step**-0.3 + 0.05 * np.random.default_rng(1).standard_normal(step.size)
    for i in range(1, loss.size):
        loss[i] = decay * loss[i - 1] + (1 - decay) * loss[i]
    assert neighbour_correlation(loss) == pytest.approx((decay - 1) / 2, abs=0.1)  # the removed trend holds some noise
    log = read(tmp_path, [(s, x, 0.1) for s, x in zip(step, loss, strict=True)])
    assert any("look smoothed" in remark for remark in log.remarks) == (decay > 0)


PLANTED = [
    ("step,loss,lr\n1,3,0.1\n2,abc,0.1\n", "line 3: 'abc' in the column 'loss' is not a number"),
    ("step,loss,lr\n1,3,0.1\n2.5,2,0.1\n", "line 3: the step must be a whole number, got 2.5"),
    ("step,loss,lr\n1,3,0.1\n-2,2,0.1\n", "line 3: a step lies between 0 and"),
    ("step,loss,lr\n1,3,0.1\ninf,2,0.1\n", "line 3: the step must be a whole number, got inf"),
    ("step,loss,lr\n1,3,0.1\n1e12,2,0.1\n", "line 3: a step lies between 0 and .* tokens_per_step"),
    ("step,loss,lr\n1,3,0.1\n2,2,-0.1\n", "line 3: the learning rate must not be negative, got -0.1"),
    ("step,loss,lr\n1,3,0.1\n2,2\n3,2,0.1\n", "line 3 has 2 fields, and the header has 3"),
    ("step,loss,lr\n1,3,0.1\n2,2,0.1,7\n", "line 3 has 4 fields, and the header has 3"),
    ('step,loss,lr\n1,3,0.1\n2,"2,0.1\n3,1,0.1\n', "line 4 is not a row of a table"),
    ("step,loss,lr,batch_size\n1,3,0.1,8\n2,3,0.1,0\n", "line 3: the batch size must be positive, got 0"),
    ("run,step,loss,lr\na,1,3,0.1\n,2,3,0.1\n", "line 3: the column 'run' does not say"),
    ("1,3,0.1\n2,2,0.1\n", "line 1 holds numbers where the names of the columns are expected"),
    ("step,loss,loss\n1,3,0.1\n", "line 1 names the column 'loss' twice"),
    ("step,loss,lr\n1,nan,0.1\n", "no row of 'run' has a step and a finite loss"),
    ("step,loss,lr\n", "no row of 'run' has a step and a finite loss"),
    ("step,loss,lr\n1,3,\n", "the column 'lr' of learning rates is empty"),
    ("", "is empty"),
    (
        '{"step": 1, "loss": 3, "lr": 0.1}\n{"step": 2, "loss": }\n{"step": 3, "loss": 2, "lr": 0.1}\n',
        "line 2 is not JSON",
    ),
    ('{"step": 1, "loss": 3, "lr": 0.1}\n[1, 2]\n', "line 2 is not a JSON object"),
    ('{"step": 1, "loss": true, "lr": 0.1}\n', "entry 1: True in the column 'loss' is not a number"),
    ('{"step": 1, "loss": [3], "lr": 0.1}\n{"step": 2, "loss": 3, "lr": 0.1}\n', r"line 1: \[3\] in the column 'loss'"),
    ('{\n "log_history": [\n  {"step": 1, "loss": 3\n', "line 4 is not JSON"),
    ('{"step": [1, 2], "loss": [3]}', "the lists must have one length, got step 2, loss 1"),
    ("[" * 100_000, "is not JSON"),
    ('{"step": 1, "loss": ' + "9" * 5000 + ', "lr": 0.1}', "is not JSON"),
    (b"step,loss,lr\n1,3,0.1\n2,\xff,0.1\n", "line 3 is not text in UTF-8"),
    (b"\x1f\x8b\x08garbage", "cannot decompress"),
]


@pytest.mark.parametrize(("content", "says"), PLANTED, ids=[says[:40] for _, says in PLANTED])
def test_a_planted_mistake_is_refused_with_its_line(tmp_path: Path, content: str | bytes, says: str) -> None:
    (tmp_path / "run.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(Wrong, match=says) as error:
        read_logs(tmp_path / "run.csv")
    assert "run.csv" in str(error.value)
    assert error.value.argument in ("paths", "schedule")


@pytest.mark.parametrize(
    "text", ["step,loss,lr\n1,3,0.1\n2,2,0.1\n3,1", '{"step": 1, "loss": 3, "lr": 0.1}\n{"step": 2, "lo']
)
def test_a_last_line_that_is_cut_off_is_omitted_and_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.csv").write_text(text)
    (log,) = read_logs(tmp_path / "run.csv")
    last = text.count("\n") + 1
    assert log.step.size == last - (2 if text[0] == "s" else 1)
    assert f"The last line, line {last}, is cut off and was omitted." in log.remarks


def test_a_repeated_header_is_said(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text("step,loss,lr\n1,3,0.1\nstep,loss,lr\n2,2,0.1\n")
    (log,) = read_logs(tmp_path / "run.csv")
    assert log.step.tolist() == [1, 2]
    assert log.remarks == ("The header is repeated in 1 line (3).",)
