"""Tensors of a graph: outputs of operations, with a named shape and a dtype and no value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import tensorflow as tf

from meshtf.annotations.tensor_annotation import TensorAnnotation
from meshtf.call_sites import says_where
from meshtf.dimension import Shape
from meshtf.errors import DtypeError, GraphError
from meshtf.graph.unnamed_arrays import how_to_name
from meshtf.tensor_face.elements import Elements
from meshtf.tensor_face.indexing import Indexing
from meshtf.tensor_face.numpy_functions import NumpyFunctions
from meshtf.tensor_face.operators import Operators
from meshtf.tensor_face.rearranging import Rearranging
from meshtf.tensor_face.reductions import Reductions

if TYPE_CHECKING:
    from meshtf.graph.graph import Graph
    from meshtf.graph.mesh import Mesh
    from meshtf.graph.operation import Operation


class Tensor(Operators, Reductions, Elements, Rearranging, Indexing, NumpyFunctions):
    """A tensor over named dimensions: an output of an operation. It has no value while the graph is built.

    Attributes:
      operation: the operation that makes it.
      shape: its named shape.
      dtype: its element type.
      index: its number among the operation's outputs.

    Examples:
      >>> isinstance(x, mtf.Tensor), x.name, x.shape, x.dtype.name
      (True, 'x', Shape[batch:4 hidden:8], 'float32')
      >>> 1.0 - x / 2.0
      sub [batch:4 hidden:8] float32
      >>> x.mean("batch"), x["hidden", 2:4]
      (divide_1 [hidden:8] float32, slice [batch:4 hidden:2] float32)
    """

    @says_where
    def __class_getitem__(cls, text: object) -> Any:
        """The annotation of a tensor of any dtype, `mtf.Tensor["batch hidden:8"]`; see `mtf.checked`."""
        return TensorAnnotation(None)[text]

    def __init__(self, operation: Operation, shape: Shape, dtype: tf.DType, index: int = 0) -> None:
        self.operation = operation
        self.shape = shape
        self.dtype = dtype
        self.index = index

    @property
    def name(self) -> str:
        return f"{self.operation.name}:{self.index}" if self.index else self.operation.name

    @property
    def graph(self) -> Graph:
        return self.operation.graph

    @property
    def mesh(self) -> Mesh:
        return self.operation.mesh

    @property
    def size(self) -> int:
        return self.shape.size

    def _operand(self, other: Any) -> Any:
        return self.graph.operand(other, self)

    @property
    def is_overridden(self) -> bool:
        """Whether the layout comes, in part, from `with_layout` or `replicate`."""
        return self.operation.overrides_layout

    def __repr__(self) -> str:
        return f"{self.name} [{self.shape}] {self.dtype.name}"


def check_tensor(x: object, what: str = "operand", *, beside: object = None) -> Tensor:
    """x, if it is a tensor.

    Raises:
      GraphError: it is none. If it is an array, the message says how to name its dimensions like those of `beside`.
    """
    if not isinstance(x, Tensor):
        raise GraphError(
            f"the {what} must be an mtf.Tensor, not {type(x).__name__}; bring values in as inputs of mtf.function, "
            f"or {_named(x, beside) or 'with mtf.constant or mtf.import_tf_tensor'}"
        )
    return x


def _named(x: object, beside: object) -> str:
    how = how_to_name(x, beside.shape, beside.dtype) if isinstance(beside, Tensor) else how_to_name(x)
    return how and f"name the dimensions of this array: {how}"


def check_tensors(xs: Any) -> list[Tensor]:
    """A list of tensors, from one or several."""
    if isinstance(xs, Tensor):
        return [xs]
    return [check_tensor(x) for x in cast("Iterable[object]", xs)] if isinstance(xs, Iterable) else [check_tensor(xs)]


def same_dtype(tensors: Sequence[Tensor]) -> tf.DType:
    """The one dtype of all. If they differ, raises DtypeError, which names them. There is no implicit promotion."""
    dtype = tensors[0].dtype
    for x in tensors:
        if x.dtype != dtype:
            raise DtypeError(f"{tensors[0].dtype.name} and {x.dtype.name} meet; convert one with mtf.cast")
    return dtype
