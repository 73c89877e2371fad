"""Tables in memory are read as the files that hold the same cells are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nqm import Wrong
from nqm.logs import Log, read_logs

COLUMNS: dict[str, Any] = {"step": [1, 2, 3, 4], "loss": [4.0, 3.5, 3.2, 3.0], "lr": [0.1, 0.1, 0.05, 0.05]}
CSV = "step,loss,lr\n1,4.0,0.1\n2,3.5,0.1\n3,3.2,0.05\n4,3.0,0.05\n"


class Polars:
    """A data frame as polars has them: columns by name, each with ``to_list``, and None for what is missing."""

    def __init__(self, columns: dict[str, list[object]]) -> None:
        self.held, self.columns = columns, list(columns)

    def __getitem__(self, name: str) -> Any:
        return type("Series", (), {"to_list": lambda _: self.held[name]})()


def same(one: Log, other: Log) -> None:
    for name in ("step", "loss", "lr"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_a_dict_of_columns_is_read_as_its_file_is(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(CSV)
    (known,) = read_logs(tmp_path / "run.csv")
    arrays = {name: np.array(cells) for name, cells in COLUMNS.items()}
    scalars = {name: list(np.array(cells)) for name, cells in COLUMNS.items()}
    for table in (COLUMNS, arrays, scalars, Polars(COLUMNS)):
        (log,) = read_logs(table)
        same(log, known)
        assert (log.name, log.remarks) == ("table", known.remarks)


def test_a_data_frame_is_read_with_its_index_and_its_missing_cells() -> None:
    pandas = pytest.importorskip("pandas")
    (known,) = read_logs(COLUMNS)
    frame = pandas.DataFrame(COLUMNS)
    same(read_logs(frame)[0], known)
    same(read_logs(frame.set_index("step"))[0], known)
    more = pandas.concat(
        [frame, pandas.DataFrame({"step": [5], "eval_loss": [3.1]})]
    )  # a row of validation: no loss, no rate
    (log,) = read_logs(more)
    same(log, known)
    assert any("without a value in the column 'loss'" in remark for remark in log.remarks)
    assert not any("NaN" in remark for remark in log.remarks)


def test_nan_in_a_dict_is_a_loss_that_was_logged() -> None:
    (log,) = read_logs({**COLUMNS, "loss": [4.0, float("nan"), 3.2, 3.0]})
    assert log.remarks == ("1 row with a loss that is NaN or infinite was omitted (step 2).",)


def test_several_tables_and_files_are_several_runs(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(CSV)
    assert [log.name for log in read_logs({"cosine": COLUMNS, "constant": COLUMNS})] == ["cosine", "constant"]
    assert [log.name for log in read_logs([COLUMNS, tmp_path / "run.csv", COLUMNS])] == ["table 1", "table 3", "run"]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({}, "table holds no rows"),
        ({"step": [], "loss": []}, "table holds no rows"),
        (
            {**COLUMNS, "lr": [0.1]},
            "columns of table must have as many cells as one another: step has 4, loss has 4 and lr has 1",
        ),
        ({**COLUMNS, "lr": 0.1}, "'lr' is no column: got 0.1"),
        ({**COLUMNS, "loss": [4.0, "x", 3.2, 3.0]}, "table, row 2: 'x' in the column 'loss' is not a number"),
        ({"step": [1], "lr": [0.1]}, "has no column that is known as a loss"),
        ([3], "data frames, or dicts of columns, got 3"),
    ],
)
def test_a_table_that_holds_no_log_is_refused(table: Any, sentence: str) -> None:
    with pytest.raises(Wrong, match=sentence):
        read_logs(table)
