"""TensorFlow's operations done for many cores: from those of one core to the same for all that hold different slices.

`tf.vectorized_map` does the like along one dimension, of a function that it traces anew and calls, and forgets what
gathers do with indices outside (TensorFlow 2.21). Here an operation is made once, where the program is being traced.
"""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import tensorflow as tf

from meshtf.layout import Axes
from meshtf.mesh_impl.blocks import reshaped, static_shape


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """What cores hold that differ along some mesh axes.

    Attributes:
      axes: in the mesh's order.
      x: [sizes of the axes.., slice of one core].
    """

    axes: Axes
    x: tf.Tensor

    @property
    def own_shape(self) -> list[int]:
        """Of one core's."""
        return static_shape(self.x)[len(self.axes) :]


class NotSpreadError(Exception):
    """An operation is not done for many cores at once."""


class Spreading:
    """Operations of one core done for many, of a mesh with axes of these sizes."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes

    def apply(self, operation: tf.Operation, inputs: Sequence[Spread]) -> list[Spread]:
        """The results of an operation, which stands in a graph of one core, on inputs of many.

        Raises:
          NotSpreadError: it has to be done core by core.
        """
        if operation.type not in _RULES and operation.type not in _BROADCASTING:
            raise NotSpreadError
        axes = tuple(axis for axis in self._sizes if any(axis in each.axes for each in inputs))
        if not axes:
            return [Spread((), x) for x in _again(operation, [each.x for each in inputs])]
        made = _RULES.get(operation.type, _broadcasting)(_Call(self, operation, inputs, axes))
        return [Spread(axes, x) for x in made]

    def sizes(self, axes: Axes) -> list[int]:
        return [self._sizes[axis] for axis in axes]

    def laid_out(self, given: Spread, axes: Axes, rank: int) -> tf.Tensor:
        """[size or 1 of each of the axes.., 1s.., slice of one core], whose own dimensions are `rank`."""
        if not given.axes:
            return given.x  # it broadcasts as it is
        own = given.own_shape
        places = [self._sizes[axis] if axis in given.axes else 1 for axis in axes]
        return reshaped(given.x, [*places, *[1] * (rank - len(own)), *own])

    def whole(self, given: Spread, axes: Axes, shape: Sequence[int] | None = None) -> tf.Tensor:
        """[sizes of the axes.., shape]: with a copy for each of the cores, by default of what one has."""
        own = given.own_shape if shape is None else shape
        target = [*self.sizes(axes), *own]
        x = self.laid_out(given, axes, len(own))
        return x if static_shape(x) == target else tf.broadcast_to(x, target)


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """An operation of one core, and what many cores give it, which differs along `axes`, one of them at least."""

    spreading: Spreading
    operation: tf.Operation
    inputs: Sequence[Spread]
    axes: Axes

    @property
    def own_result(self) -> list[int]:
        return static_shape(self.operation.outputs[0])

    def known(self, index: int) -> np.ndarray:
        """An input that is a constant."""
        value = tf.get_static_value(self.operation.inputs[index])
        if value is None:
            raise NotSpreadError
        return np.asarray(value)

    def axis(self, number: int, rank: int) -> int:
        """Of one core's tensor of that rank, counted in one of many."""
        return number % rank + len(self.axes)

    def whole(self, index: int) -> tf.Tensor:
        return self.spreading.whole(self.inputs[index], self.axes)

    def again(self, inputs: Sequence[Any], **attributes: int) -> Sequence[tf.Tensor]:
        return _again(self.operation, inputs, attributes)

    def constant(self, value: Any, index: int) -> tf.Tensor:
        """In place of an input, of its dtype."""
        return tf.constant(value, self.operation.inputs[index].dtype)


_Rule: TypeAlias = Callable[[_Call], Sequence[tf.Tensor]]


def _again(
    operation: tf.Operation, inputs: Sequence[tf.Tensor], attributes: Mapping[str, int] | None = None
) -> Sequence[tf.Tensor]:
    """The same operation of other tensors, in the graph that is being made."""
    attrs = dict(operation.node_def.attr)
    for name, number in (attributes or {}).items():
        attrs[name] = tf.compat.v1.AttrValue(i=number)
    # No public name makes an operation of attributes as they are; those of each kind would read and check them anew.
    graph = cast("Any", tf.compat.v1.get_default_graph())
    dtypes = [x.dtype for x in operation.outputs]
    return graph._create_op_internal(operation.type, list(inputs), dtypes, attrs=attrs).outputs


def _broadcasting(call: _Call) -> Sequence[tf.Tensor]:
    rank = len(call.own_result)
    return call.again([call.spreading.laid_out(each, call.axes, rank) for each in call.inputs])


def _clipped(call: _Call) -> Sequence[tf.Tensor]:
    x, *bounds = call.inputs
    if any(each.axes or each.own_shape for each in bounds):
        raise NotSpreadError
    return call.again([x.x, *(each.x for each in bounds)])


def _selected(call: _Call) -> Sequence[tf.Tensor]:
    if any(each.own_shape != call.own_result for each in call.inputs):
        raise NotSpreadError  # a vector chooses rows
    return call.again([call.whole(n) for n in range(3)])


