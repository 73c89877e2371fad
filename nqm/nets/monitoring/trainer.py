"""The monitor as a callback of Hugging Face's Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer
from transformers.trainer_callback import TrainerCallback

from .monitor import Monitor

if TYPE_CHECKING:
    from transformers.trainer_callback import TrainerControl, TrainerState
    from transformers.training_args import TrainingArguments


class TrainerMonitor(TrainerCallback):
    """Measures every step of the Trainer; ``monitor`` has the numbers.

    The Trainer calls it after clipping, which multiplies the whole gradient by one factor; the monitor finds and undoes it.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.monitor: Monitor | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        model: nn.Module = given["model"]
        optimizer: Optimizer = given["optimizer"]
        self.monitor = Monitor(model, optimizer, **{"start": state.global_step, "reduction": "mean", **self.options})

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        assert self.monitor
        self.monitor.step()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        if self.monitor:
            self.monitor.close()
