"""Models as they come: outputs, wrappers, losses, and the slow way of derivatives, each against dense matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset

from nqm.nets import Network, fit
from nqm.nets.curvature import GaussNewton, Hessian
from nqm.nets.derivatives import Ways
from nqm.types import Wrong

TOKENS = torch.randint(11, (6, 5), generator=torch.Generator().manual_seed(0))
MASKED = TOKENS.clone()
MASKED[0, 2:], MASKED[3, 1:] = -100, -100
PICTURES = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(6) % 3


class Recurrent(nn.Module):
    """A recurrent layer over embedded tokens."""

    def __init__(self, layer: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(11, 4), layer(4, 5, batch_first=True), nn.Linear(5, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(tokens))[0])


class Checkpointed(nn.Module):
    """A layer whose activations are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = checkpoint(lambda x: torch.tanh(self.first(x)), x, use_reentrant=False)
        return {"hidden": None, "logits": self.second(hidden)}


class Branching(nn.Module):
    """Control flow that depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        rows = [self.one(row).tanh() if float(row.sum()) > 0 else self.other(row).sin() for row in x]
        return torch.stack(rows), "more"


class Patches(nn.Module):
    """A ViT of one block on 4 x 4 pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Conv2d(1, 4, 2, stride=2), nn.Parameter(torch.randn(4, 4))
        self.block = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, dropout=0.1, activation="gelu")
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.embed(x).flatten(2).transpose(1, 2) + self.place).mean(1))


def weight_normed() -> nn.Module:
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))
    return nn.Sequential(normed, nn.Tanh(), nn.Linear(5, 3))


def gpt2() -> Network:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=4, n_layer=1, n_head=2)
    return Network(transformers.GPT2LMHeadModel(config), nn.CrossEntropyLoss(), ({"input_ids": TOKENS}, MASKED))


def llama() -> Network:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=11, hidden_size=4, intermediate_size=6, num_hidden_layers=1, num_attention_heads=2, pad_token_id=0
    )
    return Network(transformers.LlamaForCausalLM(config), nn.CrossEntropyLoss(), ({"input_ids": TOKENS}, TOKENS))


def bert(loss: Callable[..., Tensor] | None = F.cross_entropy, mask: Tensor | None = None) -> Network:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=6, num_labels=3,
        max_position_embeddings=8,
    )  # fmt: skip
    mask = torch.ones_like(TOKENS) if mask is None else mask
    data = {"input_ids": TOKENS, "attention_mask": mask, "labels": LABELS}
    return Network(transformers.BertForSequenceClassification(config), loss, data)


X = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
MODELS: dict[str, Callable[[], Network]] = {
    "lstm": lambda: Network(Recurrent(nn.LSTM), nn.CrossEntropyLoss(ignore_index=-100), (TOKENS, MASKED)),
    "gru": lambda: Network(Recurrent(nn.GRU), nn.CrossEntropyLoss(), (TOKENS, TOKENS)),
    "checkpointed": lambda: Network(Checkpointed(), F.cross_entropy, (X, LABELS)),
    "branching": lambda: Network(Branching(), F.cross_entropy, (X, LABELS)),
    "vit": lambda: Network(Patches(), nn.CrossEntropyLoss(label_smoothing=0.1), (PICTURES, LABELS[:5])),
    "weight_norm": lambda: Network(weight_normed(), F.cross_entropy, (X, LABELS)),
    "gpt2": gpt2, "llama": llama, "bert": bert,
}  # fmt: skip


def made(name: str) -> Network:
    torch.manual_seed(3)
    return MODELS[name]()


def direct(network: Network, kind: str, v: Tensor) -> Tensor:
    """The product by full Jacobians and gradients of plain reverse mode, one example after the other."""
    total = torch.zeros_like(v)
    for i in range(network.examples):
        batch = network.take(slice(i, i + 1))
        if kind == "hessian":
            theta = network.theta.clone().requires_grad_()
            (g,) = torch.autograd.grad(network.batch_loss(theta, batch), theta, create_graph=True)
            total += torch.stack([torch.autograd.grad(g, theta, row, retain_graph=True)[0] for row in v])
            continue
        J = torch.autograd.functional.jacobian(lambda t, b=batch: network.output(t, b).reshape(-1), network.theta)
        out = network.output(network.theta, batch).detach()
        bend = torch.autograd.functional.hessian(lambda o, b=batch: network.loss(o, b[1]), out)
        total += v @ J.T @ bend.reshape(len(J), len(J)) @ J
    return total / network.examples


@pytest.mark.parametrize("name", MODELS)
def test_products_match_dense_ones(name: str) -> None:
    network = made(name)
    network.chunk = 4
    v = torch.randn(2, network.dim, generator=torch.Generator().manual_seed(4))
    for operator, kind in ((GaussNewton(network), "gauss_newton"), (Hessian(network), "hessian")):
        there = direct(network, kind, v)
        assert float((operator(v) - there).norm() / there.norm()) < 1e-5, (kind, network.notes)


