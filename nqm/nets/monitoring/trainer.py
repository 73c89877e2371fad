"""The monitor as a callback of Hugging Face's Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle
from transformers.trainer_callback import TrainerCallback

from .monitor import Monitor

SAVED_AS = "nqm.nets.Monitor"  # name of the monitor in the Trainer's state, which each checkpoint saves

if TYPE_CHECKING:
    from transformers.trainer_callback import TrainerControl, TrainerState
    from transformers.training_args import TrainingArguments


REMEDY_IN_TRAINER = (
    "set gradient_accumulation_steps of TrainingArguments to 2 or more, or give Monitor.trainer loss_of=, such as "
    "lambda model, batch: model(**batch).loss, for passes of its own"
)


class TrainerMonitor(TrainerCallback):
    """Measures steps of the Trainer; ``monitor`` has the numbers. Checkpoints of the Trainer save the monitor, too.

    The Trainer calls it after clipping, which multiplies the whole gradient by one factor; the monitor finds and undoes it.
    It needs ``gradient_accumulation_steps`` of 2 or more, several ranks, or ``loss_of``. With ``loss_of``, such as ``lambda model,
    batch: model(**batch).loss``, the batch is what the model was last called with, by name.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.monitor: Monitor | None = None
        self._batch: dict[str, Tensor] | None = None
        self._hook: RemovableHandle | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        model: nn.Module = given["model"]
        optimizer: Optimizer = given["optimizer"]
        self.monitor = Monitor(model, optimizer, **{"start": state.global_step, "reduction": "mean", **self.options})
        self.monitor.remedy = REMEDY_IN_TRAINER
        if saved := state.stateful_callbacks.get(SAVED_AS):  # type: ignore[union-attr]
            self.monitor.load_state_dict(saved)
        if self.monitor.loss_of:
            self._hook = model.register_forward_pre_hook(self._called, with_kwargs=True)

    def _called(self, module: nn.Module, args: tuple[object, ...], named: Mapping[str, object]) -> None:
        """Keep the tensors of a call under a gradient whose first axis runs over examples."""
        if torch.is_grad_enabled():
            self._batch = {name: part for name, part in named.items() if isinstance(part, Tensor) and part.ndim}

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        assert self.monitor
        self.monitor.step(batch=self._batch)
        state.stateful_callbacks[SAVED_AS] = self.monitor.state_dict()  # type: ignore[index]

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        if self.monitor:
            self.monitor.close()
        if self._hook:
            self._hook.remove()
