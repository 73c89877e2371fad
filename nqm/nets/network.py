"""A real network as a problem: its loss as a function of one flat vector of parameters.

Everything the rest of the package asks of a model is here: outputs, losses of single examples, full-data loss and
gradient, each at any flat vector theta, and none of it changes the model it was given.
"""

from __future__ import annotations

import copy
import fnmatch
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..engine.run import Run
from ..optimizers.base import Optimizer
from ..problems.base import AnySchedule
from ..sampling.replicas import check_whole
from ..text.imports import user_code
from ..types import Progress, Wrong
from .preflight import check_network
from .trees import Tree, collect, count, grad, pushed_forward, some, tree_map, vmap

PASS_EXAMPLES = 2048  # examples in a pass over one vector; a pass over several vectors takes fewer
GRADIENT_BYTES = 2**28  # memory that the gradients of single examples may take at once
Likelihood = str | Callable[[Tensor, torch.Generator], Tensor] | None
"""How a model draws targets: the name of a law, a function (output, generator) -> target, or None where it is unknown."""


class Network:
    """A model, its loss and its data at one checkpoint.

    Parameters
    ----------
    model : an ``nn.Module``. It is copied, put in eval mode and never changed.
    loss : a function (output, target) -> mean over the batch; with ``of="model"`` a function (model, batch).
    data : tensors (inputs, targets), a Dataset or a DataLoader; all examples are held in memory.
    of : what the loss is a function of. A loss of the model has no outputs, so no Gauss-Newton matrix: its
        curvature is the Hessian or the empirical Fisher.
    parameters : names or patterns (``"head.*"``) of the parameters that move; all that require a gradient if left out.
    dtype : such as ``torch.float64``; the model's own if left out.
    chunk : examples in a pass, which bounds memory.
    likelihood : how the model draws targets, for the Fisher matrix: "categorical", "gaussian", "bernoulli" or a function
        (output, generator) -> target; told from the loss if left out.
    name, step : said in provenance.

    ``notes`` says in sentences what was changed on the way: eval mode, attention kernel, frozen parameters.

    >>> x, y = torch.eye(4), torch.tensor([0, 1, 1, 0])
    >>> network = Network(nn.Linear(4, 2), nn.functional.cross_entropy, (x, y))
    >>> network.dim, network.examples
    (10, 4)
    """

    def __init__(
        self, model: nn.Module, loss: Callable[..., Tensor], data: object, *, of: Literal["output", "model"] = "output",
        parameters: str | Sequence[str] | None = None, dtype: torch.dtype | None = None, chunk: int = PASS_EXAMPLES,
        likelihood: Likelihood = None, name: str = "", step: int | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(model, nn.Module):
            raise Wrong(f"model must be a torch.nn.Module, got {type(model).__name__}", argument="model")
        if of not in ("output", "model"):
            raise Wrong(f"of must be 'output' or 'model', got {of!r}", argument="of")
        check_whole("chunk", chunk, 1)
        self.loss, self.of, self.chunk, self.step = loss, of, chunk, step
        self.name = name or type(model).__name__
        self.data, self.notes = collect(data)
        self.examples = count(self.data)
        self.model = copy.deepcopy(model).eval()
        if dtype is not None:
            self.model = self.model.to(dtype)
            self.data = tree_map(lambda t: t.to(dtype) if t.is_floating_point() else t, self.data)
        self._module, self._prefix = (self.model, "") if of == "output" else (_Whole(self.model, loss), "model.")
        moving = _chosen(self.model, parameters)
        self.shapes = {name: tuple(p.shape) for name, p in moving.items()}
        rest = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        self._fixed = {self._prefix + k: v.detach() for k, v in rest.items() if k not in moving}
        self.theta = torch.cat([p.detach().reshape(-1) for p in moving.values()])
        self.likelihood = likelihood or _likelihood(loss)
        self.notes += check_network(self)

    @property
    def dim(self) -> int:
        """Number of parameters that move."""
        return self.theta.numel()

    def at(self, theta: Tensor, step: int | None = None) -> Network:
        """The same network at another checkpoint."""
        if theta.shape != self.theta.shape:
            raise Wrong(f"theta must have {self.dim:,} entries, got shape {tuple(theta.shape)}", argument="theta")
        other = copy.copy(self)
        other.theta, other.step = theta.detach().clone(), self.step if step is None else step
        return other

    def first(self, examples: int) -> Network:
        """The same network on the first of its examples."""
        check_whole("examples", examples, 1)
        if examples > self.examples:
            has = f"the data of {self.name} has {self.examples:,}: ask for at most as many, or leave it out"
            raise Wrong(f"examples is {examples:,}, and {has}", argument="examples")
        other = copy.copy(self)
        other.data, other.examples = some(self.data, examples), examples
        return other

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """The named parameters that a flat vector holds, or each row of a stack of them."""
        parts, rows = theta.split([math.prod(shape) for shape in self.shapes.values()], dim=-1), theta.shape[:-1]
        return {name: part.view(*rows, *shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def state_dict(self, theta: Tensor | None = None) -> dict[str, Tensor]:
        """Parameters and buffers as ``model.load_state_dict`` takes them."""
        moving = self.unflatten(self.theta if theta is None else theta.detach())
        fixed = {name.removeprefix(self._prefix): value for name, value in self._fixed.items()}
        return {name: value.clone() for name, value in {**fixed, **moving}.items()}

    def output(self, theta: Tensor, batch: Tree) -> Tensor:
        """What the model says on a batch; for a loss of the model, the loss itself."""
        named = {self._prefix + name: value for name, value in self.unflatten(theta).items()}
        arguments = (batch,) if self.of == "model" else batch[0] if isinstance(batch[0], tuple) else (batch[0],)
        with attention():
            return functional_call(self._module, {**self._fixed, **named}, arguments)

    def batch_loss(self, theta: Tensor, batch: Tree) -> Tensor:
        """Mean loss over a batch."""
        out = self.output(theta, batch)
        return self.loss(out, batch[1]) if self.of == "output" else out

    def losses(self, theta: Tensor, batch: Tree) -> Tensor:
        """The loss of each example of a batch."""
        if self.of == "output":
            out = self.output(theta, batch)
            return vmap(lambda o, y: self.loss(o[None], tree_map(lambda t: t[None], y)))(out, batch[1])
        return vmap(lambda one: self.output(theta, tree_map(lambda t: t[None], one)))(batch)

    def batches(self, vectors: int = 1) -> Iterator[tuple[Tree, float]]:
        """The data in pieces that a pass over several vectors can hold, each with its share of the examples."""
        rows = max(1, self.chunk // max(1, vectors))
        for low in range(0, self.examples, rows):
            high = min(low + rows, self.examples)
            yield self.take(slice(low, high)), (high - low) / self.examples

    def take(self, index: slice | Tensor) -> Tree:
        """Some of the examples, by slice or index tensor."""
        return tree_map(lambda t: t[index], self.data)

    @torch.no_grad()
    def full_loss(self, theta: Tensor | None = None) -> float:
        """Mean loss over all the data."""
        theta, total, low = self.theta if theta is None else theta, 0.0, 0
        for batch, share in self.batches():
            high = low + round(share * self.examples)
            with user_code(f"the loss of examples {low:,} to {high - 1:,}"):  # a label may have no class
                total += share * float(self.batch_loss(theta, batch))
            low = high
        return total

    def gradient(self, theta: Tensor | None = None, batch: Tree | None = None) -> Tensor:
        """Gradient of the mean loss over a batch, or over all the data."""
        theta = (self.theta if theta is None else theta).detach().requires_grad_()
        pieces = [(batch, 1.0)] if batch is not None else self.batches(2)  # half a pass stays closer to the cache
        total = torch.zeros_like(theta)
        for piece, share in pieces:
            total += share * torch.autograd.grad(self.batch_loss(theta, piece), theta)[0]
        return total.detach()

    def example_gradients(self, theta: Tensor | None = None, index: Tensor | None = None) -> Iterator[Tensor]:
        """Gradients of single examples, all or those of an index, as (examples, parameters) in pieces of bounded size."""
        theta = (self.theta if theta is None else theta).detach()
        index = torch.arange(self.examples) if index is None else index
        rows = max(1, min(self.chunk, GRADIENT_BYTES // (theta.element_size() * self.dim)))

        def one(theta: Tensor, example: Tree) -> Tensor:
            return self.batch_loss(theta, tree_map(lambda t: t[None], example))

        for piece in index.split(rows):
            yield vmap(grad(one), in_dims=(None, 0))(theta, self.take(piece)).detach()

    def linearised(self) -> Network:
        """The network whose output is ``f(theta_0) + J (theta - theta_0)``: the same gradient, and a Gauss-Newton Hessian.

        Its Hessian equals the Gauss-Newton matrix of this network at theta_0, exactly.
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

    def run(
        self, optimizer: Optimizer, batch_size: float, steps: int | Sequence[int], schedule: AnySchedule = None, *,
        seeds: int = 3, seed: int = 0, replacement: bool = True, grid: Literal["log", "linear"] = "log",
        points: int = 20, progress: Progress | None = None,
    ) -> Run:  # fmt: skip
        """The loss of real training from this checkpoint, its mean over some seeds: see `train`."""
        from .training.loop import train

        return train(
            self, optimizer, batch_size, steps, schedule, seeds=seeds, seed=seed, replacement=replacement, grid=grid,
            points=points, progress=progress,
        )  # fmt: skip


class _Whole(nn.Module):
    """A user's loss of (model, batch) as a module, so that its parameters can be replaced."""

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Tree) -> Tensor:
        return self.loss(self.model, batch)


class _Linearised(nn.Module):
    """``f(theta_0; x) + J(x) (theta - theta_0)`` with theta as its one parameter."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = [network]  # in a list: not a module of this one
        self.theta = nn.Parameter(network.theta.clone())

    def forward(self, *x: Tree) -> Tensor:
        (network,), start = self.network, self.network[0].theta
        out, moved = pushed_forward(lambda t: network.output(t, (x,)), start, self.theta - start)
        return out + moved

    def __deepcopy__(self, memo: object) -> _Linearised:
        return _Linearised(self.network[0])


@contextmanager
def attention() -> Iterator[None]:
    """Attention by the plain kernel: forward-mode differentiation does not pass through the fused ones."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _chosen(model: nn.Module, patterns: str | Sequence[str] | None) -> dict[str, nn.Parameter]:
    """The parameters that move."""
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
    """The law of targets whose negative log-likelihood a known loss is."""
    name = type(loss).__name__ if isinstance(loss, nn.Module) else getattr(loss, "__name__", "")
    known = {
        "cross_entropy": "categorical", "CrossEntropyLoss": "categorical", "token_cross_entropy": "categorical",
        "mse_loss": "gaussian", "MSELoss": "gaussian",
        "binary_cross_entropy_with_logits": "bernoulli", "BCEWithLogitsLoss": "bernoulli",
    }  # fmt: skip
    return known.get(name)
