"""Python's operators on tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshtf.call_sites import says_where
from meshtf.errors import UsageError
from meshtf.tensor_face.registry import Face, registered

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor


_OBJECTS_COMPARED = """\
{other} of Python stands beside &, | or ^ of a tensor. If it is the result of == or != of two tensors, these compare \
objects: use mtf.equal or mtf.not_equal. If it is meant, use mtf.logical_and, logical_or or logical_xor"""


def _no_bool(other: Any) -> Any:
    """Refuses a bool of Python. It would hide a whole mask, and == of two tensors gives one."""
    if isinstance(other, bool):
        raise UsageError(_OBJECTS_COMPARED.format(other=other))
    return other


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

    @says_where
    def __and__(self, other: Any) -> Tensor:
        return registered("logical_and")(self, self._operand(_no_bool(other)))

    __rand__ = __and__

    @says_where
    def __or__(self, other: Any) -> Tensor:
        return registered("logical_or")(self, self._operand(_no_bool(other)))

    __ror__ = __or__

    @says_where
    def __xor__(self, other: Any) -> Tensor:
        return registered("logical_xor")(self, self._operand(_no_bool(other)))

    __rxor__ = __xor__

    def __invert__(self) -> Tensor:
        return registered("logical_not")(self)
