"""Data that is streamed: the same numbers as held data, ragged examples, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from nqm import SGD
from nqm.nets import Network, fit, streamed
from nqm.nets.curvature import GaussNewton
from nqm.nets.fitting.validation import Trainings
from nqm.nets.streaming import Passed, Stream, Supply
from nqm.nets.trees import leaves
from nqm.types import Wrong

torch.manual_seed(0)
X, Y = torch.randn(50, 5), torch.arange(50) % 3
LENGTHS = [3 + (5 * i) % 7 for i in range(30)]
SEQUENCES = [torch.randint(11, (n,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
PADS = {"input_ids": 0, "attention_mask": 0, "labels": -100}


def model_of() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


class Examples(Dataset[tuple[Tensor, Tensor]]):
    """Examples that are made when they are asked for, and counted."""

    def __init__(self, noise: float = 0.0) -> None:
        self.drawn, self.noise = 0, noise

    def __len__(self) -> int:
        return 50

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        self.drawn += 1
        return X[i] + self.noise * torch.randn(5), Y[i]


class Flow(IterableDataset[tuple[Tensor, Tensor]]):
    """The same examples, one after the other."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(X, Y, strict=True)


def sources() -> dict[str, object]:
    named = [{"input": X[i : i + 6], "labels": Y[i : i + 6]} for i in range(0, 50, 6)]
    return {
        "dataset": Examples(), "loader": DataLoader(Examples(), batch_size=7, shuffle=True),
        "tensors": TensorDataset(X, Y), "flow": DataLoader(Flow(), batch_size=8),
        "batches": [(X[i : i + 9], Y[i : i + 9]) for i in range(0, 50, 9)], "dicts": named,
    }  # fmt: skip


@pytest.mark.parametrize("kind", sources())
def test_streamed_equals_held(kind: str) -> None:
    """Loss, gradients, products and random batches; the last batch of every kind is smaller than the others."""
    held = Network(model_of(), F.cross_entropy, (X, Y), chunk=16)
    network = streamed(model_of(), F.cross_entropy, sources()[kind], chunk=16)
    assert isinstance(network.data, Stream)
    assert network.examples == 50
    assert network.full_loss() == pytest.approx(held.full_loss(), rel=1e-6)
    torch.testing.assert_close(network.gradient(), held.gradient(), rtol=1e-6, atol=1e-8)
    v = torch.randn(3, held.dim, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(GaussNewton(network)(v), GaussNewton(held)(v), rtol=1e-6, atol=1e-8)
    index = torch.tensor([41, 3, 17, 3])
    for mine, theirs in zip(leaves(network.take(index)), leaves(held.take(index)), strict=True):
        assert torch.equal(mine, theirs)
    rows = [torch.cat(list(one.example_gradients(index=index))) for one in (network, held)]
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loader", "batches"])
def test_a_streamed_fit_is_that_of_held_data(kind: str) -> None:
    held = Network(model_of(), F.cross_entropy, (X, Y), chunk=16)
    network = streamed(model_of(), F.cross_entropy, sources()[kind], chunk=16)
    sizes = {"steps": 6, "noise_vectors": 2, "noise_steps": 3, "descent": 5}
    here, there = fit(network, **sizes), fit(held, **sizes)
    for mine, theirs in ((here.signal, there.signal), (here.noise, there.noise)):
        np.testing.assert_allclose(mine.h, theirs.h, rtol=1e-6)
        np.testing.assert_allclose(mine.weight, theirs.weight, rtol=1e-6, atol=1e-12)
    assert here.tested is not None
    assert there.tested is not None
    np.testing.assert_allclose(here.tested.trained, there.tested.trained, rtol=1e-6)


def test_in_the_metric_of_an_optimizer_and_in_a_check() -> None:
    from nqm import AdamW

    held = Network(model_of(), F.cross_entropy, (X, Y), chunk=16)
    network = streamed(model_of(), F.cross_entropy, sources()["batches"], chunk=16)
    sizes = {"steps": 4, "noise_vectors": 2, "noise_steps": 2, "descent": 3, "test": False}
    here, there = (fit(one, optimizer=AdamW(1e-3), batch_size=8, **sizes) for one in (network, held))
    np.testing.assert_allclose(here.signal.h, there.signal.h, rtol=1e-6)
    trained = [Trainings(one).run(SGD(0.1), 8, [4], seeds=1).loss for one in (network, held)]
    np.testing.assert_allclose(trained[0], trained[1], rtol=1e-6)


def test_no_more_than_a_chunk_is_held() -> None:
    """A pass draws each example once, and the largest batch is a chunk."""
    data, largest = Examples(), 0
    network = streamed(model_of(), F.cross_entropy, data, chunk=16)
    data.drawn = 0
    for batch, _ in network.batches():
        largest = max(largest, len(batch[0]))
    assert (data.drawn, largest) == (50, 16)


def test_a_stream_is_read_on_from_where_it_is() -> None:
    begun = []

    class Counted:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            begun.append(1)
            return iter([(X[i : i + 9], Y[i : i + 9]) for i in range(0, 50, 9)])

    source: Supply = Passed(Counted(), None)
    begun.clear()
    for low in range(0, 48, 4):
        assert torch.equal(source.rows(range(low, low + 4))[0], X[low : low + 4])
    assert len(begun) <= 1
    assert torch.equal(source.rows(range(5, 7))[0], X[5:7])
    assert len(begun) == 2


class Sequences(Dataset[dict[str, Tensor]]):
    """Sequences of different lengths, as a tokenizer returns them."""

    def __len__(self) -> int:
        return len(SEQUENCES)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        one = SEQUENCES[i]
        return {"input_ids": one, "attention_mask": torch.ones_like(one), "labels": torch.tensor(i % 3)}


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=6, num_labels=3,
        max_position_embeddings=16,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def test_ragged_dicts() -> None:
    """Loss and gradient of padded batches are the means over sequences that are passed one by one, without padding."""
    network = streamed(bert(), F.cross_entropy, Sequences(), pad=PADS, chunk=8)
    model = bert().eval()
    losses = [
        F.cross_entropy(model(input_ids=one[None]).logits, torch.tensor([i % 3])) for i, one in enumerate(SEQUENCES)
    ]
    assert network.full_loss() == pytest.approx(float(torch.stack(losses).mean()), rel=1e-6)
    found = torch.autograd.grad(torch.stack(losses).mean(), list(model.parameters()))
    torch.testing.assert_close(network.gradient(), torch.cat([g.reshape(-1) for g in found]), rtol=1e-4, atol=1e-6)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(11, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(tokens))[0])


