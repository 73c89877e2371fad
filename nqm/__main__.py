"""``python -m nqm`` is the command ``nqm``."""

from .cli.app import main

main(prog_name="nqm")
