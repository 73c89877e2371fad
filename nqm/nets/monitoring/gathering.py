"""The parts of a step's gradient, seen as backward passes add them up: microbatches of accumulation, and ranks.

A hook on each parameter sees the gradient x_i of every backward pass before it is added to ``.grad``. Its squared norm is kept, and
nothing else, so that no copy of the gradient is needed. The sum of all parts is read from ``.grad`` before the step.

Between the backward passes and that moment ``.grad`` may have been multiplied by a factor: a scaler has unscaled it, it was clipped,
or averaged over ranks. For a few small parameters, called witnesses, the sum of the parts is kept too. Their ``.grad`` shows the
factor, and whether it is one factor at all: a missing ``zero_grad``, or clipping by value, is found and not measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from ...types import Wrong
from .preconditioning import roots_of_metric
from .ratios import GradientParts

WITNESSES = 3  # number of smallest parameters whose gradients are kept, to find the factor of the whole gradient
WITNESS_ERROR = 1e-2  # relative error of the witnesses above which the gradient was changed by more than a factor
POWER_ERROR = 1e-5  # a factor within this relative distance of a power of two is that of a loss scaler


OVERFLOW = "a gradient is NaN or infinite, as after an overflow of mixed precision"


class Changed(Exception):
    """A step that cannot be measured, with the sentence that says why."""


class Gatherer:
    """Hooks on the parameters of an optimizer that gather squared norms while `gathering` is on."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer, self.gathering = optimizer, True
        self.parameters = trained(optimizer)
        by_size = sorted(self.parameters, key=lambda p: p.numel())
        self.witnesses = by_size[:WITNESSES]
        self.handles = [p.register_hook(self._seen(p)) for p in self.parameters]
        self.handles += [p.register_post_accumulate_grad_hook(self._added) for p in self.parameters]  # type: ignore[attr-defined]
        self.clear()

    def clear(self) -> None:
        """Forget the step so far."""
        self.lengths: list[list[Tensor]] = []
        self.passes = dict.fromkeys(self.parameters, 0)
        self.kept: dict[Tensor, Tensor] = {}
        self._next: dict[Tensor, tuple[list[Tensor], Tensor | None]] = {}
        self._roots: dict[Tensor, Tensor] | None = None
        self._asked = False

    def remove(self) -> None:
        """Take the hooks off the parameters."""
        for handle in self.handles:
            handle.remove()

    @property
    def count(self) -> int:
        """The number of backward passes since the last `clear`."""
        return max(self.passes.values(), default=0)

    @property
    def roots(self) -> dict[Tensor, Tensor] | None:
        """The metric of the optimizer before this step."""
        if not self._asked:
            self._roots, self._asked = roots_of_metric(self.optimizer), True
        return self._roots

    def _seen(self, parameter: Tensor) -> Callable[[Tensor], None]:
        """The hook that sees a gradient of the parameter before it is added, or returned by ``torch.autograd.grad``."""
        witness = any(parameter is one for one in self.witnesses)

        def seen(x: Tensor) -> None:
            if self.gathering:
                x = x.detach()  # so that nothing below is part of a graph
                self._next[parameter] = norms(x, self.roots, parameter), x.float() if witness else None

        return seen

    def _added(self, parameter: Tensor) -> None:
        """The hook that is called after a gradient was added to ``.grad``: what was seen of it counts."""
        if (found := self._next.pop(parameter, None)) is not None:
            lengths, x = found
            self.passes[parameter] += 1
            self.lengths.append(lengths)
            if x is not None:
                self.kept[parameter] = self.kept[parameter] + x if parameter in self.kept else x.clone()

    def parts(self, weights: Sequence[float], sizes: Sequence[int]) -> tuple[list[GradientParts], int]:
        """The sums of this step in the plain metric and in the optimizer's, and the examples of all ranks.

        ``weights`` has the a_i and ``sizes`` the b_i of the backward passes of this rank.
        """
        device = self.parameters[0].device
        rows = [(w, w * w, w * w / b, b) for w, b in zip(weights, sizes, strict=True)]
        with torch.no_grad():
            local = sum_of_squares(self.lengths, device)
            sums = torch.tensor([sum(column) for column in zip(*rows, strict=True)], dtype=torch.float32, device=device)
            kept = [self.kept.get(p, torch.zeros_like(p, dtype=torch.float32)) for p in self.witnesses]
            everything = torch.cat([local, sums, *(k.reshape(-1).to(device) for k in kept)])
            ranks = sum_over_ranks(everything)
            found = everything.cpu().double()
            factor = self._factor(found[6:], ranks)
            grads = [norms(p.grad, self.roots, p) for p in self.parameters if p.grad is not None]
            wholes = (sum_of_squares(grads, device).cpu().double() / factor**2).tolist()
        squares, (a1, a2, d, examples) = found[:2].tolist(), found[2:6].tolist()
        if not all(map(math.isfinite, (*squares, *wholes))):
            raise Changed(OVERFLOW)
        unit = loss_scale(factor * ranks) / ranks
        kinds = 2 if self.roots is not None else 1
        pairs = zip(squares[:kinds], wholes[:kinds], strict=True)
        return [GradientParts(x * unit**2, whole * unit**2, a1, a2, d) for x, whole in pairs], round(examples)

    def _factor(self, added: Tensor, ranks: int) -> float:
        """The number by which ``.grad`` is the sum of the parts that backward passes added."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.witnesses]
        now = torch.cat([g.detach().reshape(-1).cpu().double() for g in grads])
        size = float(added @ added)
        if not (math.isfinite(size) and bool(torch.isfinite(now).all())):
            raise Changed(OVERFLOW)
        if size == 0:
            raise Changed("the gradients of the smallest parameters are 0, so the sum of the parts cannot be verified")
        factor = float(added @ now) / size
        off = float((now - factor * added).norm() / now.norm().clamp(min=1e-300))
        if not (0 < factor < 1 + WITNESS_ERROR and off < WITNESS_ERROR):
            where = "" if ranks == 1 else f" of {ranks} ranks"
            raise Changed(
                f"the gradient is not the sum of what the backward passes{where} added; call zero_grad before "
                "the first of them, and monitor.step once for each step, before the gradient is clipped by value"
            )
        return factor


def trained(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of an optimizer that require a gradient."""
    found = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if not found:
        raise Wrong("the optimizer has no parameter that requires a gradient", argument="optimizer")
    return found


