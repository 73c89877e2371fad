"""Write docs/cli.md from the commands, and what other pages have from files: ``python docs/generate.py``.

With ``--check`` it fails if they have drifted. The files of docs/checks are what ``nqm check ... --csv`` wrote, and
``nqm claims fisher_stabilises ... --csv``; ``forecast_*`` are what ``python -m benchmarks.forecast`` wrote, ``mean_field*`` what
``python -m benchmarks.mean_field`` wrote, ``advice`` and ``predicted`` what ``python -m benchmarks.advice`` and
``python -m benchmarks.predicted`` wrote, ``adamw`` what ``python -m benchmarks.adamw_prediction`` wrote, and ``kfac_*`` what
``python -m benchmarks.kfac`` wrote. Tables of studies come from nqm/paper/studies, as ``nqm lab compare ... --csv`` wrote them.
``--claims`` measures every claim and writes docs/claims.md, which takes a minute; the tests measure its numbers again.
"""

from __future__ import annotations

import csv
import inspect
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from advice_tables import advice_table, critical_table, predicted_table
from forecast_tables import forecast_tables
from mean_field_tables import mean_field_elsewhere, mean_field_grid, mean_field_others, mean_field_settings

from nqm.cli.app import COMPLETION_LINES, main
from nqm.cli.options import Verb, verbs
from nqm.lab.compare import Curve, findings, read_curves
from nqm.lab.compare.curves import MEASURED, critical
from nqm.lab.compare.verdicts import beyond
from nqm.paper.claims import CLAIMS, Checked, Measured, run_all
from nqm.paper.claims.fisher_stabilises import judged
from nqm.paper.claims.page import summary
from nqm.paper.network_studies import TITLES, names, table_of
from nqm.show.numbers import percent
from nqm.show.tables import Table, column, distinct, markdown
from nqm.text.objects import KNOWN_OPTIMIZERS, KNOWN_SCHEDULES, KNOWN_SPECTRA
from nqm.text.tokens import argument_names

PAGE = Path(__file__).with_name("cli.md")
CLAIMS_PAGE = Path(__file__).with_name("claims.md")
NETS_PAGE = Path(__file__).with_name("nets.md")
FORECAST_PAGE = Path(__file__).with_name("forecast.md")
MEAN_FIELD_PAGE = Path(__file__).with_name("mean-field.md")
PREDICTED_PAGE = Path(__file__).with_name("predicted.md")
CHECKS = Path(__file__).with_name("checks")
RESULTS_PAGE = Path(__file__).with_name("results.md")
WORKLOADS = ("digits", "fashion_mlp", "fashion_cnn", "moby_transformer", "cifar_resnet8")
SUMMARY = ("fashion_cnn", "fashion_validation", "digits", "moby_transformer", "cifar_resnet8")  # studies of the summary
WORDS = ("workload", "network", "optimizer", "variant")  # columns of docs/checks that are not numbers
NEAR_EDGE = 0.74  # settings of prediction.csv at this multiple of the largest stable rate or more are near the edge
FISHER = "fisher_cifar_resnet8"  # of docs/checks
TRAININGS = "fisher_trainings"  # of docs/checks, while there is one
RANGE = 0.5  # effective rates x curvature up to this are the range of ten that is checked everywhere

HEAD = """\
<!-- Written by docs/generate.py from the commands; edit those, then run `python docs/generate.py`. -->

# Command line

`nqm` alone shows a short tour, `nqm --help` lists the verbs, and `nqm VERB --help` shows the options of a verb with examples.
`python -m nqm` is the same program. [Start](start.md#install) says how to install it.
"""

OPTIMIZER = """\
## Writing an optimizer

An optimizer is written as its constructor, as in Python: `SGD(0.5)`, `HeavyBall(momentum=0.9)`,
`'EMA(HeavyBall(momentum=0.9), decay=0.99)'`. `tune`, `schedule` and `sweep` find the values of parameters that are
omitted or `free`; `curve` and `steps` need all of them. A bare name is a call without arguments: `EMA(SGD)` is
`EMA(SGD())`. Brackets have a meaning in shells, so put quotes around them.

The text is parsed and never evaluated.
"""

OWN = """\
An optimizer of your own is written `module:Class` or `module:Class(lr=0.1)`, also inside another: `'EMA(mine:Signed)'`. The
module may be in the current directory. It is imported, and this is the only case in which text on the command line runs
code. [Extend](extend.md) shows how to write such a class.
"""

