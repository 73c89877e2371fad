"""Write docs/cli.md from the commands, and what other pages have from files: ``python docs/generate.py``.

With ``--check`` it fails if they have drifted. The files of docs/checks are what ``nqm check ... --csv`` wrote, and
``nqm claims fisher_stabilises ... --csv``; ``forecast_*`` are what ``python -m benchmarks.forecast`` wrote, ``mean_field*`` what
``python -m benchmarks.mean_field`` wrote, ``advice`` and ``predicted`` what ``python -m benchmarks.advice`` and
``python -m benchmarks.predicted`` wrote, ``adamw`` what ``python -m benchmarks.adamw_prediction`` wrote, ``kfac`` what
``python -m benchmarks.kfac_prediction`` wrote, ``muon`` what ``python -m benchmarks.muon_metric`` wrote, and ``kfac_*`` what
``python -m benchmarks.kfac`` wrote. Tables of studies come from nqm/paper/studies, as ``nqm lab compare ... --csv`` wrote them.
``--claims`` measures every claim and writes docs/claims.md, which takes a minute; the tests measure its numbers again.
"""

from __future__ import annotations

import csv
import math
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from advice_tables import advice_table, critical_table, predicted_table
from command_page import page
from forecast_tables import forecast_tables
from mean_field_tables import mean_field_elsewhere, mean_field_grid, mean_field_others, mean_field_settings
from results_tables import edges_table, kfac_table, results_tables, summary_table, verdict_table

from nqm.paper.claims import CLAIMS, Checked, Measured, run_all
from nqm.paper.claims.fisher_stabilises import judged
from nqm.paper.claims.page import in_order, summary
from nqm.paper.network_studies import names, table_of
from nqm.show.numbers import percent
from nqm.show.tables import Table, distinct, markdown

PAGE = Path(__file__).with_name("cli.md")
CLAIMS_PAGE = Path(__file__).with_name("claims.md")
NETS_PAGE = Path(__file__).with_name("nets.md")
FORECAST_PAGE = Path(__file__).with_name("forecast.md")
MEAN_FIELD_PAGE = Path(__file__).with_name("mean-field.md")
PREDICTED_PAGE = Path(__file__).with_name("predicted.md")
CHECKS = Path(__file__).with_name("checks")
RESULTS_PAGE = Path(__file__).with_name("results.md")
WORKLOADS = ("digits", "fashion_mlp", "fashion_cnn", "mnist_cnn", "moby_transformer", "cifar_resnet8")
CHECKED = (
    *WORKLOADS,
    "moby_transformer_2",
    "cifar_resnet8_20",
    "cifar_resnet8_2000",
)  # files of docs/checks; some are at an earlier step
WORDS = (
    "workload",
    "network",
    "optimizer",
    "variant",
    "study",
    "setting",
    "end",
)  # columns of docs/checks that are not numbers
NEAR_EDGE = 0.74  # settings of prediction.csv at this multiple of the largest stable rate or more are near the edge
FISHER = "fisher_cifar_resnet8"  # of docs/checks
TRAININGS = "fisher_trainings"  # of docs/checks, while there is one
RANGE = 0.5  # effective rates x curvature up to this are checked everywhere

CLAIMS_HEAD = """\
<!-- Written by `python docs/generate.py --claims` from the claims; edit those, then run it again. -->

# Claims

`nqm claims` measures what Zhang et al. (2019) claim, and some claims of other works and of our own, which are named and counted
apart. For each claim it prints the statement, whose it is, what was measured, the number, and the verdict. The verdict follows
from the number and a tolerance, and the reason for the tolerance is given. "Not tested" means that a measurement cannot decide the
statement, whatever its number. An identity is true by definition, and its measurement checks the code. Random numbers are seeded.

`nqm claims --out claims` writes a picture of each claim and one page with all of them, as Markdown and as a single HTML file, in one
or two minutes on two cores. The claims about networks need the extra `nets`. Without it they are omitted, and the summary says so:
{networks}.

```sh
nqm claims --list
nqm claims stationary_covariance preconditioning_before_after --turn
```

Every claim rests on assumptions, called its premises. Most claims name one premise that, if it is changed, changes the verdict.
`--turn` also measures these claims with that premise changed, and `--premise NAME=VALUE` measures a claim with a premise of your own.
In Python, premises are arguments:

```python
>>> from nqm.paper.claims import check
>>> check("stationary_covariance").sentence
'holds within 0.5% at lr h = 0.01'
>>> check("stationary_covariance", x=1.9).sentence
'does not hold when lr h = 1.9: it is off by 95%'
>>> found = check("lr_momentum_interchangeable", settings=[(0.001, 0.9)])
>>> found.verdict.name, round(found.number, 3), found.tolerance, found.reason
('holds', 0.047, 0.05, '5% of a loss is the width of a line in a figure over decades')

```

## The claims, and what was measured
"""

