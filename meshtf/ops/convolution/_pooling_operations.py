"""The operations behind maxima and means over windows.

Windows slide along one dimension at a time: the maximum of the rows' maxima is the maximum of the window.

Along a split dimension, neighbours exchange the borders that windows reach over. Elements beyond its end do not count.
float16 and bfloat16 are summed in float32.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import TensorLayout, axes_size
from meshtf.ops.convolution._cover import Cover
from meshtf.ops.convolution._geometry import Slide
from meshtf.ops.convolution._reshaping import reshaped, strided, with_zeros
from meshtf.planning.layouts.padding import LOWEST, Fill
from meshtf.planning.local_work import extrema
from meshtf.planning.local_work.sliced import sliced
from meshtf.planning.moves.window_reads import read_window
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.splits import can_split

_EMPTY = -1  # the tap of a window in which nothing was chosen


class MaxPoolOperation(Operation):
    """The largest element of each window along one dimension, or the tap (int32) of the first such element."""

    takes_padding = True
    mapped = "by name"

    def __init__(self, x: Tensor, windows: Slide, *, is_tap: bool = False, name: str = "max_pool") -> None:
        shape = x.shape.resize_dimension(windows.image_dim, windows.result_size)
        super().__init__([x], [(shape, tf.int32 if is_tap else x.dtype)], name=name)
        self.windows, self.is_tap = windows, is_tap

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x,), dy = self.inputs, check_tensor(grad_ys[0])
        taps = MaxPoolOperation(x, self.windows, is_tap=True, name="max_pool_taps").outputs[0]
        return [WindowSumGradientOperation(dy, taps, self.windows).outputs[0]]

    def lower(self, planner: Planner) -> None:
        x, is_tap = self.inputs[0], self.is_tap
        value, layout, at_taps = _read(planner, x, self.outputs[0], self.windows, LOWEST)
        first_inside = _first_tap_inside(self.windows, layout, self.outputs[0].shape, planner)

        def largest(core: Core, columns: Sequence[tf.Tensor]) -> tf.Tensor:
            best = columns[0]
            tap = tf.broadcast_to(first_inside(core), best.shape) if is_tap else None
            for k, column in enumerate(columns[1:], start=1):
                # An equal element leaves the tap as it is, so the first of equal ones is chosen.
                tap = tf.where(column > best, k, tap) if is_tap else None
                best = extrema.maximum(best, column)
            return tap if is_tap else best

        _write(planner, self, _WindowWork(at_taps, largest), [value], layout, self.windows)


class WindowSumOperation(Operation):
    """The sum of each window along one dimension. With `taps` (a second input), only the element at that tap."""

    takes_padding = True
    mapped = "all inputs"

    def __init__(self, x: Tensor, taps: Tensor | None, windows: Slide, name: str = "window_sum") -> None:
        shape = x.shape.resize_dimension(windows.image_dim, windows.result_size)
        super().__init__([x] if taps is None else [x, taps], [(shape, x.dtype)], name=name)
        self.windows = windows

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        taps = self.inputs[1:]
        dx = WindowSumGradientOperation(check_tensor(grad_ys[0]), taps[0] if taps else None, self.windows).outputs[0]
        return [dx, *(None for _ in taps)]

    def lower(self, planner: Planner) -> None:
        value, layout, at_taps = _read(planner, self.inputs[0], self.outputs[0], self.windows)
        taps = [planner.read(t, layout, fill=None) for t in self.inputs[1:]]

        def summed(core: Core, columns: Sequence[tf.Tensor], *taps: tf.Tensor) -> tf.Tensor:
            if taps:
                zero = tf.zeros([], columns[0].dtype)
                columns = [tf.where(tf.equal(taps[0], k), column, zero) for k, column in enumerate(columns)]
            return _sum(columns)

        _write(planner, self, _WindowWork(at_taps, summed), [value, *taps], layout, self.windows)


class WindowSumGradientOperation(Operation):
    """The gradient of `WindowSumOperation`: the sum, at each element, of the values of its windows (or of its taps)."""

    takes_padding = True
    mapped = "all inputs"

    def __init__(self, dy: Tensor, taps: Tensor | None, windows: Slide, name: str = "window_sum_gradient") -> None:
        shape = dy.shape.resize_dimension(windows.image_dim, windows.image_size)
        super().__init__([dy] if taps is None else [dy, taps], [(shape, dy.dtype)], name=name)
        self.windows = windows

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        taps = self.inputs[1:]
        back = WindowSumOperation(check_tensor(grad_ys[0]), taps[0] if taps else None, self.windows).outputs[0]
        return [back, *(None for _ in taps)]

    def lower(self, planner: Planner) -> None:
        (output,), windows = self.outputs, self.windows
        layout = _shared_layout(planner, self.inputs[0].shape, output)
        axis, along = output.shape.axis(windows.image_dim), frozenset([windows.image_dim])
        fills = (0, _EMPTY)[: len(self.inputs)]
        values = [planner.read(x, layout, Fill(f, along)) for x, f in zip(self.inputs, fills, strict=True)]
        n = layout.slice_shape(output.shape, planner.mesh_shape)[axis]
        cover = Cover(windows, n, axes_size(layout.axes[axis], planner.mesh_shape), layout.axes[axis])
        if cover.parts > 1:
            values = [read_window(planner, v, axis, cover.window, fill=f) for v, f in zip(values, fills, strict=True)]
        before, after = cover.padding
        total = before + cover.size + after

        def term_of(x: tf.Tensor, k: int) -> tf.Tensor:
            x = _with_gaps(x, axis, windows.stride)
            begin = k * windows.dilation
            return with_zeros(x, _along(len(x.shape), axis, [begin, total - begin - x.shape[axis]], [0, 0]))

        def emit(core: Core, g: tf.Tensor, *taps: tf.Tensor) -> tf.Tensor:
            # Each tap adds its values `dilation` elements after the tap before. Adding the taps in order gives the same
            # bits in any layout.
            terms = []
            for k in range(windows.kernel_size):
                own = tf.where(tf.equal(taps[0], k), g, tf.zeros([], g.dtype)) if taps else g
                terms.append(term_of(own, k))
            summed, rank = _sum(terms), len(g.shape)
            size = _along(rank, axis, cover.size, None)
            shape = [m if m is not None else have for m, have in zip(size, summed.shape.as_list(), strict=True)]
            return cover.cut(core, sliced(summed, _along(rank, axis, before, 0), shape), axis)

        _write(planner, self, emit, values, layout, windows)


def _shared_layout(planner: Planner, shape: Shape, output: Tensor) -> TensorLayout:
    """The output's layout, without the splits that do not fit the input's sizes."""
    layout = planner.layouts[output]
    axes = (
        a if can_split(a, d.name, [shape], planner.layouts) else () for d, a in zip(shape, layout.axes, strict=True)
    )
    return TensorLayout(tuple(axes))


def _read(
    planner: Planner, x: Tensor, output: Tensor, windows: Slide, outside: float | str = 0
) -> tuple[Value, TensorLayout, _AtTaps]:
    """x with all elements of the core's windows, its layout, and a function that takes the elements at each tap."""
    layout, axis = _shared_layout(planner, x.shape, output), output.shape.axis(windows.image_dim)
    fill = Fill(outside, frozenset([windows.image_dim]))
    value = planner.read(x, layout, fill)
    count = layout.slice_shape(output.shape, planner.mesh_shape)[axis]
    window = windows.read(count, axes_size(layout.axes[axis], planner.mesh_shape))
    value = read_window(planner, value, axis, window, fill=fill.number_in(x.dtype))

    def at_taps(s: tf.Tensor, take: _Take) -> list[tf.Tensor]:
        begins = [k * windows.dilation for k in range(windows.kernel_size)]
        return [take(s, axis, begin, count, windows.stride) for begin in begins]

    return value, layout, at_taps


