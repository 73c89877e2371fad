"""The runs of a file: several in a W&B export or under a column that names the run, and their training and validation rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..types import Wrong
from .columns import is_known, is_loss, run_column, split_column
from .log import Log
from .sheets import Sheet, counted, listed, missing, stacked, were


def runs_of(sheet: Sheet, given: Mapping[str, str]) -> list[Sheet]:
    """The runs that a sheet holds: W&B's columns ``run - metric``, a column that names the run, or one run alone."""
    if (split := _exported(sheet)) is not None:
        return split
    column = run_column(sheet, given)
    if column is None:
        return [pivoted(sheet)]
    rows: dict[str, list[int]] = {}
    for i, cell in enumerate(sheet.columns[column]):
        if missing(cell):
            raise Wrong(f"{sheet.where(i)}: the column {column!r} does not say to which run the row belongs", "paths")
        rows.setdefault(str(cell).strip(), []).append(i)
    others = {name: cells for name, cells in sheet.columns.items() if name != column}
    return [pivoted(sheet.rows(chosen, name, others)) for name, chosen in rows.items()]


def pivoted(sheet: Sheet) -> Sheet:
    """A sheet whose rows say ``train`` or ``val``, with a column of losses for each: ``train/loss``, ``val/loss``."""
    column = split_column(sheet)
    if column is None:
        return sheet
    values = [str(cell).strip() for cell in sheet.columns[column]]
    columns: dict[str, Sequence[object]] = {}
    for name, cells in sheet.columns.items():
        if is_loss(name):
            for value in dict.fromkeys(values):
                kept = [cell if v == value else None for cell, v in zip(cells, values, strict=True)]
                columns[f"{value}/{name}"] = kept
        elif name != column:
            columns[name] = cells
    return replace(sheet, columns=columns)


def _exported(sheet: Sheet) -> list[Sheet] | None:
    """The runs of a W&B export, whose columns are called ``run - metric``; None for another sheet."""
    prefixed = [name for name in sheet.columns if " - " in name]
    bounds = [name for name in prefixed if name.endswith(("__MIN", "__MAX"))]
    metrics = [name for name in prefixed if name not in bounds]
    if not metrics or not (bounds or any(is_known(name.rpartition(" - ")[2]) for name in metrics)):
        return None
    shared = [name for name in sheet.columns if " - " not in name]
    remarks = [*sheet.remarks, *(["W&B's columns __MIN and __MAX are not used."] if bounds else [])]
    empty = sum(all(missing(sheet.columns[name][i]) for name in metrics) for i in range(len(sheet)))
    if empty:
        remarks.append(f"{counted(empty, 'row')} of the file {were(empty)} empty for every run.")
    runs: dict[str, dict[str, str]] = {}
    for name in metrics:
        run, _, metric = name.rpartition(" - ")
        runs.setdefault(run, {})[name] = metric
    found = []
    for run, own in runs.items():
        rows = [i for i in range(len(sheet)) if not all(missing(sheet.columns[name][i]) for name in own)]
        columns = {name: sheet.columns[name] for name in shared} | {new: sheet.columns[old] for old, new in own.items()}
        found.append(replace(sheet.rows(rows, run, columns), kind="wandb", remarks=tuple(remarks)))
    return found


def gathered(sheets: Sequence[Sheet]) -> list[Sheet]:
    """The runs of all files, each once: one run may lie in several exports, event files or saved states."""
    groups: dict[object, list[Sheet]] = {}
    for i, sheet in enumerate(sheets):
        folder = Path(sheet.file).absolute().parent
        if folder.name.startswith("checkpoint-"):
            folder = folder.parent
        keys: dict[str, object] = {
            "wandb": ("wandb", sheet.name),  # W&B exports one file for each metric.
            "events": ("events", folder),  # A restarted run writes another event file.
            "trainer_state": ("trainer_state", folder),  # Each checkpoint holds the log up to there.
        }
        groups.setdefault(keys.get(sheet.kind, i), []).append(sheet)
    return [run for parts in groups.values() for run in (_states if parts[0].kind == "trainer_state" else _one)(parts)]


def _one(parts: Sequence[Sheet]) -> list[Sheet]:
    return [stacked(parts)]


def _states(parts: Sequence[Sheet]) -> list[Sheet]:
    """The longest of several saved states, if the others are its beginning; otherwise all of them."""
    longest = max(parts, key=len)
    others = [part for part in parts if part is not longest]
    if not others or any(_rows(part, len(part)) != _rows(longest, len(part)) for part in others):
        return list(parts)
    names = listed([part.file for part in others])
    return [replace(longest, remarks=(*longest.remarks, f"Its beginning lies in other files, too: {names}."))]


def _rows(sheet: Sheet, count: int) -> list[dict[str, object]]:
    """The first rows, without missing cells."""
    return [{n: cells[i] for n, cells in sheet.columns.items() if cells[i] is not None} for i in range(count)]


def distinctly_named(logs: Sequence[tuple[Log, str]]) -> list[Log]:
    """The logs of files under names of their own: equal names get the folder before them, or a number behind them."""
    for rename in (lambda log, file, count: f"{Path(file).absolute().parent.name}/{log.name}", _numbered):
        names = Counter(log.name for log, _ in logs)
        seen: Counter[str] = Counter()
        renamed = []
        for log, file in logs:
            seen[log.name] += 1
            new = rename(log, file, seen[log.name]) if names[log.name] > 1 else log.name
            renamed.append((replace(log, name=new), file))
        logs = renamed
    return [log for log, _ in logs]


def _numbered(log: Log, file: str, count: int) -> str:
    return f"{log.name} ({count})" if count > 1 else log.name
