"""Numbers that must be known while the graph is built."""

from __future__ import annotations

import operator

from meshtf.errors import ShapeError


def whole_number(x: object, what: str) -> int:
    """A Python or NumPy whole number. ShapeError, which names `what` it is, for anything else."""
    try:
        return operator.index(x)  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"{what} must be a whole number known now, not {x!r}") from None