_Take = Callable[[tf.Tensor, int, int, int, int], tf.Tensor]
"""A function that takes `count` elements along an axis, starting at `begin`, `step` apart."""
_AtTaps = Callable[[tf.Tensor, _Take], list[tf.Tensor]]


@dataclasses.dataclass(frozen=True, slots=True)
class _WindowWork:
    """Work on the elements at each tap of windows, as a `ProcessorWork`.

    TensorFlow's CPU kernel for strided slices copies elements one by one. A gather is twenty times as fast.

    Attributes:
      at_taps: takes the elements at each tap.
      work: a function of the core, the elements, and further slices.
    """

    at_taps: _AtTaps
    work: Callable[..., tf.Tensor]

    def __call__(self, core: Core, s: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
        return self.work(core, self.at_taps(s, _strided), *others)

    def on_processors(self, core: Core, s: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
        return self.work(core, self.at_taps(s, _gathered), *others)


def _strided(x: tf.Tensor, axis: int, begin: int, count: int, step: int) -> tf.Tensor:
    shape = x.shape.as_list()
    end = [*shape[:axis], begin + (count - 1) * step + 1, *shape[axis + 1 :]]
    return strided(x, _along(len(shape), axis, begin, 0), end, _along(len(shape), axis, step, 1))


def _gathered(x: tf.Tensor, axis: int, begin: int, count: int, step: int) -> tf.Tensor:
    if step == 1:
        return _strided(x, axis, begin, count, step)
    return tf.gather(x, np.arange(begin, begin + count * step, step, dtype=np.int32), axis=axis)


def _first_tap_inside(
    windows: Slide, layout: TensorLayout, shape: Shape, planner: Planner
) -> Callable[[Core], tf.Tensor]:
    """The first tap inside the image, for each of a core's windows.

    Elements outside count as -inf. If all elements of a window are -inf, this tap is the chosen one.
    """
    axis = shape.axis(windows.image_dim)
    count, axes = layout.slice_shape(shape, planner.mesh_shape)[axis], layout.axes[axis]

    def taps(core: Core) -> tf.Tensor:
        places = tf.range(count) + (core.coordinate(axes) * count if axes else 0)
        first = tf.maximum(windows.before - places * windows.stride, 0)
        return reshaped(first, _along(shape.ndims, axis, count, 1))

    return taps


def _write(
    planner: Planner,
    operation: Operation,
    emit: Callable[..., tf.Tensor],
    values: Sequence[Value],
    layout: TensorLayout,
    windows: Slide,
) -> None:
    (output,) = operation.outputs
    flops = math.prod(layout.slice_shape(output.shape, planner.mesh_shape)) * windows.kernel_size
    spec = (output.shape, output.dtype, layout)
    planner.write(output, planner.compute("pool", emit, values, [spec], flops=flops)[0])


def _sum(terms: Sequence[tf.Tensor]) -> tf.Tensor:
    """The sum in order, by binary additions: TensorFlow's AddN adds many terms in any order. Narrow floats are rounded
    once.
    """
    dtype = terms[0].dtype
    wide = sum_dtype(dtype)
    total = tf.cast(terms[0], wide)
    for term in terms[1:]:
        total = total + tf.cast(term, wide)
    return tf.cast(total, dtype)


def _with_gaps(x: tf.Tensor, axis: int, stride: int) -> tf.Tensor:
    """x with stride - 1 zeros between neighbours along an axis."""
    if stride == 1:
        return x
    shape = x.shape.as_list()
    n, rank = shape[axis], len(shape)
    x = with_zeros(tf.expand_dims(x, axis + 1), _along(rank + 1, axis + 1, [0, stride - 1], [0, 0]))
    x = reshaped(x, [*shape[:axis], n * stride, *shape[axis + 1 :]])
    return sliced(x, [0] * rank, [*shape[:axis], (n - 1) * stride + 1, *shape[axis + 1 :]])


def _along(rank: int, axis: int, here: object, elsewhere: object) -> list:
    return [here if i == axis else elsewhere for i in range(rank)]
