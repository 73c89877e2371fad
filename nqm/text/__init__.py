"""Text to numbers, optimizers, schedules and spectra: parsed, never evaluated."""
