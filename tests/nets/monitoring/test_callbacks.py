"""The callbacks of the monitor in the real trainers: the numbers of a plain loop, and the same weights as without them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from nqm import Wrong
from nqm.nets import Monitor


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(128, 6, generator=generator), torch.randint(3, (128,), generator=generator)


def model_of() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def plain_loop(file: Path, clip: float | None) -> nn.Module:
    """Eight steps of two microbatches of 8."""
    model, (x, y) = model_of(), data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Monitor(model, optimizer, file=file, every=1) as monitor:
        for t in range(0, 128, 16):
            optimizer.zero_grad()
            losses = [F.cross_entropy(model(x[i : i + 8]), y[i : i + 8]) / 2 for i in (t, t + 8)]
            for loss in losses:
                loss.backward()
            monitor.step(float(sum(loss.detach() for loss in losses)))
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return model


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def same(one: Path, other: Path) -> None:
    here, there = rows(one), rows(other)
    assert len(here) == len(there) == 8
    for a, b in zip(here, there, strict=True):
        for name in ("step", "loss", "lr", "batch_size", "noise", "signal"):
            np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-7, err_msg=name)


@pytest.mark.slow
def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model_of()

        def training_step(self, batch: Any, index: int) -> Tensor:
            return F.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    def train(*callbacks: Any) -> nn.Module:
        module = Module()
        trainer = lightning.Trainer(
            max_epochs=1, accumulate_grad_batches=2, gradient_clip_val=0.2, callbacks=list(callbacks), accelerator="cpu",
            logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(module, DataLoader(TensorDataset(*data()), batch_size=8))
        return module.model

    callback = Monitor.lightning(file=tmp_path / "lightning.jsonl", every=1)
    watched, alone = train(callback), train()
    looped = plain_loop(tmp_path / "plain.jsonl", 0.2)
    same(tmp_path / "plain.jsonl", tmp_path / "lightning.jsonl")
    assert callback.monitor is not None
    assert callback.monitor.noise_scale.value > 0
    for one, other, third in zip(watched.parameters(), alone.parameters(), looped.parameters(), strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, third)


@pytest.mark.slow
def test_a_resumed_training_of_lightning_gives_the_same_answer(tmp_path: Path) -> None:
    """An epoch of eight steps, a checkpoint, and another epoch in another Trainer."""
    lightning = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model_of()

        def training_step(self, batch: Any, index: int) -> Tensor:
            return F.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 0.01)

    def train(name: str, resumed: Path | None = None) -> Monitor:
        callback = Monitor.lightning(file=tmp_path / f"{name}.jsonl", every=1, window=1.0)
        saving = lightning.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
        trainer = lightning.Trainer(
            max_epochs=2, accumulate_grad_batches=2, callbacks=[callback, *([] if resumed else [saving])], accelerator="cpu",
            logger=False, enable_checkpointing=not resumed, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Module(), DataLoader(TensorDataset(*data()), batch_size=8), ckpt_path=resumed)
        assert callback.monitor is not None
        return callback.monitor

    whole = train("whole")
    rest = train("rest", tmp_path / "epoch=0.ckpt")
    assert rest.state_dict() == whole.state_dict()
    assert rest.noise_scale == whole.noise_scale
    assert rest.noise_scale.steps == (1, 16)
    assert rows(tmp_path / "rest.jsonl") == rows(tmp_path / "whole.jsonl")[8:]


class Rows(Dataset[dict[str, Tensor]]):
    """The examples as Hugging Face's Trainer takes them."""

    def __init__(self) -> None:
        self.x, self.y = data()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.x[index], "labels": self.y[index]}


