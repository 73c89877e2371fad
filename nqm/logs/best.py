"""The best schedule of a forecast as a result, and the forms in which schedules are written: text, torch, Megatron."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import number, numbers
from ..engine.schedule import Schedule
from ..types import Array, Wrong, is_number
from .outlook import Outlook

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..show.chart import OnAxes


@dataclass(frozen=True, eq=False, repr=False)
class BestSchedule(Tabular):
    """Learning rates that end with the least expected loss, and what they gain over the usual schedules.

    ``schedule`` has multipliers on ``peak``. ``rivals`` has a row for each usual schedule of the same length, tuned: its name,
    its settings, its loss, and how far above the best it ends.
    """

    schedule: Schedule
    peak: float
    steps: int
    loss: float
    low: float
    high: float
    rivals: list[dict[str, Any]]
    outlook: Outlook
    batch_size: float | None
    trained: int  # steps of the trunk, which were given
    compared: dict[str, Outlook]  # the forecast of each rival, by its name

    def _brief(self) -> str:
        interval = f"loss {self.loss:.4f} ({self.low:.4f} to {self.high:.4f})"
        best = min(self.rivals, key=lambda row: row["loss"])
        return f"{self.steps:,} steps, peak {self.peak:.3g}: {interval}, {best['above']:.4f} below the best {best['schedule']}"

    def _notes(self) -> tuple[str, ...]:
        return (self.outlook.sentence,)

    @property
    def rates(self) -> Array:
        """The learning rate of each step."""
        return self.peak * self.schedule.multipliers("lr", self.steps)

    def table(self) -> list[dict[str, Any]]:
        """One row for each stretch of constant rate: where it begins, its steps, its rate."""
        ends, lengths = self.schedule.ends, self.schedule.lengths
        pieces = zip(ends, lengths, self.schedule.lr, self.schedule.batch_size, strict=True)
        sizes = self.batch_size is not None
        return [
            {"start": int(end - n), "steps": int(n), "lr": float(self.peak * a)}
            | ({"batch_size": float(self.batch_size * b)} if sizes else {})  # type: ignore[operator]
            for end, n, a, b in pieces
        ]

    def text(self) -> str:
        """The schedule in the words of the command line: straight lines between the corners of the curve."""
        parts = []
        for start, end, first, last in corners(self.schedule.multipliers("lr", self.steps)):
            n, a, b = end - start, f"{first:.4g}", f"{last:.4g}"
            parts.append(f"constant({n}, {a})" if a == b else f"linear({n}, start={a}, end={b})")
        return " + ".join(parts)

    def torch(self) -> str:
        """A snippet that schedules a torch optimizer whose learning rate is ``peak``."""
        rows = corners(self.schedule.multipliers("lr", self.steps))
        points = [(start, first) for start, _, first, _ in rows] + [(rows[-1][1], rows[-1][3])]
        return (
            "import numpy as np\nimport torch\n\n"
            f"# The optimizer has lr={self.peak:.6g}; the multipliers are straight lines between these steps.\n"
            f"STEPS = {[int(t) for t, _ in points]}\nMULTIPLIERS = {[float(f'{v:.5g}') for _, v in points]}\n"
            "scheduler = torch.optim.lr_scheduler.LambdaLR(\n"
            "    optimizer, lambda step: float(np.interp(step, STEPS, MULTIPLIERS))\n)\n"
        )

    def megatron(self, tokens_per_example: float = 1.0) -> str:
        """Batch sizes as Megatron's ``--step-batch-size-schedule`` takes them: tokens (or examples) seen, and the batch size.

        Without a schedule of batch sizes this is the one batch size, from the beginning.
        """
        if self.batch_size is None:
            raise Wrong("these logs have no batch size, so there is no schedule of it to write", argument="batch_size")
        return step_batch_sizes(self.schedule, self.batch_size, tokens_per_example)

    def to_dict(self) -> dict[str, Any]:
        return {
            "steps": self.steps, "peak": number(self.peak), "loss": number(self.loss), "low": number(self.low),
            "high": number(self.high), "rivals": self.rivals, "batch_size": number(self.batch_size), "text": self.text(),
            "lr": numbers(self.peak * self.schedule.lr), "lengths": [int(n) for n in self.schedule.lengths],
            "sentence": self.outlook.sentence,
        }  # fmt: skip

    def plot(self, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
        """Expected losses of the best schedule and of its rivals, and their learning rates below; written to ``path`` if given."""
        from .plots import plot_best

        return plot_best(self, path, ax=ax)


def corners(values: Array, tolerance: float = 0.004) -> list[tuple[int, int, float, float]]:
    """Straight lines (start, end, first, last) through a row of values, each within a share of the largest."""
    steps = len(values)
    going = (
        2 * values[-1] - values[-2] if steps > 1 else values[-1]
    )  # The last line goes on to the end of the last step.
    middle = np.append(values, max(float(going), 0.0))
    found: list[tuple[int, int, float, float]] = []
    stack = [(0, steps)]
    limit = tolerance * float(values.max())
    while stack:
        start, end = stack.pop()
        line = np.linspace(middle[start], middle[end], end - start + 1)
        off = np.abs(line - middle[start : end + 1])
        worst = int(off.argmax())
        if off[worst] <= limit or end - start < 2:
            found.append((start, end, float(middle[start]), float(middle[end])))
        else:
            stack += [(start, start + worst), (start + worst, end)]
    return sorted(found)


def step_batch_sizes(schedule: Schedule, batch_size: float, tokens_per_example: float = 1.0) -> str:
    """Megatron's ``--step-batch-size-schedule``: pairs of what has been seen and the batch size from there on.

    Megatron counts in tokens and divides them by its ``--seq-length``, which ``tokens_per_example`` must be. The counts begin
    with 0 and increase strictly.
    """
    if not (is_number(tokens_per_example) and 1 <= tokens_per_example < math.inf):
        raise Wrong(f"an example must have at least one token, got {tokens_per_example!r}", "tokens_per_example")
    sizes = np.maximum(1, np.rint(batch_size * schedule.batch_size)).astype(np.int64)
    seen = np.append(0.0, np.cumsum(schedule.lengths * sizes))[:-1] * tokens_per_example
    kept = np.append(True, sizes[1:] != sizes[:-1])
    return " ".join(f"{compact(round(t))}:{b}" for t, b in zip(seen[kept].tolist(), sizes[kept], strict=True))


def compact(count: int) -> str:
    """A count as Megatron reads it, exactly: 250B, 1500K, 12. A unit is used only for whole multiples of it."""
    for unit, name in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count and count % unit == 0:
            return f"{count // unit}{name}"
    return str(count)
