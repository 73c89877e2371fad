"""Files to logs: the formats of common tools, cleaned and described in remarks, and joined to the runs they branch from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from ..engine.schedule import Schedule, as_schedule
from ..optimizers import Optimizer
from ..types import Array, Wrong, unknown
from .branches import joined
from .checks import oddities
from .cleaning import ordered, points_of, whole_steps
from .columns import Columns, checked_columns, find_columns, is_rate, momentum_columns
from .files import LogSource, run_name, sheets_of
from .kinds import adaptive
from .log import Log, for_every_step, interpolated, warm_up_assumed
from .records import MEAN_SINCE
from .separating import distinctly_named, gathered, runs_of
from .sheets import Sheet, counted, listed, were

OTHERS = "*"  # The name under which a batch size is that of all runs without one of their own.
MOMENTUM_CHANGE = 0.005  # A momentum that varies by less along a run is constant but for its digits.
LATE_RATE = 0.5  # Rates that begin within this share of the first logged step are extended back, and not warmed up.


@dataclass(frozen=True)
class Asked:
    """What the caller says of all files: columns by role, rates, and the settings of the training."""

    columns: Mapping[str, str]
    schedule: Schedule | None
    peak: float
    batch_size: float | None
    batch_sizes: Mapping[str, float]
    tokens_per_step: float | None
    optimizer: Optimizer | str | None
    weight_decay: float | None
    like: str


def read_logs(
    paths: LogSource | Iterable[LogSource],
    *,
    columns: Mapping[str, str] | None = None,
    schedule: str | Schedule | None = None,
    peak: float | None = None,
    batch_size: float | Mapping[str, float] | None = None,
    optimizer: Optimizer | str | None = None,
    weight_decay: float | None = None,
    tokens_per_step: float | None = None,
    like: Log | None = None,
) -> list[Log]:
    """The training runs that files hold, cleaned; the remarks of each log say what was assumed and handled.

    CSV and TSV, JSON lines, Hugging Face's ``trainer_state.json``, exports of W&B, Lightning's ``metrics.csv`` and
    TensorBoard's event files are read, also compressed (``.gz``). A file may hold several runs. So may a table in memory: a data
    frame, or a dict of columns.

    Parameters
    ----------
    paths : files, folders and patterns such as ``runs/*.csv``; or ``"example"``, three short logs that come with the package;
        or tables: a data frame of pandas or polars, ``{"step": [...], "loss": [...], "lr": [...]}``, several of them, or a dict of
        tables by the name of the run.
    columns : names of columns by role (step, tokens, examples, loss, lr, batch_size, run), where they are not usual ones
        or another one is wanted: ``{"loss": "val/loss"}``. If a file has training and validation losses, the training
        losses are used unless this says otherwise.
    schedule : the learning rate's schedule, such as ``"warmup(2160) + cosine(21840, end=0.1)"``, with its ``peak``; it is
        used instead of rates in the files, and needed where they have none.
    batch_size : examples in a batch. It also turns a column of examples into steps. For several, a mapping from the names of runs,
        files or folders to numbers, such as ``{"small.csv": 64, "runs/large": 512}``; the name may be a pattern, and ``"*"``
        stands for all others.
    optimizer, weight_decay : as `Log` has them.
    tokens_per_step : tokens of one update, to turn a column of tokens into steps.
    like : a log whose losses these are compared with: the column of the same name is read, or one of losses on the same data.

    A wrong file raises `Wrong` with its name and line.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "run.csv").write_text("step,train_loss,lr\\n1,4.5,0.1\\n2,nan,0.1\\n3,3.5,0.05\\n")
    ...     (log,) = read_logs(folder)
    >>> log
    Log(run: 2 points from step 1 to 3, loss 4.5 -> 3.5, lr 0.1 -> 0.05, 1 remark)
    >>> print(*log.remarks)
    1 row with a loss that is NaN or infinite was omitted (step 2).
    """
    if optimizer is not None:
        adaptive(optimizer)  # An unknown name is refused before files are read.
    sizes = {} if not isinstance(batch_size, Mapping) else _sizes(batch_size)
    one_size = None if isinstance(batch_size, Mapping) else _positive("batch_size", batch_size)
    asked = Asked(
        checked_columns(columns), *_schedule(schedule, peak), one_size, sizes,
        _positive("tokens_per_step", tokens_per_step), optimizer, weight_decay, like.column if like is not None else "",
    )  # fmt: skip
    runs = [run for sheet in sheets_of(paths) for run in runs_of(sheet, asked.columns)]
    sheets = gathered(runs)
    if sizes:
        require_runs(sizes, [(sheet.name, sheet.file) for sheet in sheets])
    return joined(distinctly_named([(_log(sheet, asked), sheet.file) for sheet in sheets]))


def _log(sheet: Sheet, asked: Asked) -> Log:
    """The log of one run."""
    if asked.batch_sizes:
        asked = replace(asked, batch_size=size_of_run(asked.batch_sizes, sheet.name, sheet.file))
    found = find_columns(sheet, asked.columns, need_rates=asked.schedule is None, like=asked.like)
    remarks: list[str] = [*sheet.remarks, *found.remarks]
    if sheet.kind == "trainer_state" and not found.validation:
        remarks.append(MEAN_SINCE)
    step = _times(sheet, found, asked, remarks)
    loss, there = sheet.numbers(found.columns["loss"])
    points = points_of(sheet, step, loss, there, found.columns["loss"])
    remarks += [*points.remarks, *_cycled(sheet)]
    if asked.schedule is None:
        lr, said = _logged_rates(sheet, found.columns["lr"], step, points.rows)
    else:
        lr, said = _scheduled(asked.schedule, asked.peak, sheet, points.step)
    remarks += said
    log = Log(
        points.step, points.loss, lr, _batch_sizes(sheet, found, asked, points.rows, remarks), asked.optimizer,
        asked.weight_decay, sheet.name, remarks=tuple(remarks), column=found.columns["loss"],
    )  # fmt: skip
    return replace(log, remarks=(*log.remarks, *oddities(log, found.smoothed, found.validation)))


def _times(sheet: Sheet, found: Columns, asked: Asked, remarks: list[str]) -> Array:
    """The step of each row, NaN where there is none."""
    for role, argument, per_step in (
        ("step", "", 1.0),
        ("tokens", "tokens_per_step", asked.tokens_per_step),
        ("examples", "batch_size", asked.batch_size),
    ):
        if (column := found.columns.get(role)) is None:
            continue
        if per_step is None:
            sentence = (
                f"{sheet.file}: time is counted in {role} (column {column!r}); give {argument} to turn it into steps"
            )
            raise Wrong(sentence, argument=argument)
        if role != "step":
            remarks.append(f"Steps are the column {column!r} divided by {argument} = {per_step:,.10g}.")
        elif asked.tokens_per_step is not None:
            remarks.append(f"Steps are the column {column!r}; tokens_per_step is not used.")
        return whole_steps(sheet, sheet.numbers(column)[0], per_step, column, remarks)
    raise AssertionError("find_columns returns one of the roles")


def _logged_rates(sheet: Sheet, column: str, step: Array, rows: Array) -> tuple[Array, list[str]]:
    """Rates at the points, or at every step if other rows know more of them, and what was assumed."""
    lr, there = sheet.numbers(column)
    negative = there & (lr < 0)
    if negative.any():
        i = int(np.argmax(negative))
        raise Wrong(f"{sheet.where(i)}: the learning rate must not be negative, got {lr[i]:g}", argument="paths")
    remarks = []
    broken = there & ~np.isfinite(lr)
    if count := int(broken.sum()):
        remarks.append(f"{counted(count, 'learning rate')} {were(count)} NaN or infinite, and {were(count)} omitted.")
    rated = np.flatnonzero(there & ~broken & ~np.isnan(step))
    if not rated.size:
        raise Wrong(f"{sheet.file}: the column {column!r} of learning rates is empty", argument="schedule")
    rated = rated[ordered(step[rated]).rows]
    return _rates_from(step[rated], lr[rated], step[rows], remarks), remarks


def _rates_from(at: Array, rates: Array, points: Array, remarks: list[str]) -> Array:
    """Rates at the points if they say all that is known, and otherwise at every step, from rates at some steps."""
    first, last = int(points[0]), int(points[-1])
    if np.array_equal(at, points):
        return rates
    if without := int(np.sum(~np.isin(points, at))):
        remarks.append(f"At {counted(without, 'point')} the learning rate was interpolated between logged rates.")
    else:
        own = rates[np.searchsorted(at, points)]
        inside = (at >= first) & (at <= last)
        if at[0] >= first and np.allclose(np.interp(at, points, own)[inside], rates[inside], rtol=1e-9, atol=0):
            return own
    if at[0] > first > LATE_RATE * at[0]:
        slope = (rates[1] - rates[0]) / (at[1] - at[0]) if at.size > 1 else 0.0
        before = max(rates[0] - slope * (at[0] - first), 0.0)
        remarks.append(
            f"The first rate is logged at step {at[0]:,.0f}; rates from step {first:,} on were extrapolated."
        )
        at, rates = np.append(first, at), np.append(before, rates)
    if at[-1] < last:
        remarks.append(f"The last rate is logged at step {at[-1]:,.0f}; it is held up to step {last:,}.")
    if at[0] > 1 and rates[0] > 0:
        remarks.append(warm_up_assumed(int(at[0]), float(rates[0])))
    return for_every_step(interpolated(at, rates, last), points.size) if last > 0 else rates[:1]


def _scheduled(schedule: Schedule, peak: float, sheet: Sheet, step: Array) -> tuple[Array, list[str]]:
    """Rates of every step from a schedule, and what is to be said of them."""
    last = int(step[-1])
    remarks = [f"The learning rate is the given schedule with peak {peak:g}."]
    if unused := [repr(name) for name in sheet.columns if is_rate(name)]:
        remarks.append(f"Learning rates in the file are not used ({listed(unused)}).")
    if schedule.steps < last:
        remarks.append(f"The schedule ends at step {schedule.steps:,}; its last rate is held up to step {last:,}.")
    return for_every_step(peak * schedule.multipliers("lr", max(last, 1)), step.size), remarks


def _cycled(sheet: Sheet) -> list[str]:
    """A sentence on a momentum that changes along the run, of which the law knows nothing."""
    for column in momentum_columns(sheet):
        values, there = sheet.numbers(column)
        known = values[there & np.isfinite(values)]
        if known.size and np.ptp(known) > MOMENTUM_CHANGE:
            changes = f"The momentum changes from {known.min():.4g} to {known.max():.4g} (column {column!r})"
            cost = "the law takes it for constant, which costs five times the error: 0.39% for 0.07% on runs of a quadratic"
            return [
                f"{changes}; {cost}. For SGD, give lr / (1 - momentum) as the learning rate, which had 0.07% there."
            ]
    return []


def _batch_sizes(sheet: Sheet, found: Columns, asked: Asked, rows: Array, remarks: list[str]) -> Array | float | None:
    if asked.batch_size is not None or (column := found.columns.get("batch_size")) is None:
        return asked.batch_size
    sizes, there = sheet.numbers(column)
    if not there[rows].all():
        remarks.append(f"The column {column!r} of batch sizes is not used: it is empty at some points.")
        return None
    wrong = ~(np.isfinite(sizes) & (sizes > 0))
    wrong[np.setdiff1d(np.arange(sizes.size), rows)] = False
    if wrong.any():
        i = int(np.argmax(wrong))
        raise Wrong(f"{sheet.where(i)}: the batch size must be positive, got {sizes[i]:g}", argument="paths")
    same = bool(np.all(sizes[rows] == sizes[rows[0]]))
    return float(sizes[rows[0]]) if same else sizes[rows]


def _schedule(schedule: str | Schedule | None, peak: float | None) -> tuple[Schedule | None, float]:
    """The schedule of the learning rate and its peak, checked."""
    top = _positive("peak", peak)
    if schedule is None:
        if top is not None:
            sentence = (
                "peak is the largest rate of a schedule; give schedule too, such as 'constant(1)' for a constant rate"
            )
            raise Wrong(sentence, argument="schedule")
        return None, 1.0
    if top is None:
        raise Wrong("a schedule needs peak, the learning rate at which its multiplier is 1", argument="peak")
    found = as_schedule(schedule, 0) if isinstance(schedule, str) else schedule
    if not isinstance(found, Schedule):
        raise Wrong(f"schedule must be text or a Schedule, got {schedule!r:.60}", argument="schedule")
    if np.any(found.momentum != 1) or np.any(found.batch_size != 1):
        raise Wrong("the schedule of a log acts on lr alone, not on momentum or batch_size", argument="schedule")
    return found, top


def _sizes(given: Mapping[str, float]) -> dict[str, float]:
    """Batch sizes by names of runs, files or folders, checked."""
    found: dict[str, float] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise Wrong(f"batch_size maps names of runs or files to numbers, got {name!r:.60}", argument="batch_size")
        size = _positive("batch_size", value)
        if size is not None:
            found[name] = size
    return found


def size_of_run(sizes: Mapping[str, float], name: str, file: str) -> float | None:
    """The batch size of a run: under its own name, else under the first pattern that it fits, else that of all others."""
    own = [key for key in sizes if key in (name, Path(file).name, file)]
    fitting = (
        own
        or [key for key in sizes if key != OTHERS and _fits(key, name, file)]
        or [key for key in sizes if key == OTHERS]
    )
    return sizes[fitting[0]] if fitting else None


def require_runs(sizes: Mapping[str, float], runs: Sequence[tuple[str, str]]) -> None:
    """Refuse a name that is that of no run, file or folder."""
    for key in sizes:
        if key != OTHERS and not any(_fits(key, name, file) for name, file in runs):
            names = dict.fromkeys(each for name, file in runs for each in (name, Path(file).name))
            raise unknown("run or file called", key, names, argument="batch_size")


def _fits(key: str, name: str, file: str) -> bool:
    """Whether a name or pattern is that of a run, of its file, or of a folder of the file."""
    path, whole = Path(file), Path(file).absolute()
    if key in (name, path.name, run_name(path)) or fnmatch(name, key) or fnmatch(file, key) or fnmatch(path.name, key):
        return True
    return Path(key).absolute() in (whole, *whole.parents)


def _positive(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    fine = isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0 < value < np.inf
    if not fine:
        raise Wrong(f"{name} must be a positive number, got {value!r:.60}", argument=name)
    return float(value)
