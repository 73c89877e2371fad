"""Doctests of the modules that need torch, Lightning or transformers run where these are installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["nqm/nets/*"]
collect_ignore_glob += [] if find_spec("lightning") else ["nqm/nets/monitoring/lightning.py"]
collect_ignore_glob += [] if find_spec("transformers") else ["nqm/nets/monitoring/trainer.py"]
