"""Which column is which: steps, loss, learning rate and the others, by their usual names or as the caller says.

A file may hold training losses and validation losses. They are never mixed, and the rule is one: the training loss is
taken, and a remark names the other column and how to take it instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..types import Wrong, short, unknown
from .sheets import Sheet, listed

ROLES = ("step", "tokens", "examples", "loss", "lr", "batch_size", "run")
"""What a column can be: the keys of the argument ``columns``."""

STEP_NAMES = (
    "trainer_global_step", "train_global_step", "global_step", "num_updates", "updates", "update", "step", "steps",
    "iteration", "iterations", "iter", "iters", "it", "training_step", "train_step", "opt_step", "optimizer_step",
)  # fmt: skip
TOKEN_NAMES = (
    "tokens", "num_tokens", "total_tokens", "tokens_seen", "num_tokens_seen", "train_tokens", "consumed_tokens",
    "num_input_tokens_seen", "train_num_input_tokens_seen", "throughput_total_tokens", "n_tokens",
)  # fmt: skip
EXAMPLE_NAMES = (
    "examples", "samples", "num_examples", "num_samples", "examples_seen", "samples_seen", "total_examples",
    "total_samples", "consumed_samples", "consumed_train_samples", "train_samples", "train_examples",
)  # fmt: skip
BATCH_NAMES = ("batch_size", "global_batch_size", "total_batch_size", "train_global_batch_size")
RUN_NAMES = ("run", "run_id", "run_name", "runid", "experiment", "experiment_name", "exp", "exp_name", "trial", "log")
SPLIT_NAMES = ("split", "phase", "mode", "subset", "stage", "partition")
LOSS_NAMES = (
    "loss", "step_loss", "loss_step", "lm_loss", "ce_loss", "nll_loss", "cross_entropy_loss", "cross_entropy", "nll", "xent",
    "total_loss", "loss_total", "inner_loss", "epoch_loss", "loss_epoch",
)  # fmt: skip
"""Names of losses without the words that say of what data; a name further left is preferred."""

TRAINING_WORDS = frozenset({"train", "training", "trainer"})
VALIDATION_WORDS = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout"})
SMOOTH_WORDS = frozenset({"smooth", "smoothed", "ema", "avg", "average", "averaged", "running"})
MOMENTUM_WORDS = frozenset({"momentum", "beta1"})
OTHER_RATE_WORDS = frozenset(
    {"momentum", "beta1", "mult", "multiplier", "scale", "base", "peak", "max", "min", "init", "initial", "final"}
)
"""Words that make the name of a learning rate that of something else: a bound or a factor."""


@dataclass(frozen=True)
class Columns:
    """The columns of a sheet by role, the kind of its loss, and what is to be said of the choice."""

    columns: Mapping[str, str]
    validation: bool
    smoothed: bool
    remarks: tuple[str, ...]


def plain_name(name: str) -> str:
    """A name in lower case, with one underscore for whatever separates its words.

    >>> plain_name("trainer/global_step"), plain_name("lr-AdamW"), plain_name("loss (smoothed)"), plain_name("valLoss")
    ('trainer_global_step', 'lr_adam_w', 'loss_smoothed', 'val_loss')
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def checked_columns(columns: Mapping[str, str] | None) -> dict[str, str]:
    """The caller's columns by role."""
    if columns is not None and not isinstance(columns, Mapping):
        sentence = f"columns maps roles to names, such as {{'loss': 'val/loss'}}, got {columns!r:.60}"
        raise Wrong(sentence, argument="columns")
    given = dict(columns or {})
    for role, name in given.items():
        if role not in ROLES:
            raise unknown("role of a column called", str(role), ROLES, argument="columns")
        if not isinstance(name, str):
            raise Wrong(f"columns: {role} must be the name of a column, got {name!r:.60}", argument="columns")
    if len(times := [role for role in ("step", "tokens", "examples") if role in given]) > 1:
        raise Wrong(f"columns: one column is the time, got {' and '.join(times)}", argument="columns")
    return given


def find_columns(sheet: Sheet, given: Mapping[str, str], *, need_rates: bool, like: str = "") -> Columns:
    """The columns of one run. ``given`` has the caller's; the others are found by their usual names.

    ``like`` is a column of losses of another file: the losses are those of the same column, or of the same data.
    """
    columns = {role: named(sheet, role, name) for role, name in given.items() if role != "run"}
    remarks: list[str] = []
    if not columns.keys() & {"step", "tokens", "examples"}:
        columns |= _time(sheet)
    if "loss" not in columns:
        columns["loss"] = _loss_like(sheet, like) if like else _loss(sheet, remarks)
    if "lr" not in columns and need_rates:
        columns["lr"] = _rate(sheet, remarks)
    if "batch_size" not in columns and (name := _first(sheet, BATCH_NAMES)):
        columns["batch_size"] = name
    words = set(plain_name(columns["loss"]).split("_"))
    validation = of_validation(columns["loss"])
    if validation:
        remarks.append(f"The losses are validation losses, from the column {columns['loss']!r}.")
    return Columns(columns, validation, bool(words & SMOOTH_WORDS), tuple(remarks))


def named(sheet: Sheet, role: str, name: str) -> str:
    """The column that the caller names, written as in the file or nearly so."""
    if name in sheet.columns:
        return name
    alike = [column for column in sheet.columns if plain_name(column) == plain_name(name)]
    if len(alike) == 1:
        return alike[0]
    offer = [short(column, 40) for column in list(sheet.columns)[:30]]
    error = unknown(f"column for {role} called", name, offer, argument="columns")
    raise Wrong(f"{sheet.file}: {error}", argument="columns")


def is_known(name: str) -> bool:
    """Whether a name is a usual one for a loss or for a learning rate."""
    return is_loss(name) or is_rate(name)