def norms(x: Tensor, roots: dict[Tensor, Tensor] | None, parameter: Tensor) -> list[Tensor]:
    """|x| in the plain metric and, if there are roots, in theirs."""
    x = x.detach().to_dense() if x.is_sparse else x.detach()
    plain = torch.linalg.vector_norm(x, dtype=torch.float32)
    return [plain] if roots is None else [plain, torch.linalg.vector_norm(x.float() * roots[parameter])]


def sum_of_squares(lengths: Sequence[Sequence[Tensor]], device: torch.device) -> Tensor:
    """The sum of the squares of each kind of norm; that in the metric of the optimizer is 0 if it is plain."""
    kinds = [torch.stack([one.to(device) for one in kind]) for kind in zip(*lengths, strict=True)]
    sums = [(kind**2).sum() for kind in kinds]
    return torch.stack([*sums, *[torch.zeros((), device=device)] * (2 - len(sums))])


def sum_over_ranks(values: Tensor) -> int:
    """Sum a tensor over the ranks of data-parallel training, in place, and return their number."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return 1
    distributed.all_reduce(values)
    return distributed.get_world_size()


def loss_scale(factor: float) -> float:
    """The factor if it undoes a loss scale, which is a power of two; 1 for any other, such as that of clipping.

    >>> loss_scale(2.0**-16), loss_scale(0.37), loss_scale(1.0)
    (1.52587890625e-05, 1.0, 1.0)
    """
    power = round(math.log2(factor))
    return 2.0**power if power < 0 and abs(factor / 2.0**power - 1) < POWER_ERROR else 1.0
