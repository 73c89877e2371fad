"""Record what nqm answers, through its public names and its command line, and compare two such records.

``python -m benchmarks.record write OUT.json`` asks thousands of questions of the nqm that is imported, and writes every
answer under a name such as ``loss/heavy_ball/t=100/signal``. ``python -m benchmarks.record compare OLD.json NEW.json``
prints what differs by more than rounding. The questions are in `questions`.

Nothing that depends on the clock or on a path is recorded. Sentences are in a group of their own, ``message``: their
wording may change, so differences between them are printed and do not count.
"""

from __future__ import annotations

import os

os.environ |= {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}  # Threads change the order of sums.

import argparse
import contextlib
import enum
import json
import math
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import nqm

from .questions import GROUPS

Value = bool | int | float | str | None
Values = dict[str, Value]

MESSAGE = "message"  # the group of sentences
WORDS = {
    "message",
    "messages",
    "sentence",
    "sentences",
    "notes",
    "statement",
    "source",
    "measured",
    "what",
    "reason",
    "error",
}
"""Keys whose text is a sentence for a reader."""
CLOCK = {"seconds", "gradient_seconds", "product_cost", "product_cost_together", "store", "runner"}
"""Keys whose values depend on the clock, on a path or on the process that ran."""
MOST = 12  # most entries of a list that are kept: the first, the last, and others evenly between them
NOTHING = 1e-30  # numbers below this are what is left of a signal after many steps, and count as zero
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def flattened(name: str, data: Any) -> Iterator[tuple[str, Value]]:
    """Every leaf of nested data with its full name; of a long list, some entries and the length."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key not in CLOCK:
                yield from flattened(f"{name}/{key}", value)
    elif isinstance(data, list | tuple | np.ndarray):
        if len(data) > MOST:
            yield f"{name}/length", len(data)
        kept = range(len(data)) if len(data) <= MOST else [round(i * (len(data) - 1) / (MOST - 1)) for i in range(MOST)]
        for i in kept:
            yield from flattened(f"{name}/{i}", data[i])
    else:
        value = leaf(data)
        yield (f"{MESSAGE}/{name}" if isinstance(value, str) and WORDS & {*name.split("/")} else name), value


def leaf(value: Any) -> Value:
    """A value as JSON has it; a number that is not finite becomes text."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, nqm.Optimizer) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r:.80} is neither a number nor text")


def write(out: Path, only: Sequence[str]) -> int:
    """Ask everything, in a folder that is gone afterwards, and write the answers; 1 if a group could not be asked."""
    values: Values = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        whole = [record_group(values, name) for name in only or GROUPS]
    out.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")
    print(f"{len(values)} values of {Path(nqm.__file__).parent} in {out}")
    return 0 if all(whole) else 1


def record_group(values: Values, group: str) -> bool:
    """Ask the questions of one group; whether that went through. What was answered before an error is kept."""
    began, before = time.process_time(), len(values)
    try:
        for name, data in GROUPS[group]():
            for full, value in flattened(name, data):
                if full in values:
                    raise ValueError(f"two values are called {full!r}")
                values[full] = value
    except Exception:
        traceback.print_exc()
        print(f"{group}: stopped by the error above", file=sys.stderr)
        return False
    took = time.process_time() - began
    print(f"{group}: {len(values) - before} values, {took:.1f} CPU seconds", file=sys.stderr, flush=True)
    return True


def relative(old: Value, new: Value) -> float:
    """How far apart two values are, relative to the larger; infinite where they are not comparable.

    Texts with the same words are as far apart as their numbers. Numbers below `NOTHING` count as zero.
    """
    if old == new and type(old) is type(new):
        return 0.0
    if isinstance(old, str) and isinstance(new, str) and NUMBER.sub("#", old) == NUMBER.sub("#", new):
        pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
        return max(relative(float(a), float(b)) for a, b in pairs)
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in (old, new)):
        return math.inf
    a, b = float(old or 0), float(new or 0)
    largest = max(abs(a), abs(b))
    return 0.0 if largest < NOTHING else abs(a - b) / largest


def group_of(name: str) -> str:
    """The first part of the name of a value."""
    return name.split("/", 1)[0]


def compare(old: Values, new: Values, rtol: float) -> int:
    """Print every difference and a line for each group; 1 if anything but wording differs."""
    apart = {name: relative(old[name], new[name]) for name in old if name in new}
    missing = [name for name in {**old, **new} if name not in apart]
    for name in missing:
        print(f"missing in the {'new' if name in old else 'old'} record: {name} (the other has {(old | new)[name]!r})")
    differing = [name for name, distance in apart.items() if distance > rtol]
    for name in differing:
        lead = "wording" if group_of(name) == MESSAGE else f"differs by {apart[name]:.3g}"
        print(f"{lead}: {name}\n    old {old[name]!r}\n    new {new[name]!r}")
    for group in dict.fromkeys(map(group_of, [*old, *new])):
        distances = [distance for name, distance in apart.items() if group_of(name) == group]
        absent, beyond = sum(group_of(name) == group for name in missing), sum(d > rtol for d in distances)
        largest = max(distances, default=0.0)
        print(f"{group}: {len(distances)} compared, largest {largest:.3g}, {beyond} differ, {absent} missing")
    failures = [name for name in [*differing, *missing] if group_of(name) != MESSAGE]
    print(f"{len(failures)} of {len(old | new)} values differ beyond {rtol:g} or are missing")
    return 1 if failures else 0


def main() -> int:
    """Read the command line of this script."""
    parser = argparse.ArgumentParser(description="Record what nqm answers, and compare two records.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    writing = verbs.add_parser("write", help="ask everything and write the answers")
    writing.add_argument("out", type=Path)
    writing.add_argument("--only", nargs="+", choices=list(GROUPS), default=[], help="these groups alone")
    comparing = verbs.add_parser("compare", help="print what differs between two records")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--rtol", type=float, default=1e-9, help="relative difference that counts as rounding")
    given = parser.parse_args()
    if given.verb == "write":
        return write(given.out.absolute(), given.only)
    return compare(json.loads(given.old.read_text()), json.loads(given.new.read_text()), given.rtol)


if __name__ == "__main__":
    sys.exit(main())