NUMBER = """\
## Writing a number

A number, as an option or inside an optimizer, a schedule or a spectrum, may be written as `1024`, `1k`, `4M`, `2B`, `2^10`,
`2**10`, `1e6`, `1/8` or `1 - 2^-7`, where `k` is a thousand, `M` a million and `B` a billion. The value of an option may also
be written `1,024`. In a list such as `--batch-sizes 4,16,64`, and inside brackets, a comma separates numbers, so write `1024`
there. A batch size may be `inf`, which means no noise; other infinite numbers and `nan` are refused.
"""

SCHEDULE = """\
## Writing a schedule

`--schedule` takes multipliers over steps. `+` joins two schedules in time, `&` applies both at once, and `.on("momentum")`
or `.on("batch_size")` applies one to the momentum or the batch size instead of the learning rate:
`'warmup(100) + cosine(900)'`, `'step(900, 2, at=[300, 600]).on("batch_size") & linear(900)'`. After its last step a schedule
keeps its last value.
"""

SPECTRUM = """\
## Writing a spectrum

`--spectrum` takes the modes of the problem. The default, `power_law(10000)`, is the problem of Zhang et al. (2019). A
spectrum is one of the constructors below, perhaps followed by `.binned(n)` or `.compress(tol)`:
`'power_law(10000).binned(100)'`. Or it is a file: `.json` or `.npz` as `nqm spectrum --save` and `nqm fit` write it, or
`.csv` with a header that names `h` and perhaps `c`, `s` and `count`.
"""

OUTPUT = """\
## What comes out

A verb prints text on standard output, which is never truncated in a pipe or a file. `--json` prints one JSON object
instead, with the field names of the Python results, and `null` for numbers that are not finite. `--csv FILE` and
`--plot FILE` write files in addition; `--csv -` prints CSV and nothing else. The names of files that were written, and a
notice when loops are compiled, go to standard error, and so does progress if standard error is a terminal. A file that
cannot be written is refused before the work begins.

| status | meaning |
|---|---|
| 0 | there is an answer |
| 1 | there is no answer, and a sentence says why: the run diverges, or the target is never reached |
| 1 | the machine failed: too little memory, a full device, no permission, a missing file, a port that is taken |
| 1 | standard output is closed, such as the pipe to `head`; files that were asked for have been written |
| 1 | a package is not installed; the sentence says how to install it |
| 1 | your own code raised an exception; its traceback is shown |
| 1 | nqm has a bug: the line begins with `Error: this is a bug in nqm`; please report it |
| 2 | the call was wrong: an unknown option, a value out of range, no file of that name; a sentence says what to change |
| 130 | Ctrl-C interrupted it |

`NQM_DEBUG=1` in the environment shows the traceback of any error.
"""


CLAIMS_HEAD = """\
<!-- Written by `python docs/generate.py --claims` from the claims; edit those, then run it again. -->

# Claims

`nqm claims` measures what Zhang et al. (2019) claim, and what Li et al. (2024) and Marek et al. (2025) say of Adam. For each
claim it prints the statement, what was measured, the number, and the verdict. The verdict follows from the number and a
tolerance, and the reason for the tolerance is given. Random numbers are seeded. `nqm claims --out claims` writes a picture of
each claim and one page with all of them, as Markdown and as a single HTML file, in one or two minutes on two cores. The claims
about networks need the extra `nets`. Without it they are omitted, and the summary says so:
{networks}.

```sh
nqm claims --list
nqm claims stationary_covariance preconditioning_before_after --turn
```

Every claim rests on assumptions, called its premises. Each claim names one premise that, if it is changed, changes the verdict.
`--turn` also measures the claim with that premise changed, and `--premise NAME=VALUE` measures it with a premise of your own. In
Python, premises are arguments:

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
| `STATEMENT`, `SOURCE` | what is claimed, and where |
| `measure(...)` | takes the premises as arguments and returns a `Measured`: table, number, tolerance, verdict |
| `study` | an optional argument of `measure`, which shares tuned sweeps and schedules with other claims |
| `draw(table)` | draws the picture from the table alone |
| `TURN` | the premise that changes the verdict: its description and its arguments |
| `NEEDS` | optional: a module, and the extra that installs it: `("torch", "nets")`; without it the claim says what to install |
"""


