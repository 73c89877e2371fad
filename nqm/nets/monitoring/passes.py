"""Passes of the monitor's own over a batch: gradients of its pieces, and products with the Hessian.

The training does not notice them. Gradients are returned and not added to ``.grad``, and buffers (the averages of batch norm) and
the states of all random generators are put back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ...text.imports import user_code
from ...types import Wrong
from ..krylov import lanczos, standard_normal
from ..network import attention
from ..trees import Tree, as_tensors, count, indexed, tree_map
from .gathering import norms, sum_of_squares
from .ratios import GradientParts

LossOf = Callable[[nn.Module, Tree], Tensor]
"""The loss of a model on a batch, as training computes it."""
CURVATURE_STEPS = 12  # Lanczos steps for the largest curvature, each a product with the Hessian on the batch
CURVATURE_SEED = 0x3A9  # seed of their start vector


@contextmanager
def unnoticed(model: nn.Module) -> Iterator[None]:
    """Put back buffers, and the states of torch's, NumPy's and Python's random generators, at the end."""
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    states = random.getstate(), np.random.get_state()  # noqa: NPY002  the user's model may use the global generator
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def pieces_of(batch: object, pieces: int) -> list[Tree]:
    """The batch in ``pieces`` equal pieces, or fewer of two examples, which batch norm needs; a rest is omitted."""
    tree = as_tensors(batch, "batch")
    examples = count(tree)
    if examples < 2:
        raise Wrong(f"a pass of the monitor's own needs two examples or more, and batch has {examples}", "batch")
    pieces = max(2, min(pieces, examples // 2))
    size = examples // pieces
    return [indexed(tree, slice(i * size, (i + 1) * size)) for i in range(pieces)]


class OwnPass:
    """The gradients of the pieces of one batch at the current weights."""

    def __init__(
        self, model: nn.Module, loss_of: LossOf, batch: object, pieces: int, parameters: Sequence[Tensor],
        roots: dict[Tensor, Tensor] | None,
    ) -> None:  # fmt: skip
        self.model, self.loss_of, self.parameters, self.roots = model, loss_of, list(parameters), roots
        self.pieces = pieces_of(batch, pieces)

    def gradient(self, piece: Tree, *, create_graph: bool = False) -> list[Tensor]:
        """The gradient of the loss of a piece."""
        with user_code("computing loss_of on a piece of the batch"), torch.enable_grad():
            loss = self.loss_of(self.model, piece)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise Wrong(f"loss_of must return one number, the loss of the batch, got {type(loss).__name__}", "loss_of")
        return list(
            torch.autograd.grad(loss, self.parameters, create_graph=create_graph, materialize_grads=True)  # type: ignore[arg-type]
        )

    def parts(self) -> list[GradientParts]:
        """Sums over the pieces, in the plain metric and in the optimizer's if it has one."""
        share, total = 1 / len(self.pieces), [torch.zeros_like(p) for p in self.parameters]
        squares = 0.0
        for piece in self.pieces:
            found = self.gradient(piece)
            squares = squares + self._norms(found) * share**2
            for sum_, g in zip(total, found, strict=True):
                sum_.add_(g, alpha=share)
        both = zip(squares.tolist(), self._norms(total).tolist(), strict=True)  # type: ignore[union-attr]
        kinds = 1 if self.roots is None else 2
        return [self._of(x, whole) for x, whole in both][:kinds]

    def _of(self, squares: float, whole: float) -> GradientParts:
        share, size = 1 / len(self.pieces), count(self.pieces[0])
        return GradientParts(squares, whole, 1.0, share, share / size)

    def _norms(self, gradient: list[Tensor]) -> Tensor:
        lengths = [norms(g, self.roots, p) for g, p in zip(gradient, self.parameters, strict=True)]
        return sum_of_squares(lengths, self.parameters[0].device).cpu().double()

    def curvature(self) -> tuple[float, GradientParts]:
        """The largest eigenvalue of the batch's Hessian H, and the sums over pieces with the inner product x'Hy."""
        with attention():
            self._check_mean()
            rows = torch.stack([_flat(self.gradient(piece)) for piece in self.pieces])
            generator = torch.Generator().manual_seed(CURVATURE_SEED)
            start = standard_normal((rows.shape[1],), generator, rows.dtype, rows.device)
            (found,) = lanczos(self.product, start[None], CURVATURE_STEPS)
            share = 1 / len(rows)
            along = self.product(rows)
            squares = float((along * rows).double().sum()) * share**2
            whole = float((along.mean(0) * rows.mean(0)).double().sum())
        return float(found.quadrature()[0].max()), self._of(squares, whole)

    def _check_mean(self) -> None:
        """Refuse a loss that is a sum over examples: its curvature would be that of one mean loss, times the batch size."""
        with torch.no_grad(), user_code("computing loss_of on pieces of the batch"):
            first, second = self.pieces[:2]
            alone = float(self.loss_of(self.model, first)) + float(self.loss_of(self.model, second))
            both = float(self.loss_of(self.model, tree_map(lambda a, b: torch.cat([a, b]), first, second)))
        if abs(both - alone) < abs(both - alone / 2):
            raise Wrong("loss_of is a sum over the batch; its curvature needs the mean: reduction='mean'", "loss_of")

    def product(self, vectors: Tensor) -> Tensor:
        """Each row times the Hessian of the mean loss over the pieces, by reverse mode over reverse mode."""
        total = torch.zeros_like(vectors)
        for piece in self.pieces:
            g = _flat(self.gradient(piece, create_graph=True))
            for row, v in zip(total, vectors, strict=True):
                found = torch.autograd.grad(g, self.parameters, v, retain_graph=True, materialize_grads=True)  # type: ignore[arg-type]
                row += _flat(found)
        return total / len(self.pieces)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])
