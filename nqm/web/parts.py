"""Parts of an answer that are known before the whole. A worker process sends them to the server as they are found."""

from __future__ import annotations

import json
from collections.abc import Callable

from ..show.tables import plain


class AnswerParts:
    """Where an endpoint tells parts of its answer. Outside a worker nobody listens."""

    tell: Callable[[bytes], object] = bytes

    def add(self, part: dict[str, object]) -> None:
        self.tell(json.dumps(plain(part), allow_nan=False, separators=(",", ":")).encode())


PARTS = AnswerParts()
