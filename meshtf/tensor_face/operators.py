"""Python's operators on tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshtf.tensor_face.registry import Face, registered

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor


class Operators(Face):
    """Python's operators on tensors. Each calls the operation of the same meaning, such as `mtf.add` for `+`."""

    def _operand(self, other: Any) -> Any:
        """The other operand of an operator, in the form that the graph takes."""
        return other

    def __add__(self, other: Any) -> Tensor:
        return registered("add")(self, self._operand(other))

    def __radd__(self, other: Any) -> Tensor:
        return registered("add")(self._operand(other), self)

    def __sub__(self, other: Any) -> Tensor:
        return registered("sub")(self, self._operand(other))

    def __rsub__(self, other: Any) -> Tensor:
        return registered("sub")(self._operand(other), self)

    def __mul__(self, other: Any) -> Tensor:
        return registered("multiply")(self, self._operand(other))

    def __rmul__(self, other: Any) -> Tensor:
        return registered("multiply")(self._operand(other), self)

    def __truediv__(self, other: Any) -> Tensor:
        return registered("divide")(self, self._operand(other))

    def __rtruediv__(self, other: Any) -> Tensor:
        return registered("divide")(self._operand(other), self)

    def __floordiv__(self, other: Any) -> Tensor:
        return registered("floordiv")(self, self._operand(other))

    def __rfloordiv__(self, other: Any) -> Tensor:
        return registered("floordiv")(self._operand(other), self)

    def __mod__(self, other: Any) -> Tensor:
        return registered("mod")(self, self._operand(other))

    def __rmod__(self, other: Any) -> Tensor:
        return registered("mod")(self._operand(other), self)

    def __pow__(self, other: Any) -> Tensor:
        return registered("pow")(self, self._operand(other))

    def __rpow__(self, other: Any) -> Tensor:
        return registered("pow")(self._operand(other), self)

    def __neg__(self) -> Tensor:
        return registered("negative")(self)

    def __abs__(self) -> Tensor:
        return registered("abs")(self)

    def __lt__(self, other: Any) -> Tensor:
        return registered("less")(self, self._operand(other))

    def __le__(self, other: Any) -> Tensor:
        return registered("less_equal")(self, self._operand(other))

    def __gt__(self, other: Any) -> Tensor:
        return registered("greater")(self, self._operand(other))

    def __ge__(self, other: Any) -> Tensor:
        return registered("greater_equal")(self, self._operand(other))

    def __and__(self, other: Any) -> Tensor:
        return registered("logical_and")(self, self._operand(other))

    def __or__(self, other: Any) -> Tensor:
        return registered("logical_or")(self, self._operand(other))

    def __xor__(self, other: Any) -> Tensor:
        return registered("logical_xor")(self, self._operand(other))

    def __invert__(self) -> Tensor:
        return registered("logical_not")(self)
