"""A real network as a problem: its loss as a function of one flat vector of parameters.

`Network` answers everything that the rest of the package asks of a model: outputs, losses of single examples, the
full-data loss and its gradient, each at any flat vector theta. The model that the user gave is never changed.
"""

from __future__ import annotations

import copy
import fnmatch
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ..sampling.replicas import check_whole
from ..text.imports import user_code
from ..types import Wrong
from .adapting import CAST_UP, as_mean, by_name, loss_in, output_of, unwrapped
from .derivatives import Ways, chosen_ways
from .preflight import FIRST_EXAMPLES, check_network
from .training.loop import train
from .trees import Tree, collect, count, grad, indexed, pushed_forward, tree_map, vmap

PASS_EXAMPLES = 2048  # examples in a pass with one vector; a pass with several vectors takes fewer
GRADIENT_BYTES = 2**26  # memory that the gradients of single examples may take at once
BY_EXAMPLE: tuple[Callable[..., Tensor], ...] = (F.cross_entropy, F.mse_loss, F.binary_cross_entropy_with_logits)
"""Losses that PyTorch computes for every example at once, with ``reduction="none"``."""
Likelihood = str | Callable[[Tensor, torch.Generator], Tensor] | None
"""How a model draws targets: the name of a law, a function (output, generator) -> target, or None if that is unknown."""


