"""Where sampled gradients come from: the noisy quadratic model, or batches of least-squares examples.

A source gives the starts of replicas, their noisy gradients and their losses. It does not use any exact moments.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ..engine.spectrum import Spectrum
from ..optimizers.base import Optimizer
from ..types import Array, Wrong
from .bases import Geometry
from .laws import GAUSSIAN, Law

MAX_SINGLE_MODES = 10**5  # most modes of whole multiplicity that are sampled one by one
EXAMPLES_TOGETHER = 16  # examples of a batch that are drawn as one array


class Streams:
    """The random numbers of some replicas: one generator for each block (index, replicas), seeded by the block's index."""

    def __init__(self, seed: int, blocks: Sequence[tuple[int, int]]) -> None:
        seeds = [np.random.SeedSequence(seed, spawn_key=(i,)) for i, _ in blocks]
        self.generators = [np.random.Generator(np.random.SFC64(s)) for s in seeds]
        self.ends: list[int] = np.cumsum([0, *(rows for _, rows in blocks)]).tolist()
        self.replicas = self.ends[-1]

    def draw(self, law: Law, *shape: int) -> Array:
        """Noise of shape (replicas, *shape)."""
        out = np.empty((self.replicas, *shape))
        for rng, low, high in zip(self.generators, self.ends, self.ends[1:], strict=False):
            law.draw(rng, out[low:high])
        return out


class GradientSource(ABC):
    """A problem as a sampler sees it; arrays are (replicas, modes), or (settings, replicas, modes).

    The start theta_0 is "gaussian" with variance s, or "fixed" at sqrt(s). Each sampled mode represents ``count`` modes.
    """

    def __init__(self, h: Array, s: Array, start: str, rotation: Array | None, count: Array | float = 1.0) -> None:
        self.modes, self.geometry, self.start, self.scale = h.size, Geometry(h, rotation), start, np.sqrt(s)
        self.mass = count * h / 2
        self.initial_loss = float(self.mass @ s)

    def begin(self, streams: Streams) -> Array:
        """The weights at step 0, in the basis of the run."""
        if self.start == "fixed":
            return self.geometry.turn(np.repeat(self.scale[None], streams.replicas, axis=0))
        return self.geometry.turn(streams.draw(GAUSSIAN, self.modes) * self.scale)

    @abstractmethod
    def gradient(self, w: Array, streams: Streams, batch_size: float) -> Array:
        """The gradient at w on a fresh batch, in the basis of the run."""

    def losses(self, theta: Array) -> Array:
        """The loss of each replica, from its weights in the eigenbasis."""
        return theta**2 @ self.mass


class Additive(GradientSource):
    """The noisy quadratic model: gradient ``H w + eps``, with independent noise of variance c / B on each mode.

    The components of noise and start in the eigenbasis follow the given laws. A mode of multiplicity n is sampled as n modes,
    if all multiplicities are whole and there are at most 10^5 modes in total. Otherwise, as for quadrature nodes, one
    sample represents all n modes. They have the same law, so the mean loss is right, and only its scatter over replicas is
    larger. This needs an update that treats each parameter by itself.
    """

    def __init__(
        self, spectrum: Spectrum, optimizer: Optimizer, law: Law, start: str = "gaussian", rotation: Array | None = None
    ) -> None:
        if modes := _single_modes(spectrum):
            h, c, s, count = *modes, 1.0
        elif rotation is not None:
            raise _too_many("a rotated problem", spectrum)
        elif not optimizer.elementwise:
            raise _too_many(f"{optimizer}, which takes a norm over all parameters,", spectrum)
        else:
            h, c, s, count = spectrum.h, spectrum.c, spectrum.s, spectrum.count
        super().__init__(h, s, start, rotation, count)
        self.law, self.deviation = law, np.sqrt(c)

    def gradient(self, w: Array, streams: Streams, batch_size: float) -> Array:
        g = self.geometry.multiply(w)
        if math.isinf(batch_size):
            return g
        noise = streams.draw(self.law, self.modes)
        noise *= self.deviation / math.sqrt(batch_size)
        return g + self.geometry.turn(noise)


class Minibatch(GradientSource):
    """Least squares: each gradient is the mean of ``f (f' w - sigma xi)`` over a batch of fresh examples.

    Features are ``f = R sqrt(H) z``; ``features`` is the law of the components of z, and ``labels`` that of xi. The weights w
    are measured from the minimum. Every example needs as many random numbers as there are modes. Batch sizes are whole.
    """

    def __init__(
        self, spectrum: Spectrum, label_noise: float, features: Law, labels: Law, start: str, rotation: Array | None
    ) -> None:
        if (modes := _single_modes(spectrum)) is None:
            raise _too_many("least squares", spectrum)
        h, _, s = modes
        super().__init__(h, s, start, rotation)
        self.features, self.labels, self.root, self.sigma = features, labels, np.sqrt(h), math.sqrt(label_noise)

    def gradient(self, w: Array, streams: Streams, batch_size: float) -> Array:
        if math.isinf(batch_size):
            return self.geometry.multiply(w)
        left, total = int(batch_size), np.zeros_like(w)
        while left:
            examples = min(left, EXAMPLES_TOGETHER)
            f = self.geometry.turn(streams.draw(self.features, examples, self.modes) * self.root)
            off = (f @ w[..., None])[..., 0] - self.sigma * streams.draw(self.labels, examples)
            total += (off[..., None, :] @ f)[..., 0, :]
            left -= examples
        return total / batch_size


def _single_modes(spectrum: Spectrum) -> tuple[Array, Array, Array] | None:
    """h, c and s of every single mode, or None if multiplicities are not whole or there are too many modes."""
    whole = np.rint(spectrum.count)
    if np.any(spectrum.count != whole) or spectrum.dim > MAX_SINGLE_MODES:
        return None
    h, c, s = (np.repeat(a, whole.astype(int)) for a in (spectrum.h, spectrum.c, spectrum.s))
    return h, c, s


def _too_many(what: str, spectrum: Spectrum) -> Wrong:
    return Wrong(
        f"{what} is sampled mode by mode, with at most {MAX_SINGLE_MODES:,} whole modes; this spectrum has "
        f"{len(spectrum):,} nodes that represent {spectrum.dim:,.6g} modes; use a smaller spectrum",
        argument="spectrum",
    )
