"""What a cycled momentum costs, on runs of one cycle that the exact engine made: the numbers of the remark on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nqm import HeavyBall, Quadratic, Spectrum
from nqm.engine.schedule import Schedule
from nqm.logs import Log, forecast, read_logs
from nqm.types import Array

STEPS, PIECE = 4000, 20
READ = np.arange(20, STEPS + 1, 20)


def cycle(rise: float) -> tuple[Array, Array]:
    """Multipliers of the learning rate and momenta of one cycle, as OneCycleLR has them by default."""
    n = round(rise * STEPS)
    up = (1 - np.cos(np.pi * np.arange(n) / n)) / 2
    down = (1 + np.cos(np.pi * np.arange(STEPS - n) / (STEPS - n))) / 2
    rates = np.append(1 / 25 + (1 - 1 / 25) * up, 1e-5 + (1 - 1e-5) * down)
    return rates[PIECE - 1 :: PIECE], np.append(0.95 - 0.1 * up, 0.85 + 0.1 * (1 - down))[PIECE - 1 :: PIECE]


def run(lr: float, rise: float, seed: int, cycled: bool, effective: bool) -> Log:
    rates, momenta = cycle(rise)
    momenta = momenta if cycled else np.full_like(momenta, 0.9)
    schedule = Schedule([PIECE] * len(rates), lr=rates, momentum=momenta / 0.9)
    run = Quadratic(Spectrum.power_law(1000)).run(HeavyBall(lr, 0.9), 64, READ.tolist(), schedule)
    rng = np.random.default_rng(seed)
    scatter = 4e-4 * rng.standard_normal() + 4e-4 * rng.standard_normal(len(READ))
    logged = lr * rates * (0.1 / (1 - momenta) if effective else 1.0)
    return Log(READ, (2 + run.loss) * np.exp(scatter), np.repeat(logged, PIECE), optimizer="SGD", name=str(seed))


def error(cycled: bool, effective: bool = False) -> float:
    """The mean relative error of a fourth run after its beginning, in the median of some sets of runs."""
    errors = []
    for seed in range(4):
        lr = 10 ** np.random.default_rng(100 + seed).uniform(-2, -0.8)
        logs = [run(lr * f, 0.3, 10 * seed + i, cycled, effective) for i, f in enumerate((1.0, 0.5, 0.25))]
        left = run(0.7 * lr, 0.1, 10 * seed + 5, cycled, effective)
        apart = np.abs(np.log(forecast(logs).predict(left).loss / left.loss))
        errors.append(float(apart[left.step > STEPS / 10].mean()))
    return float(np.median(errors))


@pytest.mark.slow
def test_a_cycled_momentum_costs_several_times_the_error_and_the_effective_rate_does_not() -> None:
    constant, cycled, effective = error(False), error(True), error(True, effective=True)
    assert 3 * constant < cycled < 8 * constant
    assert effective < 1.5 * constant


def test_a_cycled_momentum_is_said(tmp_path: Path) -> None:
    rows = [f"{t},{3 / t:.5f},0.1,{0.95 - 0.1 * t / 400:.4f}" for t in range(10, 401, 10)]
    (tmp_path / "run.csv").write_text("\n".join(["step,loss,lr-SGD,lr-SGD-momentum", *rows]))
    (log,) = read_logs(tmp_path)
    (said,) = [remark for remark in log.remarks if "momentum" in remark]
    assert said.startswith(
        "The momentum changes from 0.85 to 0.9475 (column 'lr-SGD-momentum'); the law takes it for constant"
    )
    assert "give lr / (1 - momentum) as the learning rate" in said
    rows = [f"{t},{3 / t:.5f},0.1,0.9" for t in range(10, 401, 10)]
    (tmp_path / "run.csv").write_text("\n".join(["step,loss,lr-SGD,lr-SGD-momentum", *rows]))
    assert not any("momentum" in remark for remark in read_logs(tmp_path)[0].remarks)
