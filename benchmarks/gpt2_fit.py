"""A fit of a GPT-2 of 9.7 million weights on 64 sequences of 32 tokens: its time, its peak memory, and its prediction of 100 steps.

python -m benchmarks.gpt2_fit            the full fit
python -m benchmarks.gpt2_fit short      10 Lanczos steps, two noise vectors of 4 steps, a descent of 20
"""

from __future__ import annotations

import resource
import sys
import time

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from nqm import SGD
from nqm.nets import Network, fit

SHORT = {"steps": 10, "noise_vectors": 2, "noise_steps": 4, "descent": 20}


def peak() -> float:
    """The largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main(short: bool) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 2048, "n_positions": 32, "n_embd": 384, "n_layer": 5, "n_head": 6}
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    tokens = torch.randint(2048, (64, 33), generator=torch.Generator().manual_seed(1))
    tokens = (tokens.cumsum(1) % 97) * 21
    began, before = time.perf_counter(), peak()
    data = ({"input_ids": tokens[:, :-1]}, tokens[:, 1:])
    network = Network(model, nn.CrossEntropyLoss(), data, chunk=16)
    found = fit(network, announce=print, **(SHORT if short else {}))
    print(f"{time.perf_counter() - began:.0f} s; peak {peak():.2f} GB, {peak() - before:.2f} GB above the start")
    optimizer = SGD(0.1 / float(found.signal.h.max()))
    predicted = found.predict(optimizer, 16, 100).loss[-1]
    trained = network.run(optimizer, 16, [100], seeds=1).loss[-1]
    print(
        f"from {found.loss:.3f}: predicted {predicted:.3f}, trained {trained:.3f}, error {predicted / trained - 1:+.2%}"
    )


if __name__ == "__main__":
    main("short" in sys.argv[1:])
