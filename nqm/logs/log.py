"""One training run as it was logged, and the learning rate of each of its steps."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import number, numbers
from ..optimizers import Optimizer
from ..types import Array, Wrong
from .kinds import adaptive

MAX_LOG_STEPS = 10**7  # A log lasts at most this many steps: each of its steps has a learning rate in memory.

JUMP_SHARE = 0.05  # A jump changes the rate by more than this share of the larger one between two logged steps,
JUMP_RATIO = (
    5.0  # and is steeper than its neighbours by more than this factor. Steeper decays are rare; drops are at once.
)

WARM_UP = "Rates are known from step"  # How the remark begins that says that a warm-up is assumed.


@dataclass(frozen=True, eq=False, repr=False)
class Log(Tabular):
    """The losses of a training run, with the learning rates that produced them; it checks itself when it is built.

    Parameters
    ----------
    step : whole numbers from 0 on that rise. The loss at step t is the loss after t updates.
    loss : one finite number for each logged step.
    lr : one learning rate for each logged step (the rate at step t is that of update t), or one for every step of the
        training (``lr[i]`` is that of update i + 1), or one number, a constant rate. If both readings are possible, the
        rates are those of the logged steps.
    batch_size : examples in a batch, one number or one for each logged step.
    optimizer : an optimizer, or its name, such as AdamW or SGD; ``"other"`` for one that is not known here.
    weight_decay : a number.
    name : what tables and pictures call the run.
    remarks : sentences that say what was assumed and what was handled when the log was read.
    column : the name of the column of a file that the losses come from.

    >>> log = Log([2, 4, 6], [3.0, 2.0, 1.5], [0.1, 0.1, 0.05], name="short")
    >>> log
    Log(short: 3 points from step 2 to 6, loss 3 -> 1.5, lr 0.1 -> 0.05, 1 remark)
    >>> log.rates.tolist()
    [0.05, 0.1, 0.1, 0.1, 0.07500000000000001, 0.05]
    >>> print(*log.remarks)
    Rates are known from step 2 on; before it, a linear warm-up of the learning rate from 0 to 0.1 is assumed.
    """

    step: Array
    loss: Array
    lr: Any
    batch_size: Any = None
    optimizer: Optimizer | str | None = None
    weight_decay: float | None = None
    name: str = ""
    _: KW_ONLY
    remarks: tuple[str, ...] = ()
    column: str = ""

    def __post_init__(self) -> None:
        step, loss = _steps(self.step), _row("loss", self.loss)
        if loss.size != step.size:
            raise Wrong(f"loss has {loss.size:,} values for {step.size:,} steps", argument="loss")
        if not np.all(np.isfinite(loss)):
            bad = int(np.argmin(np.isfinite(loss)))
            raise Wrong(f"loss must be finite, got {loss[bad]} at step {step[bad]:,}; omit that point", argument="loss")
        lr = _rates(self.lr, step)
        batch_size = self.batch_size if self.batch_size is None else _batch_sizes(self.batch_size, step)
        if not (self.optimizer is None or isinstance(self.optimizer, str | Optimizer)):
            raise Wrong(f"optimizer must be an optimizer or its name, got {self.optimizer!r:.60}", argument="optimizer")
        if self.optimizer is not None:
            adaptive(self.optimizer)  # An unknown name is refused.
        weight_decay = self.weight_decay if self.weight_decay is None else _row("weight_decay", self.weight_decay)
        if weight_decay is not None and (weight_decay.size != 1 or not 0 <= weight_decay[0] < np.inf):
            sentence = f"weight_decay must be a number that is not negative, got {self.weight_decay!r:.60}"
            raise Wrong(sentence, argument="weight_decay")
        for field in ("name", "column"):
            if not isinstance(text := getattr(self, field), str):
                raise Wrong(f"{field} must be text, got {text!r:.60}", argument=field)
        remarks = (self.remarks,) if isinstance(self.remarks, str) else tuple(self.remarks)
        for array in (step, loss, lr):
            array.setflags(write=False)
        values = {"step": step, "loss": loss, "lr": lr, "batch_size": batch_size}
        values["weight_decay"] = None if weight_decay is None else float(weight_decay[0])
        for name, value in values.items():
            object.__setattr__(self, name, value)
        assumed = self._assumed()
        object.__setattr__(self, "remarks", remarks if assumed in (None, *remarks) else (*remarks, assumed))

    @property
    def every_step(self) -> bool:
        """Whether ``lr`` has one rate for every step of the training, and not one for each logged step."""
        return self.lr.size != self.step.size

    @property
    def rates(self) -> Array:
        """The learning rate of each training step 1, 2, ..., up to the last logged one.

        Rates of every step are returned as they are. Rates of logged steps are interpolated linearly, except across a
        jump: there the earlier rate holds through the later logged step, whose loss was reached with it. Before the first
        logged step they rise linearly from 0: the rate of step i is ``lr[0] * i / step[0]``.
        """
        last = int(self.step[-1])
        if self.every_step:
            return self.lr[:last]
        return interpolated(self.step, self.lr, last)

    @property
    def logged_rates(self) -> Array:
        """The learning rate at each logged step: that of its update, and at step 0 that of the first update."""
        if not self.every_step:
            return self.lr
        return self.lr[np.maximum(self.step, 1) - 1]

    def table(self) -> list[dict[str, Any]]:
        """One row for each logged step."""
        from ..show.tables import rows_of

        columns = {"step": self.step, "loss": self.loss, "lr": self.logged_rates}
        if self.batch_size is not None:
            columns["batch_size"] = np.broadcast_to(self.batch_size, self.step.shape)
        return rows_of(columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, from which ``Log(**...)`` makes the same log."""
        constant = self.every_step and np.all(self.lr == self.lr[0])
        sizes = self.batch_size
        return {
            "name": self.name, "step": numbers(self.step), "loss": numbers(self.loss),
            "lr": number(self.lr[0]) if constant else numbers(self.lr),
            "batch_size": numbers(sizes) if isinstance(sizes, np.ndarray) else number(sizes),
            "optimizer": None if self.optimizer is None else str(self.optimizer),
            "weight_decay": number(self.weight_decay), "remarks": list(self.remarks),
            "column": self.column,
        }  # fmt: skip

    def _brief(self) -> str:
        name = f"{self.name}: " if self.name else ""
        points = (
            "1 point at step" if self.step.size == 1 else f"{self.step.size:,} points from step {self.step[0]:,} to"
        )
        rates = self.logged_rates
        course = f"loss {self.loss[0]:.4g} -> {self.loss[-1]:.4g}, lr {rates[0]:.4g} -> {rates[-1]:.4g}"
        said = {0: "", 1: ", 1 remark"}.get(len(self.remarks), f", {len(self.remarks)} remarks")
        return f"{name}{points} {self.step[-1]:,}, {course}{said}"

    def _notes(self) -> tuple[str, ...]:
        return self.remarks

    def _assumed(self) -> str | None:
        """The sentence on the warm-up that `rates` assumes, if it assumes one."""
        if self.every_step or self.step[0] <= 1 or self.lr[0] == 0:
            return None
        return warm_up_assumed(int(self.step[0]), float(self.lr[0]))


