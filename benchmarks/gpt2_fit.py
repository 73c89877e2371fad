"""A fit of a GPT-2 of 9.7 million weights on 64 sequences of 32 tokens: its time, its peak memory, and its prediction of 100 steps.

python -m benchmarks.gpt2_fit            the full fit
python -m benchmarks.gpt2_fit short      10 Lanczos steps, two noise vectors of 4 steps, a descent of 20
python -m benchmarks.gpt2_fit cost       CPU seconds of a gradient and of a product for models of four sizes, and what a fit takes
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from nqm import SGD
from nqm.nets import Network, curvature_of, fit

PRODUCTS = 112  # products of a fit: 40 Lanczos steps from the gradient, and 12 from each of six noise vectors
GRADIENTS = (
    245  # full gradients that a fit costs: 165 of the descent, and about 80 for its losses and the fit's own test
)
SHORT = {"steps": 10, "noise_vectors": 2, "noise_steps": 4, "descent": 20}


def peak() -> float:
    """The largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def network_of(width: int = 384, layers: int = 5, heads: int = 6) -> Network:
    """A GPT-2 of this size on 64 sequences of 32 tokens."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 2048, "n_positions": 32, "n_embd": width, "n_layer": layers, "n_head": heads}
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    tokens = torch.randint(2048, (64, 33), generator=torch.Generator().manual_seed(1))
    tokens = (tokens.cumsum(1) % 97) * 21
    data = ({"input_ids": tokens[:, :-1]}, tokens[:, 1:])
    return Network(model, nn.CrossEntropyLoss(), data, chunk=16)


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


def cost() -> None:
    """Print one line for each size; products and gradients of a fit are counted as `nqm fit` announces them."""
    torch.set_num_threads(1)
    for width, layers in ((64, 2), (128, 3), (256, 4), (384, 5)):
        network = network_of(width, layers, 4)
        operator, g = curvature_of(network), network.gradient()
        gradient, product = (min(cpu(work) for _ in range(2)) for work in (network.gradient, lambda: operator(g)))  # noqa: B023
        whole = PRODUCTS * product + GRADIENTS * gradient
        print(
            f"{network.dim:,} weights: gradient {gradient:.2f} s, product {product:.2f} s, fit about {whole / 60:.1f} min"
        )


def main(short: bool) -> None:
    began, before = time.perf_counter(), peak()
    network = network_of()
    found = fit(network, announce=print, **(SHORT if short else {}))
    print(f"{time.perf_counter() - began:.0f} s; peak {peak():.2f} GB, {peak() - before:.2f} GB above the start")
    optimizer = SGD(0.1 / float(found.signal.h.max()))
    predicted = found.predict(optimizer, 16, 100).loss[-1]
    trained = network.run(optimizer, 16, [100], seeds=1).loss[-1]
    print(
        f"from {found.loss:.3f}: predicted {predicted:.3f}, trained {trained:.3f}, error {predicted / trained - 1:+.2%}"
    )


if __name__ == "__main__":
    if "cost" in sys.argv[1:]:
        cost()
    else:
        main("short" in sys.argv[1:])
