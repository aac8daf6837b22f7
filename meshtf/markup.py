"""HTML for notebooks: escaped text, tables and collapsible sections. It has no script and loads nothing.

Colours follow the theme of Jupyter or VS Code, or else the reader's preference for dark or light.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_STYLE = """\
.mtf{--ink:#1b2330;--soft:#566173;--line:#d9dee6;--page:#fff;--strength:58%;--light:82%;color:var(--ink);\
background:var(--page);font:14px/1.45 system-ui,sans-serif;padding:.4rem .6rem;max-width:78rem;overflow-x:auto}
@media (prefers-color-scheme:dark){.mtf{--ink:#e7ebf1;--soft:#a2adbd;--line:#3a4452;--page:#171c24;--strength:42%;\
--light:30%}}
[data-jp-theme-light=true] .mtf,.vscode-light .mtf{--ink:#1b2330;--soft:#566173;--line:#d9dee6;--page:#fff;\
--strength:58%;--light:82%}
[data-jp-theme-light=false] .mtf,.vscode-dark .mtf{--ink:#e7ebf1;--soft:#a2adbd;--line:#3a4452;--page:#171c24;\
--strength:42%;--light:30%}
.mtf table{border-collapse:collapse;margin:.3rem 0;font-size:13px;color:inherit;background:none}
.mtf th,.mtf td{border:1px solid var(--line);padding:.15rem .5rem;text-align:left;vertical-align:top;color:inherit;\
background:none;white-space:pre-wrap;overflow-wrap:anywhere}
.mtf th{color:var(--soft);font-weight:600}
.mtf .number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.mtf td.core{text-align:center;vertical-align:middle;white-space:nowrap;\
background:hsl(var(--hue) var(--strength) var(--light))}
.mtf td small{display:block;color:var(--ink);opacity:.75}
.mtf code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.95em;background:none;color:inherit}
.mtf details{margin:.25rem 0}
.mtf summary{cursor:pointer}
.mtf p{margin:.2rem 0}
.mtf .soft{color:var(--soft)}"""


class Markup(str):
    """Text that is HTML already. Other text is escaped when it is inserted into HTML."""

    __slots__ = ()


def element(tag: str, *content: str, **attributes: str) -> Markup:
    """An element with escaped content and attributes. `class_` sets the attribute `class`."""
    given = "".join(f' {name.strip("_")}="{html.escape(value)}"' for name, value in attributes.items())
    return Markup(f"<{tag}{given}>{''.join(map(escaped, content))}</{tag}>")


def escaped(text: str) -> str:
    """The text as HTML."""
    return text if isinstance(text, Markup) else html.escape(text)


def joined(parts: Iterable[str]) -> Markup:
    """Concatenates parts, escaped."""
    return Markup("".join(map(escaped, parts)))


def folded(summary: str, *content: str, is_open: bool = False) -> Markup:
    """A collapsible section, which opens when its summary is clicked."""
    inside = joined([element("summary", summary), *content])
    return element("details", inside, open="") if is_open else element("details", inside)


def grid(titles: Sequence[str], rows: Iterable[Sequence[str] | str], numbers: Sequence[bool] = ()) -> Markup:
    """A table. A row given as one string is a heading across all columns.

    Args:
      titles: the columns' titles; empty for a table without titles.
      rows: the rows' cells.
      numbers: which columns hold numbers, and are aligned to the right.
    """
    heads = [_cell("th", title, i < len(numbers) and numbers[i]) for i, title in enumerate(titles)]
    lines = [element("tr", *heads)] if titles else []
    for row in rows:
        if isinstance(row, str):
            lines.append(element("tr", element("th", row, colspan=str(max(1, len(titles))))))
        else:
            cells = [_cell("td", text, i < len(numbers) and numbers[i]) for i, text in enumerate(row)]
            lines.append(element("tr", *cells))
    return element("table", *lines)


def _cell(tag: str, text: str, is_number: bool) -> Markup:
    if isinstance(text, Markup) and text.startswith("<td "):
        return text
    return element(tag, text, class_="number") if is_number else element(tag, text)


def block(*content: str) -> Markup:
    """A complete view, with its style sheet."""
    return element("div", element("style", Markup(_STYLE)), *content, class_="mtf")
