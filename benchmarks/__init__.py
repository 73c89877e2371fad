"""Benchmarks: ``python -m benchmarks`` prints ratios measured in one run."""
