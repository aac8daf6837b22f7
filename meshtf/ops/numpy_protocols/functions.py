"""NumPy's other functions: `np.sum(x, axis="length")` is `x.sum("length")`. An axis is a dimension's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from meshtf.dimension import Dimension
from meshtf.errors import UsageError
from meshtf.graph.tensor import Tensor
from meshtf.tensor_face.registry import is_public, registered

_METHODS = {"amax": "max", "amin": "min", **{name: name for name in (
    "sum", "mean", "max", "min", "prod", "any", "all", "var", "std", "argmax", "argmin", "cumsum", "cumprod",
    "argsort",
)}}  # fmt: skip
"""Methods of tensors by the function's name."""

_ALONG_ONE = {"concatenate": "concat", "stack": "stack"}
"""Functions of several tensors and one axis."""

_INSTEAD = {
    "dot": "mtf.einsum([x, y], output_shape=[...])",
    "einsum": "mtf.einsum([x, y], output_shape=[...])",
    "inner": "mtf.einsum([x, y], output_shape=[...])",
    "matmul": "mtf.einsum([x, y], output_shape=[...])",
    "tensordot": "mtf.einsum([x, y], output_shape=[...])",
    "expand_dims": "nothing: operations broadcast by name",
    "broadcast_to": 'mtf.broadcast(x, "copies:2 ...")',
    "ndim": "x.shape.ndims",
    "ravel": 'x.reshape("elements:n")',
    "reshape": 'x.reshape("rows:2 columns:3")',
    "shape": "x.shape",
    "size": "x.size",
    "squeeze": 'x["dimension", 0]',
    "swapaxes": 'x.transpose("b", "a")',
    "take": 'x["dimension", indices]',
    "transpose": 'x.transpose("b", "a")',
}
"""The code to write instead of functions whose axes are numbers."""


def of_numpy_function(x: Tensor, function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The operation for `function(*args, **options)`, one of which is the tensor x.

    Raises:
      UsageError: there is no such operation, or it does not take these arguments.
    """
    name = function.__name__
    call = _CALLS.get(name)
    if call is None:
        instead = _INSTEAD.get(name) or (f"mtf.{name}" if is_public(name) else "mtf's functions")
        raise UsageError(f"numpy.{name} does not take {x}; use {instead}")
    try:
        inspect.signature(call).bind(*args, **options)
    except TypeError as error:
        raise UsageError(f"numpy.{name}({', '.join(inspect.signature(call).parameters)}) of tensors: {error}") from None
    return call(*args, **options)


def _method(name: str, method: str) -> Callable[..., Tensor]:
    def call(a: Tensor, axis: Any = None) -> Tensor:
        if method.startswith(("arg", "cum")) and axis is None:
            raise _needs_axis(name, a)
        return getattr(a, method)(*([] if axis is None else [_named(name, a, axis)]))

    return call


def _along_one(name: str, operation: str) -> Callable[..., Tensor]:
    def call(arrays: Sequence[Any], axis: Any = 0) -> Tensor:
        first = next(x for x in arrays if isinstance(x, Tensor))
        return registered(operation)(list(arrays), _named(name, first, axis))

    return call


def _in_order(name: str, operation: str) -> Callable[..., Any]:
    """A function of a tensor, perhaps a number, and an axis."""

    def call(a: Tensor, *numbers: Any, axis: Any = None) -> Any:
        if axis is None:
            raise _needs_axis(name, a)
        dim = _named(name, a, axis)
        return registered(operation)(a, *((numbers[0], dim) if operation == "roll" else (dim, *numbers)))

    return call


def _where(condition: Any, x: Any = None, y: Any = None) -> Tensor:
    if x is None or y is None:
        raise UsageError("the number of true elements is unknown while the graph is built; use mtf.where(mask, x, 0)")
    return registered("where")(condition, x, y)


def _clip(a: Any, a_min: Any, a_max: Any) -> Tensor:
    return registered("clip_by_value")(a, a_min, a_max)


def _named(name: str, x: Tensor, axis: Any) -> Any:
    """An axis that is a dimension's name, or several."""
    several = cast("Sequence[Any]", axis if isinstance(axis, list | tuple) else [axis])
    if all(isinstance(a, str | Dimension) for a in several):
        return cast("Any", axis)
    raise UsageError(f"axes of {x} have names, and {axis!r} is not a name; write numpy.{name}(x, axis={_example(x)})")


def _needs_axis(name: str, x: Tensor) -> UsageError:
    return UsageError(f"numpy.{name} of {x} needs the name of an axis; write numpy.{name}(x, axis={_example(x)})")


def _example(x: Tensor) -> str:
    return f'"{x.shape[0].name}"' if x.shape.ndims else '"length"'


def _same(operation: str) -> Callable[[Any], Tensor]:
    def call(a: Any) -> Tensor:
        return registered(operation)(a)

    return call


_CALLS: dict[str, Callable[..., Any]] = {
    **{name: _method(name, method) for name, method in _METHODS.items()},
    **{name: _along_one(name, operation) for name, operation in _ALONG_ONE.items()},
    **{name: _same(name) for name in ("round", "real", "imag", "angle", "zeros_like", "ones_like")},
    **{name: _in_order(name, name) for name in ("sort", "split", "roll")},
    "around": _same("round"),
    "clip": _clip,
    "flip": _in_order("flip", "reverse"),
    "where": _where,
}
