"""docs/cli.md: every verb with its options and examples, and how to write what they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click

from nqm.cli.app import COMPLETION_LINES, main
from nqm.cli.options import Verb, verbs
from nqm.text.objects import KNOWN_OPTIMIZERS, KNOWN_SCHEDULES, KNOWN_SPECTRA
from nqm.text.tokens import argument_names

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

A verb prints text on standard output. No number is ever cut: in a terminal, text wraps between words, and a table that is
too wide is split by columns; in a pipe or a file each row is one line. `--json` prints one JSON object
instead, with the field names of the Python results, and `null` for numbers that are not finite. `--csv FILE` and
`--plot FILE` write files in addition; `--csv -` prints CSV and nothing else. The names of files that were written, and a
notice when loops are compiled, go to standard error, and so does progress if standard error is a terminal. A file that
cannot be written is refused before the work begins.

| status | meaning |
|---|---|
| 0 | there is an answer |
| 1 | there is no answer, and a sentence says why: the run diverges, or the target is never reached |
| 1 | the machine failed: too little memory, a full device, no permission, a missing file, a port that is taken |
| 1 | standard output was closed before nqm began |
| 1 | a package is not installed; the sentence says how to install it |
| 1 | your own code raised an exception; its traceback is shown |
| 1 | nqm has a bug: the line begins with `Error: this is a bug in nqm`; `NQM_DEBUG=1` shows where |
| 2 | the call was wrong: an unknown option, a value out of range, no file of that name; a sentence says what to change |
| 130 | Ctrl-C interrupted it |
| 141 | the program that read the output has ended, such as `head`; files that were asked for have been written |

`NQM_DEBUG=1` in the environment shows the traceback of any error.
"""


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
        value = "" if option.is_flag else f"`{option.metavar}`"
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
