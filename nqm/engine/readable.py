"""How a result is shown: as one line when printed, as a table and a picture in a notebook, as a data frame in pandas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class Readable(ABC):
    """A result that prints as one line instead of its arrays. A dataclass that inherits from it needs ``repr=False``."""

    @abstractmethod
    def _brief(self) -> str:
        """The most important facts, on one line."""

    def _notes(self) -> Sequence[str]:
        """Sentences that a notebook shows below the table."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._brief()})"

    def _repr_html_(self) -> str:
        from ..show.notebook import card

        return card(self)


class Tabular(Readable):
    """A result with rows, which are the same in CSV files, in data frames and in notebooks."""

    @abstractmethod
    def table(self) -> list[dict[str, Any]]:
        """The rows; each maps the names of the columns to values."""

    def to_csv(self, path: str | Path | None = None) -> str:
        """The table as CSV text, also written to ``path`` if it is given."""
        from ..show.tables import to_csv

        return to_csv(self.table(), path)

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas data frame, with the same columns as the CSV file."""
        from ..show.tables import to_pandas

        return to_pandas(self.table())
