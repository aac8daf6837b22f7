"""The size of the processors' largest cache."""

from __future__ import annotations

from pathlib import Path

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def largest_cache(root: Path = Path("/")) -> int:
    """Bytes of the largest cache that the first processor has, shared with others or not; 0 where nobody says it.

    Args:
      root: under which `sys` is.
    """
    sizes = [_bytes(file.read_text().strip()) for file in root.glob("sys/devices/system/cpu/cpu0/cache/index*/size")]
    return max(sizes, default=0)


def _bytes(text: str) -> int:
    number = text.rstrip("".join(_UNITS))
    return int(number) * _UNITS.get(text[len(number) :], 1) if number.isdecimal() else 0
