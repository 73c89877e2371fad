"""Mangled files: whatever is done to a log, it is read or refused in a sentence, and every row is accounted for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nqm.logs import Log, cleaning, read_logs
from nqm.types import Wrong

COUNTED = (
    r"^([\d,]+) rows? without a step w", r"^([\d,]+) rows? without a value in the column", r"^([\d,]+) rows? with a loss that is",
    r"; ([\d,]+) earlier points? w", r"^([\d,]+) doubled points? w", r"^The header is repeated in ([\d,]+) line",
)  # fmt: skip
"""Remarks that say how many rows are not among the points."""

Cell = int | float | str | None
Row = dict[str, Cell]

CELLS = st.one_of(
    st.none(), st.sampled_from(["", "nan", "inf", "-inf", "NaN", "None", "abc", "1e400", "-1", "0", "1e9", "7.5", "{}", '"', ","]),
    st.integers(-2, 10**8), st.floats(width=32),
)  # fmt: skip
AMOUNT = st.integers(0, 10**6)


@st.composite
def mangled_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of a log with restarts, disorder, doubled rows and odd cells."""
    count = draw(st.integers(1, 40))
    rows: list[Row] = [{"step": 10 * i, "loss": 4 - 0.01 * i, "lr": 0.1} for i in range(count)]
    for change, a, b in draw(st.lists(st.tuples(st.sampled_from("rdsmcp"), AMOUNT, AMOUNT), max_size=5)):
        i, j = sorted((a % len(rows), b % len(rows)))
        if change == "r":  # a restart
            rows += [dict(row, loss=9.0) for row in rows[i : j + 1]]
        elif change == "d":  # a doubled row
            rows.insert(j, dict(rows[i]))
        elif change == "s":  # two rows change places
            rows[i], rows[j] = rows[j], rows[i]
        elif change == "m":  # a cell that is not there
            rows[i].pop(("step", "loss", "lr")[b % 3], None)
        elif change == "c":  # another cell
            rows[i][("step", "loss", "lr")[b % 3]] = draw(CELLS)
        else:  # all rows in another order
            rows = [rows[k] for k in np.random.default_rng(a).permutation(len(rows))]
    return rows


def as_csv(rows: list[Row]) -> str:
    def cell(value: Cell) -> str:
        text = "" if value is None else str(value)
        return '"' + text.replace('"', '""') + '"' if '"' in text or "," in text else text

    return "step,loss,lr\n" + "".join(",".join(cell(row.get(n)) for n in ("step", "loss", "lr")) + "\n" for row in rows)


def as_lines(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mangled") / "run.csv"


def logs_or_none(file: Path, content: bytes) -> list[Log] | None:
    """The logs; None if the file is refused, in a sentence that names it."""
    file.write_bytes(content)
    try:
        return read_logs(file)
    except Wrong as error:
        assert file.name in str(error)
        assert error.argument in ("paths", "columns", "schedule", "tokens_per_step", "batch_size")
        return None


def unaccounted(log: Log, rows: int) -> int:
    """How many of the rows are neither points nor counted in a remark."""
    said = [int(m[1].replace(",", "")) for remark in log.remarks for form in COUNTED if (m := re.search(form, remark))]
    cut = sum("is cut off and was omitted" in remark for remark in log.remarks)
    return rows - log.step.size - sum(said) - cut


@pytest.mark.slow
@settings(max_examples=250)
@given(rows=mangled_rows(), lines=st.booleans())
def test_every_row_is_kept_counted_or_refused(file: Path, rows: list[Row], lines: bool) -> None:
    logs = logs_or_none(file, (as_lines(rows) if lines else as_csv(rows)).encode())
    if logs is not None:
        (log,) = logs
        assert unaccounted(log, len(rows)) == 0
        given_steps = {float(row["step"]) for row in rows if row.get("step") not in (None, "", "None")}  # type: ignore[arg-type]
        assert set(log.step.tolist()) <= given_steps


@settings(max_examples=250)
@given(
    rows=mangled_rows(), lines=st.booleans(), cuts=st.lists(st.tuples(AMOUNT, st.binary(max_size=3), st.integers(0, 3)), max_size=4),
    end=st.one_of(st.none(), AMOUNT),
)  # fmt: skip
def test_mangled_text_is_read_or_refused(
    file: Path, rows: list[Row], lines: bool, cuts: list[tuple[int, bytes, int]], end: int | None
) -> None:
    content = (as_lines(rows) if lines else as_csv(rows)).encode()
    for at, new, length in cuts:
        i = at % (len(content) + 1)
        content = content[:i] + new + content[i + length :]
    if end is not None:
        content = content[: end % (len(content) + 1)]
    logs = logs_or_none(file, content)
    plain = (
        b'"' not in content and b"#" not in content and content[:1] not in (b"{", b"[") and b"step,loss,lr\n" in content
    )
    if logs is not None and len(logs) == 1 and plain:
        first, *others = [line for line in re.split(rb"\r\n|\r|\n", content) if line.strip()]
        if first.strip() == b"step,loss,lr":
            assert unaccounted(logs[0], len(others)) == 0


def test_a_row_that_is_silently_dropped_would_show(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row] = [{"step": i, "loss": 1.0, "lr": 0.1} for i in range(20)]
    (log,) = logs_or_none(file, as_csv(rows).encode()) or []
    assert unaccounted(log, 20) == 0
    whole = cleaning.ordered
    monkeypatch.setattr(cleaning, "ordered", lambda step: cleaning.Order(whole(step).rows[:-1]))
    (log,) = logs_or_none(file, as_csv(rows).encode()) or []
    assert unaccounted(log, 20) == 1
