"""Numbers, optimizers, schedules and spectra from text, which is parsed and never evaluated."""
