"""Numbers as a page shows them, with the half of a last digit by which each may be rounded."""

from __future__ import annotations

import dataclasses
import re

DASH = "\u2013"

_UNITS = {
    "s": 1.0,
    "ms": 1e-3,
    "µs": 1e-6,
    "us": 1e-6,
    "%": 1e-2,
    "": 1.0,
    **{f"{prefix}FLOP": 1000.0**power for power, prefix in enumerate(["", "k", "M", "G", "T", "P"])},
    **{unit: 1024.0**power for power, unit in enumerate(["B", "KiB", "MiB", "GiB", "TiB", "PiB"])},
}
_OF_TIME = ("s", "ms", "µs", "us")
_NUMBER = re.compile(
    rf"(under )?(\d[\d,]*)(\.\d+)?(?: ({'|'.join(sorted(filter(None, _UNITS), key=len)[::-1])}))?(?!\w|\.\d)"
)


@dataclasses.dataclass(frozen=True)
class Shown:
    """A number that stands for any within `error` of it."""

    value: float
    error: float

    def __add__(self, other: Shown) -> Shown:
        return Shown(self.value + other.value, self.error + other.error)

    def __truediv__(self, whole: Shown) -> Shown:
        share = self.value / whole.value
        return Shown(share, self.error / whole.value + share * whole.error / whole.value)

    def agrees(self, other: Shown) -> bool:
        """Whether both may stand for the same number."""
        return abs(self.value - other.value) <= (self.error + other.error) * (1 + 1e-9)


def number(text: str) -> Shown:
    """The one number of a text: a dash is none of a size worth showing."""
    if text.strip() == DASH:
        return Shown(0.0, 1e-9)
    (found,) = numbers(text)
    return found


def numbers(text: str) -> list[Shown]:
    """All of a text, in order."""
    return [_shown(match) for match in _NUMBER.finditer(text)]


def total(parts: list[Shown]) -> Shown:
    return sum(parts, Shown(0.0, 0.0))


def _shown(match: re.Match[str]) -> Shown:
    under, whole, fraction, unit = match.groups()
    size = _UNITS[unit or ""]
    value = float(whole.replace(",", "") + (fraction or "")) * size
    if under:
        return Shown(value / 2, value / 2)
    digits = len(fraction) - 1 if fraction else 0
    if not fraction and unit in _OF_TIME:  # three digits: 123 ms, and 1,230 s
        return Shown(value, 0.5 * size * 10 ** max(0, len(whole.replace(",", "")) - 3))
    is_count = not fraction and unit in (None, "B", "FLOP")
    return Shown(value, 0.0 if is_count else 0.5 * 10.0**-digits * size)
