"""Make the pictures of README.md in docs/img: ``NQM_CURVES=FOLDER python docs/pictures.py``.

FOLDER holds the logs of the Multi-Power Law (thu-yao-01-luo/MultiPowerLaw at 8da9f19) as ``multipowerlaw``; the picture of a
forecast needs the run that the forecast has not seen. The picture of a network needs the extra nets, and trains for a minute.
"""

from __future__ import annotations

import os
from pathlib import Path

from nqm import EMA, SGD, Axis, HeavyBall, Quadratic, Spectrum, phase_map, sweep
from nqm.logs import forecast, read_logs
from nqm.show import plot_sweeps
from nqm.show.chart import BLACK, PALETTE, Line, Panel, chart

IMAGES = Path(__file__).with_name("img")
HELD_OUT = Path("multipowerlaw") / "100M" / "wsdld_20000_24000.csv"
BATCH_SIZES = (16, 256)  # of the trainings beside the predictions


def steps() -> None:
    """Tuned steps against batch size, as ``nqm demo`` draws them."""
    problem = Quadratic(Spectrum.power_law(10_000))
    plot_sweeps([sweep(problem, one, target=0.01) for one in (SGD(), HeavyBall(), EMA(SGD()))], IMAGES / "sweep.png")


def settings() -> None:
    """Steps to the target over learning rate and momentum, as ``nqm map`` draws them."""
    axes = Axis("lr", 0.001, 8, 48), Axis("momentum", 0, 0.999, 48)
    found = phase_map(Quadratic(Spectrum.power_law(10_000)), HeavyBall(), *axes, batch_size=1024, target=0.01)
    found.plot(str(IMAGES / "map.png"))


def unseen() -> None:
    """A run that the fit has not seen (points) beside its forecast from three others."""
    logs = read_logs("example", optimizer="AdamW", weight_decay=0.1)
    (run,) = read_logs(Path(os.environ["NQM_CURVES"]) / HELD_OUT, optimizer="AdamW", weight_decay=0.1)
    found = forecast(logs)
    outlook, lines = found.predict(run), []
    for log, color in zip(logs, PALETTE, strict=False):
        name, at = f"{log.name}, fitted", (-50.0, -9.0) if log.name == "drop" else (4.0, 4.0)
        lines.append(Line(log.step, found.predict(log).loss, "", color, width=1.2, tag=name, tag_at=at))
    band = outlook.low, outlook.high
    lines.append(Line(outlook.steps, outlook.loss, "", BLACK, spread=band, tag="WSD, forecast", tag_at=(4.0, -4.0)))
    few = slice(None, None, max(1, len(run.step) // 50))
    lines.append(Line(run.step[few], run.loss[few], "", BLACK, "", marker="o", hollow=True))
    ends = f"The forecast ends at {outlook.loss[-1]:.4f}. The run itself (dots)"
    title = f"{ends}, which the fit has not seen, ends at {run.loss[-1]:.4f}."
    panel = Panel(lines, "step", "loss", title=title, legend="none", x_limits=(0, 24_700), y_limits=(2.9, 3.6))
    chart([panel], IMAGES / "forecast.png", (6.4, 3.4))


def trainings() -> None:
    """Predicted losses with their intervals beside real trainings on the digits."""
    from nqm.nets import fit
    from nqm.nets.workloads import workload

    network, times = workload("digits").network(), [0, 3, 10, 30, 60, 100, 200, 300]
    measured, lines = fit(network), []
    for size, color in zip(BATCH_SIZES, PALETTE, strict=False):
        told = measured.predict(SGD(0.3), size, times)
        lines.append(Line(told.steps, told.loss, "", color, spread=(told.low, told.high), tag=f"batch size {size}"))
        trained = network.run(SGD(0.3), size, times, seeds=8)
        lines.append(Line(trained.steps, trained.loss, "", color, "", marker="o", hollow=True, error=trained.stderr))
    title = "Lines: predicted from one checkpoint, with 90% intervals. Dots: the mean of eight real trainings."
    chart([Panel(lines, "step", "training loss", title=title, legend="none")], IMAGES / "check.png", (6.4, 3.2))


if __name__ == "__main__":
    steps()
    settings()
    unseen()
    trainings()
