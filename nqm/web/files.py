"""Uploaded files of `nqm fit`, `nqm spectrum` and `nqm forecast`, and logs, read from bytes within limits and without pickle."""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..engine.spectrum import Spectrum
from ..logs import Forecast, forecast, read_logs
from ..logs.saving import FORECAST_FORMAT, as_dict
from ..nets.fitting.model import Fit
from ..nets.monitoring.watching import Watched, watch
from ..types import Array, Wrong
from .fields import Refused
from .limits import REQUEST, Recent

ZIP = b"PK\x03\x04"
UNPACKED_BYTES = 2**25  # Largest size of an .npz file when unpacked; 20,000 modes take 640 kB.
PROBES = 1_000  # Largest number of probes of a measurement.
DESCENT_STEPS = 10**6  # Last step that the descent of a fit may have.
LOGGED_STEPS = 10**7  # Last step that a log of a forecast may have; the rates of all steps are held in memory.
LOG_ENDINGS = (".csv", ".tsv", ".jsonl")  # Names of files that are read as logs.
LOGS = 32  # Largest number of runs in a log that is uploaded.
LOG_POINTS = 50_000  # Largest number of points of such a log; a forecast of 10,000 takes about a second.
LARGEST_THETA = 100.0  # Largest logarithm of a parameter of a forecast, far from overflow and from any fit.
FILES_KEPT = 8  # Number of files that a process keeps after reading them.
DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, json.JSONDecodeError, UnicodeDecodeError, RuntimeError, IndexError,
    OverflowError,
)  # fmt: skip
"""What the readers raise on a damaged file, besides `Wrong`; JSON nested too deeply is a RuntimeError."""


@dataclass(frozen=True)
class SpectrumSource:
    """A spectrum and its origin: constructor text, or a file, which has an ``id`` and perhaps a fit or a forecast."""

    name: str  # The constructor text, or the name of the file.
    spectrum: Spectrum = field(compare=False)
    id: str = ""
    fit: Fit | None = field(default=None, compare=False)
    forecast: Forecast | None = field(default=None, compare=False)
    content: dict[str, object] | None = field(default=None, compare=False)  # That of the file of a forecast.

    def to_json(self) -> dict[str, object]:
        """The content as a JSON file has it, also if it came as .npz."""
        if self.content is not None:
            return self.content
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "file.json")
            (self.fit or self.spectrum).save(path)
            return json.loads(path.read_text())


class Shelf:
    """The files that this process has read, by the hash of their content. ``ask`` gets the bytes and name of others."""

    def __init__(self) -> None:
        self.ask: Callable[[str], tuple[bytes, str] | None] = lambda _: None
        self._read: Recent[str, SpectrumSource] = Recent(FILES_KEPT)

    def opened(self, content: bytes, name: str = "") -> SpectrumSource:
        key = identity(content)
        known = self._read.get(key)
        if known is None:
            return self._read.keep(key, read(content, key, name))
        # The same content may be uploaded again under another name.
        return self._read.keep(key, replace(known, name=_tidy(name, known.name))) if name else known

    def get(self, key: str) -> SpectrumSource:
        """A file by its id."""
        if known := self._read.get(key):
            return known
        kept = self.ask(key)
        if kept is None:
            raise Wrong(f"the server no longer has the upload {key[:40]!r}; open the file again")
        return self.opened(*kept)


SHELF = Shelf()


