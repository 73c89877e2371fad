"""A training of two processes under a monitor, for `test_ranks`: each process has its own microbatches."""

from __future__ import annotations

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


if __name__ == "__main__":
    where, this = Path(sys.argv[1]), int(sys.argv[2])
    distributed.init_process_group("gloo", init_method=f"file://{where / 'meeting'}", rank=this, world_size=2)
    train(this, 2, where / "two.jsonl")
    distributed.barrier()  # A rank that leaves while the other is connected may end in an abort.
    distributed.destroy_process_group()
