"""Checks of a network before minutes are spent on it, each with a sentence.

A model or a loss that cannot be used raises `Wrong`. An exception inside the model or the loss is the user's own, and is
reported as a `UserCodeError` with its traceback.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..text.imports import user_code
from ..types import Wrong
from .adapting import IGNORED_TARGET, classes_second
from .derivatives import first_sentence
from .trees import Tree, indexed, leaves

if TYPE_CHECKING:
    from .network import Network

FIRST_EXAMPLES = 8  # number of examples in the first checks
MEAN_ERROR = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Relative rounding error that the mean of eight losses may have, by precision; 1e-2 for any other precision."""


def check_network(network: Network) -> list[str]:
    """Refuse a network that would give wrong numbers, and return notes on what was changed in it."""
    data = network.data
    if network.of == "output" and not (isinstance(data, tuple) and len(data) == 2):
        got = f"a tuple of {len(data)}" if isinstance(data, tuple) else type(data).__name__
        pair = f"a pair (inputs, targets) for a loss of (output, target), got {got}"
        raise Wrong(f"data must be {pair}; a loss of (model, batch) takes any data: of='model'", argument="data")
    _check_finite(network)
    batch, seen = indexed(network.data, slice(FIRST_EXAMPLES)), _AttentionSeen()
    if network.of == "output":
        with torch.no_grad(), user_code(f"running the model on the first {FIRST_EXAMPLES} examples"):
            out = network.output(network.theta, batch)
        if not isinstance(out, Tensor):
            raise Wrong(f"the model returns {_wrapped(out, 'forward', 'logits')}", argument="model")
        _check_labels(network, out)
    with user_code(f"running the model and its loss on the first {FIRST_EXAMPLES} examples"), seen:
        loss = network.batch_loss(network.theta.clone().requires_grad_(), batch)
        with torch.no_grad():
            again = network.batch_loss(network.theta, batch)
    if not isinstance(loss, Tensor):
        raise Wrong(f"the loss returns {_wrapped(loss, 'the loss', 'loss')}", argument="loss")
    if loss.numel() != 1:
        returned = f"it returned {tuple(loss.shape)}: use reduction='mean'"
        raise Wrong(f"loss must return one number, the mean over the batch; {returned}", argument="loss")
    if not loss.requires_grad:
        why = "it is detached from the weights, or a count such as an error rate"
        raise Wrong(f"the loss has no gradient: {why}; return the tensor that training would call backward on", "loss")
    loss = loss.detach()
    if not torch.isfinite(loss):
        first = f"the loss of the first {FIRST_EXAMPLES} examples is {float(loss)}"
        raise Wrong(f"{first}; scale the weights down, or check the inputs", argument="model")
    if float(loss) != float(again):
        gave = f"two passes over the same examples gave losses {float(loss):.8g} and {float(again):.8g}"
        advice = "take the randomness out of its forward pass (dropout is off already)"
        raise Wrong(f"the model is not deterministic: {gave}; {advice}", argument="model")
    _check_mean(network, batch, loss)
    _check_uneven(network)
    return _notes(network, seen.attention)


def check_measurable(network: Network, trial: Callable[[Network], object]) -> float:
    """The loss over all the data, after a trial on a few examples and a check that the loss is finite.

    The trial finds within a moment what torch cannot differentiate or vectorise; otherwise this would show only after
    passes over all the data.
    """
    try:
        _ = network.ways  # which the few examples share
        trial(network.first(min(FIRST_EXAMPLES, network.examples)))
    except (RuntimeError, NotImplementedError) as error:  # torch raises these for operations without a rule
        needed, told = "it must be differentiable twice", first_sentence(error)
        raise Wrong(f"the model or its loss cannot be measured, as {needed}: {told}", argument="network") from error
    loss = network.full_loss()
    if not math.isfinite(loss):
        found = f"the loss over all {network.examples:,} examples is {loss}, though that of the first {FIRST_EXAMPLES}"
        raise Wrong(f"{found} is finite; look for an example whose loss is not", argument="network")
    return loss


