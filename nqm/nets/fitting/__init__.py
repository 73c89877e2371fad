"""The noisy quadratic of a network: measured, used to predict, validated by training."""