@pytest.mark.parametrize("name", MODELS)
def test_the_slow_way_is_the_fast_way(name: str) -> None:
    fast, slow = made(name), made(name)
    slow.ways = Ways(fast=False, together=False)
    v = torch.randn(2, fast.dim, generator=torch.Generator().manual_seed(4))
    for kind in (GaussNewton, Hessian):
        here, there = kind(slow)(v), kind(fast)(v)
        assert float((here - there).norm() / there.norm()) < 1e-5
    rows = [torch.cat(list(one.example_gradients())) for one in (slow, fast)]
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(rows[0].mean(0), slow.gradient(), rtol=1e-4, atol=1e-6)


def test_which_models_take_a_slow_way() -> None:
    """Data that decides the path cannot be vectorised, and forward mode through Llama is silently wrong; both are said."""
    branching = made("branching")
    assert not branching.ways.together
    assert any("slower" in note for note in branching.notes)
    assert made("vit").ways == Ways()
    assert not any("slower" in note for note in made("vit").notes)


def test_a_padded_classifier_with_its_own_loss() -> None:
    """A mask with zeros is looked at in the forward pass, so that examples cannot be vectorised, and a note says so once."""
    mask = torch.ones_like(TOKENS)
    mask[1, 3:], mask[4, 2:] = 0, 0
    torch.manual_seed(3)
    own = bert(None, mask)
    torch.manual_seed(3)
    given = bert(nn.CrossEntropyLoss(), mask)
    assert not own.ways.together
    assert own.full_loss() == pytest.approx(given.full_loss(), rel=1e-6)
    rows = [torch.cat(list(one.example_gradients())) for one in (own, given)]
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-4, atol=1e-7)
    v = torch.randn(2, own.dim, generator=torch.Generator().manual_seed(4))
    there = direct(own, "hessian", v)
    assert float((Hessian(own)(v) - there).norm() / there.norm()) < 1e-5
    found = fit(own, steps=4, noise_vectors=2, noise_steps=2, descent=0, test=False)
    assert sum("slower" in note for note in found.provenance.notes) == 1


def test_targets_that_are_ignored_late_are_found() -> None:
    """The first eight examples agree, so that only the two with the fewest and the most targets show what the loss divides by."""
    torch.manual_seed(0)
    tokens = torch.randint(11, (12, 5))
    labels = tokens.clone()
    labels[10, 2:] = -100
    model = nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 11))

    def loss(out: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(out.transpose(1, 2), target)

    with pytest.raises(Wrong, match=r"2 examples together .* give nn\.CrossEntropyLoss itself") as told:
        Network(model, loss, (tokens, labels))
    assert told.value.argument == "loss"
    assert Network(model, nn.CrossEntropyLoss(), (tokens, labels)).full_loss() == pytest.approx(
        float(loss(model(tokens), labels)), rel=1e-5
    )


class Wrongly(torch.autograd.Function):
    """A sine whose forward-mode derivative has a planted bug."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> Tensor:  # type: ignore[override]
        return u * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx: Any, v: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * v * ctx.saved_tensors[0].cos()


class Planted(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return Wrongly.apply(super().forward(input))  # type: ignore[return-value]


def test_wrong_forward_derivatives_are_found() -> None:
    torch.manual_seed(0)
    network = Network(Planted(4, 3), F.cross_entropy, (X, LABELS))
    assert not network.ways.fast
    assert any("forward mode gives other numbers" in note for note in network.notes)
    v = torch.randn(2, network.dim)
    there = direct(network, "gauss_newton", v)
    assert float((GaussNewton(network)(v) - there).norm() / there.norm()) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_fitted(name: str) -> None:
    network = made(name)
    found = fit(network, steps=6, noise_vectors=2, noise_steps=3, descent=5)
    assert found.loss == pytest.approx(network.full_loss(), rel=1e-5)
    assert found.noise_scale.value > 0
    assert set(network.notes) <= set(found.provenance.notes)
    single = torch.cat(list(network.example_gradients())).double()
    g = single.mean(0)
    trace = float(((single - g) ** 2).sum(1).mean())
    assert found.noise_scale.low * 0.3 < trace / float(g @ g) < found.noise_scale.high * 3


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (nn.CrossEntropyLoss(), MASKED), (nn.CrossEntropyLoss(ignore_index=3), TOKENS),
        (nn.CrossEntropyLoss(weight=torch.arange(1.0, 12.0)), TOKENS),
        (nn.CrossEntropyLoss(weight=torch.arange(1.0, 12.0), label_smoothing=0.2), MASKED),
        (partial(F.cross_entropy, label_smoothing=0.1, ignore_index=-100), MASKED), (F.cross_entropy, MASKED),
        (nn.CrossEntropyLoss(weight=torch.arange(1.0, 12.0), ignore_index=255), MASKED.where(MASKED >= 0, 255)),
    ],
)  # fmt: skip
def test_weighted_and_masked_targets(loss: Callable[..., Tensor], target: Tensor) -> None:
    """The loss on all the data is torch's own, and a mean over examples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 11))
    network = Network(model, loss, (TOKENS, target))
    theirs = loss(model(TOKENS).transpose(1, 2), target)
    assert network.full_loss() == pytest.approx(float(theirs), rel=1e-5)
    assert float(network.losses(network.theta, network.data).mean()) == pytest.approx(float(theirs), rel=1e-5)
    there = torch.cat([g.reshape(-1) for g in torch.autograd.grad(theirs, list(model.parameters()))])
    torch.testing.assert_close(network.gradient(), there, rtol=1e-4, atol=1e-7)
    assert any("weighted or ignored" in note for note in network.notes)


@pytest.mark.parametrize("loss", [nn.MSELoss(reduction="sum"), partial(F.mse_loss, reduction="sum")])
def test_a_sum_is_divided_and_said(loss: Callable[..., Tensor]) -> None:
    model, y = nn.Linear(4, 1), torch.randn(6, 1)
    network = Network(model, loss, (X, y))
    assert network.full_loss() == pytest.approx(float(F.mse_loss(model(X), y)), rel=1e-5)
    assert any("multiply learning rates by the batch size" in note for note in network.notes)
    summed = Network(nn.Linear(4, 3), nn.CrossEntropyLoss(reduction="sum"), (X, LABELS))
    assert summed.full_loss() == pytest.approx(
        float(F.cross_entropy(summed.output(summed.theta, summed.data), LABELS)), rel=1e-5
    )


def test_wrappers_are_taken_off() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    there = Network(plain, F.cross_entropy, (X, LABELS)).gradient()
    for wrapped in (nn.DataParallel(plain), torch.compile(plain, backend="eager")):
        network = Network(wrapped, F.cross_entropy, (X, LABELS))  # type: ignore[arg-type]
        torch.testing.assert_close(network.gradient(), there)
        assert any("was taken out of its" in note for note in network.notes)


def test_a_model_that_returns_its_loss() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=4, n_layer=1, n_head=2)
    ).eval()
    network = Network(model, None, {"input_ids": TOKENS, "labels": TOKENS})
    assert network.full_loss() == pytest.approx(float(model(TOKENS, labels=TOKENS).loss), rel=1e-5)
    assert any("Hessian" in note for note in network.notes)
    with pytest.raises(Wrong, match="without a loss"):
        Network(nn.Linear(4, 3), None, X)