CLAIMS_TAIL = """\
## A claim of your own

Each file in [`nqm/paper/claims/`](../nqm/paper/claims) is one claim. A new file in that folder is found without
being listed anywhere.

| name | what it is |
|---|---|
| `STATEMENT`, `ORIGIN`, `SOURCE` | what is claimed, by whom (`PAPER`, `OWN`, or another work with its year), and where |
| `measure(...)` | takes the premises as arguments and returns a `Measured`: table, number, tolerance, verdict |
| `study` | an optional argument of `measure`, which shares tuned sweeps and schedules with other claims |
| `draw(table)` | draws the picture from the table alone |
| `TURN` | optional: a premise that changes the verdict: its description and its arguments |
| `IDENTITY` | optional: why the statement is true by definition |
| `NEEDS` | optional: a module, and the extra that installs it: `("torch", "nets")`; without it the claim says what to install |
"""


def claims_page(checked: list[Checked]) -> str:
    """The claims in a table: the statement, the number, the verdict, and the verdict with the premise changed."""
    rows = [
        (f"`{c.claim.name}`", c.claim.statement, c.claim.origin, f"{c.measured.number:.3g}", _verdict(c), _turned(c))
        for c in in_order(checked)
    ]
    table = markdown(["name", "claim", "said by", "number", "verdict", "with the premise changed"], rows)
    numbers = "\n".join(
        f"- `{c.claim.name}`: {c.measured.what}; the tolerance is {c.measured.tolerance:.3g}." for c in checked
    )
    networks = ", ".join(f"`{c.claim.name}`" for c in checked if c.claim.needs)
    head = CLAIMS_HEAD.replace("{networks}", networks)
    what = f"The numbers are:\n\n{numbers}"
    return "\n\n".join([head.rstrip(), summary(checked), table, what, block("fisher", fisher_sentence()), CLAIMS_TAIL])


def _verdict(one: Checked) -> str:
    return one.measured.sentence + ("; an identity" if one.claim.identity else "")


def _turned(one: Checked) -> str:
    if one.turned is None:
        return "-"
    return f"{one.claim.turned_by}: {one.turned.sentence}"


def read_rows(name: str) -> list[dict[str, Any]]:
    """A file of docs/checks, numbers as numbers; an empty cell is NaN."""
    with (CHECKS / f"{name}.csv").open() as file:
        return [{k: v if k in WORDS else float(v or "nan") for k, v in row.items()} for row in csv.DictReader(file)]


def checked_rows(name: str) -> list[dict[str, Any]]:
    """What ``nqm check`` wrote for a workload."""
    return [{**row, "rate": row["reach"] / row["steps"]} for row in read_rows(name)]


def fisher() -> Measured:
    """What follows from the Fisher matrix of ResNet8 over its training."""
    after = CLAIMS["fisher_stabilises"].premises["after"]
    assert isinstance(after, (int, float))  # A premise may be of any type, and this one is an epoch.
    return judged(read_rows(FISHER), after, "ResNet8")


def fisher_sentence() -> str:
    """The paragraph on ResNet8 for the page of claims."""
    return (
        "The authors claim `fisher_stabilises` for a ResNet; above it is measured on digits, which need no download. "
        f"{fisher_verdict()} The command and its table are under [real networks](nets.md#over-training)."
    )


