"""NumPy's elementwise functions: `np.exp(x)` is `mtf.exp(x)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from meshtf.errors import UsageError
from meshtf.graph.tensor import Tensor
from meshtf.tensor_face.registry import is_public, registered

UNDER_ANOTHER_NAME = {
    "absolute": "abs",
    "conjugate": "conj",
    "fabs": "abs",
    "floor_divide": "floordiv",
    "invert": "bitwise_not",
    "isfinite": "is_finite",
    "isinf": "is_inf",
    "isnan": "is_nan",
    "positive": "identity",
    "power": "pow",
    "remainder": "mod",
    "rint": "round",
    "subtract": "sub",
}
"""The operations whose name differs from their ufunc's, by the ufunc's name."""

_OF_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min",
                  "logical_and": "all", "logical_or": "any"}  # fmt: skip


def of_ufunc(x: Tensor, function: Any, method: str, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Tensor:
    """The operation for `function(*inputs)`.

    Raises:
      UsageError: there is no such operation, or it does not take this method or these options.
    """
    name = function.__name__
    if method != "__call__":
        instead = _OF_REDUCTIONS.get(name) if method == "reduce" else None
        example = f"; write x.{instead}({_first(x)})" if instead else ""
        raise UsageError(f"numpy.{name}.{method} does not take {x}{example}")
    if options:
        raise UsageError(f"numpy.{name} does not take {', '.join(options)} together with {x}; use mtf's functions")
    return _operation(x, name)(*inputs)


def _operation(x: Tensor, name: str) -> Callable[..., Tensor]:
    own = UNDER_ANOTHER_NAME.get(name, name)
    if x.dtype == tf.bool:  # NumPy has one function for bits and for truth values
        own = own.replace("bitwise_", "logical_")
    if name in ("equal", "not_equal"):  # also of array == x, while x == array is refused
        raise UsageError(
            f"{x} has no value while the graph is built; to compare elements, use mtf.{name}, not numpy.{name}"
        )
    if name == "matmul":
        raise UsageError(f"{x} has no @: name what is kept, as in mtf.einsum([x, y], output_shape=[...])")
    if not is_public(own):
        raise UsageError(f"mtf has no function like numpy.{name}; build it from others, or use mtf.slicewise")
    return registered(own)


def _first(x: Tensor) -> str:
    return f'"{x.shape[0].name}"' if x.shape.ndims else ""
