"""Networks as functions of a flat vector: against the module itself, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import NETWORKS, mlp
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from nqm import nets
from nqm.nets.network import Network
from nqm.text.imports import UserCodeError
from nqm.types import Wrong

X, Y = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3


@pytest.mark.parametrize("name", NETWORKS)
def test_gradient_is_that_of_the_module(name: str) -> None:
    network = NETWORKS[name]()
    model = network.model
    for p in model.parameters():
        p.grad = None
    loss = network.loss(model(network.data[0]), network.data[1])
    loss.backward()
    there = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    network.chunk = 7  # pieces of unequal size
    assert network.full_loss() == pytest.approx(loss.item(), rel=1e-13)
    torch.testing.assert_close(network.gradient(), there, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", NETWORKS)
def test_example_gradients_average_to_the_gradient(name: str) -> None:
    network = NETWORKS[name]()
    network.chunk = 5
    rows = torch.cat(list(network.example_gradients()))
    assert rows.shape == (network.examples, network.dim)
    torch.testing.assert_close(rows.mean(0), network.gradient(), rtol=1e-10, atol=1e-14)
    losses = network.losses(network.theta, network.data)
    assert float(losses.mean()) == pytest.approx(network.full_loss(), rel=1e-12)


def test_the_model_given_is_not_changed() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train()
    before = [p.clone() for p in model.parameters()]
    network = Network(model, F.cross_entropy, (X, Y), dtype=torch.float64)
    network.theta.zero_()
    assert model.training
    assert all(torch.equal(a, b) and b.dtype == torch.float32 for a, b in zip(before, model.parameters(), strict=True))
    assert any("dropout" in note for note in network.notes)


def test_weights_come_back_as_a_state_dict() -> None:
    network = NETWORKS["cnn"]()
    other = NETWORKS["cnn"]().model
    other.load_state_dict(network.state_dict(network.theta + 1.0), strict=False)
    again = torch.cat([p.detach().reshape(-1) for p in other.parameters()])
    torch.testing.assert_close(again, network.theta + 1.0)


@pytest.mark.parametrize("kind", ["dataset", "loader", "dict"])
def test_every_form_of_data_gives_the_same(kind: str) -> None:
    model = nn.Linear(4, 3)
    plain = Network(model, F.cross_entropy, (X, Y))
    if kind == "dict":
        other = Network(model, lambda m, b: F.cross_entropy(m(b["x"]), b["y"]), {"x": X, "y": Y}, of="model")
    else:
        dataset = TensorDataset(X, Y)
        other = Network(model, F.cross_entropy, dataset if kind == "dataset" else DataLoader(dataset, batch_size=3))
    torch.testing.assert_close(other.gradient(), plain.gradient())
    assert (kind == "loader") == any("DataLoader" in note for note in other.notes)
    torch.testing.assert_close(torch.cat(list(other.example_gradients())), torch.cat(list(plain.example_gradients())))


def test_some_of_the_parameters() -> None:
    whole = mlp()
    part = mlp(parameters="2.*")
    assert part.dim == 24
    torch.testing.assert_close(part.gradient(), whole.gradient()[-24:])
    assert any("stay fixed" in note for note in part.notes)
    assert part.full_loss() == whole.full_loss()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_linearised_network_touches_at_the_checkpoint(name: str) -> None:
    network = NETWORKS[name]()
    linear = network.linearised()
    torch.testing.assert_close(linear.gradient(), network.gradient(), rtol=1e-10, atol=1e-13)
    step = torch.randn(network.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    outs = [linear.output(linear.theta + a * step, linear.data) for a in (0.0, 1.0, 2.0)]
    torch.testing.assert_close(outs[2] - outs[1], outs[1] - outs[0])


class Noisy(nn.Linear):
    def forward(self, input: Any) -> Any:
        return super().forward(input) + torch.randn(len(input), 3)


class Crossing(nn.Linear):
    def forward(self, input: Any) -> Any:
        return super().forward(input - input.mean(0))


def mean_spoiled() -> nn.Module:
    norm = nn.BatchNorm1d(3)
    assert norm.running_mean is not None
    norm.running_mean[0] = float("nan")
    return nn.Sequential(nn.Linear(4, 3), norm)


def spoiled(value: float) -> nn.Module:
    model = nn.Linear(4, 3)
    model.weight.data[0, 0] = value
    return model


@pytest.mark.parametrize(
    ("call", "argument", "sentence"),
    [
        (
            lambda: Network(spoiled(float("nan")), F.cross_entropy, (X, Y)),
            "model",
            "1 weights that are NaN or infinite, in weight",
        ),
        (lambda: Network(nn.Linear(4, 3), F.cross_entropy, (X[:0], Y[:0])), "data", "data is empty"),
        (lambda: Network(nn.Linear(4, 3), F.cross_entropy, (X, Y + 1)), "data", "labels must lie from 0 to 2"),
        (lambda: Network(nn.Linear(4, 3), F.cross_entropy, (X, Y - 1)), "data", "labels must lie from 0 to 2"),
        (
            lambda: Network(nn.Conv2d(1, 2, 1), F.cross_entropy, (torch.ones(3, 1, 5, 5), torch.full((3, 5, 5), 255))),
            "data",
            "labels must lie from 0 to 1, as the model has 2 outputs; data has 255 to 255; .*ignore_index",
        ),
        (
            lambda: Network(nn.Linear(4, 3), F.cross_entropy, [{"input": X[0], "labels": 1}] * 5),
            "data",
            "a list of 5 dicts.*DataLoader",
        ),
        (
            lambda: Network(nn.Linear(4, 3), F.cross_entropy, (X, ["cat"] * len(X))),
            "data",
            "has str 'cat' where a tensor",
        ),
        (
            lambda: Network(nn.Linear(4, 3), lambda o, y: F.cross_entropy(o, y, reduction="sum"), (X, Y)),
            "loss",
            "not a mean over examples",
        ),
        (
            lambda: Network(nn.Linear(4, 3), nn.CrossEntropyLoss(reduction="none"), (X, Y)),
            "loss",
            "must return one number",
        ),
        (
            lambda: Network(nn.Linear(4, 3), lambda o, y: F.cross_entropy(o, y).detach(), (X, Y)),
            "loss",
            "loss has no gradient",
        ),
        (
            lambda: Network(nn.Linear(4, 3), lambda o, y: (o.argmax(1) != y).float().mean(), (X, Y)),
            "loss",
            "has no gradient",
        ),
        (lambda: Network(nn.Linear(4, 1), F.mse_loss, (X, X[:, 0])), "loss", "targets shaped like the outputs"),
        (
            lambda: Network(mean_spoiled(), F.cross_entropy, (X, Y)),
            "model",
            "buffer 1.running_mean has values that are NaN",
        ),
        (
            lambda: Network(nn.Linear(4, 3), lambda o, y: o.sum() / 0, (X, Y)),
            "model",
            "loss of the first 8 examples is -?inf",
        ),
        (lambda: Network(nn.Linear(4, 3), F.cross_entropy, (X,)), "data", "must be a pair .* got a tuple of 1"),
        (lambda: Network(nn.Linear(4, 3), F.cross_entropy, X), "data", "must be a pair .* got Tensor"),
        (lambda: Network(Noisy(4, 3), F.cross_entropy, (X, Y)), "model", "not deterministic"),
        (lambda: Network(Crossing(4, 3), F.cross_entropy, (X, Y)), "loss", "treats each example by itself"),
        (lambda: Network(nn.Linear(4, 3), F.cross_entropy, (X, Y[:4])), "data", "as many inputs as targets"),
        (lambda: Network(nn.Linear(4, 3), F.cross_entropy, (X / 0, Y)), "data", "data has values that are NaN"),
        (
            lambda: Network(nn.Linear(4, 3), F.cross_entropy, (X, Y), parameters="none"),
            "parameters",
            "match none of the model's",
        ),
        (lambda: Network(nn.Flatten(), F.cross_entropy, (X, Y)), "model", "nothing to train"),
        (lambda: Network(nn.Linear(4, 3), F.cross_entropy, "digits"), "data", "must be tensors"),
        (lambda: Network(nn.Linear(4, 3), F.cross_entropy, (X, Y), chunk=0), "chunk", "chunk must be"),
        (lambda: Network(F.relu, F.cross_entropy, (X, Y)), "model", "must be a torch.nn.Module"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_gets_a_sentence(call: Callable[[], Network], argument: str, sentence: str) -> None:
    with pytest.raises(Wrong, match=sentence) as told:
        call()
    assert told.value.argument == argument


class Returning(nn.Linear):
    """A linear layer whose forward wraps its output."""

    def __init__(self, wrap: Callable[[torch.Tensor], Any]) -> None:
        super().__init__(4, 3)
        self.wrap = wrap

    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(super().forward(x))


@pytest.mark.parametrize(
    ("wrap", "sentence"),
    [
        (lambda o: {"past": None, "scores": o}, r"a dict with keys 'past', 'scores'.* forward returns out\['scores'\]"),
        (lambda o: (None, o), r"a tuple of 2, .* forward returns out\[1\]"),
        (lambda o: [], r"a list of 0, .* forward returns one tensor"),
        (lambda o: o.tolist, r"the model returns builtin_function_or_method, .* write forward so that it returns one"),
    ],
    ids=["dict", "tuple", "empty", "other"],
)  # fmt: skip
@pytest.mark.parametrize("loss", [F.cross_entropy, lambda o, y: F.cross_entropy(o, y)], ids=["known", "own"])
def test_a_model_that_returns_no_tensor_is_told_what_to_write(
    wrap: Callable[[torch.Tensor], Any], sentence: str, loss: Callable[..., torch.Tensor]
) -> None:
    with pytest.raises(Wrong, match=sentence) as told:
        Network(Returning(wrap), loss, (X, Y))
    assert told.value.argument == "model"


def test_a_loss_of_the_model_that_returns_no_tensor_is_told_what_to_write() -> None:
    with pytest.raises(Wrong, match=r"with keys 'logits', 'loss', .* so that the loss returns out\['loss'\]") as told:
        Network(
            nn.Linear(4, 3), lambda model, batch: {"logits": model(batch[0]), "loss": model(batch[0]).mean()}, (X, Y), of="model"
        )  # fmt: skip
    assert told.value.argument == "loss"


def test_an_exception_inside_of_a_model_is_the_users_own() -> None:
    with pytest.raises(
        UserCodeError, match="running the model on the first 8 examples failed with RuntimeError: mat1 and mat2"
    ):
        Network(nn.Linear(5, 3), F.cross_entropy, (X, Y))
    with pytest.raises(
        UserCodeError, match=r"the first 8 examples failed with KeyError: 'y' \(test_network.py"
    ) as told:
        Network(nn.Linear(4, 3), lambda o, y: {}["y"], (X, Y))
    assert "Traceback" in told.value.traceback


def test_attention_and_batch_norm_are_said() -> None:
    assert any("math kernel" in note for note in NETWORKS["attention"]().notes)
    assert any("batch norm" in note for note in NETWORKS["cnn"]().notes)


def test_the_first_examples() -> None:
    network = mlp()
    few = network.first(5)
    assert (few.examples, network.examples) == (5, 24)
    assert few.full_loss() == pytest.approx(float(network.losses(network.theta, network.take(slice(0, 5))).mean()))
    for n in (0, 2.5):
        with pytest.raises(Wrong, match=f"examples must be a whole number from 1, got {n}"):
            network.first(n)  # type: ignore[arg-type]
    with pytest.raises(Wrong, match=r"examples is 1,000, and the data of .* has 24: ask for at most as many") as caught:
        network.first(1000)
    assert caught.value.argument == "examples"


def test_a_loss_that_fails_says_on_which_examples() -> None:
    wrong = torch.where(torch.arange(10) == 9, 7, Y)
    network = Network(nn.Linear(4, 3), lambda o, y: F.cross_entropy(o, y), (X, wrong), chunk=4)
    with pytest.raises(
        UserCodeError, match="the loss of examples 8 to 9 failed with IndexError: Target 7 is out of bounds"
    ):
        network.full_loss()


def test_without_torch_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str, package: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(nets, "import_module", missing)
    with pytest.raises(ImportError, match=r"nqm.nets needs torch; pip install 'nqm\[nets\]'"):
        nets.fit  # noqa: B018
