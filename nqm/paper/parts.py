"""Finished parts of a run, in a file beside its output, so that a run that was interrupted can be continued."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from threading import Lock

from ..show.html import versions


class Parts:
    """Values by name, each written to ``path`` as soon as it is known; without a path they are not written.

    The file begins with a fingerprint of nqm's own source, of the versions of the packages it needs, and of ``about``,
    everything else that the values depend on. A file with another fingerprint is discarded. `finish` removes the file, so
    that the next run computes everything again.
    """

    def __init__(self, path: Path | None, about: object) -> None:
        self.path, self.known, self.note = path, dict[str, object](), ""
        self._lock, self._header = Lock(), "" if path is None else json.dumps({"made by": _fingerprint(about)})
        if path is None or not path.exists():
            return
        header, *lines = path.read_text(encoding="utf-8").split("\n")
        if header == self._header:
            self.known = dict(filter(None, map(_read, lines)))
            parts = "1 finished part" if len(self.known) == 1 else f"{len(self.known)} finished parts"
            self.note = f"continuing: {parts} of an interrupted run from {path}"
        else:
            path.unlink()
            self.note = (
                f"starting again: the parts in {path} were made by another version of nqm, or from other premises"
            )

    def keep(self, name: str, value: object) -> None:
        """Keep a value that JSON can hold, and write it to the file."""
        with self._lock:
            self.known[name] = value
            if self.path is not None:
                start = "" if self.path.exists() else self._header
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(f"{start}\n{json.dumps([name, value], default=lambda number: number.item())}")

    def finish(self) -> None:
        """Remove the file, because the run is complete."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _read(line: str) -> tuple[str, object] | None:
    """A name and its value; None for a line that was cut off when the run was killed."""
    try:
        name, value = json.loads(line)
    except ValueError:
        return None
    return name, value


def _fingerprint(about: object) -> str:
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256(repr((versions(), about)).encode())
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return digest.hexdigest()
