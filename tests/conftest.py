"""One hypothesis profile for every test: seeded, so that a failure repeats, and without a clock."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "nqm",
    derandomize=True,
    deadline=None,  # the first call compiles
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("nqm")
