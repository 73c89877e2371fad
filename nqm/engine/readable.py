"""How a result is shown: as one line when printed, as a table and a picture in a notebook, as a data frame in pandas."""

from __future__ import annotations

import dataclasses
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import pandas as pd


class Listed(ABCMeta):
    """The type of public classes, whose ``dir()`` lists what their users need, the fields among it.

    A class whose other rooms ask it much states in ``for_users`` the names that users call; then ``dir()`` of a class that can be
    made lists these, its fields, and what a user's own class defines. Abstract classes, from which users derive, list all.
    """

    def __dir__(cls) -> list[str]:
        listed = getattr(cls, "for_users", None)
        fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set[str]()
        names = {*super().__dir__(), *fields} - {"for_users"}
        if listed is None or cls.__abstractmethods__:
            return sorted(names)
        own = {name for kind in cls.__mro__ if not kind.__module__.startswith("nqm.") for name in vars(kind)}
        return sorted(name for name in names if name in own | listed or name in fields or name.startswith("__"))


class Readable(metaclass=Listed):
    """A result that prints as one line instead of its arrays. A dataclass that inherits from it needs ``repr=False``."""

    for_users: ClassVar[frozenset[str] | None] = None

    def __dir__(self) -> list[str]:
        return dir(type(self))

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
