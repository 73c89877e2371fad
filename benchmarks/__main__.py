"""Run the benchmarks: ``python -m benchmarks [NAME ...]``. Times are CPU seconds of this process; ratios are of one run."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices here are tiny: more threads only spin

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import lab
from benchmarks.plain import bandwidth, sample_heavy_ball
from nqm import SGD, Adam, HeavyBall, Preconditioned, Quadratic, Spectrum, free, optimal_schedule, sweep, tune
from nqm.engine.kernels import loops, plain
from nqm.paper.grid_search import GridSearch

POWERS = (0.0, 0.25, 0.5, 0.75)
BATCHES = [float(2**e) for e in range(2, 21, 2)]
PART = 1 / 25  # The share of the settings of the authors' grids that is timed.


def cpu(work: Callable[[], object], repeat: int = 1) -> float:
    """Least CPU seconds of ``work`` over some repeats."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def paper() -> Quadratic:
    return Quadratic(Spectrum.power_law(10_000))


def figure_3a() -> str:
    """Figure 3a whole, against the authors' grid search (`GridSearch`), of which a part is timed in the same run."""

    def ours() -> None:
        problem = paper()
        for power in POWERS:
            for optimizer in (SGD(), HeavyBall()):
                sweep(problem, Preconditioned(optimizer, power) if power else optimizer, BATCHES, 0.01, most_added=0)

    fast, spectrum = cpu(ours, 2), paper().spectrum

    def theirs(anew: bool) -> float:
        searches = [GridSearch(spectrum, 0.01, p, momentum, anew) for p in POWERS for momentum in (False, True)]
        return sum(one.seconds(size, PART, seed=i) for one in searches for i, size in enumerate(BATCHES))

    whole, kept = theirs(anew=True), theirs(anew=False)
    return (
        f"{fast:.2f} s for 80 tuned points; the authors' grid search {whole:,.0f} s (one setting in {1 / PART:.0f} timed), "
        f"{whole / fast:,.0f} times as long; with eigenvectors computed once for each setting {kept:,.0f} s, {kept / fast:,.0f} times"
    )


def heavy_ball_point() -> str:
    """One tuned heavy-ball point, lr and momentum jointly."""
    problem = paper()
    problem.coarse  # noqa: B018  the nodes are made once for a problem
    return ", ".join(
        f"B = 2^{e}: {1000 * cpu(lambda e=e: tune(problem, HeavyBall(), 2**e, 0.01), 10):.0f} ms" for e in (6, 10, 14)
    )


def schedule_50() -> str:
    """A 50-piece optimal schedule, gradients by adjoints; and what one gradient by differences would cost."""
    problem = paper()
    optimal_schedule(problem, SGD(), 64, 0.01, pieces=50)
    whole = {B: cpu(lambda B=B: optimal_schedule(problem, SGD(), B, 0.01, pieces=50)) for B in (64, 1024)}
    from nqm.search.chain import Chain, split

    chain = Chain(problem.coarse, SGD(), [], split(16_000, 50))
    rates = np.geomspace(1.9, 0.01, 50)
    one = cpu(lambda: chain.gradient(rates, np.zeros(0), 64.0), 5)
    value = cpu(lambda: chain.losses(rates, np.zeros(0)), 5)
    times = ", ".join(f"B = {B}: {t:.2f} s" for B, t in whole.items())
    return f"{times}; one gradient costs {one / value:.1f} losses, differences would cost 51"


def dimension() -> str:
    """Cost of a tuned sweep from d = 10^4 to d = 10^12: the same fall of the loss, which takes like numbers of steps."""

    def work(d: float) -> Callable[[], object]:
        spectrum = Spectrum.power_law(d)
        target = spectrum.initial_loss - 4.5
        return lambda: sweep(Quadratic(spectrum), HeavyBall(), [2.0**e for e in range(4, 17, 4)], target=target)

    work(10**4)()
    times = {d: cpu(work(d), 2) for d in (10**4, 10**8, 10**12)}
    base = times[10**4]
    return ", ".join(f"d = {d:.0e}: {t:.2f} s ({t / base:.2f}x)" for d, t in times.items())


def long_run() -> str:
    """Loss after 10^6 steps on 10^4 modes, against a plain NumPy step loop."""
    problem = paper()
    h = problem.spectrum.h

    def loop(steps: int) -> None:
        theta, m = np.ones_like(h), np.zeros_like(h)
        tt, tm, mm = np.zeros_like(h), np.zeros_like(h), np.zeros_like(h)
        for _ in range(steps):
            m = 0.9 * m + h * theta
            theta = theta - 0.1 * m
            new = 0.81 * mm + 1.8 * h * tm + h**2 * tt + h / 64
            tt, tm, mm = tt - 0.2 * (0.9 * tm + h * tt) + 0.01 * new, 0.9 * tm + h * tt - 0.1 * new, new

    ours = cpu(lambda: problem.losses(HeavyBall(0.1, 0.9), 10**6), 3)
    plain = cpu(lambda: loop(500)) * 10**6 / 500
    return f"{1000 * ours:.1f} ms against {plain:.0f} s (500 steps timed, scaled): {plain / ours:,.0f} times faster"