class WithLoss(nn.Module):
    """A model that returns its loss, as those of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model_of()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.model(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.slow
def test_trainer_of_hugging_face(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")

    class Ordered(transformers.Trainer):
        def _get_train_sampler(self, *_: object) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    def train(*callbacks: Any) -> nn.Module:
        model = WithLoss()
        arguments = transformers.TrainingArguments(
            str(tmp_path), per_device_train_batch_size=8, gradient_accumulation_steps=2, num_train_epochs=1, max_grad_norm=0.2,
            report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, learning_rate=0.1,
            lr_scheduler_type="constant",
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
        trainer = Ordered(
            model, arguments, train_dataset=Rows(), callbacks=list(callbacks), optimizers=(optimizer, schedule)
        )
        trainer.train()
        return model.model

    callback = Monitor.trainer(file=tmp_path / "trainer.jsonl", every=1)
    watched, alone = train(callback), train()
    plain_loop(tmp_path / "plain.jsonl", 0.2)
    same(tmp_path / "plain.jsonl", tmp_path / "trainer.jsonl")
    for one, other in zip(watched.parameters(), alone.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("restored", [False, True])
def test_a_resumed_training_of_hugging_face_gives_the_same_answer(restored: bool, tmp_path: Path) -> None:
    """Resumed from the checkpoint at step 4 of 8, also where the Trainer restores callbacks of its own kind."""
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")

    def train(name: str, checkpoint: Path | None = None) -> Monitor:
        arguments = transformers.TrainingArguments(
            str(tmp_path), per_device_train_batch_size=8, gradient_accumulation_steps=2, num_train_epochs=1, report_to=[],
            save_steps=4, use_cpu=True, disable_tqdm=True, learning_rate=0.01, save_strategy="no" if checkpoint else "steps",
            restore_callback_states_from_checkpoint=restored,
        )  # fmt: skip
        callback = Monitor.trainer(file=tmp_path / f"{name}.jsonl", every=1, window=1.0)
        trainer = transformers.Trainer(WithLoss(), arguments, train_dataset=Rows(), callbacks=[callback])
        trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        assert callback.monitor is not None
        return callback.monitor

    whole = train("whole")
    rest = train("rest", tmp_path / "checkpoint-4")
    assert rest.state_dict() == whole.state_dict()
    assert rest.metric_noise_scale == whole.metric_noise_scale
    assert rest.noise_scale.steps == (1, 8)
    assert rows(tmp_path / "rest.jsonl") == rows(tmp_path / "whole.jsonl")[4:]


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_trainer_without_accumulation_and_with_a_rest(own: bool, tmp_path: Path) -> None:
    """A pass of its own takes the batch of the model; and an epoch that ends with one microbatch does not end the training."""
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=8, gradient_accumulation_steps=1 if own else 3, num_train_epochs=1,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, learning_rate=0.0,
    )  # fmt: skip
    loss_of = (lambda model, batch: model(**batch)["loss"]) if own else None
    callback = Monitor.trainer(file=tmp_path / "run.jsonl", every=1, loss_of=loss_of)
    trainer = transformers.Trainer(WithLoss(), arguments, train_dataset=Rows(), callbacks=[callback])
    if own:
        trainer.train()
    else:
        with pytest.warns(UserWarning, match="step 6 was not measured: a step has one backward pass"):
            trainer.train()
    found = rows(tmp_path / "run.jsonl")
    assert [row["batch_size"] for row in found] == ([8] * 16 if own else [24] * 5)
    x, y = data()
    exact = torch.stack(
        [torch.cat([g.reshape(-1) for g in torch.autograd.grad(F.cross_entropy(m(x[i]), y[i]), list(m.parameters()))])
         for m in [model_of()] for i in range(len(x))]
    )  # fmt: skip
    trace = float(exact.var(0, correction=0).sum())
    noise = np.array([row["noise"] for row in found])
    assert abs(noise.mean() - trace) < 4 * noise.std() / len(noise) ** 0.5


@pytest.mark.slow
def test_a_callback_without_accumulation_says_what_to_set_in_its_trainer(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers, lightning = pytest.importorskip("transformers"), pytest.importorskip("lightning.pytorch")
    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=8, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True
    )
    trainer = transformers.Trainer(WithLoss(), arguments, train_dataset=Rows(), callbacks=[Monitor.trainer()])
    with pytest.raises(
        Wrong, match=r"gradient_accumulation_steps of TrainingArguments to 2 or more, or .* loss_of="
    ) as told:
        trainer.train()
    assert told.value.argument == "loss_of"
    assert "monitor.step" not in str(told.value)  # The callback calls it.

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model_of()

        def training_step(self, batch: Any, index: int) -> Tensor:
            return F.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    alone = lightning.Trainer(
        max_epochs=1, callbacks=[Monitor.lightning()], accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    with pytest.raises(Wrong, match=r"accumulate_grad_batches of Lightning's Trainer to 2 or more, or .* loss_of="):
        alone.fit(Module(), DataLoader(TensorDataset(*data()), batch_size=8))


@pytest.mark.slow
def test_trainer_of_hugging_face_with_ragged_sequences(tmp_path: Path) -> None:
    """Each token has the same weight there, so a microbatch has the weight of its tokens."""
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=11, n_positions=12, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(11, (64, 12), generator=torch.Generator().manual_seed(2))
    labels = tokens.clone()
    for i, row in enumerate(labels):
        row[4 + i // 4 % 8 :] = -100

    examples = [{"input_ids": t, "labels": l} for t, l in zip(tokens, labels, strict=True)]
    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=4, gradient_accumulation_steps=4, num_train_epochs=1, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, learning_rate=0.0,
    )  # fmt: skip
    callback = Monitor.trainer(file=tmp_path / "run.jsonl", every=1)
    transformers.Trainer(model, arguments, train_dataset=examples, callbacks=[callback]).train()
    found = rows(tmp_path / "run.jsonl")
    assert [row["batch_size"] for row in found] == [16] * 4
    assert not callback.monitor.skipped  # type: ignore[union-attr]
    assert all(0.5 < row["loss"] / np.log(11) < 1.5 for row in found)
