"""How results look: charts, tables, verdicts."""
