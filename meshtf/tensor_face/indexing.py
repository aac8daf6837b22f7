"""Brackets of tensors: `x["n", 0]`, and `x.at["n", 0].set(v)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeAlias

from meshtf.call_sites import says_where, tensor_method
from meshtf.dimension import Dimension
from meshtf.errors import UsageError
from meshtf.tensor_face.registry import Face, registered

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor

Name: TypeAlias = "str | Dimension"
Index: TypeAlias = "SupportsIndex | slice | Tensor"
TwoIndices: TypeAlias = "tuple[Name, Index, Name, Index]"
ThreeIndices: TypeAlias = "tuple[Name, Index, Name, Index, Name, Index]"
IndexDict: TypeAlias = "Mapping[str, Index] | Mapping[Dimension, Index]"
Brackets: TypeAlias = "tuple[Name, Index] | TwoIndices | ThreeIndices | IndexDict"
"""A dimension and its index, two or three such pairs, or a dict of any number."""


class Indexing(Face):
    """Elements by index along named dimensions."""

    @tensor_method("x[...]")
    def __getitem__(self, brackets: Brackets) -> Tensor:
        """Elements at indices along dimensions, as in `x["n", 0]`, `x["n", 1:-1:2]`, `x[{"n": 0, "m": slice(1, 3)}]`.

        A number takes one element and removes the dimension. A slice takes several; its step may be negative. An index
        tensor of integers (`x["vocab", ids]`) looks up each of its elements. Its dimensions replace the indexed
        dimension. A dimension that it shares with x has the same index in both. An index that the program computes
        gives zeros where it is negative or too large; see `mtf.gather`.

        Raises:
          ShapeError: the tensor lacks a dimension, or an index is no number, slice or tensor.
          IndexRangeError: an index that is already known is outside its dimension.
          UsageError: an index without its dimension, a mask, or a slice whose ends the program computes.
          DtypeError: an index tensor is not int32 or int64.
        """
        return registered("take")(self, brackets)

    @property
    def at(self) -> At:
        """Chooses places by brackets, for a new tensor with other elements there: `x.at["length", i].set(v)`."""
        return At(self)


_OF_TENSORS = (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod"),
    *("pow", "rpow", "matmul", "rmatmul", "and", "rand", "or", "ror", "xor", "rxor", "neg", "abs", "invert"),
    *("eq", "ne", "lt", "le", "gt", "ge", "bool", "float", "int", "len", "iter", "getitem", "array"),
)
"""The names of special methods that tensors have, without their underscores."""


class _NoTensor:
    """The base of `x.at` and `x.at[...]`. Using one as a tensor is an error that says what to write."""

    why_no_tensor = ""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UsageError(self.why_no_tensor)


for _name in _OF_TENSORS:
    setattr(_NoTensor, f"__{_name}__", says_where(_NoTensor._refuse))


class At(_NoTensor):
    """The attribute `x.at`: brackets after it choose places in x."""

    def __init__(self, x: Any) -> None:
        self._x: Tensor = x
        name = x.shape[0].name if x.shape.ndims else "length"
        self.why_no_tensor = f'x.at is not a tensor; choose places in brackets, as in y = x.at["{name}", 0].set(v)'

    @tensor_method("x.at[...]")
    def __getitem__(self, brackets: Brackets) -> Places:
        """The places in x at these indices, which are written as in `x[...]`."""
        return Places(self._x, registered("picks")(self._x, brackets))

    @says_where
    def __setitem__(self, brackets: object, value: object) -> NoReturn:
        name = self._x.shape[0].name if self._x.shape.ndims else "length"
        raise UsageError(
            f'x.at[...] = v changes nothing, since tensors stay as they are; write y = x.at["{name}", 0].set(v)'
        )

    if not TYPE_CHECKING:  # a type checker would take it for a promise of every attribute

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{self.why_no_tensor}, and not x.at.{name}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"at of {self._x}"


class Places(_NoTensor):
    """Places in x, as `x.at[...]`. `set` and `add` make a new tensor with other elements there; x stays as it is."""

    why_no_tensor = (
        "x.at[...] names places in x, and is no tensor; read their elements as x[...], or change them with "
        "x.at[...].set(v) or x.at[...].add(v)"
    )

    def __init__(self, x: Tensor, picks: Any) -> None:
        self._x = x
        self._picks = picks

    @tensor_method("x.at[...].set")
    def set(self, value: Tensor | float) -> Tensor:
        """x with this value at the places. An index that the program computes does nothing where it is out of range.

        If several indices select one place, the last one counts, in row-major order of the index tensor. See
        `mtf.scatter_update` and `mtf.dynamic_update_slice`.

        Args:
          value: a number, or a tensor in x's dtype over dimensions of `x[...]`, which is broadcast to it.

        Raises:
          ShapeError: the value has a dimension that the places lack, or two index tensors share one that x lacks.
          DtypeError: the dtypes differ, or x cannot hold the number.
        """
        return registered("set_at")(self._x, self._picks, value)

    @tensor_method("x.at[...].add")
    def add(self, value: Tensor | float) -> Tensor:
        """x plus this value at the places. If several indices select one place, all are added. See `mtf.scatter_add`.

        Args:
          value: a number, or a tensor in x's dtype over dimensions of `x[...]`, which is broadcast to it.

        Raises:
          ShapeError: the value has a dimension that the places lack.
          DtypeError: the dtypes differ or are bool, or x cannot hold the number.
        """
        return registered("add_at")(self._x, self._picks, value)

    @says_where
    def __iadd__(self, value: object) -> NoReturn:
        raise UsageError("x.at[...] += v changes nothing, since tensors stay as they are; write y = x.at[...].add(v)")

    if not TYPE_CHECKING:  # a type checker would take it for a promise of every attribute

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"places in a tensor have only set and add, not {name!r}; write x.at[...].set(f(x[...]))",
                name=name,
                obj=self,
            )

    def __repr__(self) -> str:
        return f"{', '.join(map(str, self._picks))} of {self._x}"