def _reduced(call: _Call) -> Sequence[tf.Tensor]:
    x, rank, number = call.inputs[0], len(call.inputs[0].own_shape), call.known(1)
    axes = [call.axis(int(n), rank) for n in number.ravel()]
    return call.again([x.x, call.constant(np.reshape(axes, number.shape), 1)])


def _reshaped(call: _Call) -> Sequence[tf.Tensor]:
    return [reshaped(call.inputs[0].x, [*call.spreading.sizes(call.axes), *call.own_result])]


def _transposed(call: _Call) -> Sequence[tf.Tensor]:
    more = len(call.axes)
    return call.again([call.inputs[0].x, call.constant([*range(more), *(call.known(1) + more)], 1)])


def _joined(call: _Call) -> Sequence[tf.Tensor]:
    *parts, axis = range(len(call.inputs))
    where = call.axis(int(call.known(axis)), len(call.own_result))
    return call.again([*map(call.whole, parts), call.constant(where, axis)])


def _packed(call: _Call) -> Sequence[tf.Tensor]:
    where = call.axis(call.operation.get_attr("axis"), len(call.own_result))
    return call.again([call.whole(n) for n in range(len(call.inputs))], axis=where)


def _unpacked(call: _Call) -> Sequence[tf.Tensor]:
    x = call.inputs[0]
    return call.again([x.x], axis=call.axis(call.operation.get_attr("axis"), len(x.own_shape)))


def _sliced(call: _Call) -> Sequence[tf.Tensor]:
    begins, sizes = [0] * len(call.axes), call.spreading.sizes(call.axes)
    return call.again([call.inputs[0].x, _behind(call, begins, 1), call.constant([*sizes, *call.own_result], 2)])


def _strided(call: _Call) -> Sequence[tf.Tensor]:
    more = len(call.axes)
    bounds = [_behind(call, [value] * more, n) for n, value in ((1, 0), (2, 0), (3, 1))]
    masks = {name: call.operation.get_attr(name) << more for name in _MASKS}
    for name in ("begin_mask", "end_mask"):
        masks[name] |= (1 << more) - 1
    return call.again([call.inputs[0].x, *bounds], **masks)


_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _behind(call: _Call, before: list[int], index: int) -> tf.Tensor:
    """Places in one core's tensor, all cores' alike, behind those of the mesh."""
    places, known = call.inputs[index], tf.get_static_value(call.operation.inputs[index])
    if places.axes:
        raise NotSpreadError
    return (
        call.constant([*before, *known], index)
        if known is not None
        else tf.concat([call.constant(before, index), places.x], 0)
    )


def _split(call: _Call) -> Sequence[tf.Tensor]:
    x = call.inputs[1]
    return call.again([call.constant(call.axis(int(call.known(0)), len(x.own_shape)), 0), x.x])


def _split_in_sizes(call: _Call) -> Sequence[tf.Tensor]:
    x, sizes, _ = call.inputs
    return call.again([x.x, sizes.x, call.constant(call.axis(int(call.known(2)), len(x.own_shape)), 2)])


def _tiled(call: _Call) -> Sequence[tf.Tensor]:
    return call.again([call.inputs[0].x, call.constant([*[1] * len(call.axes), *call.known(1)], 1)])


def _broadcast(call: _Call) -> Sequence[tf.Tensor]:
    return [call.spreading.whole(call.inputs[0], call.axes, call.own_result)]


def _filled(call: _Call) -> Sequence[tf.Tensor]:
    return [call.spreading.whole(call.inputs[1], call.axes, call.own_result)]


def _product(call: _Call) -> Sequence[tf.Tensor]:
    a, b = (call.operation.get_attr(name) for name in ("transpose_a", "transpose_b"))
    return _summed(call, f"{'ki' if a else 'ik'},{'jk' if b else 'kj'}->ij")


def _products(call: _Call) -> Sequence[tf.Tensor]:
    """Of many matrices: no copy for each core is made of one that they have alike, which would be read anew by each."""
    x, y = call.inputs
    batch = string.ascii_lowercase[: len(x.own_shape) - 2]
    if x.own_shape[:-2] != y.own_shape[:-2] or call.operation.outputs[0].dtype.is_complex:
        return _broadcasting(call)
    a, b = (call.operation.get_attr(name) for name in ("adj_x", "adj_y"))
    return _summed(call, f"{batch}{'zx' if a else 'xz'},{batch}{'yz' if b else 'zy'}->{batch}xy")


def _einsum(call: _Call) -> Sequence[tf.Tensor]:
    return _summed(call, call.operation.get_attr("equation").decode())


def _summed(call: _Call, equation: str) -> Sequence[tf.Tensor]:
    if "." in equation:
        raise NotSpreadError
    free = iter([c for c in string.ascii_letters if c not in equation])
    letter = {axis: next(free) for axis in call.axes}
    given, result = equation.split("->")
    factors = _factors(call)
    terms = ["".join(letter[a] for a in each.axes) + own for each, own in zip(factors, given.split(","), strict=True)]
    whole = f"{','.join(terms)}->{''.join(letter.values())}{result}"
    return [tf.raw_ops.Einsum(inputs=[each.x for each in factors], equation=whole)]