def claims_page(checked: list[Checked]) -> str:
    """The claims in a table: the statement, the number, the verdict, and the verdict with the premise changed."""
    rows = [
        (f"`{c.claim.name}`", c.claim.statement, f"{c.measured.number:.3g}", c.measured.sentence, _turned(c))
        for c in checked
    ]
    table = markdown(["name", "claim", "number", "verdict", "with the premise changed"], rows)
    numbers = "\n".join(
        f"- `{c.claim.name}`: {c.measured.what}; the tolerance is {c.measured.tolerance:.3g}." for c in checked
    )
    networks = ", ".join(f"`{c.claim.name}`" for c in checked if c.claim.needs)
    head = CLAIMS_HEAD.replace("{networks}", networks)
    what = f"The numbers are:\n\n{numbers}"
    return "\n\n".join([head.rstrip(), summary(checked), table, what, block("fisher", fisher_sentence()), CLAIMS_TAIL])


def _turned(one: Checked) -> str:
    assert one.turned is not None
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
    """The verdict on ResNet8 with both numbers behind it."""
    found, after = fisher(), CLAIMS["fisher_stabilises"].premises["after"]
    drift = max(abs(row["trace_ratio"] - 1) for row in found.table if row["before"] >= after)
    return (
        f'On ResNet8 the verdict is "{found.verdict.value}": from epoch {after:g} on the alignment of one checkpoint with the next '
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
    for name in (name for name in WORKLOADS if (CHECKS / f"{name}.csv").exists()):
        rows = checked_rows(name)
        for rates, inside in (("0.03 to 0.3", True), ("1", False)):
            kept = [row for row in rows if (row["rate"] <= RANGE) == inside]
            for model, error in (("bent", "error"), ("plain quadratic", "plain_error")) if kept else ():
                errors = [[abs(r[error]) for r in kept if r["steps"] == t] for t in steps]
                first = (f"`{name}`", rates) if model == "bent" else ("", "")
                lines.append((*first, model, *map(_median_and_worst, errors)))
    return markdown(["workload", "rates", "model", *(f"{t:,} steps" for t in steps)], lines)


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
    return with_blocks(PREDICTED_PAGE, advice=advice_table(), predicted=predicted_table(), critical=critical_table())


def nets_page() -> str:
    tables = {
        "checks": checks_table(),
        "predictions": predictions_table(),
        "adamw": adamw_table(),
        "fisher": fisher_table(),
        "trainings": trainings_table(),
    }
    return with_blocks(NETS_PAGE, **tables)


def claims_page_kept() -> str:
    """The page of claims as it is, but for what comes from docs/checks."""
    return with_blocks(CLAIMS_PAGE, fisher=fisher_sentence())


def results_page() -> str:
    """The page with a block of tables for each study."""
    tables = {"summary": summary_table(), "kfac": kfac_table()}
    return with_blocks(RESULTS_PAGE, **tables, **{name: results_tables(table_of(name)) for name in names()})


def summary_table() -> str:
    """Critical batch sizes of each optimizer, twice perfect scaling, on the networks that were trained from their start."""
    found = {name: {curve.name: curve for curve in read_curves(table_of(name))} for name in names() if name in SUMMARY}
    optimizers = dict.fromkeys(optimizer for curves in found.values() for optimizer in curves)
    rows = [
        (f"`{one}`", *(_critical(curves[one], [{}])[1] if one in curves else "" for curves in found.values()))
        for one in optimizers
    ]
    return markdown(["critical batch size", *(TITLES[name] for name in found)], rows)


def results_tables(table: Table) -> str:
    """What a study measured: steps, critical batch sizes, the paper's findings."""
    curves, sizes = read_curves(table), distinct(table, "batch_size")
    cells = {(row["optimizer"], row["batch_size"]): row for row in table}
    steps = [(f"{B:,.0f}", *(_steps(cells[curve.name, B]) for curve in curves)) for B in sizes]
    titles = ["optimizer", "20% over perfect scaling", "twice perfect scaling", "fewest examples / fewest steps"]
    titles += ["predicted, twice"] * ("predicted" in table[0])
    critical = [(f"`{curve.name}`", *_critical(curve, table)) for curve in curves]
    judged = [(one.says, one.measured, one.verdict.value) for one in findings(curves)]
    return "\n\n".join(
        [
            markdown(["batch size", *(f"`{curve.name}`" for curve in curves)], steps),
            markdown(titles, critical),
            *([markdown(["the paper", "measured", "verdict"], judged)] if judged else []),
        ]
    )


def _steps(row: dict[str, Any]) -> str:
    """Median over seeds with its interval, or what the search alone found; then the prediction, if there is one."""
    often = lambda steps: "never" if steps is None else f"{steps:,.0f}"  # noqa: E731
    if row["steps"] is None:
        text = f"none (search: {often(row['searched'])})"
    else:
        text = f"{often(row['steps'])} ({often(row['low'])} to {often(row['high'])})"
    return text + (f", {often(row['predicted'])}" if row.get("predicted") else "")


def _critical(curve: Curve, table: Table) -> list[str]:
    """The critical batch sizes of a curve, and the one that was predicted."""
    shown = [beyond(curve.critical_batch_size(by), curve.largest).removesuffix(" (not known)") for by in MEASURED]
    if "predicted" in table[0]:
        predicted = critical(curve.batch_sizes, column(table, "predicted", optimizer=curve.name), "2x")
        shown.append(f"{predicted:,.0f}" if np.isfinite(predicted) else f">{curve.largest:,.0f}")
    return shown


def kfac_table() -> str:
    """What each option of K-FAC does, on both networks."""
    lines = []
    for name, title in (("digits", "digits"), ("fashion", "Fashion CNN")):
        for row in read_rows(f"kfac_{name}"):
            tried, steps = int(row["settings"]), row["steps"]
            known = f"{steps:.0f} ({row['low']:.0f} to {row['high']:.0f})" if steps == steps else "none"
            shares = [f"{int(row[what])} of {tried}" for what in ("diverged", "reached")]
            lines.append((f"{title}, {row['batch_size']:.0f}", row["variant"], *shares, known))
    return markdown(["network, batch size", "K-FAC with", "diverged", "reached the target", "steps of the best"], lines)


def signature(function: Callable[..., Any]) -> str:
    return ", ".join(f"`{name}`" for name in argument_names(function))


def first_line(thing: Any) -> str:
    return escaped((thing.__doc__ or "").strip().splitlines()[0].replace("``", "`"))


def escaped(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("|", "\\|")


def constructors(known: dict[str, Any]) -> str:
    rows = [f"| `{name}` | {signature(thing)} | {first_line(thing)} |" for name, thing in known.items()]
    return "\n".join(["| name | arguments | |", "|---|---|---|", *rows]) + "\n"


def completion() -> str:
    rows = [f"| {shell} | `{escaped(line)}` | `{file}` |" for shell, (line, file) in COMPLETION_LINES.items()]
    head = "## Shell completion\n\nVerbs, options and names of optimizers complete after one line in a start-up file:\n"
    return "\n".join([head, "| shell | line | file |", "|---|---|---|", *rows]) + "\n"


def option_row(option: click.Option) -> str:
    flags = ", ".join(f"`{flag}`" for flag in sorted(option.opts, key=len, reverse=True))
    if isinstance(option.type, click.Choice):
        value = " or ".join(f"`{choice}`" for choice in option.type.choices)
    else:
        value = "" if option.is_flag else f"`{option.metavar or 'N'}`"
    note = " Required." if option.required else ""
    if option.show_default and option.default is not None:
        default = option.show_default if isinstance(option.show_default, str) else option.default
        note = f" Default `{default}`."
    return f"| {flags} | {value} | {option.help}{note} |"


def usage(name: str, verb: click.Command) -> str:
    arguments = [p.metavar or (p.name or "").upper() for p in verb.params if isinstance(p, click.Argument)]
    required = [f"{p.opts[0]} {p.metavar}" for p in verb.params if isinstance(p, click.Option) and p.required]
    return " ".join(["nqm", name, *arguments, *required, "[OPTIONS]"])


def section(name: str, verb: Verb) -> str:
    rows = [option_row(option) for option in verb.params if isinstance(option, click.Option)]
    parts = [
        f"## nqm {name}",
        inspect.cleandoc(verb.help or ""),
        f"    {usage(name, verb)}",
        "\n".join(["| option | value | |", "|---|---|---|", *rows]),
        "\n".join(["```sh", *verb.examples, "```"]),
    ]
    return "\n\n".join(parts) + "\n"


def page() -> str:
    """The whole page; nothing in it depends on the terminal."""
    parts = [
        HEAD,
        *(section(name, verb) for name, verb in verbs(main).items()),
        NUMBER,
        OPTIMIZER,
        constructors(KNOWN_OPTIMIZERS),
        OWN,
    ]
    parts += [SCHEDULE, constructors(KNOWN_SCHEDULES), SPECTRUM, constructors(KNOWN_SPECTRA), OUTPUT, completion()]
    return "\n".join(parts)


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
