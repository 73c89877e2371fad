"""The noisy quadratic of a network: measure it, predict with it, and validate it by training."""