class Network:
    """A model, its loss and its data at one checkpoint.

    Parameters
    ----------
    model : an ``nn.Module``, also wrapped by DataParallel, DistributedDataParallel or ``torch.compile``. It is copied, put in eval
        mode and never changed. Its output is a tensor, or the first of a tuple, or the ``logits`` of a dict or an object.
    loss : a function (output, target) -> mean over the batch; with ``of="model"`` a function (model, batch). If omitted, the model
        is called with the whole batch and returns its loss, as models of Hugging Face do. Torch's cross-entropy may ignore or
        weight targets, and torch's losses may be sums: they are made means over examples.
    data : tensors (inputs, targets), a Dataset, a DataLoader or any iterable of batches; all are held (`streamed` holds few).
        Inputs may be a dict, whose parts are given to the model by name; of one dict, ``labels`` are the targets.
    examples : number of examples to take from the data, from the first on; all of them if omitted.
    of : what the loss is a function of. A loss of the model has no outputs and therefore no Gauss-Newton matrix; its
        curvature is the Hessian or the empirical Fisher matrix.
    parameters : names or patterns (``"head.*"``) of the parameters that are trained; all that require a gradient if omitted.
    dtype : such as ``torch.float64``; the model's own if omitted.
    chunk : number of examples in a pass, which bounds memory.
    likelihood : how the model draws targets, for the Fisher matrix: "categorical", "gaussian", "bernoulli" or a function
        (output, generator) -> target; inferred from the loss if omitted.
    name, step : name of the network and step of the checkpoint, which the provenance of a fit repeats.

    ``notes`` lists in sentences what was changed: eval mode, attention kernel, frozen parameters.

    >>> x, y = torch.eye(4), torch.tensor([0, 1, 1, 0])
    >>> network = Network(nn.Linear(4, 2), nn.functional.cross_entropy, (x, y))
    >>> network.dim, network.examples
    (10, 4)
    """

    def __init__(
        self, model: nn.Module, loss: Callable[..., Tensor] | None, data: object, *,
        of: Literal["output", "model"] = "output", parameters: str | Sequence[str] | None = None,
        dtype: torch.dtype | None = None, chunk: int = PASS_EXAMPLES, likelihood: Likelihood = None,
        examples: int | None = None, name: str = "", step: int | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(model, nn.Module):
            raise Wrong(f"model must be a torch.nn.Module, got {type(model).__name__}", argument="model")
        if of not in ("output", "model"):
            raise Wrong(f"of must be 'output' or 'model', got {of!r}", argument="of")
        check_whole("chunk", chunk, 1)
        model, said = unwrapped(model)
        if loss is None:
            loss, of = _own_loss, "model"
        self.of, self.chunk, self.step = of, chunk, step
        self.name = name or type(model).__name__
        self.data, self.notes = collect(data, None if examples is None else check_whole("examples", examples, 1))
        self.notes += said
        self.examples = count(self.data)
        self.model = copy.deepcopy(model).eval()
        self._to(dtype)
        if of == "output" and isinstance(self.data, dict) and "labels" in self.data:
            inputs = {name: part for name, part in self.data.items() if name != "labels"}
            self.data = inputs, self.data["labels"]
        self._module, self._prefix = (self.model, "") if of == "output" else (_Whole(self.model, loss), "model.")
        moving = _chosen(self.model, parameters)
        self.shapes = {name: tuple(p.shape) for name, p in moving.items()}
        rest = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        self._fixed = {self._prefix + k: v.detach() for k, v in rest.items() if k not in moving}
        self.theta = torch.cat([p.detach().reshape(-1) for p in moving.values()])
        self.notes += self.set_loss(loss, likelihood)
        self.notes += check_network(self)

    def _to(self, dtype: torch.dtype | None) -> None:
        """Put the copy of the model in the precision of the measurement, and the data in its precision and on its device."""
        own = next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32)
        if dtype is None and own in CAST_UP:
            dtype = torch.float32
            self.notes.append(f"the weights are {str(own).removeprefix('torch.')} and are measured in float32")
        if dtype is not None:
            self.model = self.model.to(dtype)
            self.data = tree_map(lambda t: t.to(dtype) if t.is_floating_point() else t, self.data)
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        self.data = tree_map(lambda t: t.to(device), self.data)

    def set_loss(self, loss: Callable[..., Tensor], likelihood: Likelihood) -> list[str]:
        """Take a loss, made a mean over the examples of all the data if it is a known one, and return what is to be said of it."""
        self.loss, notes = loss, list[str]()
        first = self.take(slice(FIRST_EXAMPLES))
        if self.of == "output" and isinstance(first, tuple) and len(first) == 2:
            with torch.no_grad(), user_code(f"running the model on the first {FIRST_EXAMPLES} examples"):
                out = self.output(self.theta, first)
            if isinstance(out, Tensor):  # `check_network` refuses anything else
                self.loss, notes = as_mean(loss, (cast(tuple[Tree, Tree], b)[1] for b, _ in self.batches()), out)
        # A loss that was made a mean weights its targets, so that targets drawn from the model do not give its curvature.
        self.likelihood = likelihood or (_likelihood(loss) if self.loss is loss else None)
        return notes

    @cached_property
    def ways(self) -> Ways:
        """How derivatives of this model are computed: fast if that gives what the slow way gives, by a trial on two examples."""
        few = self.first(min(2, self.examples))
        few.ways = Ways()
        found, note = chosen_ways(
            few._outputs, lambda theta: few.batch_loss(theta, few.data), few._each, few.theta
        )  # fmt: skip
        self.notes += [note] if note else []
        return found

    def _by(self, ways: Ways) -> Network:
        """The same network with derivatives in a given way."""
        other = copy.copy(self)
        other.ways = ways
        return other

    def _outputs(self, ways: Ways, theta: Tensor) -> Tensor:
        """The outputs of all examples, or their losses if the loss is one of the model, computed in a given way."""
        return self.output(theta, self.data) if self.of == "output" else self._by(ways).losses(theta, self.data)

    def _each(self, ways: Ways) -> Tensor:
        """The losses of all examples and the sum of their gradients, computed in a given way."""
        other = self._by(ways)
        gradients = torch.cat(list(other.example_gradients())).sum(0)
        return torch.cat([other.losses(self.theta, self.data).detach(), gradients])

    @property
    def dim(self) -> int:
        """Number of parameters that are trained."""
        return self.theta.numel()

    def at(self, theta: Tensor, step: int | None = None) -> Network:
        """The same network at another checkpoint."""
        if theta.shape != self.theta.shape:
            raise Wrong(f"theta must have {self.dim:,} entries, got shape {tuple(theta.shape)}", argument="theta")
        other = copy.copy(self)
        other.theta, other.step = theta.detach().clone(), self.step if step is None else step
        return other

    def first(self, examples: int) -> Network:
        """The same network on its first examples."""
        check_whole("examples", examples, 1)
        if examples > self.examples:
            has = f"the data of {self.name} has {self.examples:,}: ask for at most as many, or omit it"
            raise Wrong(f"examples is {examples:,}, and {has}", argument="examples")
        other = copy.copy(self)
        other.data, other.examples = indexed(self.data, slice(examples)), examples
        return other

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """The named parameters in a flat vector, or in each row of a stack of flat vectors."""
        parts, rows = theta.split([math.prod(shape) for shape in self.shapes.values()], dim=-1), theta.shape[:-1]
        return {name: part.view(*rows, *shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def state_dict(self, theta: Tensor | None = None) -> dict[str, Tensor]:
        """Parameters and buffers as ``model.load_state_dict`` takes them."""
        moving = self.unflatten(self.theta if theta is None else theta.detach())
        fixed = {name.removeprefix(self._prefix): value for name, value in self._fixed.items()}
        return {name: value.clone() for name, value in {**fixed, **moving}.items()}

    def output(self, theta: Tensor, batch: Tree) -> Tensor:
        """The model's output on a batch at theta; for a loss of the model, the loss itself. torch.func can transform it."""
        named = {self._prefix + name: value for name, value in self.unflatten(theta).items()}
        arguments, keywords = self._arguments(batch)
        with attention():
            found = functional_call(self._module, {**self._fixed, **named}, arguments, keywords)
        return cast(Tensor, output_of(found) if self.of == "output" else found)

    def loaded(self, theta: Tensor) -> Callable[[Tree], Tensor]:
        """`output` as a function of the batch, at the speed of the plain module; the next call changes its weights."""
        module, _, flat = self._bound
        flat.copy_(theta.detach())

        def output(batch: Tree) -> Tensor:
            arguments, keywords = self._arguments(batch)
            found = module(*arguments, **keywords)
            return output_of(found) if self.of == "output" else found  # type: ignore[return-value]

        return output

    @cached_property
    def _bound(self) -> tuple[nn.Module, list[Tensor], Tensor]:
        """A copy of the module, its trained parameters, and the flat vector that they are views of."""
        module, flat = copy.deepcopy(self._module).requires_grad_(False), self.theta.detach().clone()
        named = dict(module.named_parameters())
        moving = [named[self._prefix + name].requires_grad_() for name in self.shapes]
        for parameter, value in zip(moving, self.unflatten(flat).values(), strict=True):
            parameter.data = value
        return module, moving, flat

    def _arguments(self, batch: Tree) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
        """What the module is called with: the inputs, in order or by name, or the whole batch for a loss of the model."""
        inputs = (batch,) if self.of == "model" else batch[0]
        if isinstance(inputs, dict) and by_name(self.model, inputs):
            return (), inputs
        return (inputs if isinstance(inputs, tuple) else (inputs,)), {}

    def _mean_loss(self, out: Tensor, batch: Tree) -> Tensor:
        return self.loss(out, batch[1]) if self.of == "output" else out

    def batch_loss(self, theta: Tensor, batch: Tree) -> Tensor:
        """Mean loss over a batch."""
        return self._mean_loss(self.output(theta, batch), batch)

    def losses(self, theta: Tensor, batch: Tree) -> Tensor:
        """The loss of each example of a batch."""
        if self.of == "output":
            return self.example_losses(self.output(theta, batch), batch[1])
        return self.ways.over_examples(lambda one: self.output(theta, one), batch)

    def example_losses(self, out: Tensor, target: Tree) -> Tensor:
        """The loss of each example, from outputs and targets."""
        if self.loss in BY_EXAMPLE:
            return self.loss(out, target, reduction="none").reshape(len(out), -1).mean(1)
        return self.ways.over_examples(lambda pair: self.loss(pair[0], pair[1]), (out, target))

    def batches(self, vectors: int = 1) -> Iterator[tuple[Tree, float]]:
        """The data in pieces small enough for a pass with several vectors, each with its share of the examples."""
        rows = max(1, self.chunk // max(1, vectors))
        for low in range(0, self.examples, rows):
            high = min(low + rows, self.examples)
            yield self.take(slice(low, high)), (high - low) / self.examples

    def take(self, index: slice | Tensor) -> Tree:
        """Some of the examples, by slice or index tensor."""
        return indexed(self.data, index if isinstance(index, slice) else index.to(self.theta.device))

    @torch.no_grad()
    def full_loss(self, theta: Tensor | None = None) -> float:
        """Mean loss over all the data."""
        theta, total, low = self.theta if theta is None else theta, 0.0, 0
        for batch, share in self.batches():
            high = low + round(share * self.examples)
            with user_code(f"the loss of examples {low:,} to {high - 1:,}"):  # for example a label that is no class
                total += share * float(self.batch_loss(theta, batch))
            low = high
        return total

    def gradient(self, theta: Tensor | None = None, batch: Tree | None = None) -> Tensor:
        """Gradient of the mean loss over a batch, or over all the data."""
        theta = self.theta if theta is None else theta
        output, (_, moving, _) = self.loaded(theta), self._bound
        pieces = [(batch, 1.0)] if batch is not None else self.batches(2)  # half a pass stays closer to the cache
        total = torch.zeros_like(theta)
        for piece, share in pieces:
            found = torch.autograd.grad(self._mean_loss(output(piece), piece), moving, materialize_grads=True)
            total += share * torch.cat([g.reshape(-1) for g in found])
        return total

    def example_gradients(self, theta: Tensor | None = None, index: Tensor | None = None) -> Iterator[Tensor]:
        """Gradients of single examples (all, or those of an index), in pieces (examples, parameters) of bounded size."""
        theta = (self.theta if theta is None else theta).detach()
        index = torch.arange(self.examples, device=theta.device) if index is None else index
        rows = max(1, min(self.chunk, GRADIENT_BYTES // (theta.element_size() * self.dim)))

        def one(theta: Tensor, example: Tree) -> Tensor:
            return self.batch_loss(theta, indexed(example, None))

        for piece in index.split(rows):
            if self.ways.together:
                yield vmap(grad(one), in_dims=(None, 0))(theta, self.take(piece)).detach()
            else:
                yield torch.stack([self.gradient(theta, self.take(piece[i : i + 1])) for i in range(len(piece))])

    def linearised(self) -> Network:
        """The network whose output is ``f(theta_0) + J (theta - theta_0)``, with theta_0 the checkpoint.

        At theta_0 it has the same gradient, and its Hessian is exactly the Gauss-Newton matrix of this network.
        """
        if self.of == "model":
            sentence = "a loss of the model has no output to linearise; give the loss as a function of (output, target)"
            raise Wrong(sentence, argument="loss")
        linear = Network(
            _Linearised(self), self.loss, self.data, chunk=self.chunk, likelihood=self.likelihood, step=self.step,
            name=f"{self.name}, linearised",
        )  # fmt: skip
        linear.notes = [*self.notes, "the output is linearised about the checkpoint"]
        return linear

    run = train  # so that `network.run(optimizer, batch_size, steps)` trains it


def _own_loss(model: nn.Module, batch: Tree) -> Tensor:
    """The loss that a model returns."""
    if isinstance(batch, dict) and by_name(model, batch):
        return loss_in(model(**batch))
    return loss_in(model(*batch) if isinstance(batch, tuple) else model(batch))


class _Whole(nn.Module):
    """A user's loss of (model, batch) as a module, so that ``functional_call`` can replace its parameters."""

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Tree) -> Tensor:
        return self.loss(self.model, batch)


class _Linearised(nn.Module):
    """``f(theta_0; x) + J(x) (theta - theta_0)`` with theta as its one parameter."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = [network]  # in a list, so that torch does not register it as a submodule
        self.theta = nn.Parameter(network.theta.clone())

    def forward(self, *x: Tree) -> Tensor:
        (network,), start = self.network, self.network[0].theta
        out, moved = pushed_forward(lambda t: network.output(t, (x,)), start, self.theta - start)
        return out + moved

    def __deepcopy__(self, memo: object) -> _Linearised:
        return _Linearised(self.network[0])


@contextmanager
def attention() -> Iterator[None]:
    """Run attention on the math kernel, because the fused kernels do not support forward-mode differentiation."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _chosen(model: nn.Module, patterns: str | Sequence[str] | None) -> dict[str, nn.Parameter]:
    """The parameters that are trained."""
    every = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not every:
        raise Wrong("model has no parameter that requires a gradient: there is nothing to train", argument="model")
    if patterns is None:
        return every
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    found = {name: p for name, p in every.items() if any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)}
    if not found:
        raise Wrong(f"parameters {wanted} match none of the model's: {', '.join(list(every)[:8])}", "parameters")
    return found


def _likelihood(loss: object) -> str | None:
    """The law of targets under which the loss is a negative log-likelihood, if the loss is a known one."""
    name = type(loss).__name__ if isinstance(loss, nn.Module) else getattr(loss, "__name__", "")
    known = {
        "cross_entropy": "categorical", "CrossEntropyLoss": "categorical", "token_cross_entropy": "categorical",
        "mse_loss": "gaussian", "MSELoss": "gaussian",
        "binary_cross_entropy_with_logits": "bernoulli", "BCEWithLogitsLoss": "bernoulli",
    }  # fmt: skip
    return known.get(name)
