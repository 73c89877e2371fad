"""The Monte Carlo twin of the engine: laws of noise, bases, sources of gradients, stepping, and means over replicas."""
