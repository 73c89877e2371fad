"""Trainings of two processes under a monitor, for `test_ranks`: each process has its own microbatches."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from nqm.nets import Monitor


def model_of() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(320, 6, generator=generator), torch.randint(3, (320,), generator=generator)


def train(rank: int, ranks: int, file: Path) -> None:
    """Ten steps of 32 examples, which the ranks share, each in ``4 / ranks`` microbatches of 8."""
    torch.set_num_threads(1)
    plain = model_of()
    model = DistributedDataParallel(plain) if ranks > 1 else plain
    optimizer = torch.optim.Adam(plain.parameters(), 1e-2)
    x, y = data()
    mine = 4 // ranks
    with Monitor(model, optimizer, file=file, every=1) as monitor:
        for t in range(10):
            optimizer.zero_grad()
            for i in range(rank * mine, (rank + 1) * mine):
                at = slice(32 * t + 8 * i, 32 * t + 8 * i + 8)
                last = i == (rank + 1) * mine - 1
                if ranks > 1 and not last:
                    with model.no_sync():  # type: ignore[operator]
                        (F.cross_entropy(model(x[at]), y[at]) / mine).backward()
                else:
                    (F.cross_entropy(model(x[at]), y[at]) / mine).backward()
            monitor.step(1.0)
            nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
            optimizer.step()
    if rank == 0:
        torch.save(plain.state_dict(), file.with_suffix(".pt"))


def train_language_model(ranks: int, file: Path, average: bool = True) -> list[float]:
    """Four steps of a GPT-2 in Hugging Face's Trainer, on 16 sequences each, and the losses that the Trainer logs itself."""
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=11, n_positions=12, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(11, (64, 12), generator=torch.Generator().manual_seed(2))
    labels = tokens.clone()
    for i, row in enumerate(labels):
        row[6 + i % 7 :] = -100  # sequences of 6 to 12 tokens
    arguments = transformers.TrainingArguments(
        str(file.parent / "trainer"), per_device_train_batch_size=4, gradient_accumulation_steps=4 // ranks, num_train_epochs=1,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, learning_rate=0.01, logging_steps=1,
        average_tokens_across_devices=average, ddp_backend="gloo" if ranks > 1 else None,
    )  # fmt: skip

    class Ordered(transformers.Trainer):
        def _get_train_sampler(self, *_: object) -> torch.utils.data.Sampler[int]:
            return torch.utils.data.SequentialSampler(tokens)  # type: ignore[arg-type]

    examples = [{"input_ids": t, "labels": l} for t, l in zip(tokens, labels, strict=True)]
    trainer = Ordered(model, arguments, train_dataset=examples, callbacks=[Monitor.trainer(file=file, every=1)])
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


if __name__ == "__main__":
    where, this = Path(sys.argv[1]), int(sys.argv[2])
    if sys.argv[3:]:
        logged = train_language_model(2, where / "two.jsonl", average=sys.argv[3] == "average")
        if this == 0:
            (where / "logged.json").write_text(json.dumps(logged))
        sys.exit()
    distributed.init_process_group("gloo", init_method=f"file://{where / 'meeting'}", rank=this, world_size=2)
    train(this, 2, where / "two.jsonl")
    distributed.barrier()  # A rank that leaves while the other is connected may end in an abort.
    distributed.destroy_process_group()
