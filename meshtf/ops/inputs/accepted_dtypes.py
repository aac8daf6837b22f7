"""The dtypes that an elementwise operation accepts."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from meshtf.errors import DtypeError
from meshtf.graph.tensor import Tensor

FLOATING, REAL, NUMBER, SIGNED, ORDERED = "floating", "real", "number", "signed", "ordered"
INTEGER, BOOL, ANY = "integer", "bool", "any"

_ACCEPTS: dict[str, Callable[[tf.DType], bool]] = {
    FLOATING: lambda d: d.is_floating or d.is_complex,
    REAL: lambda d: d.is_floating,
    NUMBER: lambda d: d != tf.bool,
    SIGNED: lambda d: d != tf.bool and not d.is_unsigned,
    ORDERED: lambda d: d != tf.bool and not d.is_complex,
    INTEGER: lambda d: d.is_integer,
    BOOL: lambda d: d == tf.bool,
    ANY: lambda d: True,
}

_WANTED = {
    FLOATING: "a floating tensor",
    REAL: "a real floating tensor",
    NUMBER: "a number",
    SIGNED: "a number that may be negative",
    ORDERED: "a real number",
    INTEGER: "a tensor of integers",
    BOOL: "a bool tensor",
}


def require(x: Tensor, accepted: str) -> None:
    """Checks that x has an accepted dtype.

    Raises:
      DtypeError: its dtype is not accepted.
    """
    if not _ACCEPTS[accepted](x.dtype):
        how = "take mtf.real, mtf.imag or mtf.abs" if x.dtype.is_complex else "convert with mtf.cast"
        raise DtypeError(f"{_WANTED[accepted]} is needed, not {x.dtype.name}; {how}")
