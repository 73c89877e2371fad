"""An HTML page in one file, with its stylesheet and pictures inside.

Each function takes plain values, escapes them and returns a part as HTML; `page` joins parts.
"""

from __future__ import annotations

import base64
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version

from .numbers import shown
from .tables import Table, header

VERSIONED_PACKAGES = ("nqm", "numpy", "scipy", "torch", "scikit-learn", "distributed")
LONG_CELL = 24  # A cell with more characters may wrap, and its column is aligned to the left.
STYLESHEET = """
:root { color-scheme: light dark; --line: #8884; --quiet: #888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: .2rem; line-height: 1.2; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
figure { margin: 1rem 0; } img { max-width: 100%; background: #fff; border-radius: 4px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, td.text, th.text { text-align: left; white-space: normal; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid var(--line); border-radius: 4px; font-size: 13px; }
blockquote { margin: .5rem 0; padding-left: 1rem; border-left: 3px solid #0072B2; font-size: 1.1rem; }
dt { font-weight: 600; float: left; clear: left; width: 6.5rem; } dd { margin: 0 0 .4rem 7rem; }
.holds { color: #009e73; } .partly { color: #b87800; } .fails { color: #d55e00; } .open, .untested, .quiet { color: var(--quiet); }
"""


@dataclass(frozen=True)
class Marked:
    """A text with a class of the stylesheet, with a link to a section of the page, or with both."""

    text: str
    style: str = ""
    section: str = ""

    def __str__(self) -> str:
        text = f'<a href="#{escape(self.section)}">{escape(self.text)}</a>' if self.section else escape(self.text)
        return f'<span class="{self.style}">{text}</span>' if self.style else text


def page(title: str, *parts: str) -> str:
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f"{meta}<title>{escape(title)}</title><style>{STYLESHEET}</style>"
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def section(title: str, *parts: str, name: str = "") -> str:
    """A heading and the parts below it; links to the section use its ``name``."""
    return "\n".join([f'<h2 id="{escape(name)}">{escape(title)}</h2>' if name else f"<h2>{escape(title)}</h2>", *parts])


def paragraph(text: str, style: str = "") -> str:
    return f'<p class="{style}">{escape(text)}</p>' if style else f"<p>{escape(text)}</p>"


def quote(text: str) -> str:
    return f"<blockquote>{escape(text)}</blockquote>"


def code(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def picture(png: bytes, alt: str, width: int | None = None) -> str:
    """A PNG image embedded in the page, in its own size or ``width`` pixels wide."""
    size = "" if width is None else f' width="{width}"'
    data = base64.b64encode(png).decode("ascii")
    return f'<figure><img alt="{escape(alt)}"{size} src="data:image/png;base64,{data}"></figure>'


def entries(pairs: Iterable[tuple[str, str | Marked]]) -> str:
    """A list of terms, each with a text about it."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{_written(text)}</dd>\n" for name, text in pairs) + "</dl>"


def pairs(values: Mapping[str, object]) -> str:
    """A table of names and values."""
    rows = "".join(f'<tr><td>{escape(k)}</td><td class="text">{_written(v)}</td></tr>\n' for k, v in values.items())
    return f'<div class="scroll"><table>{rows}</table></div>'


def table(rows: Table) -> str:
    """A table with a header; columns with long texts are aligned to the left."""
    if not rows:
        return "<p>Nothing to show.</p>"
    names = header(rows)
    style = {name: ' class="text"' if any(_long(row.get(name)) for row in rows) else "" for name in names}
    head = "".join(f"<th{style[name]}>{escape(name.replace('_', ' '))}</th>" for name in names)
    lines = ("".join(f"<td{style[name]}>{_written(row.get(name))}</td>" for name in names) for row in rows)
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that numbers may depend on."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in VERSIONED_PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _written(value: object) -> str:
    return str(value) if isinstance(value, Marked) else escape(shown(value))


def _long(value: object) -> bool:
    text = value.text if isinstance(value, Marked) else value
    return isinstance(text, str) and len(text) > LONG_CELL
