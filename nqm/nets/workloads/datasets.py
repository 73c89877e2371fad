"""Where data sets are: a folder the user names, a Debian package's folder, what was fetched before, or their public home.

Nothing is fetched unless it is asked for, every download is checked, and files are parsed, never unpickled.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...types import Wrong

ANSWER_SECONDS = 30  # time without an answer after which a download is given up


@dataclass(frozen=True)
class DataSet:
    """A data set: its folder's name, where a package puts it, where it can be had and the checksums of its files."""

    name: str
    how: str
    package: str = ""
    home: str = ""
    sha256: tuple[tuple[str, str], ...] = ()  # of what is in the files, uncompressed
    shared: bool = True  # may lie in NQM_DATA itself; not where another data set's files have the same names

    def folders(self) -> list[Path]:
        """Where to look, in order."""
        named = os.environ.get("NQM_DATA")
        own = [Path(named) / self.name] if named else []
        found = [*own, Path(named)] if named and self.shared else own
        found = [place for folder in found for place in (folder, folder / "data")]  # npm packages have such a folder
        return [*found, *([Path(self.package)] if self.package else []), cache() / self.name]

    def file(self, name: str) -> Path:
        """A file of the data set, fetched if it has a home and is nowhere else."""
        for folder in self.folders():
            for candidate in (folder / name, folder / name.removesuffix(".gz")):
                if candidate.is_file():
                    return candidate
        if not self.home:
            raise Wrong(self.missing(name))
        return self._fetch(name)

    def missing(self, name: str) -> str:
        places = ", ".join(str(folder) for folder in self.folders())
        return f"the {self.name} data is missing: no {name} in {places}; {self.how}"

    def _fetch(self, name: str) -> Path:
        target = cache() / self.name / name
        try:
            with urllib.request.urlopen(self.home + name, timeout=ANSWER_SECONDS) as answer:
                content = answer.read()
        except (urllib.error.URLError, OSError) as error:
            raise Wrong(f"{self.missing(name)} ({self.home}{name} does not answer: {error})") from None
        digest = hashlib.sha256(gzip.decompress(content) if name.endswith(".gz") else content).hexdigest()
        if digest != dict(self.sha256)[name]:
            raise Wrong(f"{self.home}{name} has changed: its sha256 is {digest}, not {dict(self.sha256)[name]}")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        part.write_bytes(content)
        part.replace(target)
        return target


def cache() -> Path:
    """Where fetched data is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nqm"


def read_png(path: Path) -> NDArray[np.uint8]:
    """A PNG file of 8 bits a channel as bytes, (rows, columns, channels)."""
    from matplotlib.image import imread

    try:
        shares = imread(path, format="png")  # byte / 255 in float32, which rounds back exactly
    except (OSError, SyntaxError, ValueError) as error:
        raise Wrong(f"{path} is not a PNG file: {error}") from None
    return np.rint(shares * 255).astype(np.uint8)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An IDX file of bytes: two zeros, the type 8, the number of axes, their lengths, the values.

    The format of LeCun's MNIST files, plain or gzipped.
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