def compiled() -> str:
    """The inner loop, compiled against plain NumPy."""
    from nqm.engine.trajectory import Trajectory

    if not loops().compiled:
        return "numba is not installed: plain NumPy is in use"
    dynamics = Trajectory(HeavyBall(0.1, 0.9), paper().coarse.spectrum.h)
    step, start = dynamics.step(0), dynamics.start()
    arguments = (step.A, step.drift, step.Q, start.A, start.Q, 5000)
    loops().move(*arguments)
    fast, slow = (
        cpu(lambda: [loops().move(*arguments) for _ in range(200)]) / 200,
        cpu(lambda: plain.move(*arguments), 5),
    )
    return f"{1e6 * fast:.0f} us against {1e6 * slow:.0f} us for 5,000 steps on {len(start.A[0, 0])} nodes: {slow / fast:.0f}x"


def sampling() -> str:
    """Updates a second of `sample`, heavy ball on 10^4 modes x 64 replicas, by the clock: beside a plain NumPy loop over all
    replicas at once, and beside the limit of the memory if every step reads and writes theta, m and g once."""
    problem, steps, replicas = paper(), 100, 64
    updates = steps * replicas * len(problem.spectrum)

    def clock(work: Callable[[], object], repeat: int = 3) -> float:
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return min(times)

    row, h = HeavyBall(0.1, 0.9), problem.spectrum.h
    by_workers = {
        n: clock(lambda n=n: problem.sample(row, 256, [steps], replicas=replicas, workers=n))
        for n in (1, os.cpu_count() or 1)
    }
    plain = clock(lambda: sample_heavy_ball(h, 0.1, 0.9, 256, steps, replicas))
    out, rng = np.empty(2**14), np.random.Generator(np.random.SFC64(0))
    draw = clock(lambda: [rng.standard_normal(out=out) for _ in range(200)]) / 200 / out.size
    rate = bandwidth()
    limit = rate / (6 * 8)
    shown = ", ".join(f"{updates / t / 1e6:.0f} M/s with {n} thread{'s'[: n > 1]}" for n, t in by_workers.items())
    return (
        f"{shown}; plain NumPy loop {updates / plain / 1e6:.0f} M/s; drawing the noise alone allows {1e-6 / draw:.0f} M/s a core, "
        f"the memory ({rate / 1e9:.1f} GB/s) {limit / 1e6:.0f} M/s"
    )


def sampled_sweep() -> str:
    """Adam against SGD over batch sizes on a power law of 1,000 modes, tuned, by the clock."""
    problem = Quadratic(Spectrum.power_law(1_000))
    start = time.perf_counter()
    found = [sweep(problem, optimizer, BATCHES, target=0.01) for optimizer in (Adam(beta1=free), SGD())]
    took = time.perf_counter() - start
    ends = ", ".join(f"{s.label} {s.steps[0]:,.0f} .. {s.steps[-1]:,.0f} steps" for s in found)
    return f"{took:.0f} s for B = 2^2 .. 2^20: {ends}"


def start_up() -> str:
    """``import nqm`` and ``nqm --help``, wall time of the best of five."""

    def best(*command: str) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        return min(times)

    bare = best("-c", "pass")
    return (
        f"import nqm {best('-c', 'import nqm'):.2f} s, nqm --help {best('-m', 'nqm', '--help'):.2f} s, "
        f"python itself {bare:.2f} s"
    )


def all_figures() -> str:
    """Every figure of ``nqm paper``."""
    from nqm.paper import run_all

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        seconds = cpu(lambda: run_all(Path(folder)))
        return f"{seconds:.1f} s of CPU, {time.perf_counter() - start:.1f} s by the clock"


def lab_overhead() -> str:
    count, fresh, again = lab.overhead()
    return f"{fresh:.2f} ms of CPU a trial of nqm lab, {again:.2f} ms once it is in the store ({count} trials that do nothing)"


BENCHMARKS = [
    figure_3a, heavy_ball_point, schedule_50, dimension, long_run, compiled, sampling, sampled_sweep, start_up, lab_overhead,
    all_figures,
]  # fmt: skip


def main(names: list[str]) -> None:
    known = {b.__name__: b for b in BENCHMARKS}
    if unknown := set(names) - set(known):
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    tune(paper(), HeavyBall(), 1024, 0.01)  # compiles, or loads what was compiled before
    for name, benchmark in known.items():
        if not names or name in names:
            print(f"{name:18} {benchmark()}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
