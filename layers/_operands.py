"""What a layer is given, checked before anything is asked of it."""

from __future__ import annotations

import meshtf as mtf
from meshtf.errors import GraphError


def checked_operand(x: object, what: str) -> mtf.Tensor:
    """GraphError for what is no tensor of the language."""
    if not isinstance(x, mtf.Tensor):
        raise GraphError(
            f"{what} must be an mtf.Tensor, not {type(x).__name__}; bring values in as inputs of mtf.function, "
            f"or with mtf.constant or mtf.import_tf_tensor"
        )
    return x
