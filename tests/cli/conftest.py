"""The fixtures of the lab's tests."""

from lab_fixtures import environment, log, study, undisturbed  # noqa: F401