def fisher_verdict() -> str:
    """The verdict on ResNet8 with the numbers behind it."""
    found, after = fisher(), CLAIMS["fisher_stabilises"].premises["after"]
    drift = max(abs(row["trace_ratio"] - 1) for row in found.table if row["before"] >= after)
    return (
        f'On ResNet8 the verdict is "{found.verdict.value}": {found.when}. '
        f"From epoch {after:g} on the alignment of one checkpoint with the next "
        f"goes down to {found.number:.2f}, against {found.tolerance:g}, and the trace changes by up to {percent(drift)}."
    )


def fisher_table() -> str:
    """Each checkpoint of ResNet8 beside the one before it, and the verdict."""
    found = fisher()
    lines = [
        (
            f"{row['before']:g} to {row['epoch']:g}",
            *(f"{row[name]:.2f}" for name in ("alignment", "overlap", "trace_ratio", "distance", "loss")),
        )
        for row in found.table
    ]
    names = ["epochs", "alignment", "overlap", "trace, over the one before", "distance", "loss"]
    return f"{markdown(names, lines)}\n\n{fisher_verdict()}"


def adamw_table() -> str:
    """Median and worst error over settings of AdamW on every workload that was checked."""
    rows = read_rows("adamw")
    steps, names = ([*dict.fromkeys(row[key] for row in rows)] for key in ("steps", "workload"))
    errors = {
        key: [abs(r["predicted"] / r["trained"] - 1) for r in rows if (r["workload"], r["steps"]) == key]
        for key in product(names, steps)
    }
    held = {name: [r["low"] <= r["trained"] <= r["high"] for r in rows if r["workload"] == name] for name in names}
    shares = {name: f"{np.mean(inside):.0%} of {len(inside)}" for name, inside in held.items()}
    lines = [[f"`{name}`", *(_median_and_worst(errors[name, t]) for t in steps), shares[name]] for name in names]
    return markdown(["workload", *(f"{t:,.0f} steps" for t in steps), "interval holds"], lines)


def natural_table() -> str:
    """Median and worst error over settings of K-FAC on every network that was checked, and how many intervals hold.

    Settings are counted apart in which noise is at most half of the predicted loss.
    """
    rows = read_rows("kfac")
    steps, names = ([*dict.fromkeys(row[key] for row in rows)] for key in ("steps", "network"))
    lines = []
    for name in names:
        for what, most in (("all", math.inf), ("noise up to half", 0.5)):
            mine = [row for row in rows if row["network"] == name and row["noise"] <= most]
            cells = [
                _median_and_worst([abs(r["predicted"] / r["trained"] - 1) for r in mine if r["steps"] == t])
                for t in steps
            ]
            inside = [row["low"] <= row["trained"] <= row["high"] for row in mine]
            lines.append(
                [f"`{name}`" if what == "all" else "", what, *cells, f"{np.mean(inside):.0%} of {len(inside)}"]
            )
    return markdown(["network", "settings", *(f"{t:,.0f} steps" for t in steps), "interval holds"], lines)


def muon_table() -> str:
    """The errors of steps whose map is some steps old, for Muon and for K-FAC."""
    rows = read_rows("muon")
    lags = [*dict.fromkeys(row["lag"] for row in rows)]
    lines = []
    for name, momentum in dict.fromkeys((row["network"], row["momentum"]) for row in rows):
        mine = [row for row in rows if (row["network"], row["momentum"]) == (name, momentum)]
        lines.append([f"`{name}`", f"{momentum:g}", *(f"{r['muon']:.0%}, {r['kfac']:.0%}" for r in mine)])
    return markdown(["network", "momentum", *(f"{t:,.0f} steps" for t in lags)], lines)


