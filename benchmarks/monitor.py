"""Whether the monitor's noise scale is that of the present, how often its intervals hold it, and what it costs.

    python -m benchmarks.monitor train llama 0 6 FOLDER      record the seeds 0 to 5 of one training into a folder
    python -m benchmarks.monitor train llama 0 3 FOLDER epochs       the same with shuffled epochs
    python -m benchmarks.monitor answer FOLDER FILE.csv      what the monitor answers from these records, beside the exact noise scale
    python -m benchmarks.monitor cost

Every 10 steps the exact noise scale is computed from the gradients of all single examples at the weights of that step, in the plain
metric and in the optimizer's. Batches are drawn with replacement, or in shuffled epochs. Constants of `ratios` were chosen on `mlp`,
`cnn_cosine`, `mlp_adamw` and `transformer`; `cnn` (in Lightning) and `llama` (in Hugging Face's Trainer) had no part in the choice.
Times are CPU seconds of one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import csv
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from nqm.nets import Monitor, workload
from nqm.nets.monitoring.monitor import WINDOW_SHARE
from nqm.nets.monitoring.preconditioning import roots_of_metric
from nqm.nets.monitoring.ratios import RecentRatio

STEPS = 601
EXACT_EVERY = 10  # steps from one exact noise scale to the next
CHUNK = 128  # examples whose gradients are computed together
ANSWERED = {"early": (31, 61, 101, 151), "late": (301, 401, 501, 551, 591)}  # steps whose answers are compared
CHOSEN_ON = ("mlp", "cnn_cosine", "mlp_adamw", "transformer")  # trainings on which the constants were chosen
Rows = list[list[float]]
LossOf = Callable[[Any, Tensor, Tensor], Tensor]


class Recorder:
    """Exact noise tr C and signal |g|^2 over all examples, every 10 steps, in the plain metric and the optimizer's."""

    def __init__(self, model: nn.Module, loss_of: LossOf, data: tuple[Tensor, Tensor]) -> None:
        self.data, self.rows = data, []

        def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return loss_of(lambda inputs, **named: functional_call(model, weights, (inputs,), named), x[None], y[None])

        self.gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def step(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if step % EXACT_EVERY == 1:
            self.rows.append([step, *self.exact(model, roots_of_metric(optimizer))])

    def exact(self, model: nn.Module, roots: dict[Tensor, Tensor] | None) -> list[float]:
        named = dict(model.named_parameters())
        weights = {name: p.detach() for name, p in named.items()}
        kinds = 1 if roots is None else 2
        squares, total = (
            [0.0] * kinds,
            [{name: torch.zeros_like(p) for name, p in weights.items()} for _ in range(kinds)],
        )
        for x, y in zip(*(part.split(CHUNK) for part in self.data), strict=True):
            for name, rows in self.gradients(weights, x, y).items():
                for k in range(kinds):
                    scaled = rows if k == 0 or roots is None else rows * roots[named[name]]
                    squares[k] += float((scaled**2).sum())
                    total[k][name] += scaled.sum(0)
        n, found = len(self.data[0]), []
        for k in range(kinds):
            signal = sum(float((one.double() ** 2).sum()) for one in total[k].values()) / n**2
            found += [squares[k] / n - signal, signal]
        return found


def classified(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def digits(n: int = 1797) -> tuple[Tensor, Tensor]:
    x, y = workload("digits").network(0, examples=n, seed=0).data
    return x, y


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def drawn(examples: int, seed: int, replace: bool) -> Callable[[int], Tensor]:
    """Draws batches of row numbers."""
    rng, left = np.random.default_rng([3, seed]), np.zeros(0, int)

    def draw(size: int) -> Tensor:
        nonlocal left
        if replace:
            return torch.as_tensor(rng.integers(examples, size=size))
        if len(left) < size:
            left = rng.permutation(examples)
        picks, left = left[:size], left[size:]
        return torch.as_tensor(picks)

    return draw


def plain(
    make: Callable[[], nn.Module], data: tuple[Tensor, Tensor], optimizer_of: Any, batch: int, seed: int, file: Path, replace: bool,
    cosine: bool = False,
) -> Rows:  # fmt: skip
    """A training in plain PyTorch, in four microbatches a step."""
    torch.manual_seed(seed)
    model, (x, y) = make(), data
    optimizer = optimizer_of(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS + 9) if cosine else None
    recorder = Recorder(make(), classified, data)
    draw = drawn(len(x), seed, replace)
    with Monitor(model, optimizer, file=file, every=1, examples=None if replace else len(x)) as monitor:
        for step in range(1, STEPS + 1):
            optimizer.zero_grad()
            picks = draw(batch)
            for part in picks.chunk(4):
                (classified(model, x[part], y[part]) / 4).backward()
            recorder.step(step, model, optimizer)
            monitor.step()
            optimizer.step()
            if schedule:
                schedule.step()
    return recorder.rows


SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW


def train_mlp(seed: int, file: Path, replace: bool) -> Rows:
    return plain(mlp, digits(), lambda p: SGD(p, 0.1), 32, seed, file, replace)


def train_mlp_adamw(seed: int, file: Path, replace: bool) -> Rows:
    return plain(mlp, digits(), lambda p: ADAMW(p, 3e-3), 64, seed, file, replace, cosine=True)


def train_cnn_cosine(seed: int, file: Path, replace: bool) -> Rows:
    return plain(cnn, digits(), lambda p: SGD(p, 0.02, momentum=0.9), 32, seed, file, replace, cosine=True)


def train_transformer(seed: int, file: Path, replace: bool) -> Rows:
    chosen = workload("moby_transformer")
    data = chosen.network(0, examples=1000, seed=0).data
    return plain(lambda: chosen.fresh_model(seed), data, lambda p: ADAMW(p, 3e-3), 32, seed, file, replace)


def train_cnn(seed: int, file: Path, replace: bool) -> Rows:
    import logging
    import warnings

    import lightning.pytorch as lightning
    from torch.utils.data import DataLoader, RandomSampler, TensorDataset

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    x, y = digits()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(seed)
            self.model = cnn()

        def training_step(self, batch: Any, index: int) -> Tensor:
            return F.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return SGD(self.parameters(), 0.02, momentum=0.9)

    recorder = Recorder(cnn(), classified, (x, y))

    class Exact(lightning.Callback):
        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            recorder.step(trainer.global_step + 1, pl_module.model, optimizer)

    monitor = Monitor.lightning(file=file, every=1, examples=None if replace else len(x))
    trainer = lightning.Trainer(
        max_steps=STEPS, accumulate_grad_batches=4, callbacks=[Exact(), monitor],
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    sampler = RandomSampler(x, replacement=replace, generator=torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    loader = DataLoader(TensorDataset(x, y), batch_size=8, sampler=sampler, drop_last=True)
    trainer.fit(Module(), loader)
    return recorder.rows


def train_llama(seed: int, file: Path, replace: bool) -> Rows:
    import transformers

    transformers.logging.set_verbosity_error()
    tokens = workload("moby_transformer").network(0, examples=1280, seed=0).data[0]
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=32, attn_implementation="eager",
    )  # fmt: skip

    def make() -> nn.Module:
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config)

    past = torch.zeros(1, 1, 32, 32).masked_fill(torch.ones(32, 32).triu(1).bool(), -1e9)

    def loss_of(model: Any, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x, attention_mask=past).logits[0, :-1], y[0, 1:])

    model = make()
    recorder = Recorder(make(), loss_of, (tokens, tokens))

    class Exact(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            optimizer = given["optimizer"]
            recorder.step(state.global_step + 1, given["model"], getattr(optimizer, "optimizer", optimizer))

    class Drawn(transformers.Trainer):
        def _get_train_sampler(self, *_: object) -> Any:
            return torch.utils.data.RandomSampler(self.train_dataset, replacement=replace)

    arguments = transformers.TrainingArguments(
        str(file.parent), per_device_train_batch_size=8, gradient_accumulation_steps=4, max_steps=STEPS, learning_rate=3e-3,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, seed=seed, lr_scheduler_type="constant",
        logging_strategy="no",
    )  # fmt: skip
    examples = [{"input_ids": t, "labels": t} for t in tokens]
    callbacks = [Exact(), Monitor.trainer(file=file, every=1, examples=None if replace else len(tokens))]
    Drawn(model, arguments, train_dataset=examples, callbacks=callbacks).train()
    return recorder.rows


TRAININGS = {name.removeprefix("train_"): f for name, f in list(globals().items()) if name.startswith("train_")}


def train(name: str, first: str, last: str, folder: str, draws: str = "replacement") -> None:
    """Record trainings: the monitor's file with a measurement of every step, and the exact noise and signal every 10 steps."""
    for seed in range(int(first), int(last)):
        file = Path(folder) / f"{name}_{draws}_{seed}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        rows = TRAININGS[name](seed, file, draws == "replacement")
        file.with_suffix(".json").write_text(json.dumps(rows))
        print(name, seed, [(row[0], round(row[-2] / row[-1], 1)) for row in rows[::6]], flush=True)


def due(step: int, every: int | None) -> bool:
    """Whether a monitor measures this step."""
    model = nn.Linear(1, 1)
    with Monitor(model, SGD(model.parameters(), 0.1), every=every) as monitor:
        return monitor._due(step)


def answers(file: Path, every: int | None) -> Iterator[dict[str, Any]]:
    """What a monitor answers during a recorded training, beside the exact noise scale of the step and of the ten steps around it."""
    name, draws, seed = file.stem.rsplit("_", 2)
    measured, exact = [json.loads(line) for line in file.open()], json.loads(file.with_suffix(".json").read_text())
    for kind in ("noise_scale", "metric_noise_scale"):
        noise, signal = (kind.replace("noise_scale", part) for part in ("noise", "signal"))
        columns = slice(1, 3) if kind == "noise_scale" else slice(3, 5)
        there, ratio = {row[0]: np.array(row[columns]) for row in exact}, RecentRatio(WINDOW_SHARE)
        for row in measured if noise in measured[-1] else ():
            step = row["step"]
            if noise in row and due(step, every):
                ratio.add(step, row[noise], row[signal])
            if step in ANSWERED["early"] + ANSWERED["late"]:
                around = sum(there[t] for t in (step - EXACT_EVERY, step, step + EXACT_EVERY))
                now, at = ratio.estimate(), there[step]
                yield {
                    "training": name, "draws": draws, "seed": int(seed), "every": every or "default", "scale": kind, "step": step,
                    "from": now.steps and now.steps[0], "value": now.value, "low": now.low, "high": now.high,
                    "exact": at[0] / at[1], "exact_around": around[0] / around[1],
                }  # fmt: skip


def answer(folder: str, file: str) -> None:
    """Write all answers, and print how often intervals hold the exact number."""
    rows = [row for path in sorted(Path(folder).glob("*.jsonl")) for every in (None, 5) for row in answers(path, every)]
    with Path(file).open("w", newline="", encoding="utf-8") as sheet:
        writer = csv.DictWriter(sheet, list(rows[0]))
        writer.writeheader()
        writer.writerows({name: f"{x:.4g}" if isinstance(x, float) else x for name, x in row.items()} for row in rows)
    summary(rows)


def summary(rows: list[dict[str, Any]]) -> None:
    """Print how often intervals hold the exact number: that of the step, and that of the ten steps around it."""
    print(
        "| training | batches | scale | measured | steps 31 to 151 | no upper end | steps 301 to 591 | no upper end |"
    )
    print("|---|---|---|---|---|---|---|---|")
    named = ("training", "draws", "scale", "every")
    for group in sorted({(row["training"] not in CHOSEN_ON, *(str(row[name]) for name in named)) for row in rows}):
        shown = [f"`{group[1]}`", group[2], group[3].replace("_", " "), group[4].replace("5", "every 5 steps")]
        for steps in ANSWERED.values():
            mine = [
                row for row in rows if tuple(str(row[name]) for name in named) == group[1:] and row["step"] in steps
            ]
            held = [sum(row["low"] <= row[kind] <= row["high"] for row in mine) for kind in ("exact", "exact_around")]
            shown += [f"{held[0]}, {held[1]} of {len(mine)}", str(sum(math.isinf(row["high"]) for row in mine))]
        print(f"| {' | '.join(shown)} |")


def on_batch(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return classified(model, *batch)


def cpu(work: Callable[[], object], repeat: int) -> list[float]:
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return times


class Block(nn.Module):
    """A Transformer of two layers on sequences of 32 tokens, 0.9 million weights."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(tokens))).transpose(1, 2)


def loops(own: bool, adam: bool) -> Iterator[tuple[str, float]]:
    """CPU seconds of a step without and with a monitor, in turn, so that both see the same machine."""
    torch.manual_seed(0)
    model = Block()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4) if adam else torch.optim.SGD(model.parameters(), 1e-2)
    tokens = torch.randint(64, (64, 32))

    def step(monitor: Monitor | None) -> None:
        optimizer.zero_grad()
        for part in tokens.chunk(1 if own else 4):
            (classified(model, part, part) * len(part) / 64).backward()
        if monitor:
            monitor.step(batch=(tokens, tokens))
        optimizer.step()

    rounds = 20 if own else 10
    for _ in range(6 if own else 12):
        yield "plain", sum(cpu(lambda: step(None), rounds)) / rounds
        with Monitor(model, optimizer, loss_of=on_batch if own else None) as monitor:
            yield "watched", sum(cpu(lambda m=monitor: step(m), rounds)) / rounds


def cost() -> None:
    torch.set_num_threads(1)
    for own in (False, True):
        for adam in (False, True):
            times: dict[str, list[float]] = {}
            for kind, seconds in loops(own, adam):
                times.setdefault(kind, []).append(seconds)
            plain, watched = (np.array(times[kind]) for kind in ("plain", "watched"))
            ratio = watched / plain - 1
            error = ratio.std(ddof=1) / len(ratio) ** 0.5
            what = "own passes every 20 steps" if own else "4 microbatches"
            name = "AdamW" if adam else "SGD"
            print(
                f"{what}, {name}: {1000 * plain.mean():.0f} ms a step, {ratio.mean():+.1%} with the monitor (+- {error:.1%})"
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = {"train": train, "answer": answer, "cost": cost}
    if sys.argv[1:2] == [] or sys.argv[1] not in known:
        sys.exit(f"say one of {', '.join(known)}, as the beginning of this file tells")
    known[sys.argv[1]](*sys.argv[2:])
