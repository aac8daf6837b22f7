"""Checks of a layer's operands, before the layer asks anything of them."""

from __future__ import annotations

import meshtf as mtf
from meshtf.errors import GraphError


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