def trainings_table() -> str:
    """The same over whole trainings with several seeds and rates, as far as ``python -m benchmarks.fisher`` has come."""
    if not (CHECKS / f"{TRAININGS}.csv").exists():
        return "No training of this measurement has ended yet."
    rows = read_rows(TRAININGS)
    after = CLAIMS["fisher_stabilises"].premises["after"]
    assert isinstance(after, (int, float))
    runs = [[row for row in rows if (row["lr"], row["seed"]) == run] for run in _runs(rows)]
    ended = [run for run in runs if any(row["before"] >= after for row in run)]
    verdicts = [judged(run, after, "ResNet8").verdict.value for run in ended]
    told = ", ".join(f'"{verdict}" for {verdicts.count(verdict)}' for verdict in dict.fromkeys(verdicts))
    lines = []
    for lr in distinct(rows, "lr"):
        for epoch in distinct(rows, "epoch"):
            own = [row for row in rows if (row["lr"], row["epoch"]) == (lr, epoch)]
            if own:
                shown = (_over_seeds([row[name] for row in own]) for name in ("alignment", "trace_ratio", "loss"))
                lines.append((f"{lr:g}", f"{own[0]['before']:g} to {epoch:g}", len(own), *shown))
    names = ["learning rate", "epochs", "seeds", "alignment", "trace, over the one before", "loss"]
    verdict = f"The verdict is {told} of {len(ended)} trainings." if ended else "No verdict yet."
    return f"{markdown(names, lines)}\n\n{verdict}"


def _runs(rows: Table) -> list[tuple[float, float]]:
    return list(dict.fromkeys((row["lr"], row["seed"]) for row in rows))


def _over_seeds(values: list[float]) -> str:
    ends = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{float(np.median(values)):.2f}{ends}"


def checks_table() -> str:
    """Median and worst error over settings of every workload that was checked."""
    lines, steps = [], [10, 30, 100, 300, 1000]
    for name in (name for name in CHECKED if (CHECKS / f"{name}.csv").exists()):
        rows = checked_rows(name)
        for inside in (True, False):
            kept = [row for row in rows if (row["rate"] <= RANGE) == inside]
            rates = "up to 0.3" if inside else f"{min((row['rate'] for row in kept), default=RANGE):.2g} and more"
            for model, error in (("bent", "error"), ("plain quadratic", "plain_error")) if kept else ():
                errors = [[abs(r[error]) for r in kept if r["steps"] == t] for t in steps]
                first = (f"`{name}`", rates) if model == "bent" else ("", "")
                lines.append((*first, model, *map(_median_and_worst, errors)))
    return markdown(["workload", "rates", "model", *(f"{t:,} steps" for t in steps)], lines)


def bars_table() -> str:
    """What each built-in workload has been checked at, and how its errors and intervals stand."""
    lines = []
    for name in WORKLOADS:
        usual = [row for row in read_rows("prediction") if row["network"] == name]
        parts = {"prediction": [row for row in usual if row["excess"] < NEAR_EDGE and not row["short"]]}
        for file in (file for file in CHECKED if file.startswith(name) and (CHECKS / f"{file}.csv").exists()):
            parts[file] = checked_rows(file)
        for file, rows in parts.items():
            if rows:
                lines.append((f"`{name}`", f"[`{file}`](checks/{file}.csv)", *_bars(rows)))
    names = [
        "workload",
        "file",
        "batch sizes",
        "real losses",
        "300 steps",
        "1,000 steps",
        "worst of all",
        "interval holds",
    ]
    return markdown(names, lines)


def _bars(rows: Table) -> list[str]:
    """Batch sizes, range of losses, median errors after 300 and 1,000 steps, the worst error of all, and coverage."""
    off = {
        t: [abs(r["predicted"] / r["trained"] - 1) for r in rows if r["steps"] == t] for t in distinct(rows, "steps")
    }
    sizes, losses = ([row[key] for row in rows] for key in ("batch_size", "trained"))
    held = [row["low"] <= row["trained"] <= row["high"] for row in rows if "low" in row]
    ends = [f"{min(sizes):,.0f} to {max(sizes):,.0f}", f"{max(losses):.3g} to {min(losses):.3g}"]
    medians = [percent(float(np.median(off[t]))) if t in off else "not run" for t in (300, 1000)]
    share = f"{np.mean(held):.0%} of {len(held)}" if held else "not recorded"
    return [*ends, *medians, percent(max(map(max, off.values()))), share]


