"""`Monitor`: the gradient noise scale of a training, measured by the training itself."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...engine.run import number
from ...sampling.replicas import check_whole
from ...types import Wrong, is_number
from ..adapting import SHARDED
from ..estimates import Estimate
from ..trees import leaves
from .gathering import Changed, Gatherer, sum_over_ranks, trained
from .passes import LossOf, OwnPass, unnoticed
from .preconditioning import roots_of_metric
from .ratios import GradientParts, RecentRatio
from .seeing import Calls

if TYPE_CHECKING:
    from .lightning import LightningMonitor as LightningCallback
    from .trainer import TrainerMonitor as TrainerCallback

WINDOW_SHARE = 0.2  # share of the steps so far over which noise and signal are averaged, if the caller does not say
GATHERED_EVERY = (
    5  # steps from one measurement of microbatches to the next; with Adam's metric each costs a tenth of a step
)
GATHERED_SHARE = 0.01  # but not more than this share of the steps so far, so that a window has enough measurements
OWN_EVERY = 20  # steps from one pass of the monitor's own to the next; a pass costs about as much as a step
PIECES = 8  # pieces of a batch in a pass of its own: with fewer, the signal scatters more; 8 cost 7% of the precision
KINDS_OF_SCALE = ("noise_scale", "metric_noise_scale", "curvature_noise_scale")


class Monitor:
    """The gradient noise scale of a training, from inside its loop.

    The noise scale tr C / |g|^2 is the batch size at which noise and signal of a gradient are equal, and up to a factor the critical
    batch size. It is measured from the microbatches of gradient accumulation, from the ranks of data-parallel training, or, with
    ``loss_of``, in passes of its own. The weights of the training are the same, bit by bit, with and without the monitor::

        monitor = Monitor(model, optimizer, file="run.jsonl")
        for batch in batches:
            optimizer.zero_grad()
            for x, y in batch.microbatches:
                (loss(model(x), y) / len(batch.microbatches)).backward()
            monitor.step(value)        # after the last backward pass, before clipping and optimizer.step()
            optimizer.step()

    Parameters
    ----------
    model : the module that is trained, also wrapped by DistributedDataParallel or ``torch.compile``.
    optimizer : a torch optimizer; its parameters are those that are measured, and its state gives the metric.
    loss_of : a function (model, batch) -> loss, for passes of the monitor's own over the batch given to `step`. Needed where a step
        has one backward pass on one rank, and for ``curvature_every``.
    batch_size : examples of one backward pass. If omitted, the first axis of the first tensor that the model is called with.
    examples : number of examples of the data, if batches are taken from shuffled epochs; the noise scale is then that of exactly
        these examples. Otherwise examples count as drawn from endless data.
    reduction : "mean" if every backward pass has the same weight, whatever its number of examples; "sum" if every example has. It
        matters only if the sizes of the passes differ; if omitted, such steps are not measured, and a warning says so.
    every : steps from one measurement to the next. If omitted, 5 from step 500 on and less before, and 20 with ``loss_of``.
    window : share of the steps so far over which noise and signal are averaged; where they drift, the window is shorter.
    pieces : number of pieces of a batch in a pass of its own.
    curvature_every : steps between measurements of the largest curvature and the curvature-weighted noise scale
        tr HC / g'Hg, H the Hessian on the batch; 0 for none. Each costs about 50 steps.
    file : JSON lines are appended to it, one for each measurement, for ``nqm watch`` and `nqm.logs.read_logs`.
    start : step at which the training begins.

    A step that cannot be measured (NaN gradients, an overflow of mixed precision, a gradient that is not the sum of its parts) is
    counted in ``skipped``, and the first is told in a warning.
    """

    remedy = "accumulate over two microbatches or more, or give Monitor loss_of and monitor.step the batch"
    """What a user can do where a step has one backward pass; callbacks name the settings of their trainer."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, *, loss_of: LossOf | None = None, batch_size: int | None = None,
        examples: int | None = None, reduction: str | None = None, every: int | None = None, window: float = WINDOW_SHARE,
        pieces: int = PIECES, curvature_every: int = 0, file: str | Path | None = None, start: int = 0,
    ) -> None:  # fmt: skip
        _check(model, optimizer, reduction)
        if curvature_every and loss_of is None:
            raise Wrong("curvature_every needs loss_of, a function (model, batch) -> loss", argument="loss_of")
        self.model, self.optimizer, self.loss_of = model, optimizer, loss_of
        self.examples = None if examples is None else check_whole("examples", examples, 2)
        self.every = None if every is None else check_whole("every", every, 1)
        self.pieces = check_whole("pieces", pieces, 2)
        self.curvature_every = check_whole("curvature_every", curvature_every, 0)
        self.file = None if file is None else Path(file)
        self.steps, self.skipped, self.largest_curvature = check_whole("start", start, 0), 0, math.nan
        if not (is_number(window) and 0 < window <= 1):
            raise Wrong(f"window is a share of the steps so far, above 0 and at most 1; got {window!r}", "window")
        self._ratios = {kind: RecentRatio(window) for kind in KINDS_OF_SCALE}
        fixed = None if batch_size is None else check_whole("batch_size", batch_size, 1)
        self._seen = Calls(model, fixed, reduction)
        self._gatherer = None if loss_of else Gatherer(optimizer)
        self._warned: set[str] = set()
        self.batch_size: int | None = None
        self.last: dict[str, object] = {}

    @property
    def noise_scale(self) -> Estimate:
        """tr C / |g|^2 at the present step, with its 90% interval and the steps over which it was measured."""
        return self._ratios["noise_scale"].estimate()

    @property
    def metric_noise_scale(self) -> Estimate:
        """The noise scale in the metric of the optimizer; NaN if the metric is plain."""
        return self._ratios["metric_noise_scale"].estimate()

    @property
    def curvature_noise_scale(self) -> Estimate:
        """tr HC / g'Hg on the last batches; NaN unless ``curvature_every`` is set."""
        return self._ratios["curvature_noise_scale"].estimate()

    @staticmethod
    def lightning(**options: Any) -> LightningCallback:
        """A callback for Lightning's Trainer; the options are those of `Monitor` after model and optimizer."""
        from .lightning import LightningMonitor

        return LightningMonitor(**options)

    @staticmethod
    def trainer(**options: Any) -> TrainerCallback:
        """A callback for Hugging Face's Trainer; the options are those of `Monitor` after model and optimizer."""
        from .trainer import TrainerMonitor

        return TrainerMonitor(**options)

    def count(self, examples: int) -> None:
        """Say how many examples the next backward pass has, where the inputs of the model do not show it."""
        self._seen.told(check_whole("examples", examples, 1))

    def step(self, loss: float | Tensor | None = None, *, batch: object = None) -> dict[str, object] | None:
        """Measure this step if it is its turn; to be called after the last backward pass, before clipping and the optimizer's step.

        ``loss`` is the loss that is logged, and ``batch`` what passes of the monitor's own take. What is returned is written to the
        file, or None if nothing was measured.
        """
        self.steps += 1
        try:
            row = self._measured(loss, batch) if self._due(self.steps) else None
        except Changed as reason:
            self._skip(f"step {self.steps:,} was not measured: {reason}")
            row = None
        finally:
            self._seen.clear()
            if self._gatherer:
                self._gatherer.clear()
                self._gatherer.gathering = self._due(self.steps + 1)
        if row is not None:
            self.last = row
            self._write(row)
        return row

    def close(self) -> None:
        """Take all hooks off the model; a ``with`` block does it at its end."""
        self._seen.remove()
        if self._gatherer:
            self._gatherer.remove()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers for a checkpoint of the training."""
        recent = {kind: ratio.state_dict() for kind, ratio in self._ratios.items()}
        return {"steps": self.steps, "skipped": self.skipped, "recent": recent}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        if "recent" not in state:
            raise Wrong("this is no state of a Monitor, or that of an earlier version; begin without it", "state")
        self.steps, self.skipped = int(state["steps"]), int(state["skipped"])
        for kind, ratio in self._ratios.items():
            ratio.load_state_dict(state["recent"][kind])
        if self._gatherer:
            self._gatherer.gathering = self._due(self.steps + 1)

    def __repr__(self) -> str:
        size = "" if self.batch_size is None else f", batch size {self.batch_size:,}"
        return f"Monitor(step {self.steps:,}{size}, noise scale {self.noise_scale})"

    def _spacing(self, step: int) -> int:
        """Steps from one measurement to the next, at this step."""
        if self.every is not None:
            return self.every
        if self.loss_of:
            return OWN_EVERY
        return max(1, min(GATHERED_EVERY, int((step - 1) * GATHERED_SHARE)))

    def _due(self, step: int) -> bool:
        return (step - 1) % self._spacing(step) == 0

    def _measured(self, loss: float | Tensor | None, batch: object) -> dict[str, object]:
        """A row of numbers of this step."""
        parts, self.batch_size = self._own(batch) if self.loss_of else self._gathered()
        estimates = [one.estimates(self.examples) for one in parts]
        if not all(math.isfinite(value) for pair in estimates for value in pair):
            raise Changed("a gradient is NaN or infinite")
        value = self._seen.loss()  # on every rank, because the ranks wait for each other there
        if loss is not None:
            value = float(loss.detach() if isinstance(loss, Tensor) else loss)
        row: dict[str, object] = {"step": self.steps, "loss": number(value), "lr": _rate(self.optimizer)}
        row["batch_size"] = self.batch_size
        for kind, (noise, signal) in zip(KINDS_OF_SCALE, estimates, strict=False):
            self._ratios[kind].add(self.steps, noise, signal)
            row |= {kind.replace("noise_scale", "noise"): noise, kind.replace("noise_scale", "signal"): signal}
            row |= self._scale(kind)
        if self.curvature_every and (self.steps - 1) % self.curvature_every < self._spacing(self.steps):
            row |= self._curvature(batch)
        return row | ({"skipped": self.skipped} if self.skipped else {})

    def _scale(self, kind: str) -> dict[str, object]:
        found = self._ratios[kind].estimate()
        first = None if found.steps is None else found.steps[0]
        ends = {f"{kind}_low": number(found.low), f"{kind}_high": number(found.high)}
        return {kind: number(found.value), **ends, f"{kind}_from": first}

    def _gathered(self) -> tuple[list[GradientParts], int]:
        """The parts that hooks have seen, and the examples of the step."""
        assert self._gatherer
        weights, sizes = self._seen.passes(self._gatherer.count)
        parts, examples = self._gatherer.parts(weights, sizes)
        if not parts[0].a2 < parts[0].a1 ** 2:
            alone = "a step has one backward pass on one rank, which does not tell noise from signal"
            if len(self._ratios["noise_scale"].rows):  # the rest of an epoch may be a single microbatch
                raise Changed(alone)
            raise Wrong(f"{alone}; {self.remedy}", argument="loss_of")
        return parts, examples

    def _own(self, batch: object) -> tuple[list[GradientParts], int]:
        """The parts of a pass of its own; on several ranks the mean of their estimates is that of their parts."""
        work = self._pass(batch)
        with self._seen.away(), unnoticed(self.model):
            parts = work.parts()
        device = work.parameters[0].device
        sums = torch.tensor([[p.squares, p.whole] for p in parts], dtype=torch.float32, device=device)
        ranks = sum_over_ranks(sums)
        counted = self._seen.examples or len(leaves(work.pieces[0])[0]) * len(work.pieces)
        rows = zip(parts, (sums / ranks).tolist(), strict=True)
        return [GradientParts(x, whole, p.a1, p.a2, p.d) for p, (x, whole) in rows], counted * ranks

    def _curvature(self, batch: object) -> dict[str, object]:
        with self._seen.away(), unnoticed(self.model):
            self.largest_curvature, parts = self._pass(batch).curvature()
        noise, signal = parts.estimates(self.examples)
        self._ratios["curvature_noise_scale"].add(self.steps, noise, signal)
        return {"largest_curvature": self.largest_curvature, **self._scale("curvature_noise_scale")}

    def _pass(self, batch: object) -> OwnPass:
        if batch is None:
            raise Wrong("passes of the monitor's own need the batch: monitor.step(loss, batch=batch)", argument="batch")
        assert self.loss_of
        roots = roots_of_metric(self.optimizer)
        return OwnPass(self.model, self.loss_of, batch, self.pieces, trained(self.optimizer), roots)

    def _skip(self, sentence: str) -> None:
        self.skipped += 1
        reason = sentence.partition(": ")[2]
        if reason not in self._warned:
            self._warned.add(reason)
            warnings.warn(f"nqm.nets.Monitor: {sentence}", stacklevel=3)

    def _write(self, row: dict[str, object]) -> None:
        """Append a line to the file; of several ranks the first writes."""
        from torch import distributed

        first = not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0
        if self.file is not None and first:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row, allow_nan=False) + "\n")


def _check(model: nn.Module, optimizer: Optimizer, reduction: str | None) -> None:
    if not isinstance(model, nn.Module):
        raise Wrong(f"model must be a torch.nn.Module, got {type(model).__name__}", argument="model")
    if not isinstance(optimizer, Optimizer) and not hasattr(optimizer, "param_groups"):
        raise Wrong(f"optimizer must be a torch optimizer, got {type(optimizer).__name__}", argument="optimizer")
    if reduction not in (None, "mean", "sum"):
        raise Wrong(f"reduction must be 'mean' or 'sum', got {reduction!r}", argument="reduction")
    names = {base.__name__ for module in model.modules() for base in type(module).__mro__}
    if found := names & set(SHARDED):
        remedy = "use DistributedDataParallel, or monitor a smaller copy of the run"
        raise Wrong(f"{found.pop()} splits gradients over ranks, and no rank sees them whole; {remedy}", "model")
    own, theirs = {id(p) for p in model.parameters()}, trained(optimizer)
    if missing := sum(id(p) not in own for p in theirs):
        raise Wrong(f"{missing:,} of the optimizer's {len(theirs):,} parameters are not the model's", "optimizer")


def _rate(optimizer: Optimizer) -> float | None:
    """The learning rate of the first group of parameters."""
    rate = optimizer.param_groups[0].get("lr")
    return float(rate) if is_number(rate) or isinstance(rate, Tensor) else None
