"""Numbers in the sentences of docs/results.md, each with the expression that gives it: more of `prose.NUMBERS`."""

from __future__ import annotations

from collections.abc import Callable

from computed import (
    adam_over_heavy_ball,
    finding,
    first_slopes,
    kfac_option,
    measured,
    measured_critical,
    predicted_critical,
    variants_compared,
)
from prose import RESULTS, Prose


def larger_critical(study: str, *pairs: tuple[str, str]) -> Callable[[], list[float]]:
    """The percentages of resampled searches in which the second optimizer of each pair has the larger critical batch size."""
    return lambda: [
        finding(study, f"the critical batch size of {high} is larger than that of {low}")[6] for low, high in pairs
    ]


RESULTS_NUMBERS = [
    *(
        Prose(
            RESULTS, f"{{}} for {words}, where {{}} ({{}} to {{}}) was measured",
            lambda name=name, k=k: [
                predicted_critical("digits_checkpoint", name),
                *finding("digits_checkpoint", "the critical batch size of HeavyBall is larger than that of SGD")[k : k + 3],
            ],
        )
        for name, words, k in (("SGD", "SGD", 0), ("HeavyBall", "heavy\n  ball", 3))
    ),
    Prose(
        RESULTS, "{} ({} to {}) for Adam and {} ({} to {}) for K-FAC. It is larger in {}% of resampled searches.",
        lambda: finding("fashion_cnn", "the critical batch size of KFAC is larger than that of Adam"),
    ),
    Prose(
        RESULTS, "{} ({} to {}) for heavy ball and {} ({} to {}) for Adam. It is larger in {}% of resampled searches.",
        lambda: finding("fashion_cnn", "the critical batch size of Adam is larger than that of HeavyBall"),
    ),
    Prose(
        RESULTS, "{} times the steps of Adam at batch size 32, and {} times at 2,048.",
        lambda: [measured("fashion_cnn", "KFAC", B) / measured("fashion_cnn", "Adam", B) for B in (32, 2048)],
    ),
    Prose(
        RESULTS, "critical batch size on the CNN was {} times that of Adam in one study and {} times in another",
        lambda: [measured_critical(name, "KFAC") / measured_critical(name, "Adam") for name in ("fashion_cnn", "fashion_wide")],
    ),
    Prose(
        RESULTS,
        "its critical batch size is {} ({} to {}), where heavy ball has {} ({} to {}). "
        "It is larger in {}% of resampled curves",
        variants_compared,
    ),
    Prose(
        RESULTS, "batch size of this K-FAC is {} ({} to {}).",
        lambda: finding("digits_variants", "the critical batch size of KFAC is larger than that of Adam")[3:6],
    ),
    Prose(
        RESULTS, "takes {} of its steps at batch size 16, and {} times its steps at 1,024.",
        lambda: finding("digits_variants", "an average of the weights helps SGD at small batch only")[0::4][:2],
    ),
    Prose(
        RESULTS, "From batch size 256 on Adam takes {} to {} times the steps of heavy ball",
        lambda: [limit(adam_over_heavy_ball()) for limit in (min, max)],
    ),
    Prose(
        RESULTS, "{} for SGD, {} for heavy ball, {} for Adam and {} for K-FAC. Only the first step",
        lambda: [measured_critical("moby_transformer", name) for name in ("SGD", "HeavyBall", "Adam", "KFAC")],
    ),
    Prose(
        RESULTS,
        "larger than that of SGD in {}% of resampled searches, that of Adam larger than that of heavy ball in {}%, "
        "that of K-FAC larger than Adam's in {}%.",
        larger_critical("moby_transformer", ("SGD", "HeavyBall"), ("HeavyBall", "Adam"), ("Adam", "KFAC")),
    ),
    Prose(
        RESULTS, "{} times those of Adam at 32, and as many as Adam at 512",
        lambda: measured("moby_transformer", "KFAC", 32) / measured("moby_transformer", "Adam", 32),
    ),
    Prose(
        RESULTS, "{} for SGD, {} for heavy ball, {} for Adam, {} for K-FAC. Heavy ball above SGD is decided here",
        lambda: [measured_critical("fashion_wide", name) for name in ("SGD", "HeavyBall", "Adam", "KFAC")],
    ),
    Prose(
        RESULTS,
        "decided here ({}% of resampled searches), and so is K-FAC above Adam ({}%), for the second time. "
        "Adam above heavy ball is likely ({}%)",
        larger_critical("fashion_wide", ("SGD", "HeavyBall"), ("Adam", "KFAC"), ("HeavyBall", "Adam")),
    ),
    Prose(
        RESULTS, "heavy ball takes {} times the steps of SGD ({}% within a quarter), and at 1,024 it takes {} times.",
        lambda: [
            *finding("fashion_wide", "momentum takes as many steps as SGD at small batch")[0::4][:2],
            finding("fashion_wide", "momentum takes fewer steps than SGD at large batch")[0],
        ],
    ),
    Prose(
        RESULTS, "they save {}% of the steps of heavy ball and {}% of those of SGD",
        lambda: [
            100 - 100 * finding("fashion_wide", f"an average of the weights helps {name} at small batch only")[0]
            for name in ("HeavyBall", "SGD")
        ],
    ),
    Prose(
        RESULTS, "at batch size 512 momentum takes {} times the steps of SGD",
        lambda: finding("fashion_validation", "momentum takes fewer steps than SGD at large batch")[0],
    ),
    Prose(
        RESULTS, "{} of 16 settings of K-FAC without its safeguards diverge, and none reaches",
        lambda: kfac_option("fashion", 1024, "neither", "diverged"),
    ),
    Prose(
        RESULTS, "With fresh inverses alone {} diverge, and",
        lambda: kfac_option("fashion", 1024, "fresh inverses", "diverged"),
    ),
    Prose(
        RESULTS,
        "the best setting takes {} steps. With the clip alone none diverges, and the best takes {}. "
        "With both the best takes {} steps.",
        lambda: [kfac_option("fashion", 1024, name, "steps") for name in ("fresh inverses", "clip", "both, the default")],
    ),
    Prose(
        RESULTS, "on the Fashion network {} instead of {}.",
        lambda: [kfac_option("fashion", 1024, f"both{name}", "steps") for name in (" and warm-up", ", the default")],
    ),
    Prose(
        RESULTS, "the best of them takes {} steps instead of {}:",
        lambda: [kfac_option("digits", 512, name, "steps") for name in ("clip", "neither")],
    ),
    Prose(RESULTS, "to the power {} (SGD) and {} (heavy ball) over the smallest batch sizes", first_slopes),
]  # fmt: skip
