"""The exact engine: second moments, spectra, schedules, runs. NumPy only."""
