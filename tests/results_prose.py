"""Numbers in the sentences of docs/results.md, each with the expression that gives it: more of `prose.NUMBERS`."""

from __future__ import annotations

from computed import (
    adam_over_heavy_ball,
    critical_estimate,
    finding,
    kfac_option,
    measured,
    measured_critical,
    predicted_critical,
)
from prose import RESULTS, Prose

SLOPES = "the best effective learning rate of SGD grows linearly with the batch size, then stays flat"
SMALL, LARGE = (
    "momentum takes as many steps as SGD at small batch",
    "momentum takes fewer steps than SGD at large batch",
)
AVERAGE = "an average of the weights helps {} at small batch only"
LARGER = "the critical batch size of {} is larger than that of {}"


RESULTS_NUMBERS = [
    Prose(RESULTS, "like the batch size to the power {}", lambda: finding("digits", SLOPES)[0]),
    Prose(RESULTS, "from a checkpoint to the power {}, which", lambda: finding("digits_checkpoint", SLOPES)[0]),
    Prose(
        RESULTS, "grows with a slope of {} and that of heavy ball with one of {} over the smallest batch sizes",
        lambda: [finding("digits", slopes)[0] for slopes in (SLOPES, SLOPES.replace("SGD", "HeavyBall"))],
    ),
    Prose(
        RESULTS, "still grows, with a slope of {}.", lambda: finding("digits", SLOPES.replace("SGD", "HeavyBall"))[5],
    ),
    Prose(RESULTS, "the slope is {}, and from a checkpoint {}.", lambda: [
        finding(name, SLOPES)[0] for name in ("digits", "digits_checkpoint")
    ]),
    Prose(
        RESULTS,
        "On digits heavy ball took {} times the steps of plain SGD at the smallest batch size, and on the CNN {} times at batch "
        "size 16 and {} times at 32.",
        lambda: [finding(name, SMALL)[0] for name in ("digits", "fashion_wide", "fashion_cnn")],
    ),
    Prose(
        RESULTS, "An average of the weights took {} times the steps of heavy ball on digits and {} times on the CNN.",
        lambda: [finding(name, AVERAGE.format("HeavyBall"))[0] for name in ("digits", "fashion_wide")],
    ),
    Prose(
        RESULTS, "on digits it takes {} times the steps there, and its critical batch size is {} times that of heavy ball",
        lambda: [
            finding("digits", AVERAGE.format("HeavyBall"))[4],
            measured_critical("digits", "EMA(HeavyBall)") / measured_critical("digits", "HeavyBall"),
        ],
    ),
    Prose(
        RESULTS, "on digits heavy ball took {} times the steps of SGD, and on the CNN {} times.",
        lambda: [finding(name, LARGE)[0] for name in ("digits", "fashion_wide")],
    ),
    Prose(
        RESULTS, "On the CNN it was {} and {} times that of Adam in two studies",
        lambda: [measured_critical(name, "KFAC") / measured_critical(name, "Adam") for name in ("fashion_cnn", "fashion_wide")],
    ),
    *(
        Prose(
            RESULTS, f"{{}} for {words}, where {{}} ({{}} to {{}}) was measured",
            lambda name=name: [predicted_critical("digits_checkpoint", name), *critical_estimate("digits_checkpoint", name)],
        )
        for name, words in (("SGD", "SGD"), ("HeavyBall", "heavy\n  ball"))
    ),
    Prose(
        RESULTS, "{} times the steps of Adam at batch size 32, and {} times at 2,048.",
        lambda: [measured("fashion_cnn", "KFAC", B) / measured("fashion_cnn", "Adam", B) for B in (32, 2048)],
    ),
    Prose(
        RESULTS, "likely larger than that of heavy ball ({}% of resampled",
        lambda: finding("fashion_wide", LARGER.format("Adam", "HeavyBall"))[6],
    ),
    Prose(
        RESULTS, "its critical batch size, {} ({} to {}), is larger than that of Adam",
        lambda: critical_estimate("digits_variants", "KFAC"),
    ),
    Prose(
        RESULTS, "its critical batch size is {} ({} to {}), where it was {} ({} to {}) before",
        lambda: [*critical_estimate("digits_variants", "Adam"), *critical_estimate("digits", "Adam")],
    ),
    Prose(
        RESULTS, "takes {} of its steps at batch size 16, and {} times its steps at 1,024.",
        lambda: finding("digits_variants", AVERAGE.format("SGD"))[0::4][:2],
    ),
    Prose(
        RESULTS, "at small batch is likely ({}% of resampled curves)",
        lambda: finding("digits_variants", AVERAGE.format("SGD"))[8],
    ),
    Prose(
        RESULTS, "Adam takes {} to {} times the steps of heavy ball** from batch size 256 on",
        lambda: [limit(adam_over_heavy_ball()) for limit in (min, max)],
    ),
    Prose(
        RESULTS, "{} times those of Adam at 32, and as many as Adam at 512",
        lambda: measured("moby_transformer", "KFAC", 32) / measured("moby_transformer", "Adam", 32),
    ),
    Prose(
        RESULTS,
        "heavy ball takes {} times the steps of SGD, which is within a quarter in {}% of resampled curves, and at 1,024 it takes "
        "{} times.",
        lambda: [*finding("fashion_wide", SMALL)[0::4][:2], finding("fashion_wide", LARGE)[0]],
    ),
    Prose(
        RESULTS, "they save {}% of the steps of heavy ball and {}% of those of SGD",
        lambda: [100 - 100 * finding("fashion_wide", AVERAGE.format(name))[0] for name in ("HeavyBall", "SGD")],
    ),
    Prose(
        RESULTS, "at batch size 512 momentum takes {} times the steps of SGD",
        lambda: finding("fashion_validation", LARGE)[0],
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
]  # fmt: skip
