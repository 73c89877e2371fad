"""How results are shown: charts, tables, numbers, HTML pages, verdicts."""

from .plots import plot_sweeps

__all__ = ["plot_sweeps"]
