"""Models inside the wrappers of distributed training: one process with gloo, so that no second one is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.nn import functional as F

from nqm.nets import Monitor, Network
from nqm.types import Wrong

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 3


@pytest.fixture(scope="module", autouse=True)
def _alone() -> Iterator[None]:
    """A process group of one rank."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(plain())  # type: ignore[return-value]


WRAPPED: dict[str, Callable[[], nn.Module]] = {
    "DataParallel": lambda: nn.DataParallel(plain()),
    "DistributedDataParallel": lambda: nn.parallel.DistributedDataParallel(plain()),
    "compile": lambda: torch.compile(plain(), backend="eager"),  # type: ignore[dict-item, return-value]
    "compiled DDP": lambda: torch.compile(nn.parallel.DistributedDataParallel(plain()), backend="eager"),  # type: ignore[dict-item, return-value]
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_model_is_measured_as_the_plain_one(name: str) -> None:
    network = Network(WRAPPED[name](), F.cross_entropy, (X, LABELS))
    torch.testing.assert_close(network.gradient(), Network(plain(), F.cross_entropy, (X, LABELS)).gradient())
    assert any("was taken out of its" in note for note in network.notes)


def measured(model: nn.Module) -> tuple[float, float]:
    """Noise and signal of one step of two microbatches."""
    with Monitor(model, torch.optim.SGD(model.parameters(), 0.1), every=1) as monitor:
        for low in (0, 6):
            (F.cross_entropy(model(X[low : low + 6]), LABELS[low : low + 6]) / 2).backward()
        row = monitor.step()
    assert row is not None
    return float(row["noise"]), float(row["signal"])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_model_is_monitored_as_the_plain_one(name: str) -> None:
    assert measured(WRAPPED[name]()) == pytest.approx(measured(plain()), rel=1e-5)


def test_a_sharded_model_is_refused_with_what_to_do_and_that_works() -> None:
    """FSDP by ``fully_shard``, which runs on the CPU; FullyShardedDataParallel asks for an accelerator (torch 2.13)."""
    model = sharded()
    with pytest.raises(Wrong, match="gather it first"):
        Network(model, F.cross_entropy, (X, LABELS))
    with pytest.raises(Wrong, match="no rank sees them whole"):
        Monitor(model, torch.optim.SGD(model.parameters(), 0.1))
    whole = plain()
    with torch.no_grad():
        for p in whole.parameters():
            p.zero_()
    whole.load_state_dict(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)))
    there = Network(plain(), F.cross_entropy, (X, LABELS)).gradient()
    torch.testing.assert_close(Network(whole, F.cross_entropy, (X, LABELS)).gradient(), there)
