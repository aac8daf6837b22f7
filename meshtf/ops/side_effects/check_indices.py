"""`check_indices`, which stops a step if an index is out of range, such as an id outside of the vocabulary."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike, Shape, convert_to_dimension
from meshtf.errors import DtypeError, GraphError, IndexRangeError, ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import restricted
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.ops.side_effects.first_place import Places, first_place
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.open_check import OpenCheck, failed_if, failure_spec
from meshtf.planning.plan import Core, failure_text
from meshtf.planning.planner import Planner

_UNSIGNED = {tf.int32: tf.uint32, tf.int64: tf.uint64}
_MOST_ORIGINS = 3


class CheckIndicesOperation(Operation):
    """Indices. If one of weight other than 0 is not in 0 .. limit - 1, the step fails with IndexRangeError."""

    has_side_effect = True
    takes_padding = True
    mapped = "all inputs"

    def __init__(
        self, indices: Tensor, limit: int, weights: Tensor | None, message: str, advice: str, name: str
    ) -> None:
        inputs = [indices] if weights is None else [indices, weights]
        super().__init__(inputs, [(indices.shape, indices.dtype)], name=name)
        self._limit, self._message, self._advice = limit, message, advice

    @property
    def has_gradient(self) -> bool:
        return False

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        return [layouts.resolved(self.inputs[0])]

    def lower(self, planner: Planner) -> None:
        # Fed arrays are already on the host, so they are checked before any core begins.
        if planner.is_program and all(_is_fed(x) for x in self.inputs):
            planner.checks.add_of_feeds(CheckOfFeeds(self, self._limit, self._message, self._advice))
            planner.write(self.outputs[0], planner.tensors.held(self.inputs[0]))
        else:
            self._lower_on_cores(planner)

    def _lower_on_cores(self, planner: Planner) -> None:
        indices, *weights = self.inputs
        value = planner.read(indices)
        values = [value, *(planner.read(w, restricted(value.layout, indices.shape, w.shape)) for w in weights)]
        to_indices = [aligner(w.shape, indices.shape) for w in weights]
        limit = self._limit

        def is_outside(x: tf.Tensor, *given: tf.Tensor) -> tf.Tensor:
            # As an unsigned number, a negative index is above any limit: one comparison is enough.
            outside = tf.bitcast(x, _UNSIGNED[x.dtype]) >= limit
            for align, w in zip(to_indices, given, strict=True):
                outside &= tf.not_equal(align(w), tf.zeros([], w.dtype))
            return outside

        def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
            return failed_if(tf.reduce_any(is_outside(*slices)))

        axes = tuple(d.name for d in planner.mesh_shape if d.name in value.layout.used)
        flops = math.prod(value.slice_shape)
        (failures,) = planner.compute("check_indices", emit, values, [failure_spec(axes)], flops=flops)
        places = Places.of(indices.shape, value.layout, planner)
        finding = first_place(planner, places, values, is_outside, tells_first=True)
        fact = f"{self._message} in {_described(indices, places.whole)}"
        planner.checks.add(OpenCheck(self, fact, failures, IndexRangeError, True, finding, self._advice))
        planner.write(self.outputs[0], value)


@dataclasses.dataclass(frozen=True)
class CheckOfFeeds:
    """The same check for inputs of the program.

    Checking the fed array once costs less than checking each core's slice.

    Attributes:
      operation: the operation that checks.
      limit: the size of the dimension that the indices point into.
      message: text such as "an id outside of 0 to 9".
      advice: what to do about it; may be empty.
    """

    operation: CheckIndicesOperation
    limit: int
    message: str
    advice: str

    @property
    def feeds(self) -> tuple[str, ...]:
        return tuple(x.operation.name for x in self.operation.inputs)

    def failure(self, arrays: Sequence[np.ndarray]) -> IndexRangeError | None:
        indices, *weights = arrays
        unsigned = np.ascontiguousarray(indices).view(_UNSIGNED[self._indices.dtype].as_numpy_dtype)
        # In nearly all steps no index is outside, and the weights need not be read.
        if not unsigned.size or unsigned.max() < self.limit:
            return None
        outside = unsigned >= self.limit
        for x, w in zip(self.operation.inputs[1:], weights, strict=True):
            outside &= np.asarray(aligner(x.shape, self._indices.shape)(tf.constant(w))) != 0
        if not outside.any():
            return None
        place = np.argwhere(outside)[0]
        where = ", ".join(f"{d.name} {n}" for d, n in zip(self._indices.shape, place, strict=True))
        return IndexRangeError(self._text(f": {indices[tuple(place)]}" + (f" at {where}" if where else "")))

    def assertion(self, arrays: Sequence[tf.Tensor]) -> tf.Operation:
        return tf.debugging.Assert(tf.logical_not(tf.reduce_any(self.is_outside(arrays))), [self._text("")])

    def is_outside(self, arrays: Sequence[tf.Tensor]) -> tf.Tensor:
        """A bool for each index: whether it is out of range and counts. The arrays may have any number of rows."""
        indices, *weights = arrays
        outside = tf.bitcast(indices, _UNSIGNED[indices.dtype]) >= self.limit
        for x, w in zip(self.operation.inputs[1:], weights, strict=True):
            outside &= tf.not_equal(aligner(x.shape, self._indices.shape)(w), tf.zeros([], w.dtype))
        return outside

    @property
    def _indices(self) -> Tensor:
        return self.operation.inputs[0]

    def _text(self, found: str) -> str:
        fact = f"{self.message} in {_described(self._indices, self._indices.shape)}{found}"
        return failure_text(fact, self.operation, self.advice)


@language_function
def check_indices(
    indices: Tensor,
    dim: DimensionLike | int,
    *,
    weights: Tensor | None = None,
    message: str = "an index",
    fault: str | None = None,
    advice: str = "",
    name: str | None = None,
) -> Tensor:
    """Checks indices and returns them. A step in which one is out of range assigns nothing and raises IndexRangeError.

    The check is made whether or not the result is used. The error says which index it is and where, and from which
    inputs of the program it was computed. `gather` and `one_hot` look up nothing for such an index, and report nothing.
    Inside your own tf.function, the error is TensorFlow's InvalidArgumentError, with the same text but no place.

    Args:
      indices: int32 or int64.
      dim: the dimension that they point into, or its size.
      weights: over dimensions of `indices`. Where a weight is 0, as for padding, an index may be any number.
      message: the name of an index, such as "a label".
      fault: what is wrong with an index, instead of text such as "outside of 0 to 9".
      advice: a line of the error that says what to do.
      name: the operation's name.

    Raises:
      DtypeError: the indices are not int32 or int64.
      ShapeError: `weights` has a dimension that the indices lack, or the size is not positive.

    Examples:
      >>> ids = mtf.constant(mesh, [2, 0], "length:2", tf.int32)
      >>> mtf.check_indices(ids, mtf.Dimension("vocab", 3))
      check_indices [length:2] int32
    """
    if check_tensor(indices, "index").dtype not in _UNSIGNED:
        raise DtypeError(f"indices must be int32 or int64, not {indices.dtype.name}; convert with mtf.cast")
    own = None if isinstance(dim, int) else convert_to_dimension(dim)
    limit = dim if own is None else own.size
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ShapeError(f"indices must point into a dimension of at least 1 element, not into {dim!r}")
    if weights is not None:
        for own in check_tensor(weights, "weight").shape:
            if not indices.shape.has(own):
                raise ShapeError(f'the weights have dimension "{own}", which the indices [{indices.shape}] lack')
            indices.shape.axis(own)
    for text in (message, advice, fault or ""):
        if not isinstance(text, str):
            raise GraphError(f"message, fault and advice must be text, not {text!r}")
    message = f"{message} {fault or f'outside of 0 to {limit - 1}'}"
    return CheckIndicesOperation(indices, limit, weights, message, advice, name or "check_indices").outputs[0]


def _is_fed(x: Tensor) -> bool:
    return isinstance(x.operation, InputOperation) and x.operation.value is None


def _described(x: Tensor, whole: Shape) -> str:
    """Text for a tensor, with its shape in the whole batch and the names of the inputs from which it was computed."""
    origins = _fed(x)
    if len(origins) == 1 and (x.operation.source is not None or isinstance(x.operation, InputOperation)):
        return f'input "{origins[0]}" [{whole}] {x.dtype.name}'
    named = ", ".join(f'"{name}"' for name in origins[:_MOST_ORIGINS])
    return f"{x.name} [{whole}] {x.dtype.name}" + (f", made of input {named}" if named else "")


def _fed(x: Tensor) -> list[str]:
    """The names of the inputs from which a tensor was computed. If some are integers, only those."""
    found: dict[str, bool] = {}
    waiting, seen = [x], {x.operation}
    while waiting:
        operation = waiting.pop().operation
        if isinstance(operation, InputOperation) and operation.value is None:
            found[operation.name] = operation.outputs[0].dtype.is_integer
        for source in [*operation.inputs, *([] if operation.source is None else [operation.source])]:
            if source.operation not in seen:
                seen.add(source.operation)
                waiting.append(source)
    integers = [name for name, is_integer in found.items() if is_integer]
    return integers or list(found)
