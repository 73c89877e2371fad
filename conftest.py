"""Doctests of the modules that need torch run where it is installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["nqm/nets/*"]
