"""The size of the processors' largest cache."""

from __future__ import annotations

from pathlib import Path

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def largest_cache(root: Path = Path("/")) -> int:
    """The bytes of the first processor's largest cache, which others may share; 0 if the system does not tell.

    Args:
      root: the folder with `sys`.
    """
    sizes = [_bytes(file.read_text().strip()) for file in root.glob("sys/devices/system/cpu/cpu0/cache/index*/size")]
    return max(sizes, default=0)


def _bytes(text: str) -> int:
    number = text.rstrip("".join(_UNITS))
    return int(number) * _UNITS.get(text[len(number) :], 1) if number.isdecimal() else 0
