"""A layer's operands: their checks, and dimensions as users give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import meshtf as mtf
from meshtf.errors import GraphError

DimensionLike: TypeAlias = "mtf.Dimension | str | tuple[str, int]"
"""A dimension: an object, its name where an operand has it, or "name:size"."""

Dims: TypeAlias = "mtf.Shape | mtf.Dimension | str | tuple[str, int] | Iterable[DimensionLike]"
"""One dimension, or several in order, as a list or a text of names and sizes."""


def new_dimension(dim: DimensionLike, *operands: object) -> mtf.Dimension:
    """The dimension that a layer makes. A name alone has the size that it has in an operand.

    Raises:
      ShapeError: no operand has it, and no size is given.
    """
    return mtf.convert_to_shape([dim], [x.shape for x in operands if isinstance(x, mtf.Tensor)])[0]


def checked_operand(x: object, what: str) -> mtf.Tensor:
    """The operand, if it is a tensor of the language.

    Raises:
      GraphError: it is something else.
    """
    if not isinstance(x, mtf.Tensor):
        raise GraphError(
            f"{what} must be an mtf.Tensor, not {type(x).__name__}; bring values in as inputs of mtf.function, "
            f"or with mtf.constant or mtf.import_tf_tensor"
        )
    return x
