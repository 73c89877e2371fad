"""TensorBoard's event files, read with TensorBoard's own reader (the extra ``logs``)."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from typing import Any

from ..text.imports import install_hint
from ..types import Wrong
from .records import columns_of
from .sheets import Sheet, counted, were

RECORD_HEAD = struct.Struct("<QI")  # A record begins with its length and a checksum of it; a checksum follows the data.
FIRST_EVENT = b"brain.Event:"  # The first record of an event file names the version of its format.


def is_events(name: str, content: bytes) -> bool:
    """Whether a file is an event file: by its first record, or by its name if it is empty."""
    return FIRST_EVENT in content[:128] or (".tfevents." in name and not content[:1].isascii())


def event_sheet(content: bytes, file: str, name: str) -> Sheet:
    """The scalars of an event file: a row for each step in turn, a column for each tag."""
    whole, rest = _records(content)
    remarks = [f"The last event, event {whole + 1:,}, is cut off and was omitted."] if rest else []
    rows: list[dict[str, object]] = []
    places: list[int] = []
    others = last_step = 0
    for number, step, tag, value in _scalars(content, file, whole):
        if value is None:
            others += 1
            continue
        if not rows or step != last_step or tag in rows[-1]:  # A tag that comes again at a step is another row.
            rows.append({"step": step})
            places.append(number)
            last_step = step
        rows[-1]["step (tag)" if tag == "step" else tag] = value
    if others:
        remarks.append(f"{counted(others, 'value')} of the event file {were(others)} not read: only scalars are.")
    columns = columns_of(rows, file, places, "event")
    return Sheet(file, name, columns, places, "event", "events", remarks=tuple(remarks))


def _scalars(content: bytes, file: str, whole: int) -> Iterator[tuple[int, int, str, float | None]]:
    """Number of the event, step, tag and value of everything that the file holds; the value is None if it is no scalar."""
    loader, tensor, damage = _library()
    with tempfile.NamedTemporaryFile(suffix=".tfevents") as copy:
        copy.write(content)
        copy.flush()
        number = 0
        try:
            for number, event in enumerate(loader(copy.name).Load(), 1):
                for value in event.summary.value:
                    yield number, event.step, value.tag, _scalar(value, tensor)
        except damage as error:
            raise Wrong(f"{file}, event {number + 1:,} is damaged: {error}", argument="paths") from None
    if number < whole:
        raise Wrong(f"{file}, event {number + 1:,} is damaged: its checksum is wrong", argument="paths")


def _scalar(value: Any, tensor: Any) -> float | None:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return value.simple_value
    if kind == "tensor" and value.metadata.plugin_data.plugin_name in ("scalars", ""):
        array = tensor(value.tensor)
        if array.size == 1 and array.dtype.kind in "fiu":
            return float(array.reshape(-1)[0])
    return None


def _records(content: bytes) -> tuple[int, int]:
    """How many whole records a file has, and how many bytes of a record that is cut off follow them."""
    at = count = 0
    while at + RECORD_HEAD.size <= len(content):
        length, _ = RECORD_HEAD.unpack_from(content, at)
        end = at + RECORD_HEAD.size + length + 4
        if end > len(content):
            break
        at, count = end, count + 1
    return count, len(content) - at


def _library() -> tuple[Any, Any, tuple[type[Exception], ...]]:
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        hint = install_hint("tensorboard")
        raise Wrong(f"TensorBoard, which reads event files, is not installed{hint}", argument="paths") from None
    return LegacyEventFileLoader, make_ndarray, (DecodeError, ValueError, TypeError)
