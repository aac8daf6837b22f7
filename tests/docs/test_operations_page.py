"""docs/operations.md lists every public operation, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import meshtf as mtf
from meshtf import ops

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def listed() -> set[str]:
    """The names in the first column of the page's tables."""
    first_cells = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(), re.MULTILINE)
    return {name for cell in first_cells for name in re.findall(r"`(\w+)", cell)}


def test_every_public_operation_is_listed() -> None:
    assert set(ops.__all__) - listed() == set()


def test_every_listed_operation_is_public() -> None:
    assert listed() - set(mtf.__all__) == set()
