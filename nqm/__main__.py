"""``python -m nqm`` is the command ``nqm``."""

from .cli import main

main(prog_name="nqm")
