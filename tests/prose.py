"""Numbers in the sentences of the documentation, each beside the function that computes it.

An entry is a page, a piece of one of its sentences with ``{}`` in the place of each number, and a function that returns those
numbers. The test reads the numbers from the page, so a number that changes for a good reason is changed on the page alone.
Line breaks do not matter. A number may be off by half a unit of its last digit and, for what a search finds, by ``within``
of itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from computed import (
    CELLS,
    NUMBER,
    PAPER,
    POWERS,
    PROBLEM,
    adam_ratio,
    additive,
    at_the_edge,
    batch_size_schedule,
    carried,
    critical,
    digits_fit,
    errors,
    exact_cg,
    first_rate,
    gap,
    half_life_cost,
    hyperbola,
    limits,
    number,
    pieces,
    plain_cg,
    regression,
    regression_row,
    step_errors,
    steps,
    surge,
    swept,
    trained,
    tuned,
)

import nqm
from nqm import EMA, SGD, Adam, HeavyBall, Quadratic, Spectrum
from nqm.logs import Forecast, LeftOut, Log, forecast, read_logs
from nqm.problems.bounds import bayes_bound, knee, paper_bound
from nqm.problems.doubts import averaged_gradients

ROOT = Path(__file__).parents[1]
LOCAL = 0.05  # best schedules of heavy ball are local optima, and on two processors the search ended at 191 and at 198 steps
SEARCHED = 1e-3  # what tuning promises, in steps

Numbers = float | Iterable[float]


@dataclass(frozen=True)
class Prose:
    """A piece of a sentence, and the function that computes its numbers."""

    page: str
    sentence: str
    compute: Callable[[], Numbers]
    within: float = 0.0
    slow: bool = False
    needs: str = ""  # a module without which the numbers cannot be computed

    def shown(self) -> list[str]:
        """The numbers as the page has them; an assertion if the page has no such sentence, or several."""
        words = [r"\s+".join(map(re.escape, piece.split(" "))) for piece in self.sentence.split("{}")]
        pattern = f"({NUMBER})".join(words)
        found = [m.groups() for m in re.finditer(pattern, (ROOT / self.page).read_text())]
        assert len(found) == 1, f"{self.page} has {len(found)} sentences like {self.sentence!r}; one is wanted"
        return list(found[0])

    def check(self) -> None:
        """Compute the numbers and compare them with the page."""
        computed = self.compute()
        values = [float(v) for v in (computed if isinstance(computed, Iterable) else [computed])]
        shown = self.shown()
        assert len(values) == len(shown), f"{self.sentence!r} has {len(shown)} numbers, {len(values)} were computed"
        for text, value in zip(shown, values, strict=True):
            slack = half_unit(text) + self.within * abs(value)
            assert abs(number(text) - value) <= slack, f"{self.page}: {self.sentence!r} says {text}, it is {value:.6g}"


def half_unit(text: str) -> float:
    """Half a unit of the last digit that is shown."""
    mantissa, _, exponent = text.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) * (1 + 1e-9)


@cache
def published(size: str) -> dict[str, Log]:
    """The logs of the Multi-Power Law, by name."""
    folder = ROOT / "tests" / "data" / "curves" / "multipowerlaw" / size
    return {log.name: log for log in read_logs(folder, optimizer="AdamW", weight_decay=0.1)}


@cache
def split(size: str) -> dict[str, float]:
    """Errors on the six runs that the authors of the Multi-Power Law forecast from three others."""
    logs, fitted = published(size), ("cosine_24000", "constant_24000", "wsdcon_9")
    found = forecast([logs[name] for name in fitted])
    others = tuple(log for name, log in logs.items() if name not in fitted)
    rows = LeftOut(others, tuple(found.predict(log) for log in others)).table()
    return {
        "r2": float(np.mean([row["R2"] for row in rows])), "largest": 100 * max(row["largest_relative_error"] for row in rows),
        "wsd": max(abs(row["final_error"]) for row in rows if row["log"].startswith(("wsd_", "wsdld_"))),
        "held": 100 * float(np.mean([row["held"] for row in rows])),
    }  # fmt: skip


@cache
def example() -> Forecast:
    return forecast(read_logs("example", optimizer="AdamW", weight_decay=0.1))


def outlook_of_example(step: int) -> list[float]:
    """Loss, lower and upper end of the interval of the schedule on the page, at a step."""
    outlook = example().predict(nqm.wsd(24_000, 2160, 4000, end=0.1), [step], peak=3e-4)
    return [float(values[-1]) for values in (outlook.loss, outlook.low, outlook.high)]


def gains_of_example() -> list[float]:
    above = {row["schedule"]: row["above"] for row in example().optimal_schedule(24_000, min_lr=3e-5).rivals}
    return [above["cosine"], above["WSD"]]


def left_out_of_example() -> float:
    return next(row["final_error"] for row in example().check().table() if row["log"] == "constant")


README, EVIDENCE = "README.md", "docs/evidence.md"
CHOOSE, THEORY, DESIGN = "docs/choose.md", "docs/theory.md", "docs/design.md"
FORECAST = "docs/forecast.md"
START, NETS, RESULTS = "docs/start.md", "docs/nets.md", "docs/results.md"
MODES = Quadratic(Spectrum.power_law(10**12))

NUMBERS = [
    # README
    Prose(
        README, "At batch size 1,024 tuned SGD needs {} steps, SGD with averaged weights {}, heavy ball {}.",
        lambda: [steps(o, 1024) for o in ("SGD", "EMA(SGD)", "HeavyBall")], SEARCHED,
    ),
    Prose(
        README, "Momentum scales to a batch of {}, plain SGD to {}: {} times further.",
        lambda: [b := critical("HeavyBall", "2x"), s := critical("SGD", "2x"), b / s], 0.01,
    ),
    Prose(RESULTS, "at most {}% below and {}% above", step_errors),
    Prose(
        EVIDENCE, "{} curvature products and {} full gradients",
        lambda: [digits_fit().provenance.products, digits_fit().provenance.full_gradients], slow=True, needs="torch",
    ),
    # start.md; its code blocks hold the others.
    Prose(START, "# a constant rate needs {}", lambda: steps("SGD", 64), SEARCHED),
    # choose.md, besides its tables
    Prose(CHOOSE, "initial loss {}, target loss", lambda: PAPER.initial_loss),
    Prose(
        CHOOSE, "an exponential average needs {} times fewer steps than SGD, and a tail average {} times fewer.",
        lambda: [steps("SGD", 4) / steps(o, 4) for o in ("EMA(SGD)", "Polyak(SGD)")], slow=True,
    ),
    Prose(
        CHOOSE, "plain SGD needs {} steps, and heavy ball {}.",
        lambda: [swept(o).smallest_steps for o in ("SGD", "HeavyBall")], SEARCHED,
    ),
    Prose(
        CHOOSE, "| HeavyBall | {} | {} | {} | {} | {} |\n| Nesterov |",
        lambda: [
            *(critical("HeavyBall", by) for by in ("2x", "20%", "ratio")), swept("HeavyBall").smallest_steps,
            swept("HeavyBall").bend.fewest,
        ],
        0.005,
    ),
    Prose(
        CHOOSE, "SGD with H^-1/2 needs {} times fewer steps at B = 4 and {} times fewer at B = 2^20.",
        lambda: [steps("SGD", B) / steps("Preconditioned(SGD, 0.5)", B) for B in (4, 2**20)],
    ),
    Prose(
        CHOOSE, "At B = 4 it saves {}% of the steps at momentum 0.9, and {}% if the momentum is tuned",
        lambda: [100 - 100 * steps(o, 4) / steps("SGD", 4) for o in ("HeavyBall(momentum=0.9)", "HeavyBall")],
    ),
    Prose(
        CHOOSE, "With an average the best rate is {} times as high at B = 4",
        lambda: tuned("EMA(SGD)", 4).optimizer.inner.lr / tuned("SGD", 4).optimizer.lr, 0.01,
    ),
    Prose(
        CHOOSE, "P = H^p alone: {} here, {} at p = 0.5.", lambda: [knee(PAPER, 0.01), knee(PAPER, 0.01, 0.5)],
    ),
    Prose(
        CHOOSE, "`Polyak(SGD)` is 20% above perfect scaling at B = {} already, because", lambda: critical("Polyak(SGD)"), 0.01,
        slow=True,
    ),
    Prose(
        CHOOSE, "1, 2, 10 and 50 pieces need {}, {}, {} and {} steps, at B = 1,024 they need {}, {}, {} and {}.",
        lambda: [pieces(n, B) for B in (64, 1024) for n in (1, 2, 10, 50)], 0.005, slow=True,
    ),
    *(
        Prose(CHOOSE, f"| {name} {'| {} ' * 10}|", lambda name=name: swept(name).effective_lr, 0.01, slow=name != "SGD")
        for name in ("SGD", "HeavyBall", "EMA(SGD)")
    ),
    Prose(
        CHOOSE, f"| SGD, best 10-piece schedule {'| {} ' * 7}|", lambda: [pieces(10, 4**k) for k in range(1, 8)], SEARCHED,
        slow=True,
    ),
    Prose(
        CHOOSE, "| HeavyBall, best 10-piece schedule | | | {} | | {} | | {} |",
        lambda: [pieces(10, 4**k, "HeavyBall") for k in (3, 5, 7)], LOCAL, slow=True,
    ),
    Prose(CHOOSE, "At B = 1,024 the first part is {}% of the run.", lambda: 100 * at_the_edge(), slow=True),
    Prose(
        CHOOSE, "of ten pieces at B = 64 reaches {} with the same examples",
        lambda: nqm.optimal_schedule(PROBLEM, SGD(), 64, examples=1e6).loss, SEARCHED,
    ),
    Prose(CHOOSE, "rises from {} to {} and reaches {} in {} steps.", batch_size_schedule, 0.01),
    Prose(
        CHOOSE, "moves from {} to {} for SGD, from {} to {} for heavy ball, and from {} to {} for averaged SGD.",
        lambda: [critical(o, "2x", t) for o in ("SGD", "HeavyBall", "EMA(SGD)") for t in (0.01, 0.001)], 0.01, slow=True,
    ),
    Prose(
        CHOOSE, "the largest curvature is {}. The advice says that the critical batch size (twice the steps of perfect scaling) is "
        "{}, so 64 is {} of it. On the model that critical batch size is {}, and {} of it is {}, where the best learning rate is {}. "
        "Divided by {} this is {}.",
        lambda: [
            h := digits_fit().spectrum.h.max(), 64 / carried(64)[0], carried(64)[0], critical("SGD", "2x"), *carried(64)[:3], h,
            carried(64)[3],
        ],
        0.005, slow=True, needs="torch",
    ),
    Prose(
        CHOOSE, "after 100 steps its loss is {}, where the fit predicts {}.",
        lambda: [trained(64, 0.788)[3], digits_fit().predict(SGD(0.788), 64, 100).loss[-1]], 0.1, slow=True, needs="torch",
    ),
    Prose(
        CHOOSE, "of the real network after 100 steps ({} at the checkpoint", lambda: digits_fit().loss, slow=True, needs="torch",
    ),
    *(
        Prose(
            CHOOSE, f"| {B:,} | {{}} | {{}} | {{}} | {{}} | {{}} | rises |", lambda B=B: trained(B, carried(B)[3]), 0.1, slow=True,
            needs="torch",
        )
        for B in (16, 64, 256, 1024)
    ),
    # theory.md
    Prose(THEORY, "Its trace is {}, its initial loss {}.", lambda: [PAPER.trace, PAPER.initial_loss]),
    Prose(
        THEORY, "is built from {} nodes, without a loop over modes. A search compresses these further, to {}.",
        lambda: [len(MODES.spectrum), len(MODES.nodes.searched(HeavyBall()).modes)],
    ),
    Prose(
        THEORY, "SGD needs {} steps where the paper's bound says {} and the Bayes bound {}.",
        lambda: [steps("SGD", 4, 3.0), paper_bound(PAPER, 3.0, 4), np.ceil(bayes_bound(PAPER, 3.0, 4))],
    ),
    Prose(
        THEORY, "the two bounds differ by {}%.",
        lambda: 100 * paper_bound(PAPER, 0.01, 4) / bayes_bound(PAPER, 0.01, 4) - 100,
    ),
    Prose(
        THEORY, "need {} steps on the problem above ({}, {}, {} with H^-p",
        lambda: exact_cg(),
    ),
    Prose(THEORY, "lose orthogonality and take {}.", lambda: plain_cg(0)),
    Prose(THEORY, "| largest stable lr | {} | {} | {} | {} | {} |", lambda: limits(SGD())),
    Prose(
        THEORY, "| heavy ball, momentum 0.9: lr / (1 - momentum) | {} | {} | {} | {} | {} |",
        lambda: [10 * lr for lr in limits(HeavyBall(momentum=0.9))],
    ),
    *(
        Prose(
            THEORY, f"| steps to loss {target:g}{words} {CELLS}\n| without sampling noise {CELLS}",
            lambda target=target: regression_row(regression, target) + regression_row(additive, target), SEARCHED, slow=True,
        )
        for target, words in ((1.0, ", tuned SGD"), (0.1, ""))
    ),
    Prose(
        THEORY, "the best rate is {}, while the additive model would take {}. For a loss of 2 the best rate of the additive "
        "model, {},",
        lambda: [regression(4, 1.0).optimizer.lr, *(additive(4, target).optimizer.lr for target in (1.0, 2.0))],
    ),
    Prose(
        THEORY, "agree for SGD: to {}% in steps at a loss of 0.01",
        lambda: 100 * regression(4, 0.01).steps / additive(4, 0.01).steps - 100,
    ),
    Prose(
        THEORY, "needs {} steps at B = 4, where the additive model says {}, and {} at B = 64, where it says {}.",
        lambda: [model(B, 0.01, EMA(SGD())).steps for B in (4, 64) for model in (regression, additive)], SEARCHED, slow=True,
    ),
    Prose(
        THEORY, "with momentum 0.9 needs {} of SGD's steps. With momentum tuned too it needs {} ({}, {}, {} with H^-p",
        lambda: [
            steps("HeavyBall(momentum=0.9)", 4) / steps("SGD", 4),
            *(steps(f"Preconditioned(HeavyBall, {p})", 4) / steps(f"Preconditioned(SGD, {p})", 4) for p in POWERS),
        ],
    ),
    Prose(
        THEORY, "differ by at most {}% at x = 0.001 and b = 0.5, {}% at x = 0.001 and b = 0.9, {}% at x = 0.01 and b = 0.9.",
        lambda: [gap(0.001, 0.5), gap(0.001, 0.9), gap(0.01, 0.9)],
    ),
    Prose(THEORY, "With p = 3/4 at B = 16 it starts at {}, where the paper's cap", first_rate, 0.01, slow=True),
    Prose(THEORY, "the product runs from {} at B = 4 to {} at B = 2^20", hyperbola, 0.02),
    Prose(
        THEORY, "takes {} times the steps of H^-1/2 at B = 1,024, {} times at B = 4,096, and {} times at B = 2^20.",
        lambda: [adam_ratio(B) for B in (2**10, 2**12, 2**20)], 0.02, slow=True,
    ),
    Prose(
        THEORY, "by 20% at B = {} for Adam, and at {} for heavy ball.", lambda: [critical("Adam"), critical("HeavyBall")], 0.02,
        slow=True,
    ),
    Prose(THEORY, "one step of sign descent falls by {}% from its peak.", surge),
    Prose(
        THEORY, "from B = 1 to 256 fixed beta2 = 0.999 costs less than {}% of the steps.", half_life_cost, slow=True,
    ),
    # nets.md and results.md, besides their tables
    Prose(
        NETS, "A fit takes {} products of G with a vector, each a pass over all the data, and {} full gradients.",
        lambda: [digits_fit().provenance.products, digits_fit().provenance.full_gradients], slow=True, needs="torch",
    ),
    Prose(
        NETS, "the plain quadratic is off by {}% in the median after 300 steps, and the corrected one by {}%.",
        lambda: [
            np.median(errors("cifar_resnet8_2000", 300, 0.0, 2, column)) for column in ("plain_error", "error")
        ],
    ),
    # forecast.md, and the README on forecasts
    Prose(
        FORECAST, "The forecast is a loss of {}, and 90% of such runs should end between {} and {}.",
        lambda: outlook_of_example(24_000),
    ),
    Prose(
        FORECAST, "their log ends {} steps earlier at a loss of {}, where the forecast is {}.",
        lambda: [24_000 - published("100M")["wsdld_20000_24000"].step[-1], published("100M")["wsdld_20000_24000"].loss[-1],
                 outlook_of_example(23_904)[0]],
    ),
    Prose(FORECAST, "Here it gains {} over the cosine and {} over WSD", lambda: gains_of_example(), slow=True),
    Prose(
        FORECAST, "the mean R² is {} for the model of 25 million weights and {} for that of 100 million. The largest relative error "
        "of any point is {}% and {}%. The final losses of the two WSD runs are off by {} and by {} at most. A run holds on average "
        "{}% and {}% of its points",
        lambda: [row[name] for name in ("r2", "largest", "wsd", "held") for row in (split("25M"), split("100M"))], slow=True,
    ),
    Prose(
        EVIDENCE, "are off by at most {} for a model of 25 million weights and by {} for one of 100 million",
        lambda: [split(size)["wsd"] for size in ("25M", "100M")], slow=True,
    ),
    Prose(FORECAST, "constant run is forecast {} too high", lambda: left_out_of_example(), slow=True),
    # design.md
    Prose(
        DESIGN, "uses {} nodes in place of the paper's 10^4 modes, and {} in place of 10^12.",
        lambda: [len(problem.nodes.searched(HeavyBall()).modes) for problem in (PROBLEM, MODES)],
    ),
    Prose(
        DESIGN, "full reorthogonalisation): {}, {}, {} and {} steps on the paper's instance",
        lambda: exact_cg(),
    ),
    Prose(DESIGN, "rounding delays the first to {} and the second to {}.", lambda: [plain_cg(0), plain_cg(0.25)]),
    # mean-field.md
    Prose(
        "docs/mean-field.md", "With beta2 = 0.5 the average v holds {} gradients, with 0.9 it holds {}.",
        lambda: [float(averaged_gradients(PROBLEM.field(Adam(0.1, beta2=beta2), 4), 1e6)) for beta2 in (0.5, 0.9)],
    ),
    # monitor.md
    Prose(
        "docs/monitor.md", "1,024) on 16 devices: {} times as fast as 256 for {} times the cost.",
        lambda: [(1 + 700 / 256) / (1 + 700 / 512), (1 + 512 / 700) / (1 + 256 / 700)],
    ),
]  # fmt: skip
