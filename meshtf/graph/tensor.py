"""Tensors of a graph: outputs of operations, with a named shape and a dtype but without a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tensorflow as tf

from meshtf.annotations.tensor_annotation import TensorAnnotation
from meshtf.call_sites import says_where
from meshtf.dimension import Shape
from meshtf.errors import DtypeError, FeedError, GraphError
from meshtf.graph.tensor_views import tensor_html, view
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
      >>> numbers = mtf.range(mesh, ("n", 6))
      >>> value(numbers["n", 1:-1:2]), value(numbers["n", ::-1]), value(numbers["n", -1])
      (array([1, 3], dtype=int32), array([5, 4, 3, 2, 1, 0], dtype=int32), np.int32(5))
      >>> value(numbers.at["n", 1].set(10)), value(numbers.at["n", 4:].add(1))
      (array([ 0, 10,  2,  3,  4,  5], dtype=int32), array([0, 1, 2, 3, 5, 6], dtype=int32))
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

    @says_where
    def eval(
        self,
        feeds: Mapping[str, Any] | None = None,
        /,
        *,
        variables: Mapping[str, Any] | None = None,
        seed: int | None = None,
        limit: int = 1 << 30,
        **inputs: Any,
    ) -> np.ndarray:
        """Computes the tensor now, while the graph is being built, on one core. For notebooks and debuggers.

        The value is the same as in the program, including random bits. The graph and later results do not change, and
        assignments are discarded.

        Args:
          feeds: arrays of the program's inputs, by name. They may also be given as keywords: `x.eval(images=array)`.
          variables: a store, or arrays by name. Other variables have their initial values.
          seed: the seed of the program. The default is the seed of the `mtf.function` that is being built, else 0.
          limit: the most bytes that all tensors needed for it may take together.
          inputs: arrays of inputs by name.

        Raises:
          FeedError: an input that the tensor depends on is missing, unnamed, or has another shape or dtype.
          GraphError: the tensor is inside a loop, a branch or another block, where it has no single value.
          UsageError: the tensors needed for it are larger than `limit`; or `seed` or `limit` is no such number.

        Examples:
          >>> n = mtf.constant(mesh, [1.0, 2.0], "n:2")
          >>> (3.0 * n).eval()
          array([3., 6.], dtype=float32)
          >>> mtf.reduce_sum(x).eval(x=np.ones([4, 8], np.float32))
          np.float32(32.0)
        """
        if not isinstance(feeds, Mapping | None):
            kind = type(feeds).__name__
            raise FeedError(f"inputs are given by name, as in x.eval(images=array), and a value of {kind} has none")
        return view("evaluate")(self, {**(feeds or {}), **inputs}, variables or {}, seed, limit)

    @property
    def is_overridden(self) -> bool:
        """Whether its layout depends on a `with_layout` or `replicate`."""
        return self.operation.overrides_layout

    def _repr_html_(self) -> str:
        return tensor_html(self)

    def __repr__(self) -> str:
        return f"{self.name} [{self.shape}] {self.dtype.name}"


def check_tensor(x: object, what: str = "operand", *, beside: object = None) -> Tensor:
    """Returns x, if it is a tensor.

    Raises:
      GraphError: x is not a tensor. For an array, the message says how to name its dimensions like those of `beside`.
    """
    if not isinstance(x, Tensor):
        if isinstance(why := getattr(x, "why_no_tensor", None), str):
            raise GraphError(why)
        raise GraphError(
            f"the {what} must be an mtf.Tensor, not {type(x).__name__}; bring values in as inputs of mtf.function, "
            f"or {_named(x, beside) or 'with mtf.constant or mtf.import_tf_tensor'}"
        )
    return x


def _named(x: object, beside: object) -> str:
    how = how_to_name(x, beside.shape, beside.dtype) if isinstance(beside, Tensor) else how_to_name(x)
    return how and f"name the dimensions of this array: {how}"


def check_tensors(xs: Any) -> list[Tensor]:
    """Converts one tensor or several to a list of tensors, checked."""
    if isinstance(xs, Tensor):
        return [xs]
    return [check_tensor(x) for x in cast("Iterable[object]", xs)] if isinstance(xs, Iterable) else [check_tensor(xs)]


def same_dtype(tensors: Sequence[Tensor]) -> tf.DType:
    """The common dtype of tensors. If they differ, raises DtypeError, since there is no implicit promotion."""
    dtype = tensors[0].dtype
    for x in tensors:
        if x.dtype != dtype:
            raise DtypeError(f"{tensors[0].dtype.name} and {x.dtype.name} meet; convert one with mtf.cast")
    return dtype
