"""Aligned columns of plain text, and numbers with units."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

_INDENT = "  "
_GAP = "  "
_NARROWEST = 16
"""The smallest width to which a column is shortened if the lines are too long."""
_KEPT = ("gradient of ", "update of ")
"""Words before a name that stay if its beginning is cut off."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `keeps` says which end of a text stays if it must be shortened. With "all" it is
    never shortened.
    """

    title: str
    is_number: bool = False
    keeps: Literal["all", "start", "end"] = "all"


Row: TypeAlias = "Sequence[str] | str"
"""The cells of a row; or a heading, over all columns."""


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A table with its title."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def table(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[str]:
    """Returns the lines of a table: titles, then rows, each at most `width` long if shortening can achieve it."""
    cells = [row for row in rows if not isinstance(row, str)]
    widths = _widths(columns, cells, width)
    titles = _line(columns, widths, [c.title for c in columns])
    return [titles, *(_INDENT + row if isinstance(row, str) else _line(columns, widths, row) for row in rows)]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    widths = [max([len(c.title), *(len(row[i]) for row in rows)]) for i, c in enumerate(columns)]
    while (excess := len(_INDENT) + sum(widths) + len(_GAP) * (len(columns) - 1) - width) > 0:
        wide = [i for i, c in enumerate(columns) if c.keeps != "all" and widths[i] > _NARROWEST]
        if not wide:
            break
        widest = max(wide, key=widths.__getitem__)
        second = max((widths[i] for i in wide if i != widest), default=_NARROWEST)
        widths[widest] = max(_NARROWEST, widths[widest] - excess, min(second, widths[widest]) - 1)
    return widths


def shorten(text: str, width: int, keeps: Literal["all", "start", "end"] = "start") -> str:
    """Returns the text, or one end of it with an ellipsis. "gradient of" and "update of" stay."""
    if len(text) <= width or keeps == "all":
        return text
    if keeps == "start":
        return f"{text[: width - 1]}…"
    kept = next((words for words in _KEPT if text.startswith(words) and width > len(words)), "")
    return f"{kept}…{text[len(text) - width + len(kept) + 1 :]}"


def wrapped(text: str, width: int) -> str:
    """Returns the text in lines of at most `width` letters. A line ends at a separator of a name or a layout if it
    can."""
    lines = [""]
    for part in _fitting(text, width, (r"[^\s./;,]*[\s./;,]*", r"[^_:=(@+-]*[_:=(@+-]*", r".")):
        if len((lines[-1] + part).rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def _fitting(text: str, width: int, joints: Sequence[str]) -> Iterator[str]:
    """Yields the parts of a text between separators of the first kind. A part that is too long is divided at the next
    kind.
    """
    for part in filter(None, re.findall(joints[0], text, re.DOTALL)):
        fits = len(part.rstrip()) <= width or len(joints) == 1
        yield from [part] if fits else _fitting(part, width, joints[1:])


def bytes_text(n: float) -> str:
    """Returns text such as `1.5 MiB`. If texts are right-aligned in a column, their units are aligned."""
    return _with_unit(n if math.isinf(n) else round(n), 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def size_text(n: float) -> str:
    """Returns text such as `1.5 MiB` for a sentence, where nothing is aligned."""
    return bytes_text(n).strip()


def flops_text(n: int) -> str:
    """Returns text such as `51.4 MFLOP`."""
    return _with_unit(n, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"))


def seconds_text(seconds: float) -> str:
    """Returns text such as `2.83 ms`: three digits, in the unit that fits the rounded number."""
    rounded = float(f"{seconds:.3g}")
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if rounded >= size:
            return f"{rounded:,.0f} s" if rounded >= 1000 else f"{rounded / size:.3g} {unit}"
    return f"{rounded * 1e6:.3g} us"


def _with_unit(n: float, base: int, units: Sequence[str]) -> str:
    value, unit = float(n), 0
    while base <= round(value, 1) < math.inf and unit < len(units) - 1:
        value, unit = value / base, unit + 1
    number = f"{n}" if unit == 0 else f"{value:.1f}"
    return f"{number} {units[unit]:<{len(units[1])}}"


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    fitted = [
        f"{shorten(cell, width, c.keeps):{'>' if c.is_number else '<'}{width}}"
        for c, width, cell in zip(columns, widths, cells, strict=True)
    ]
    return (_INDENT + _GAP.join(fitted)).rstrip()
