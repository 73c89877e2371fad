"""The inner loops of the engine."""