def predictions_table() -> str:
    """Errors and coverage on each network of docs/checks/prediction.csv, and past the edge of stability."""
    rows = read_rows("prediction")
    for row in rows:
        row["error"] = abs(row["predicted"] / row["trained"] - 1)
        row["held"] = row["low"] <= row["trained"] <= row["high"]
    usual = [row for row in rows if row["excess"] < NEAR_EDGE and not row["short"]]
    parts = {
        name: [row for row in usual if row["network"] == name] for name in dict.fromkeys(r["network"] for r in usual)
    }
    names = {n: f"`{n}`{', chosen on' if some[0]['chosen_on'] else ''}" for n, some in parts.items()}
    parts = {names[n]: some for n, some in parts.items()}
    parts["past the end of a descent of 150 steps"] = [
        row for row in rows if row["short"] and row["past"] > 1 and row["excess"] < NEAR_EDGE
    ]
    parts["past the edge of stability"] = [row for row in rows if row["excess"] > 1 and not row["short"]]
    steps = sorted({row["steps"] for row in rows})
    lines = []
    for name, some in parts.items():
        errors = [[row["error"] for row in some if row["steps"] == t] for t in steps]
        held = sum(row["held"] for row in some)
        lines.append((name, *map(_median_and_worst, errors), f"{held / len(some):.0%} of {len(some)}"))
    return markdown(["network", *(f"{t:,.0f} steps" for t in steps), "interval holds"], lines)


def _median_and_worst(errors: list[float]) -> str:
    return f"{percent(float(np.median(errors)))} ({percent(max(errors))})" if errors else ""


def block(name: str, text: str) -> str:
    """Text of a page that is written from files, between marks by which it is found again."""
    return f"<!-- {name}, by docs/generate.py -->\n\n{text}\n\n<!-- end -->"


def with_blocks(page: Path, **texts: str) -> str:
    """The page with its blocks as the files give them."""
    made = page.read_text()
    for name, text in texts.items():
        begin, end = block(name, "|").split("|")
        before, _, rest = made.partition(begin)
        _, ended, after = rest.partition(end)
        assert ended, f"{page.name} has no block {name!r}"
        made = f"{before}{block(name, text)}{after}"
    return made


def forecast_page() -> str:
    return with_blocks(FORECAST_PAGE, forecast=forecast_tables())


def mean_field_page() -> str:
    return with_blocks(
        MEAN_FIELD_PAGE,
        settings=mean_field_settings(),
        grid=mean_field_grid(),
        elsewhere=mean_field_elsewhere(),
        others=mean_field_others(),
    )


def predicted_page() -> str:
    return with_blocks(
        PREDICTED_PAGE, advice=advice_table(), predicted=predicted_table(), critical=critical_table(),
        fashion=predicted_table("fashion_checkpoint"), fashion_critical=critical_table("fashion_checkpoint"),
        cnn=predicted_table("predicted_cnn"),
    )  # fmt: skip


def nets_page() -> str:
    tables = {
        "checks": checks_table(),
        "bars": bars_table(),
        "predictions": predictions_table(),
        "adamw": adamw_table(),
        "kfac": natural_table(),
        "muon": muon_table(),
        "fisher": fisher_table(),
        "trainings": trainings_table(),
    }
    return with_blocks(NETS_PAGE, **tables)


def claims_page_kept() -> str:
    """The page of claims as it is, but for what comes from docs/checks."""
    return with_blocks(CLAIMS_PAGE, fisher=fisher_sentence())


def results_page() -> str:
    """The page with a block of tables for each study."""
    tables = {"summary": summary_table(), "verdicts": verdict_table(), "kfac": kfac_table(read_rows)}
    tables["edges"] = edges_table(read_rows)
    return with_blocks(RESULTS_PAGE, **tables, **{name: results_tables(table_of(name)) for name in names()})


PAGES = (
    (PAGE, page),
    (NETS_PAGE, nets_page),
    (PREDICTED_PAGE, predicted_page),
    (RESULTS_PAGE, results_page),
    (CLAIMS_PAGE, claims_page_kept),
    (FORECAST_PAGE, forecast_page),
    (MEAN_FIELD_PAGE, mean_field_page),
)

if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        for path, made in PAGES:
            if not path.exists() or path.read_text() != made():
                sys.exit(f"{path.name} has drifted; run python docs/generate.py")
    elif "--claims" in sys.argv[1:]:
        CLAIMS_PAGE.write_text(claims_page(run_all(list(CLAIMS), turn=True, workers=2)))
        print(f"wrote {CLAIMS_PAGE}")
    else:
        for path, made in PAGES:
            path.write_text(made())
            print(f"wrote {path}")