def identity(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def read(content: bytes, key: str, name: str = "") -> SpectrumSource:
    """A fit, a forecast or a spectrum, recognised by its content; anything else is refused."""
    if len(content) > REQUEST.upload_bytes:
        raise Refused(f"a file may have at most {REQUEST.upload_bytes:,} bytes, this has {len(content):,}", status=413)
    try:
        found = _load(content, name)
    except DAMAGE as error:
        raise Wrong(f"this is no file of nqm fit, nqm spectrum or nqm forecast: {error}") from None
    if isinstance(found, Forecast):
        modes, data = found.problem.spectrum, as_dict(found)
        return SpectrumSource(_tidy(name, "forecast.json"), modes, key, forecast=found, content=data)
    fit, spectrum = (found, found.spectrum) if isinstance(found, Fit) else (None, found)
    if fit is not None:
        _check(fit)
    if len(spectrum) > REQUEST.nodes:
        many = f"a file may have at most {REQUEST.nodes:,} modes, this one has {len(spectrum):,}"
        raise Wrong(f"{many}; nqm spectrum --compress makes it smaller")
    return SpectrumSource(_tidy(name, "spectrum.json" if fit is None else "fit.json"), spectrum, key, fit)


def _load(content: bytes, name: str) -> Fit | Forecast | Spectrum:
    if content.startswith(ZIP):
        members = zipfile.ZipFile(io.BytesIO(content)).infolist()
        if sum(member.file_size for member in members) > UNPACKED_BYTES:
            raise Wrong(f"this file would take more than {UNPACKED_BYTES:,} bytes unpacked")
        names, ending = {Path(member.filename).stem for member in members}, ".npz"
    elif _is_log(content, name):
        return _fitted([(name, content)])
    else:
        names, ending = json.loads(content.decode()), ".json"
        if not isinstance(names, dict):
            raise Wrong("this is no file of nqm fit, nqm spectrum or nqm forecast: it should be a JSON object")
        if names.get("format") == FORECAST_FORMAT:
            return _forecast(names)
        if names.keys() == {"logs"}:
            return _fitted(_several(names["logs"]))
    with tempfile.TemporaryDirectory() as folder:
        # Error messages of the readers quote the name of the file, so the copy bears the user's name for it.
        path = Path(folder, _tidy(name, "file.json")).with_suffix(ending)
        path.write_bytes(content)
        return Fit.load(path) if "about" in names or "format" in names else Spectrum.load(path)


def _is_log(content: bytes, name: str) -> bool:
    """Whether a file is a log of training: by its ending, or as Hugging Face's trainer_state.json."""
    return name.lower().endswith(LOG_ENDINGS) or (name.lower().endswith(".json") and b'"log_history"' in content)


def _several(files: object) -> list[tuple[str, bytes]]:
    """Name and content of each of several files that were opened together."""
    known = [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    if not known or not all(isinstance(file.get("name"), str) for file in known):
        raise Wrong("several logs should be a list of objects with a name and a text")
    for file in known:
        if not isinstance(file.get("text"), str):
            raise Wrong(f"the log {file['name'][:200]!r} should have a text")
    return [(file["name"], file["text"].encode(errors="replace")) for file in known]


def _fitted(files: Sequence[tuple[str, bytes]]) -> Forecast:
    """The forecast that is fitted to the logs in some files."""
    with ExitStack() as stack:
        logs = read_logs([stack.enter_context(_copied(content, name)) for name, content in files])
    points = sum(len(log.step) for log in logs)
    if len(logs) > LOGS or points > LOG_POINTS:
        most = f"a log may have at most {LOGS} runs and {LOG_POINTS:,} points"
        raise Wrong(f"{most}; this has {len(logs)} runs and {points:,} points")
    return forecast(logs)


@contextmanager
def _copied(content: bytes, name: str) -> Iterator[Path]:
    """A copy on disk that bears the user's name. Sentences of wrong calls quote its path, of which the user knows the name alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, plain_name(name))
        path.write_bytes(content)
        try:
            yield path
        except Wrong as wrong:
            raise Wrong(str(wrong).replace(f"{path.parent}/", ""), wrong.argument) from None


def plain_name(name: str) -> str:
    """The name of a file in characters that need no quotes in a shell."""
    return re.sub(r"[^\w.-]", "_", Path(name).name, flags=re.ASCII).lstrip("-.")[-60:] or "run.jsonl"


def noise_of(text: str, name: str) -> Watched | Fit:
    """The file of a `Monitor`, or of `nqm fit` as JSON; both have a noise scale."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None  # several lines, each with an object
    if isinstance(data, dict) and "step" not in data:
        fit = SHELF.opened(text.encode(errors="replace"), Path(plain_name(name)).with_suffix(".json").name).fit
        if fit is None:
            raise Wrong("this file has no noise scale: open the file of a Monitor, or one of nqm fit", argument="text")
        return fit
    with _copied(text.encode(errors="replace"), name) as path:
        return watch(path)


def _forecast(data: dict[str, object]) -> Forecast:
    """A forecast, refused if its logs or parameters would take too much memory or overflow."""
    logs = data.get("logs")
    steps = [log.get("step") for log in logs if isinstance(log, dict)] if isinstance(logs, list) else []
    for step in steps:
        ends = [n for n in step if isinstance(n, int | float)] if isinstance(step, list) else []
        if not ends or not max(ends) <= LOGGED_STEPS:
            raise Wrong(f"a log of a forecast should have steps up to {LOGGED_STEPS:,} at most")
    found = Forecast.from_dict(data)
    if np.abs(found.law.theta).max() > LARGEST_THETA or not 0 <= found.metric.weight_decay < 1e6:
        raise Wrong("the forecast's parameters are not those of a fit")
    return found


def _check(fit: Fit) -> None:
    """Refuse a fit whose numbers no measurement can give, before anything is computed from them."""
    for name in ("signal", "noise", "density"):
        measure = getattr(fit, name)
        if measure is None:
            continue
        if not _columns(measure.h, measure.weight, measure.probe):
            raise Wrong(f"the fit's {name} should have one weight and one probe for each h")
        if not (np.isfinite(measure.h).all() and np.isfinite(measure.weight).all()):
            raise Wrong(f"the fit's {name} should be finite numbers")
        if measure.probe.min() < 0 or measure.probe.max() >= PROBES:
            raise Wrong(f"the fit's {name} should come from probes 0 to {PROBES - 1}")
    if not (np.isfinite(fit.loss) and fit.examples >= 1):
        raise Wrong("the fit's loss and examples should be positive numbers")
    if fit.descent is not None:
        lr, steps, loss = fit.descent.lr, fit.descent.steps, fit.descent.loss
        rising = _columns(steps, loss) and steps[0] >= 0 and steps[-1] <= DESCENT_STEPS and np.all(np.diff(steps) > 0)
        if not (rising and 0 < lr < np.inf and np.isfinite(loss).all()):
            raise Wrong("the fit's descent should be finite losses at rising steps")
    if {"h", "c", "adam"} - set(fit.top) or not _columns(*fit.top.values()):
        raise Wrong("the fit should have h, c and adam along the largest curvatures")
    if not all(np.isfinite(values).all() for values in fit.top.values()):
        raise Wrong("the fit's h, c and adam along the largest curvatures should be finite numbers")


def _columns(*columns: Array) -> bool:
    """Whether all arrays are one-dimensional, not empty and of one length."""
    return all(column.ndim == 1 and 0 < len(column) == len(columns[0]) for column in columns)


def _tidy(name: str, otherwise: str) -> str:
    """The name of a file in characters that need no quotes in a shell; ``otherwise`` if its ending is not known."""
    kept = plain_name(name)
    return kept if kept.lower().endswith((".json", ".npz")) else otherwise