def _factors(call: _Call) -> Sequence[Spread]:
    """What is multiplied. A small one is there for each core that has another of the large one, which XLA would else
    put in another order each time: a weight, in each iteration. A large one is never copied for each core."""
    if len(call.inputs) != 2:
        return call.inputs
    small, large = sorted(call.inputs, key=lambda each: math.prod(static_shape(each.x)))
    if math.prod([*call.spreading.sizes(call.axes), *small.own_shape]) > math.prod(static_shape(large.x)):
        return call.inputs
    copied = Spread(call.axes, call.spreading.whole(small, call.axes))
    return [copied if each is small else each for each in call.inputs]


def _scattered(call: _Call) -> Sequence[tf.Tensor]:
    """Into one tensor, whose first index is the core."""
    sizes = call.spreading.sizes(call.axes)
    count, own = math.prod(sizes), static_shape(call.operation.inputs[1])
    x, indices, updates = (reshaped(call.whole(n), [count, *static_shape(call.operation.inputs[n])]) for n in range(3))
    core = tf.reshape(tf.range(count, dtype=indices.dtype), [count, *[1] * len(own)])
    places = tf.concat([tf.broadcast_to(core, [count, *own[:-1], 1]), indices], -1)
    (made,) = call.again([x, places, updates])
    return [reshaped(made, [*sizes, *call.own_result])]


def _gathered(call: _Call) -> Sequence[tf.Tensor]:
    """From one tensor, whose first index says which cores' it is; from that of all, where they have it alike."""
    x, indices = call.inputs[0], call.whole(1)
    if not x.axes:
        return call.again([x.x, indices])
    sizes, own = call.spreading.sizes(x.axes), x.own_shape
    numbers = Spread(x.axes, tf.reshape(tf.range(math.prod(sizes), dtype=indices.dtype), [*sizes, 1]))
    size = [*call.spreading.sizes(call.axes), *call.inputs[1].own_shape[:-1]]
    places = call.spreading.laid_out(numbers, call.axes, len(call.inputs[1].own_shape))
    return call.again(
        [reshaped(x.x, [math.prod(sizes), *own]), tf.concat([tf.broadcast_to(places, [*size, 1]), indices], -1)]
    )


def _taken(call: _Call) -> Sequence[tf.Tensor]:
    """By indices that cores have alike; or each by its own, from what is there for each."""
    (x, indices, _), more = call.inputs, len(call.axes)
    axis = call.constant(call.axis(int(call.known(2)), len(x.own_shape)), 2)
    batch = call.operation.get_attr("batch_dims")
    if not indices.axes and not batch:
        return call.again([x.x, indices.x, axis])
    if x.axes != call.axes:
        raise NotSpreadError  # it would be copied for each core
    return call.again([x.x, call.whole(1), axis], batch_dims=batch + more)


def _largest(call: _Call) -> Sequence[tf.Tensor]:
    x, count = call.inputs
    if count.axes:
        raise NotSpreadError
    return call.again([x.x, count.x])


_BROADCASTING = frozenset((
    "Abs", "AddV2", "Cast", "Cos", "Equal", "Erf", "Exp", "Expm1", "Floor", "FloorDiv", "FloorMod", "Greater",
    "GreaterEqual", "Identity", "IsFinite", "IsNan", "Less", "LessEqual", "Log", "Log1p", "LogicalAnd", "LogicalNot",
    "LogicalOr", "Maximum", "Minimum", "Mul", "Neg", "NotEqual", "Pow", "RealDiv", "Relu", "Rsqrt", "SelectV2",
    "Sigmoid", "Sign", "Sin", "Softmax", "Softplus", "Sqrt", "Square", "Sub", "Tanh", "ZerosLike",
))  # fmt: skip
"""Operations element by element, or along the last dimension, whose inputs may have 1 in place of a size."""

_RULES: Mapping[str, _Rule] = {
    "All": _reduced,
    "Any": _reduced,
    "ArgMax": _reduced,
    "ArgMin": _reduced,
    "BatchMatMulV2": _products,
    "BroadcastTo": _broadcast,
    "ClipByValue": _clipped,
    "ConcatV2": _joined,
    "Const": _broadcasting,
    "Einsum": _einsum,
    "ExpandDims": _reshaped,
    "Fill": _filled,
    "GatherNd": _gathered,
    "GatherV2": _taken,
    "MatMul": _product,
    "Max": _reduced,
    "Mean": _reduced,
    "Min": _reduced,
    "Pack": _packed,
    "Prod": _reduced,
    "Range": _broadcasting,
    "Reshape": _reshaped,
    "Select": _selected,
    "Slice": _sliced,
    "Split": _split,
    "SplitV": _split_in_sizes,
    "Squeeze": _reshaped,
    "StridedSlice": _strided,
    "Sum": _reduced,
    "TensorScatterUpdate": _scattered,
    "Tile": _tiled,
    "TopKV2": _largest,
    "Transpose": _transposed,
    "Unpack": _unpacked,
}
