"""Python's operators on tensors. What they do is registered by `meshtf.ops`, which stands above the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meshtf.symbolic_values import SymbolicValue

if TYPE_CHECKING:
    from meshtf.graph import Tensor

_registered: dict[str, Callable[..., Any]] = {}


def register_operators(**functions: Callable[..., Any]) -> None:
    """Says which functions the operators call, by the functions' names: `add` is what `x + y` and `1 + y` call."""
    _registered.update(functions)


class TensorOperators(SymbolicValue):
    """Base of `Tensor`: each operator is the operation of the language that bears its name."""

    def __add__(self, other: Any) -> Tensor:
        return _registered["add"](self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _registered["add"](other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _registered["sub"](self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _registered["sub"](other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _registered["multiply"](self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _registered["multiply"](other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _registered["divide"](self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _registered["divide"](other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return _registered["floordiv"](self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return _registered["floordiv"](other, self)

    def __mod__(self, other: Any) -> Tensor:
        return _registered["mod"](self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return _registered["mod"](other, self)

    def __pow__(self, other: Any) -> Tensor:
        return _registered["pow"](self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return _registered["pow"](other, self)

    def __neg__(self) -> Tensor:
        return _registered["negative"](self)

    def __abs__(self) -> Tensor:
        return _registered["abs"](self)

    def __lt__(self, other: Any) -> Tensor:
        return _registered["less"](self, other)

    def __le__(self, other: Any) -> Tensor:
        return _registered["less_equal"](self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _registered["greater"](self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _registered["greater_equal"](self, other)

    def __and__(self, other: Any) -> Tensor:
        return _registered["logical_and"](self, other)

    def __or__(self, other: Any) -> Tensor:
        return _registered["logical_or"](self, other)

    def __xor__(self, other: Any) -> Tensor:
        return _registered["logical_xor"](self, other)

    def __invert__(self) -> Tensor:
        return _registered["logical_not"](self)
