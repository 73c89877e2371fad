"""Sentences of the library in the words of the command line: ``--map step=NAME`` for ``columns={'step': ...}``."""

from __future__ import annotations

import re

_ARGUMENTS = "batch_size|curvature|examples|extrapolate|max_rate|on|optimizer|peak|schedule|state|steps|target|until|weight_decay"
SPELLINGS: tuple[tuple[str, str], ...] = (
    # What a sentence says in both ways is said in one.
    (r"\b\w+=\S* \((--[a-z][\w-]*)\)", r"\1"),
    (r"\(\w+=\S+, (--[a-z][\w-]*(?: [A-Z]+)?)\)", r"(\1)"),
    (r"columns=\{'step': \.\.\.\}, or 'tokens' or 'examples'", "--map step=NAME, or tokens=NAME or examples=NAME"),
    (r"columns=\{'(\w+)': \.\.\.\}", r"--map \1=NAME"),
    (r"columns=\{'(\w+)': ('[^']*'|\"[^\"]*\")\}", r"--map \1=\2"),
    (r"schedule=('[^']*'), peak=(\S+)", r"--schedule \1 --peak \2"),
    (rf"\b({_ARGUMENTS})=True\b", r"--\1"),
    (r"\bExtrapolate to have\b", "Give --extrapolate to have"),
    (r"(: |, or )extrapolate\b(?!=)", r"\1give --extrapolate"),
    (r"\bfit\(network, [^`]*, or (`nqm [^`]+`)", r"\1"),
    (rf"\b({_ARGUMENTS})='([^']*)'", r"--\1 \2"),
    (rf"(?<!\()\b({_ARGUMENTS})=(\d[\d.]*)(?=[ ,;]|$)", r"--\1 \2"),
    (rf"\b({_ARGUMENTS})=(?=[ ,;]|\.(?!\.)|$)", r"--\1"),
)
"""What Python writes, as a pattern, and what an option writes. A name with a value, as in ``SGD(lr=0.1)``, stays."""


def as_options(text: str) -> str:
    """A sentence with options in place of arguments.

    >>> as_options("run.csv has no loss; name it: columns={'loss': ...}")
    'run.csv has no loss; name it: --map loss=NAME'
    >>> as_options("Say weight_decay= (--weight-decay) if you know it."), as_options("give batch_size= to HeavyBall(lr=0.1)")
    ('Say --weight-decay if you know it.', 'give --batch-size to HeavyBall(lr=0.1)')
    """
    for python, option in SPELLINGS:
        text = re.sub(python, lambda found, option=option: _dashed(found, option), text)
    return text


def _dashed(found: re.Match[str], option: str) -> str:
    """The option of a match, with dashes in its name."""
    return re.sub(r"--\w+", lambda name: name[0].replace("_", "-"), found.expand(option))