def warm_up_assumed(first: int, rate: float) -> str:
    """The sentence that says that a warm-up before the first logged rate is assumed."""
    warm_up = f"a linear warm-up of the learning rate from 0 to {rate:.4g} is assumed"
    return f"{WARM_UP} {first:,} on; before it, {warm_up}."


def for_every_step(rates: Array, points: int) -> Array:
    """Rates of every step in a form that `Log` cannot take for those of ``points`` logged steps: one more if need be."""
    return np.append(rates, rates[-1]) if rates.size == points else rates


def interpolated(step: Array, lr: Array, last: int) -> Array:
    """Rates of the steps 1 to ``last`` from rates at some steps: linear between them, and from 0 before the first."""
    if step[0] > 0:
        step, lr = np.append(0, step), np.append(0.0, lr)
    rates = np.interp(np.arange(1, last + 1), step, lr)
    for i in jumps(step, lr):
        rates[int(step[i]) : int(step[i + 1])] = lr[i]
    return rates


def jumps(step: Array, lr: Array) -> Array:
    """The intervals between logged steps, the first excepted, over which the rate jumps instead of moving on."""
    slope = np.abs(np.diff(lr)) / np.diff(step)
    if len(slope) < 3:
        return np.array([], dtype=np.int64)
    around = np.maximum(slope[:-2], slope[2:])  # the steeper neighbour of each inner interval
    big = np.abs(np.diff(lr))[1:-1] > JUMP_SHARE * np.maximum(lr[1:-2], lr[2:-1])
    return 1 + np.flatnonzero(big & (slope[1:-1] > JUMP_RATIO * around))


def _row(name: str, values: object) -> Array:
    """Numbers as a new row of floats."""
    try:
        row = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        row = None
    if row is None or row.ndim > 1:
        raise Wrong(f"{name} must be a row of numbers, got {values!r:.60}", argument=name)
    return np.atleast_1d(row)


def _steps(values: object) -> Array:
    step = _row("step", values)
    if not step.size:
        raise Wrong("step must have one value or more, got none", argument="step")
    fine = np.isfinite(step)
    whole = fine & (step == np.rint(np.where(fine, step, 0.5))) & (step >= 0)
    if not whole.all():
        bad = step[int(np.argmin(whole))]
        raise Wrong(f"step must be whole numbers that are not negative, got {bad:g}", argument="step")
    if np.any(np.diff(step) <= 0):
        i = int(np.argmax(np.diff(step) <= 0))
        raise Wrong(f"step must rise, got {step[i + 1]:,.0f} after {step[i]:,.0f}", argument="step")
    if step[-1] > MAX_LOG_STEPS:
        remedy = "if these are tokens or examples, divide them by those of one step"
        raise Wrong(f"step: a log has at most {MAX_LOG_STEPS:,} steps, got {step[-1]:,.0f}; {remedy}", argument="step")
    return step.astype(np.int64)


def _rates(values: object, step: Array) -> Array:
    lr, last = _row("lr", values), int(step[-1])
    if not np.all(np.isfinite(lr) & (lr >= 0)):
        bad = lr[int(np.argmin(np.isfinite(lr) & (lr >= 0)))]
        raise Wrong(f"lr must be finite and not negative, got {bad:g}", argument="lr")
    if np.ndim(values) == 0:  # type: ignore[arg-type]
        return np.full(last or step.size, lr[0])
    if lr.size != step.size and lr.size < last:
        either = f"one rate for each of the {step.size:,} logged steps, or one for every step up to {last:,}"
        raise Wrong(f"lr must have {either}, got {lr.size:,}", argument="lr")
    return lr


def _batch_sizes(values: object, step: Array) -> Array | float:
    sizes = _row("batch_size", values)
    if sizes.size not in (1, step.size):
        raise Wrong(f"batch_size has {sizes.size:,} values for {step.size:,} steps", argument="batch_size")
    if not np.all(np.isfinite(sizes) & (sizes > 0)):
        bad = sizes[int(np.argmin(np.isfinite(sizes) & (sizes > 0)))]
        raise Wrong(f"batch_size must be positive and finite, got {bad:g}", argument="batch_size")
    if np.ndim(values) == 0 or sizes.size != step.size:  # type: ignore[arg-type]
        return float(sizes[0])
    sizes.setflags(write=False)
    return sizes
