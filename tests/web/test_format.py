"""The page writes numbers as the command line does: `static/js/format.js` against `nqm.show.numbers`, digit for digit."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess

import pytest
from live import ROOT

from nqm.show.numbers import rounded, shown

NODE = shutil.which("node")
FORMAT = ROOT / "nqm" / "web" / "static" / "js" / "format.js"
RANDOM = random.Random(0)
NUMBERS = [
    0.0, -0.0, 1.0, 12.0, 99.0, 99.5, 99.99, 100.0, 100.5, 101.5, 335.15, 335.5, 19845.3, 1507455.0, 1e9, 123456789012.7,
    999_999_999_999_999.0, 1e15, 1.5e15, 1e16, 1e300, 1.7e308, 5e-324, 1e-300, 1e-5, 9.9995e-5, 1e-4, 1.2345e-4, 0.0135812,
    0.5, 0.9, 0.99, 0.990001, 0.999, 0.99998769, 1 - 2**-7, 1 - 2**-20, 1 - 2**-53, 1.0625, 10.125, 10.375, 1.00005, 9.9995,
    9.99951, 0.06255, 2.5, 3.14159265, 42.42424242, -1.5, -335.5, -0.0135812, -0.995, math.inf, -math.inf, math.nan,
    *(RANDOM.uniform(-3, 3) * 10 ** RANDOM.uniform(-12, 18) for _ in range(500)),
    *(RANDOM.randrange(1, 4000) / 2 ** RANDOM.randrange(1, 12) for _ in range(500)),  # exact ties among them
    *(1 - 10 ** RANDOM.uniform(-15, -2) for _ in range(100)),
]  # fmt: skip


@pytest.mark.skipif(NODE is None, reason="node is missing")
@pytest.mark.parametrize(
    ("here", "there"),
    [(shown, "valueText"), (lambda value: shown(rounded(value)), "roundedText")],
    ids=["shown", "rounded"],
)
def test_the_page_shows_the_digits_of_the_command_line(here, there) -> None:
    assert NODE
    values = json.dumps([repr(value) for value in NUMBERS])
    script = f"""{FORMAT.read_text()}
    const read = (text) => (text.endsWith("inf") ? (text[0] === "-" ? -Infinity : Infinity) : Number(text));
    console.log(JSON.stringify({values}.map((text) => {there}(read(text)))));
    """
    done = subprocess.run([NODE, "--input-type=module"], input=script, capture_output=True, text=True, check=True)
    wrong = {value: (mine, theirs) for value, mine, theirs in zip(
        NUMBERS, map(here, NUMBERS), json.loads(done.stdout), strict=True
    ) if mine != theirs}  # fmt: skip
    assert not wrong


@pytest.mark.skipif(NODE is None, reason="node is missing")
def test_what_is_no_number() -> None:
    assert NODE
    script = f'{FORMAT.read_text()}\nconsole.log(JSON.stringify([null, undefined, "", "SGD()"].map(valueText)));'
    done = subprocess.run([NODE, "--input-type=module"], input=script, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["-", "-", "", "SGD()"]
    assert [shown(None), shown(""), shown("SGD()")] == ["-", "", "SGD()"]
