"""How numbers are written on the command line, on pages, in reports and in pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real


def shown(value: object) -> str:
    """A value in a table: text unchanged, numbers from 100 on without decimals, smaller numbers to four digits.

    For a value just below 1, such as a momentum, 1 - value keeps three digits. A missing value is "-".

    >>> shown(1507455), shown(335.15), shown(0.0135812), shown(0.99998769), shown(None), shown("SGD()"), shown(math.inf)
    ('1,507,455', '335', '0.01358', '0.9999877', '-', 'SGD()', 'inf')
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, Real):
        return "-" if value is None else str(value)
    value = float(value)
    if math.isnan(value):
        return "-"
    if 100 <= abs(value) < 1e15 or (abs(value) < 100 and value.is_integer()):
        return f"{value:,.0f}"
    if 0.99 < value < 1:
        return f"{value:.{2 - math.floor(math.log10(1 - value))}f}"
    return f"{value:.4g}"


def rounded(value: float) -> float:
    """An interpolated batch size, rounded: to a whole number from 10 on, and to two digits below 10.

    >>> shown(rounded(19845.3)), shown(rounded(79.23)), shown(rounded(8.4567))
    ('19,845', '79', '8.5')
    """
    return float(round(value)) if 10 <= value < math.inf else float(f"{value:.2g}")


def brief(value: float, digits: int = 3) -> str:
    """A number for a sentence, rounded to a few digits, with commas between thousands up to a million.

    >>> brief(0.8551), brief(1847.2), brief(2), brief(6.4e9)
    ('0.855', '1,850', '2', '6.4e+09')
    """
    value = float(f"{value:.{digits}g}")
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.{digits}g}"


def spelled(values: Iterable[float], digits: int = 3) -> str:
    """Numbers for a sentence, separated by commas.

    >>> spelled([0.8551, 2])
    '0.855, 2'
    """
    return ", ".join(brief(v, digits) for v in values)


def percent(share: float) -> str:
    """A fraction as a percentage to two digits; from 10 on it is given as a multiple, and NaN is not known.

    >>> percent(0.0468), percent(0.3), percent(0.00109), percent(0.9956), percent(1.234), percent(6.4e7), percent(math.nan)
    ('4.7%', '30%', '0.11%', '100%', '123%', '6.4e+07 times', 'unknown')
    """
    if math.isnan(share):
        return "unknown"
    if share >= 10:
        return f"{share:.2g} times"
    return f"{100 * share:.0f}%" if share >= 0.995 else f"{100 * share:.2g}%"


def exact(value: float) -> str:
    """A number for a command line, with as many digits as it takes to read it back exactly.

    >>> exact(1024.0), exact(1 - 2**-20), exact(math.inf)
    ('1024', '0.9999990463256836', 'inf')
    """
    return f"{value:g}" if float(value) == float(f"{value:g}") else repr(value)
