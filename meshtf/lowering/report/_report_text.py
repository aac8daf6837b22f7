"""Writes a report as text with a maximum line width, and as HTML for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.lowering.report._report_sections import headline, sections, totals
from meshtf.lowering.report.text_table import Section, shorten, table
from meshtf.markup import Markup, block, element, folded, grid

if TYPE_CHECKING:
    from meshtf.lowering.report.report import Report

_OPEN = 2
"""The tables that are unfolded at first: memory, and communication by kind."""

_MOST_ROWS = 500

_EMPTY = """\
  It assigns nothing and returns nothing, so nothing is lowered. For the program that returns some tensors:
      print(lowering.report([tensor, ...]))"""


def render(report: Report, *, tensors: bool, width: int) -> str:
    """Returns the whole text."""
    lines = [headline(report), *([_EMPTY] if _is_empty(report) else [])]
    lines += [shorten(f"  {name:<17} {text}", width) for name, text in totals(report)]
    for section in sections(report, tensors=tensors):
        lines += ["", section.title, *table(section.columns, section.rows, width)]
    return "\n".join(lines)


def render_html(report: Report) -> Markup:
    """Returns the report as HTML, with a foldable part for each table."""
    parts = [element("p", element("b", headline(report)))]
    if _is_empty(report):
        parts.append(element("p", _EMPTY.strip(), class_="soft"))
    parts.append(grid((), totals(report)))
    tables = sections(report, tensors=True)
    parts += [folded(section.title, section_html(section), is_open=i < _OPEN) for i, section in enumerate(tables)]
    return block(*parts)


def section_html(section: Section) -> Markup:
    """Returns a table as HTML, with the first rows if there are very many."""
    titles, numbers = [c.title for c in section.columns], [c.is_number for c in section.columns]
    rows = [row if isinstance(row, str) else [cell.strip() for cell in row] for row in section.rows]
    more = [f"and {len(rows) - _MOST_ROWS} more rows"] if len(rows) > _MOST_ROWS else []
    return grid(titles, [*rows[:_MOST_ROWS], *more], numbers)


def _is_empty(report: Report) -> bool:
    return not (report.variables or report.results or report.collectives)
