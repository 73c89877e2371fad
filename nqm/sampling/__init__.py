"""The Monte Carlo twin of the engine: laws of noise, bases, replicas."""
