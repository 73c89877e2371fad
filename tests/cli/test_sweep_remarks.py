"""What ``nqm sweep`` prints where a critical batch size is missing or rough: a dash, and the reason once."""

from __future__ import annotations

import json

from click.testing import CliRunner

from nqm.cli import main
from nqm.search.sweeps import NO_KNEE

LINE = [
    "sweep",
    "SGD",
    "HeavyBall",
    "EMA(SGD)",
    "--target",
    "0.1",
    "--spectrum",
    "power_law(100)",
    "--batch-sizes",
    "16,64",
    "--most-added",
    "0",
]


def test_a_missing_number_is_a_dash_and_its_reason_is_said_once() -> None:
    done = CliRunner().invoke(main, LINE, catch_exceptions=False)
    assert done.exit_code == 0
    cells = {
        line.split()[0]: line.split()[1:]
        for line in done.stdout.partition("Critical batch size")[2].partition("Regimes")[0].splitlines()
        if line.startswith(("SGD()", "HeavyBall()", "EMA(SGD())"))
    }
    assert cells["HeavyBall()"][-1] == cells["EMA(SGD())"][-1] == "-"
    assert cells["SGD()"][-1] != "-"
    assert done.stdout.count(NO_KNEE) == 1
    assert f"- HeavyBall() knee, EMA(SGD()) knee: {NO_KNEE}" in done.stdout
    assert "SGD() ratio: rough: other batch sizes may need" in done.stdout


def test_json_has_null_and_the_remark() -> None:
    done = CliRunner().invoke(main, [*LINE, "--json"], catch_exceptions=False)
    plain, ball, _ = json.loads(done.stdout)["sweeps"]
    assert ball["critical_batch_size"]["knee"] is None
    assert ball["remarks"]["knee"] == NO_KNEE
    assert plain["critical_batch_size"]["knee"] > 0
    assert set(plain["remarks"]) == {"20%", "2x", "ratio"}