class _AttentionSeen(TorchFunctionMode):
    """Notes whether a model calls attention while it runs."""

    attention = False

    def __torch_function__(
        self, func: Callable[..., object], types: Iterable[type], args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:  # fmt: skip
        name = getattr(func, "__name__", "")
        self.attention |= name in ("scaled_dot_product_attention", "multi_head_attention_forward")
        return func(*args, **(kwargs or {}))


def _wrapped(found: object, function: str, usual: str) -> str:
    """A message on what a function returned in place of a tensor, and how to make it return one.

    >>> _wrapped({"hidden": 0, "logits": torch.ones(1)}, "forward", "logits")
    "a dict with keys 'hidden', 'logits', and a tensor is needed; wrap it so that forward returns out['logits']"
    """
    kind, parts = type(found).__name__, dict(enumerate(found)) if isinstance(found, (tuple, list)) else found
    if not isinstance(parts, Mapping):
        return f"{kind}, and a tensor is needed; write {function} so that it returns one"
    keys = [key for key, part in parts.items() if isinstance(part, Tensor)]
    chosen = usual if usual in keys else next(iter(keys), None)
    has = f"of {len(parts)}" if parts is not found else f"with keys {', '.join(map(repr, parts))}"
    advice = "one tensor" if chosen is None else f"out[{chosen!r}]"
    return f"a {kind} {has}, and a tensor is needed; wrap it so that {function} returns {advice}"


def _check_finite(network: Network) -> None:
    bad = int((~torch.isfinite(network.theta)).sum())
    if bad:
        names = [n for n, p in network.unflatten(network.theta).items() if not torch.isfinite(p).all()]
        found = f"{bad:,} weights that are NaN or infinite, in {', '.join(names[:3])}"
        raise Wrong(f"the model has {found}; load a sound checkpoint", argument="model")
    for name, tensor in network.model.named_buffers():
        if tensor.is_floating_point() and torch.isnan(tensor).any():  # infinite values may be masks of attention
            raise Wrong(f"the model's buffer {name} has values that are NaN; load a sound checkpoint", "model")
    for tensor in leaves(network.data):
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise Wrong("data has values that are NaN or infinite; drop those examples", argument="data")


def _check_labels(network: Network, out: Tensor) -> None:
    """Refuse class labels that the model has no output for."""
    target = network.data[1]
    if network.likelihood != "categorical" or not isinstance(target, Tensor) or target.is_floating_point():
        return
    counted = target[target != getattr(network.loss, "ignore_index", IGNORED_TARGET)]
    low, high = int(counted.min()), int(counted.max())
    classes = classes_second(out, target[: len(out)]).shape[1]
    if low < 0 or high >= classes:
        allowed = f"from 0 to {classes - 1}, as the model has {classes} outputs"
        remedy = "a label of targets that do not count is nn.CrossEntropyLoss(ignore_index=...)"
        raise Wrong(f"labels must lie {allowed}; data has {low} to {high}; {remedy}", argument="data")


def _check_mean(network: Network, batch: Tree, loss: Tensor) -> None:
    """Refuse a loss that is not the mean over the examples of a batch: the noise of a batch would not be c / B."""
    n = len(leaves(batch)[0])
    with torch.no_grad(), user_code("running the model and its loss on single examples"):
        alone = [network.batch_loss(network.theta, indexed(batch, slice(i, i + 1))) for i in range(n)]
    mean = float(torch.stack(alone).mean())
    tol = MEAN_ERROR.get(network.theta.dtype, 1e-2) * max(abs(mean), abs(float(loss)), 1e-3)
    if abs(float(loss) - mean) > tol:
        gave = f"{n} examples together give {float(loss):.6g}, one by one they average {mean:.6g}"
        advice = "use reduction='mean', targets shaped like the outputs, and a model that treats each example by itself"
        ignored = "if targets are ignored or weighted, give nn.CrossEntropyLoss itself as the loss of the outputs"
        raise Wrong(f"loss is not a mean over examples: {gave}; {advice}; {ignored}", argument="loss")


def _check_uneven(network: Network) -> None:
    """Repeat that check on the two examples with the fewest and with the most targets that count, if their numbers differ."""
    data = network.data
    target = (
        data.get("labels") if isinstance(data, dict) else data[1] if isinstance(data, tuple) and len(data) > 1 else None
    )
    if not isinstance(target, Tensor) or target.is_floating_point() or target.ndim < 2:
        return
    counts = (target != IGNORED_TARGET).reshape(len(target), -1).sum(1)
    pair = torch.stack([counts.argmin(), counts.argmax()])
    if counts[pair[0]] == counts[pair[1]]:
        return
    batch = network.take(pair)
    with torch.no_grad(), user_code("running the model and its loss on two examples"):
        loss = network.batch_loss(network.theta, batch)
    _check_mean(network, batch, loss)


def _notes(network: Network, attention: bool) -> list[str]:
    """Sentences on what differs from the model as the user trains it."""
    modules = list(network.model.modules())
    notes = []
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in modules):
        notes.append("batch norm runs in eval mode, on its running averages, which do not change")
    if any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in modules):
        notes.append("dropout is off")
    if attention:
        notes.append("attention runs on the math kernel, because the fused ones lack forward-mode differentiation")
    still = sum(p.numel() for p in network.model.parameters()) - network.dim
    if still > 0:
        notes.append(f"{still:,} parameters stay fixed")
    if network.of == "model":
        notes.append("the loss is a function of the model and has no Gauss-Newton matrix, so curvature is the Hessian")
    return notes
