"""How a result is read: one line where it is printed, a table and a picture in a notebook, a data frame in pandas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class Readable(ABC):
    """Prints as one line instead of its arrays. A dataclass that inherits it is made with ``repr=False``."""

    @abstractmethod
    def _brief(self) -> str:
        """What a reader wants to know first, on one line."""

    def _notes(self) -> Sequence[str]:
        """Sentences that a notebook shows below the table."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._brief()})"

    def _repr_html_(self) -> str:
        from ..show.notebook import card

        return card(self)


class Tabular(Readable):
    """A result with rows: the same ones in CSV files, in data frames and in notebooks."""

    @abstractmethod
    def table(self) -> list[dict[str, Any]]:
        """The rows, each from names of columns to values."""

    def to_csv(self, path: str | Path | None = None) -> str:
        """The table as CSV, written to ``path`` if given."""
        from ..show.tables import to_csv

        return to_csv(self.table(), path)

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas data frame, with the columns that CSV files have."""
        from ..show.tables import to_pandas

        return to_pandas(self.table())
