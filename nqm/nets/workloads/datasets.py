"""Where data sets are found: in a folder that the user names, in a Debian package, in the cache, or at their public home.

Nothing is downloaded before it is needed, every download is checked, and files are parsed, never unpickled.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...types import Wrong

ANSWER_SECONDS = 30  # a download without an answer for this long fails


@dataclass(frozen=True)
class DataSet:
    """A data set and where to find its files."""

    name: str  # also the name of its folder
    how: str  # tells the user how to get the data
    package: str = ""  # folder in which a Debian package installs it
    home: str = ""  # address from which files are downloaded
    sha256: Mapping[str, str] = field(default_factory=dict)  # checksum of each file, uncompressed
    shared: bool = True  # whether the files may be in NQM_DATA itself: not if another data set has the same file names

    def folders(self) -> list[Path]:
        """The folders to search, in this order."""
        named = os.environ.get("NQM_DATA")
        own = [Path(named) / self.name, *([Path(named)] if self.shared else [])] if named else []
        found = [place for folder in own for place in (folder, folder / "data")]  # npm packages have a folder "data"
        return [*found, *([Path(self.package)] if self.package else []), cache() / self.name]

    def file(self, name: str) -> Path:
        """The path of a file of the data set, which is downloaded if no folder has it and the data set has a home."""
        for folder in self.folders():
            for candidate in (folder / name, folder / name.removesuffix(".gz")):
                if candidate.is_file():
                    return candidate
        if not self.home:
            raise Wrong(self.missing(name))
        return self._fetch(name)

    def missing(self, name: str) -> str:
        """The message for a file that was not found."""
        places = ", ".join(str(folder) for folder in self.folders())
        return f"the {self.name} data is missing: no {name} in {places}; {self.how}"

    def _fetch(self, name: str) -> Path:
        try:
            with urllib.request.urlopen(self.home + name, timeout=ANSWER_SECONDS) as answer:
                content = answer.read()
        except (urllib.error.URLError, OSError) as error:
            raise Wrong(f"{self.missing(name)} ({self.home}{name} does not answer: {error})") from None
        whole = gzip.decompress(content) if name.endswith(".gz") else content
        check_sum(f"{self.home}{name}", whole, self.sha256[name])
        return kept(cache() / self.name / name, content)


def check_sum(source: str, content: bytes, sha256: str) -> None:
    """Refuse a download whose checksum is not the known one."""
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise Wrong(f"{source} has changed: its sha256 is {digest}, not {sha256}")


def kept(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    return part.replace(path)


def cache() -> Path:
    """The folder in which downloaded data is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nqm"


def read_png(path: Path) -> NDArray[np.uint8]:
    """The values of a PNG file with 8 bits per channel, (rows, columns, channels)."""
    from matplotlib.image import imread

    try:
        shares = imread(path, format="png")  # byte / 255 in float32, which rounds back exactly
    except (OSError, SyntaxError, ValueError) as error:
        raise Wrong(f"{path} is not a PNG file: {error}") from None
    return np.rint(shares * 255).astype(np.uint8)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The values of an IDX file of bytes, LeCun's format for MNIST, plain or gzipped.

    The file has two zeros, the type 8, the number of axes, the length of each axis, and the values.
    """
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise Wrong(f"{path} is not an IDX file of bytes")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, 4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if values.size != np.prod(shape):
        raise Wrong(f"{path} ends early: {values.size:,} values for shape {tuple(map(int, shape))}")
    return values.reshape(shape)
