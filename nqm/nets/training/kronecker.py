"""Kronecker factors of the Fisher matrix, layer by layer, for a stack of trials.

A layer maps inputs a to ``W a``, with the bias as the last column of W and 1 as the last input. The gradient of its weights on
one example is ``sum_r g_r a_r'`` over the places r where the layer is applied: one for a plain linear layer, the positions of a
convolution, the tokens of a sequence. Here g is the gradient of the example's loss in the layer's output. K-FAC treats inputs
and output gradients as independent, and places too, so the layer's block of the Fisher matrix is

    F ~ A (x) G,    A = mean over examples of sum_r a_r a_r',    G = mean over examples and places of g_r g_r'.

With targets drawn from the model's own predictive distribution F is the Fisher matrix; with the targets of the data it is the
empirical Fisher matrix. The inputs of an embedding are one-hot, so its A is diagonal and counts how often each symbol occurs.

References
----------
Martens and Grosse (2015), Optimizing neural networks with Kronecker-factored approximate curvature; Grosse and Martens (2016), A
Kronecker-factored approximate Fisher matrix for convolution layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..curvature import draw_targets, targets_in
from ..network import Network
from ..trees import Tree, indexed, leaves
from .stacks import Slopes

LEAST_TRACE = 1e-30  # lower bound for the mean diagonal of a factor, so that the ratio of two is finite
LAYER_EXAMPLES = 2  # number of examples in the pass that finds the layers
Hook = Callable[[str, tuple[Tensor, ...], Tensor], Tensor | None]
"""A function that is called after a module with its name, its inputs and its output, which it may replace."""


@dataclass(frozen=True)
class KroneckerLayer:
    """A layer with Kronecker factors: its module, the names of its parameters, and the shape of its output per example."""

    name: str
    module: nn.Module
    weight: str
    bias: str | None
    shape: tuple[int, ...]

    @property
    def diagonal(self) -> bool:
        """Whether A is diagonal, and stored as a vector."""
        return isinstance(self.module, nn.Embedding)

    def matrix(self, parts: dict[str, Tensor]) -> Tensor:
        """The weights, or their gradients, as stacked matrices (trials, outputs, inputs), with the bias last."""
        if self.diagonal:
            return parts[self.weight].transpose(1, 2)
        w = parts[self.weight].flatten(2)
        return torch.cat([w, parts[self.bias][:, :, None]], dim=2) if self.bias else w

    def parts(self, matrix: Tensor, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """The named parameters in such matrices: the inverse of `matrix`."""
        if self.diagonal:
            return {self.weight: matrix.transpose(1, 2)}
        w = matrix[:, :, :-1] if self.bias else matrix
        found = {self.weight: w.reshape(len(w), *shapes[self.weight])}
        return found | {self.bias: matrix[:, :, -1]} if self.bias else found

    def input_factor(self, x: Tensor) -> Tensor:
        """A of each trial, from the layer's inputs (trials, examples, ...)."""
        (trials, examples), m = x.shape[:2], self.module
        if isinstance(m, nn.Embedding):
            symbols = x.reshape(trials, -1)
            counts = torch.zeros(trials, m.num_embeddings, dtype=m.weight.dtype, device=m.weight.device)
            return counts.scatter_add_(1, symbols, torch.ones_like(symbols, dtype=counts.dtype)) / examples
        if isinstance(m, nn.Conv2d):
            kernel, dilation, stride = (tuple[int, ...](pair) for pair in (m.kernel_size, m.dilation, m.stride))
            x = F.unfold(x.flatten(0, 1), kernel, dilation, _padding(m), stride).transpose(1, 2)
        a = x.reshape(trials, -1, x.shape[-1])  # a_r of every example and place
        a = torch.cat([a, a.new_ones(*a.shape[:2], 1)], dim=2) if self.bias else a
        return a.mT @ a / examples

    def output_factor(self, g: Tensor) -> Tensor:
        """G of each trial, from the gradients (trials, examples, ...) of the mean loss in the layer's output."""
        trials, examples = g.shape[:2]
        g = g.flatten(3).mT if isinstance(self.module, nn.Conv2d) else g
        g = g.reshape(trials, -1, g.shape[-1])  # g_r of every example and place
        # The gradient of an example's loss is `examples` times that of its share of the mean loss.
        return g.mT @ g * (examples / (g.shape[1] // examples))


def _padding(m: nn.Conv2d) -> tuple[int, ...]:
    if not isinstance(m.padding, str):
        return tuple(m.padding)
    if m.padding == "valid":
        return (0, 0)
    return tuple(d * (k - 1) // 2 for d, k in zip(m.dilation, m.kernel_size, strict=True))


def _supported(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv2d):
        even = isinstance(module.padding, str) and any(k % 2 == 0 for k in module.kernel_size)
        return module.groups == 1 and module.padding_mode == "zeros" and not even
    if isinstance(module, nn.Embedding):
        return module.max_norm is None and module.padding_idx is None
    return isinstance(module, nn.Linear)


def layers_of(network: Network) -> list[KroneckerLayer]:
    """The layers of a network that have Kronecker factors: those applied once in a pass, to each example separately."""
    calls: dict[str, list[Tensor]] = {}
    modules = {name: m for name, m in network.model.named_modules() if _supported(m)}
    batch = indexed(network.data, slice(LAYER_EXAMPLES))
    with torch.no_grad(), _hooked(modules, lambda name, _, output: calls.setdefault(name, []).append(output)):
        network.output(network.theta, batch)
    rows, found = len(leaves(batch)[0]), []
    for name, module in modules.items():
        outputs, prefix = calls.get(name, []), f"{name}." if name else ""
        if len(outputs) != 1 or len(outputs[0]) != rows or f"{prefix}weight" not in network.shapes:
            continue
        bias = f"{prefix}bias" if f"{prefix}bias" in network.shapes else None
        found.append(KroneckerLayer(name, module, f"{prefix}weight", bias, tuple(outputs[0].shape[1:])))
    return found


@contextmanager
def _hooked(modules: dict[str, nn.Module], hook: Hook) -> Iterator[None]:
    """Call the hook after every pass through one of the modules."""

    def after(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor | None]:
        return lambda module, arguments, output: hook(name, arguments, output)

    handles = [module.register_forward_hook(after(name)) for name, module in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Statistics(NamedTuple):
    """What one batch yields: gradients, the factors A and G of each layer, and the mean gradients at drawn targets."""

    g: Tensor
    factors: dict[str, tuple[Tensor, Tensor]]
    drawn: Tensor


def statistics(
    slopes: Slopes, layers: Sequence[KroneckerLayer], theta: Tensor, index: Tensor,
    generators: Sequence[torch.Generator] | None,
) -> Statistics:  # fmt: skip
    """Gradients and factors of a stack of trials on their batches; those of the empirical Fisher matrix if no generators."""
    return Statistics(*slopes.accumulated(lambda piece: _piece(slopes, layers, theta, piece, generators), index))


def _piece(
    slopes: Slopes, layers: Sequence[KroneckerLayer], theta: Tensor, index: Tensor,
    generators: Sequence[torch.Generator] | None,
) -> Statistics:  # fmt: skip
    network, size = slopes.network, (len(theta), index.shape[1])
    theta = theta.detach().requires_grad_()
    shifts = {
        layer.name: torch.zeros(*size, *layer.shape, dtype=theta.dtype, device=theta.device, requires_grad=True)
        for layer in layers
    }

    def passed(batch: Tree, row: Tensor, moved: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        inputs: dict[str, Tensor] = {}

        def watch(name: str, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            inputs[name] = arguments[0]
            return output + moved[name]  # moved is zero, and g is the gradient of the loss in it

        with _hooked({layer.name: layer.module for layer in layers}, watch):
            out = network.output(row, batch)
        return out, inputs, network.loss(out, batch[1])

    out, inputs, losses = slopes.over(passed, index, theta, shifts)
    wanted = [theta, *shifts.values()]
    if generators is None:
        found, scale = torch.autograd.grad(losses.sum(), wanted), 1
        g, drawn = found[0], found[0]
    else:
        (g,) = torch.autograd.grad(losses.sum(), theta, retain_graph=True)
        # From the outputs of a training that diverges no target can be drawn. Its gradients are not finite at any target.
        shown = out.detach().nan_to_num(0.0, 0.0, 0.0)
        targets = [draw_targets(network.likelihood, o, r) for o, r in zip(shown, generators, strict=True)]
        at_drawn = torch.stack([network.loss(o, y) for o, y in zip(out, targets, strict=True)])
        found = torch.autograd.grad(at_drawn.sum(), wanted)
        drawn, scale = found[0], targets_in(network.likelihood, targets[0])
    with torch.no_grad():
        factors = {
            layer.name: (layer.input_factor(inputs[layer.name]), scale * layer.output_factor(slope))
            for layer, slope in zip(layers, found[1:], strict=True)
        }
    return Statistics(g, factors, scale**0.5 * drawn)


def others(network: Network, layers: Sequence[KroneckerLayer]) -> list[str]:
    """The names of the parameters that belong to no layer with factors."""
    taken = {name for layer in layers for name in (layer.weight, layer.bias)}
    return [name for name in network.shapes if name not in taken]


def dampings(layer: KroneckerLayer, A: Tensor, G: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """What is added to the diagonals of the factors A and G of each trial: ``pi root`` and ``root / pi``.

    ``root`` is the square root of the damping of each trial, and ``pi^2 = (tr A / dim A) / (tr G / dim G)``.
    """
    mean_a = A.mean(-1) if layer.diagonal else mean_diagonal(A)
    pi = (mean_a.clamp_min(LEAST_TRACE) / mean_diagonal(G).clamp_min(LEAST_TRACE)).sqrt()
    return root * pi, root / pi


def mean_diagonal(M: Tensor) -> Tensor:
    """tr M / dim M of each of several matrices."""
    return M.diagonal(dim1=-2, dim2=-1).mean(-1)
