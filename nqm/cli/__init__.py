"""The command line: verbs, their options and their output. No mathematics."""

from .app import main

__all__ = ["main"]
