"""The monitor as a callback of Lightning's Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback
from torch import Tensor
from torch.optim import Optimizer

from ...types import Wrong
from ..trees import leaves
from .monitor import Monitor

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


REMEDY_IN_LIGHTNING = (
    "set accumulate_grad_batches of Lightning's Trainer to 2 or more, or give Monitor.lightning loss_of=, a function (module, batch) "
    "-> loss, for passes of its own"
)


class LightningMonitor(Callback):
    """Measures before clipping in every step of a LightningModule with one optimizer; ``monitor`` has the numbers.

    It needs ``accumulate_grad_batches`` of 2 or more, several ranks, or ``loss_of``. The size of a microbatch is the first axis of
    the first tensor of its batch, unless ``batch_size`` is given. Lightning gives every microbatch the same weight, so
    ``reduction`` is "mean" if it is omitted.
    """

    def __init__(self, **options: Any) -> None:
        self.options, self.monitor, self._state = options, None, {}
        self._batch: object = None
        self._loss: Tensor | None = None

    monitor: Monitor | None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if len(trainer.optimizers) != 1:
            raise Wrong(f"a monitor follows one optimizer, and the module has {len(trainer.optimizers)}", "optimizer")
        self.monitor = Monitor(
            pl_module, trainer.optimizers[0], **{"start": trainer.global_step, "reduction": "mean", **self.options}
        )
        self.monitor.remedy = REMEDY_IN_LIGHTNING
        if self._state:
            self.monitor.load_state_dict(self._state)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        assert self.monitor
        self._batch = batch
        tensors = [t for t in leaves(batch) if isinstance(t, Tensor) and t.ndim]
        if tensors:
            self.monitor.count(len(tensors[0]))

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        # Lightning has divided the loss by the number of microbatches.
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        assert self.monitor
        self.monitor.step(self._loss, batch=self._batch)
        self._loss = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.monitor:
            self.monitor.close()

    def state_dict(self) -> dict[str, Any]:
        return self.monitor.state_dict() if self.monitor else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = state_dict
