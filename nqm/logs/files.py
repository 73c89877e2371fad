"""Paths to files, and files to sheets: folders, patterns, compression, and the format, which is found from the content."""

from __future__ import annotations

import glob
import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from ..types import Wrong
from .delimited import delimited
from .events import event_sheet, is_events
from .frames import Frame, is_table, table_sheets
from .records import json_sheet
from .sheets import Sheet, counted, listed, were

LOG_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
"""Endings of the files that are read from a folder, beside ``trainer_state.json`` and TensorBoard's event files."""

MAX_BYTES = 2 * 10**9  # A file holds at most this many bytes, after it is decompressed.
EXAMPLE = "example"
"""The name of three short logs that come with the package. A file or folder of the reader's own with this name comes first."""

GENERIC_NAMES = ("metrics", "trainer_state", "log", "logs", "history", "events", "metrics_history", "train", "training")
"""Names of files that many runs share: the run is called after the folder instead."""

DEFAULT_EXPERIMENT = "lightning_logs"  # The name that Lightning gives to an experiment without one.


LogSource = str | Path | Frame | Mapping[str, object]
"""Where logs are read from: a file, a folder or a pattern, or a table in memory."""


def sheets_of(paths: LogSource | Iterable[LogSource]) -> Iterator[Sheet]:
    """The content of all files that paths name, after that of all tables among them."""
    single = isinstance(paths, str | os.PathLike) or is_table(paths) or not isinstance(paths, Iterable)
    given: list[object] = [paths] if single else list(cast(Iterable[object], paths))
    if not given:
        raise Wrong("paths names no files", argument="paths")
    files: dict[Path, tuple[str, ...]] = {}
    for i, path in enumerate(given):
        if is_table(path):
            yield from table_sheets(path, "table" if len(given) == 1 else f"table {i + 1}")  # type: ignore[arg-type]
        elif not isinstance(path, str | os.PathLike):
            wanted = "names of files, folders or patterns, data frames, or dicts of columns"
            raise Wrong(f"paths must be {wanted}, got {path!r:.60}", argument="paths")
        else:
            for file, remarks in _files(os.fspath(path)):
                files.setdefault(file, remarks)
    for file, remarks in files.items():
        sheet = read_sheet(file)
        yield replace(sheet, remarks=(*remarks, *sheet.remarks))


def read_sheet(file: Path) -> Sheet:
    """The content of one file."""
    name = run_name(file)
    content = _content(file)
    if is_events(file.name, content):
        return event_sheet(content, str(file), name)
    text = _text(content, file)
    if text.lstrip()[:1] in ("{", "["):
        return json_sheet(text, str(file), name)
    return delimited(text, str(file), name)


def run_name(file: Path) -> str:
    """What a run is called after: its file, or its folder if many runs have a file of that name.

    Lightning numbers the runs of an experiment, ``logs/NAME/version_0``: the run is called ``NAME/version_0``.

    >>> run_name(Path("runs/cosine.csv.gz")), run_name(Path("runs/a/metrics.csv")), run_name(Path("logs/a/version_0/metrics.csv"))
    ('cosine', 'a', 'a/version_0')
    """
    stem = file.name
    for suffix in (".gz", *LOG_SUFFIXES, ".json", ".txt", ".log"):
        stem = stem.removesuffix(suffix)
    if stem.lower() not in GENERIC_NAMES and not stem.startswith("events.out.tfevents"):
        return stem
    folder = file.absolute().parent
    if re.fullmatch(r"version_\d+", folder.name) and folder.parent.name not in ("", DEFAULT_EXPERIMENT):
        return f"{folder.parent.name}/{folder.name}"
    return (folder.parent if folder.name.startswith("checkpoint-") else folder).name or stem


def _files(path: str) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The files that a path names, and what is to be said of them."""
    if "\0" in path:
        raise Wrong(f"{path!r:.60} is not a path", argument="paths")
    if os.path.isdir(path):
        yield from _folder(Path(path))
    elif os.path.isfile(path):
        yield Path(path), ()
    elif os.path.exists(path):
        raise Wrong(f"{path!r:.200} is neither a file nor a folder", argument="paths")
    elif glob.has_magic(path) and (found := sorted(glob.glob(path, recursive=True))):
        for name in found:
            if os.path.isdir(name):
                yield from _folder(Path(name))
            else:
                yield Path(name), ()
    elif path == EXAMPLE:
        yield from ((file, ()) for file in example_files())
    else:
        raise Wrong(f"there is no file {path!r:.200}", argument="paths")


def example_files() -> list[Path]:
    """The files of the example: one model under a constant rate, a cosine and a rate that drops.

    >>> [file.name for file in example_files()]
    ['constant.csv', 'cosine.csv', 'drop.csv']
    """
    return sorted(Path(__file__).with_name("example").glob("*.csv"))


def _folder(folder: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    inside = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    logs = [p for p in inside if _is_log(p.name)]
    if not logs:
        kinds = f"{', '.join(LOG_SUFFIXES)}, trainer_state.json or event files of TensorBoard"
        raise Wrong(f"the folder {str(folder)!r} holds no logs ({kinds})", argument="paths")
    others = [str(p.relative_to(folder)) for p in inside if not _is_log(p.name)]
    count = len(others)
    remark = f"{counted(count, 'other file')} of the folder {str(folder)!r} {were(count)} not read: {listed(others)}."
    for log in logs:
        yield log, ((remark,) if others else ())


def _is_log(name: str) -> bool:
    name = name.lower().removesuffix(".gz")
    return name.endswith(LOG_SUFFIXES) or name == "trainer_state.json" or ".tfevents." in name


def _content(file: Path) -> bytes:
    """The bytes of a file, decompressed."""
    try:
        with open(file, "rb") as source:
            compressed = source.read(2) == b"\x1f\x8b"
            source.seek(0)
            with gzip.open(source) if compressed else source as stream:
                content = stream.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Wrong(f"cannot decompress {file}: {error}", argument="paths") from None
    except OSError as error:
        raise Wrong(f"cannot read {file}: {error.strerror or error}", argument="paths") from None
    if len(content) > MAX_BYTES:
        raise Wrong(f"{file} holds more than {MAX_BYTES:,} bytes; thin it", argument="paths")
    return content


def _text(content: bytes, file: Path) -> str:
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Wrong(f"{file}, line {line:,} is not text in UTF-8", argument="paths") from None
