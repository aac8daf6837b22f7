"""A policy refuses formats and sizes that there are not."""

from __future__ import annotations

import pytest

from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.quantization import Quantization

pytestmark = pytest.mark.quick


def test_mistakes_are_told() -> None:
    with pytest.raises(DtypeError, match="one of int8, int4, float8_e4m3, and is 'int6'; did you mean"):
        Quantization("int6")
    for size in (0, True, 2.0):
        with pytest.raises(ShapeError, match="group_size must be an integer, 1 or more, or None, and is"):
            Quantization("int4", size)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="floating must be a list of names of scopes, and is 'logits'"):
        Quantization(floating="logits")