def test_ragged_sequences_of_a_language_model() -> None:
    """A mean over all tokens that count, whatever the length of their sequence; batches of different widths."""

    def batch(low: int) -> tuple[Tensor, Tensor]:
        some = SEQUENCES[low : low + 4]
        fill = partial(nn.utils.rnn.pad_sequence, some, batch_first=True)
        return fill(padding_value=0), fill(padding_value=-100)

    torch.manual_seed(2)
    model = Recurrent()
    data = [batch(low) for low in range(0, 30, 4)]
    network = streamed(model, nn.CrossEntropyLoss(), data, pad=(0, -100), chunk=7)
    sums = [F.cross_entropy(model(one[None])[0], one, reduction="sum") for one in SEQUENCES]
    mean = torch.stack(sums).sum() / sum(LENGTHS)
    assert network.full_loss() == pytest.approx(float(mean), rel=1e-6)
    there = torch.cat([g.reshape(-1) for g in torch.autograd.grad(mean, list(model.parameters()))])
    torch.testing.assert_close(network.gradient(), there, rtol=1e-4, atol=1e-7)
    assert any("weighted or ignored" in note for note in network.notes)
    with pytest.raises(Wrong, match=r"different shapes.*give pad") as told:
        streamed(model, nn.CrossEntropyLoss(), data, chunk=7).full_loss()
    assert told.value.argument == "pad"


def test_padding_that_changes_the_loss_is_refused() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(11, 4), nn.Linear(4, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.embed(tokens).mean(1))  # padded places count

    data = [(one[None], torch.tensor([i % 3])) for i, one in enumerate(SEQUENCES)]
    with pytest.raises(Wrong, match=r"padding changes the loss.*attention_mask"):
        streamed(Pooled(), F.cross_entropy, data, pad=(0, 0))


def test_what_cannot_be_streamed_is_refused() -> None:
    model = model_of()
    for data, sentence in (
        (((X, Y) for _ in range(2)), "only once"), ((X, Y), "Network takes tensors"), (3, "got int"),
        ([], "data is empty"), (Examples(noise=1.0), "changed from one pass to the next"),
        ([(X * torch.nan, Y)], "NaN or infinite"),
    ):  # fmt: skip
        with pytest.raises(Wrong, match=sentence) as told:
            streamed(model, F.cross_entropy, data)
        assert told.value.argument == "data"

    class Shrinking:
        times = 2

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return iter([(X[:20], Y[:20])] * self.times)

    data = Shrinking()
    network = streamed(model, F.cross_entropy, data)
    data.times = 1
    with pytest.raises(Wrong, match="the stream ended after 20 of 40 examples"):
        network.full_loss()


def test_precision_and_number_of_examples() -> None:
    network = streamed(model_of(), F.cross_entropy, Examples(), dtype=torch.float64, examples=20)
    assert network.examples == 20
    assert network.take(slice(2))[0].dtype == torch.float64
    half = streamed(model_of().bfloat16(), F.cross_entropy, [(X.bfloat16(), Y)])
    assert half.take(slice(2))[0].dtype == half.theta.dtype == torch.float32
    few = streamed(model_of(), F.cross_entropy, [(X[:3], Y[:3]), (X[3:5], Y[3:5])])
    assert few.examples == 5