def run_column(sheet: Sheet, given: Mapping[str, str]) -> str | None:
    """The column that says to which run a row belongs, if there is one."""
    return named(sheet, "run", given["run"]) if "run" in given else _first(sheet, RUN_NAMES)


def split_column(sheet: Sheet) -> str | None:
    """The column that says whether a row is about training or validation data, if there is one."""
    for name in sheet.columns:
        if plain_name(name) in SPLIT_NAMES:
            values = {plain_name(str(cell)) for cell in sheet.columns[name]}
            if values and values <= TRAINING_WORDS | VALIDATION_WORDS:
                return name
    return None


def is_loss(name: str) -> bool:
    """Whether a name is a usual one for a loss."""
    return _loss_rank(name) is not None


def is_rate(name: str) -> bool:
    """Whether a name is a usual one for a learning rate.

    >>> [is_rate(name) for name in ("lr", "train/learning_rate", "lr-AdamW/pg1", "min_lr", "clr")]
    [True, True, True, False, False]
    """
    plain = plain_name(name)
    words = set(plain.split("_"))
    return bool(re.search(r"(^|_)(lr|learning_rate)(_|$)", plain)) and not words & OTHER_RATE_WORDS


def momentum_columns(sheet: Sheet) -> list[str]:
    """The columns of a momentum, such as those that Lightning's monitor of learning rates logs."""
    return [name for name in sheet.columns if set(plain_name(name).split("_")) & MOMENTUM_WORDS]


def _first(sheet: Sheet, names: Sequence[str]) -> str | None:
    """The column whose name comes first among the usual names; W&B's own counters begin with an underscore and are last."""
    known = {name: rank for rank, name in enumerate(names)}
    found = [
        (name.startswith("_"), known[plain], name) for name in sheet.columns if (plain := plain_name(name)) in known
    ]
    return min(found)[2] if found else None


def _time(sheet: Sheet) -> dict[str, str]:
    for role, names in (("step", STEP_NAMES), ("tokens", TOKEN_NAMES), ("examples", EXAMPLE_NAMES)):
        if name := _first(sheet, names):
            return {role: name}
    remedy = "name it: columns={'step': ...}, or 'tokens' or 'examples'"
    raise Wrong(f"{sheet.file} has no column that is known as steps; {remedy}; {_offer(sheet)}", argument="columns")


def _loss_rank(name: str) -> tuple[bool, int] | None:
    """How usual a name is for a loss: smoothed ones last. None if it is not the name of a loss."""
    words = [word for word in plain_name(name).split("_") if word not in TRAINING_WORDS | VALIDATION_WORDS]
    core = "_".join(word for word in words if word not in SMOOTH_WORDS)
    return (set(words) & SMOOTH_WORDS != set(), LOSS_NAMES.index(core)) if core in LOSS_NAMES else None


def _loss(sheet: Sheet, remarks: list[str]) -> str:
    ranks = {name: rank for name in sheet.columns if (rank := _loss_rank(name)) is not None}
    if not ranks:
        remedy = "name it: columns={'loss': ...}"
        raise Wrong(
            f"{sheet.file} has no column that is known as a loss; {remedy}; {_offer(sheet)}", argument="columns"
        )
    order = sorted(ranks, key=lambda name: ranks[name])
    validation = [name for name in order if set(plain_name(name).split("_")) & VALIDATION_WORDS]
    training = [name for name in order if name not in validation]
    best, *others = training or validation
    if training and validation:
        other = f"columns={{'loss': {validation[0]!r}}} takes the other"
        both = f"training losses ({best!r}) and validation losses ({listed([repr(v) for v in validation])})"
        remarks.append(f"The file holds {both}; the training losses are used, and {other}.")
    if others:
        kind = "training" if training else "validation"
        remarks.append(f"Other columns of {kind} losses are not used: {listed([repr(name) for name in others])}.")
    return best


def of_validation(name: str) -> bool:
    """Whether a column is of validation data, by its name."""
    return bool(set(plain_name(name).split("_")) & VALIDATION_WORDS)


def _loss_like(sheet: Sheet, like: str) -> str:
    """The column of this name, or else the usual column of losses on the same data, training or validation."""
    if same := [name for name in sheet.columns if plain_name(name) == plain_name(like)]:
        return like if like in same else same[0]
    kind = "validation" if of_validation(like) else "training"
    ranks = {
        name: rank
        for name in sheet.columns
        if (rank := _loss_rank(name)) is not None and of_validation(name) == of_validation(like)
    }
    if not ranks:
        lacks = f"{sheet.file} has no column {like!r} and no other {kind} losses to compare with"
        raise Wrong(f"{lacks}; name one: columns={{'loss': ...}}; {_offer(sheet)}", argument="columns")
    return min(ranks, key=lambda name: ranks[name])


def _rate(sheet: Sheet, remarks: list[str]) -> str:
    rates = [name for name in sheet.columns if is_rate(name)]
    if not rates:
        schedule = "schedule='warmup(2160) + cosine(21840, end=0.1)', peak=3e-4"
        remedy = f"name its column, columns={{'lr': ...}}, or give the schedule and its peak, such as {schedule}"
        raise Wrong(f"{sheet.file} has no learning rate; {remedy}; {_offer(sheet)}", argument="schedule")
    best, *others = sorted(rates, key=lambda name: len(plain_name(name).split("_")))
    if others:
        some = listed([repr(name) for name in others])
        remarks.append(f"The learning rate is the column {best!r}; other columns of rates are not used: {some}.")
    return best


def _offer(sheet: Sheet) -> str:
    return (
        f"its columns are {listed([short(name, 40) for name in sheet.columns], 20)}" if sheet.columns else "it has none"
    )
