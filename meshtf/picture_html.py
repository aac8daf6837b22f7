"""A picture of a layout as HTML: a table of the tensor's blocks, with the cores that hold each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshtf.errors import counted
from meshtf.markup import Markup, block, element, folded, grid, joined

if TYPE_CHECKING:
    from meshtf.visualize import LayoutPicture

_MOST_LINES = 32
"""The most rows, and the most columns, of a table that are shown."""
_MOST_TEXT = 48
"""The most characters of a list of cores."""


def picture_html(picture: LayoutPicture) -> Markup:
    """A picture as HTML. If more than two dimensions are split, each part of the others has a collapsible table."""
    panels = picture.shown_panels
    tables = [(place, _panel(picture, numbers)) for place, numbers in panels.items()]
    if len(tables) == 1:
        shown = [tables[0][1]]
    else:
        shown = [folded(place, table, is_open=i == 0) for i, (place, table) in enumerate(tables)]
    slice_ = " x ".join(f"{n:,}" for n in picture.layout.slice_shape(picture.shape, picture.mesh_shape)) or "one number"
    parts = f"{counted(len(picture.blocks), 'part')} of at most {slice_}, on {counted(picture.mesh_shape.size, 'core')}"
    return block(element("p", element("b", picture.title)), element("p", parts, class_="soft"), *shown)


def _panel(picture: LayoutPicture, numbers: Sequence[int]) -> Markup:
    down, right = picture.drawn_dimensions
    rows: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    for number in numbers:
        bounds = picture.blocks[number].bounds
        row = bounds[down] if down is not None else (0, 1)
        rows.setdefault(row, {})[bounds[right] if right is not None else (0, 1)] = number
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    corner = " \\ ".join(str(picture.shape[axis]) for axis in (down, right) if axis is not None)
    titles = [corner, *(_bounds(c) if right is not None else "" for c in columns[:_MOST_LINES])]
    if len(columns) > _MOST_LINES:
        titles.append(f"and {len(columns) - _MOST_LINES} more")
    lines: list[list[str] | str] = [
        [_bounds(row) if down is not None else "", *(_cell(picture, cells[c]) for c in columns[:_MOST_LINES])]
        for row, cells in list(rows.items())[:_MOST_LINES]
    ]
    if len(rows) > _MOST_LINES:
        lines.append(f"and {len(rows) - _MOST_LINES} more rows")
    return grid(titles, lines)


def _bounds(bounds: tuple[int, int]) -> str:
    return f"{bounds[0]}:{bounds[1]}"


def _cell(picture: LayoutPicture, number: int) -> Markup:
    own = picture.blocks[number]
    text = picture.cores_text(own)
    if len(text) > _MOST_TEXT:
        text = f"{text[: _MOST_TEXT - 1]}…"
    noun = "core" if len(own.cores) == 1 else "cores"
    copies = element("small", counted(len(own.cores), "copy", "copies")) if len(own.cores) > 1 else Markup("")
    content = joined([f"{noun} {text}", copies])
    return element("td", content, class_="core", title=own.text(picture.shape), style=f"--hue:{picture.hues[number]}")