def test_tied_and_frozen_parameters_and_adapters() -> None:
    network = made("gpt2")
    names = [name for name in network.shapes if "lm_head" in name]
    assert names == []  # tied to the embedding, and so one parameter
    for p in network.model.parameters():
        p.requires_grad_(False)
    network.model.transformer.ln_f.weight.requires_grad_(True)
    some = Network(network.model, nn.CrossEntropyLoss(), ({"input_ids": TOKENS}, MASKED))
    assert list(some.shapes) == ["transformer.ln_f.weight"]
    at = list(network.shapes).index("transformer.ln_f.weight")
    sizes = [torch.Size(shape).numel() for shape in network.shapes.values()]
    first = sum(sizes[:at])
    torch.testing.assert_close(some.gradient(), network.gradient()[first : first + sizes[at]], rtol=1e-4, atol=1e-6)


def test_half_precision_is_measured_in_single() -> None:
    network = Network(nn.Linear(4, 3).bfloat16(), F.cross_entropy, (X.bfloat16(), LABELS))
    assert network.theta.dtype == torch.float32
    assert "the weights are bfloat16 and are measured in float32" in network.notes


class Endless(IterableDataset[tuple[Tensor, Tensor]]):
    """Examples without end."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        i = 0
        while True:
            yield X[i % 6] + i, LABELS[i % 6]
            i += 1


def test_streams_and_ragged_batches() -> None:
    model = nn.Linear(4, 3)
    network = Network(model, F.cross_entropy, DataLoader(Endless(), batch_size=4), examples=10)
    assert network.examples == 10
    batches = ({"input": X[i : i + 4], "labels": LABELS[i : i + 4]} for i in (0, 4))
    named = Network(model, F.cross_entropy, batches)
    torch.testing.assert_close(named.gradient(), Network(model, F.cross_entropy, (X, LABELS)).gradient())
    ragged = [(TOKENS[:2], TOKENS[:2]), (TOKENS[:2, :3], TOKENS[:2, :3])]
    with pytest.raises(Wrong, match="examples of different shapes"):
        Network(nn.Embedding(11, 11), F.cross_entropy, iter(ragged))


def test_every_target_ignored_is_refused() -> None:
    with pytest.raises(Wrong, match="every target is ignored"):
        Network(nn.Embedding(11, 11), F.cross_entropy, (TOKENS, torch.full_like(TOKENS, -100)))
