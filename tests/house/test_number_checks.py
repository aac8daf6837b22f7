"""Values that are nearly numbers are refused: truth values, texts, what no float or 64-bit integer holds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from meshtf.number_checks import is_integer, is_number

pytestmark = pytest.mark.quick


def test_integers() -> None:
    assert all(is_integer(value, 0) for value in (0, 7, 2**63 - 1))
    assert not any(is_integer(value, 0) for value in (-1, 2**63, True, False, 1.0, "1", None))


def test_numbers() -> None:
    assert all(is_number(value) for value in (0, -1.5, Fraction(1, 3), np.float32(2), -(10**300)))
    assert not any(is_number(value) for value in (True, "1", None, 1j, float("nan"), float("-inf"), 10**400))
