"""The gradient of a running maximum: each element gets the gradients of all places where it is the maximum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import axes_size
from meshtf.ops.indexing.gather import gather
from meshtf.ops.indexing.local_gather import sums_at
from meshtf.ops.rearranging.reshape import rename_dimension
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner


class CumulativeMaxGradientOperation(Operation):
    """`dy` added up at the places (int32) of running maxima along a dimension.

    For x = 1 3 2 5, the maxima are 1 3 3 5 at the places 0 1 1 3. The gradient dy = a b c d becomes a, b + c, 0, d. If
    the dimension is split, maxima of a slice that lie outside of it are all one element: the largest before the slice.
    So each core sends the others one sum and one place.
    """

    takes_padding = True
    mapped = "all inputs"

    def __init__(self, dy: Tensor, places: Tensor, dim_name: str, *, reverse: bool) -> None:
        super().__init__([dy, places], [(dy.shape, dy.dtype)], name="cummax_gradient")
        self.dim_name, self.reverse = dim_name, reverse

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        ddx, places = check_tensor(grad_ys[0]), self.inputs[1]
        maxima = f"{self.dim_name}_of_cummax"
        places = rename_dimension(places, self.dim_name, maxima)
        taken = gather(ddx, places, self.dim_name, output_shape=ddx.shape.rename_dimension(self.dim_name, maxima))
        return [rename_dimension(taken, maxima, self.dim_name), None]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        layout = planner.layouts[output]
        values = [planner.read(x, layout) for x in self.inputs]
        axis, n = output.shape.axis(self.dim_name), values[0].slice_shape[output.shape.axis(self.dim_name)]
        axes = layout.axes[axis]
        others = self._others(planner, values, axis) if axes and n else []

        def emit(core: Core, dy: tf.Tensor, places: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
            begin, narrow = core.coordinate(axes) * n if axes else 0, dy.dtype
            if others:
                dy, places = (
                    tf.concat([tf.cast(dy, others[0].dtype), others[0]], axis),
                    tf.concat([places, others[1]], axis),
                )
            rank = len(dy.shape)
            last = [i for i in range(rank) if i != axis] + [axis]
            sums = sums_at(tf.transpose(dy, last), tf.transpose(places - begin, last), rank - 1, n)
            return tf.cast(tf.transpose(sums, [*range(axis), rank - 1, *range(axis, rank - 1)]), narrow)

        flops = math.prod(values[0].slice_shape)
        spec = (output.shape, output.dtype, layout)
        planner.write(output, planner.compute("cummax_gradient", emit, [*values, *others], [spec], flops=flops)[0])

    def _others(self, planner: Planner, values: Sequence[Value], axis: int) -> list[Value]:
        """The sums for the maxima before each core's slice, and their places, from all cores along the dimension."""
        axes, n = values[0].layout.axes[axis], values[0].slice_shape[axis]
        shape = values[0].shape.resize_dimension(self.dim_name, axes_size(axes, planner.mesh_shape))
        first, wide = n - 1 if self.reverse else 0, sum_dtype(values[0].dtype)

        def emit(core: Core, dy: tf.Tensor, places: tf.Tensor) -> list[tf.Tensor]:
            begin = core.coordinate(axes) * n
            is_outside = (places < begin) | (places >= begin + n)
            outside = tf.where(is_outside, tf.cast(dy, wide), tf.zeros([], wide))
            total = tf.reduce_sum(outside, axis, keepdims=True)
            return [total, tf.gather(places, [first], axis=axis)]

        specs = [(shape, dtype, v.layout) for v, dtype in zip(values, (wide, values[1].dtype), strict=True)]
        totals = planner.compute("total", emit, values, specs, flops=math.prod(values[0].slice_shape))
        return [planner.all_gather(total, axis) for total in totals]
