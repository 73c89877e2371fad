"""How results look: charts, tables, numbers, pages, verdicts."""

from .plots import plot_sweeps

__all__ = ["plot_sweeps"]
