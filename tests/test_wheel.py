"""The wheel alone is enough: built, installed into an empty environment and run in an empty folder, it gives the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PATIENCE = 900  # seconds that a step may take: NumPy, SciPy, numba and matplotlib come from the package index


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that sees neither this checkout nor this environment's packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    found = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.slow
def test_the_wheel_runs_the_demo_in_an_empty_folder(tmp_path: Path) -> None:
    wheels, environment, folder = tmp_path / "wheels", tmp_path / "venv", tmp_path / "empty"
    folder.mkdir()
    quiet = ("--disable-pip-version-check", "--quiet")
    run(sys.executable, "-m", "pip", *quiet, "wheel", ROOT, "--no-deps", "--wheel-dir", wheels, cwd=tmp_path)
    (wheel,) = wheels.glob("nqm-*.whl")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    inside = [name for name in names if not name.partition("/")[0].endswith(".dist-info")]
    assert {name.partition("/")[0] for name in inside} == {"nqm"}
    assert {"nqm/web/static/index.html", "nqm/py.typed"} <= set(inside)
    assert {f"nqm/logs/example/{name}" for name in ("constant.csv", "cosine.csv", "drop.csv", "LICENSE")} <= set(inside)

    venv.create(environment, with_pip=True, system_site_packages=False)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    constraints = ROOT / "constraints.txt"
    run(scripts / "python", "-m", "pip", *quiet, "install", "--constraint", constraints, wheel, cwd=tmp_path)
    code = "import nqm, sys; print(nqm.__file__); assert not {'torch', 'starlette'} & set(sys.modules)"
    assert str(environment) in run(scripts / "python", "-c", code, cwd=folder)

    text = run(scripts / "nqm", "demo", cwd=folder)
    assert "Critical batch size" in text
    assert [path.name for path in folder.iterdir()] == ["nqm-demo.png"]
    assert (folder / "nqm-demo.png").read_bytes().startswith(b"\x89PNG")

    assert "Parameters of the law" in run(scripts / "nqm", "forecast", "fit", "example", cwd=folder)
    assert (folder / "forecast.json").is_file()
