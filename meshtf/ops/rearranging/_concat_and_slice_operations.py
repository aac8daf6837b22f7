"""The operations behind concat, split, slice and pad.

Along a split dimension, each core reads the window of its inputs that is its part of the result, so that only what must
move is sent. To concatenate a [4] and b [8] into [12] on 2 cores, core 0 (elements 0..5) reads all of a and b[0:2], and
core 1 reads b[2:8]. If the parts are uneven, or if it is cheaper, the dimension is gathered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, TensorLayout, axes_size, restricted, without_split
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.padding import Fill
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.moves.padded_moves import relabelled
from meshtf.planning.moves.window_reads import Window, read_whole_along, read_window
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner


class ConcatOperation(Operation):
    """Pieces that follow one another along a dimension. A piece is a tensor, or a number of elements equal to `fill`.

    With `fill` None, these elements may have any value. The tensors have the dimensions of `shape`, in any order.
    """

    mapped = "all inputs"

    def __init__(
        self,
        pieces: Sequence[Tensor | int],
        shape: Shape,
        dim_name: str,
        *,
        name: str = "concat",
        fill: Any = 0,
    ) -> None:
        tensors = [p for p in pieces if isinstance(p, Tensor)]
        super().__init__(tensors, [(shape, tensors[0].dtype)], name=name)
        self.dim_name = dim_name
        self.fill = 0 if fill is None else fill
        self.passes_pending_sums = not fill
        self._beyond_ends = None if fill is None else Fill(np.asarray(fill).item(), frozenset([dim_name]))
        self._gaps = [None if isinstance(p, Tensor) else p for p in pieces]

    def needs_whole(self, name: str) -> bool:
        return False

    def gathers_because(self, layouts: LayoutTable) -> str:
        (output,) = self.outputs
        return _gathers_few(layouts, output, self.dim_name, self._given_sizes)

    @property
    def _given_sizes(self) -> list[int]:
        return [x.shape.get_dim_by_name(self.dim_name).size for x in self.inputs]

    @property
    def sizes(self) -> list[int]:
        """The sizes of all pieces along the dimension."""
        own = iter(x.shape.get_dim_by_name(self.dim_name).size for x in self.inputs)
        return [next(own) if gap is None else gap for gap in self._gaps]

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (dy,) = grad_ys
        assert dy is not None
        if len(self.inputs) == 1:
            position = self._gaps.index(None)
            begin = sum(self.sizes[:position])
            return [SliceOperation(dy, begin, self.sizes[position], self.dim_name).outputs[0]]
        outputs = SplitOperation(dy, self.sizes, self.dim_name).outputs
        kept = [y for y, gap in zip(outputs, self._gaps, strict=True) if gap is None]
        return [transpose(y, x.shape) for y, x in zip(kept, self.inputs, strict=True)]

    def lower(self, planner: Planner) -> None:
        if not self._lower_by_windows(planner):
            self._lower_whole(planner)

    def _lower_by_windows(self, planner: Planner) -> bool:
        """Lets each core put together its own part of the result.

        Returns False if the dimension is not split for that.
        """
        (output,) = self.outputs
        layout, axis = planner.layouts[output], output.shape.axis(self.dim_name)
        if not is_split_for(planner, layout, axis, self._given_sizes):
            return False
        length = layout.slice_shape(output.shape, planner.mesh_shape)[axis]
        layouts = [restricted(layout, output.shape, x.shape) for x in self.inputs]
        values = planner.read_operands(self, layouts, self._beyond_ends)
        offsets = list(itertools.accumulate(self.sizes, initial=0))
        # Each input is read as if it began at its place in the result. Beyond its ends it holds `fill`.
        begins = [offset for offset, gap in zip(offsets, self._gaps, strict=False) if gap is None]
        windows = [
            read_window(planner, v, v.shape.axis(self.dim_name), Window(-begin, length, length), fill=self.fill)
            for v, begin in zip(values, begins, strict=True)
        ]
        if len(windows) == 1:
            planner.write(output, relabelled(planner.moves, windows[0], output.shape))
            return True
        emit = self._joining_kernel(begins, self._given_sizes, layout.axes[axis], length)
        spec = (output.shape, output.dtype, layout)
        planner.write(output, planner.compute("concat", emit, windows, [spec], pending=values[0].pending)[0])
        return True

    def _joining_kernel(
        self, begins: Sequence[int], sizes: Sequence[int], axes: Axes, length: int
    ) -> Callable[..., tf.Tensor]:
        """A function that joins the windows of all inputs. A window holds `fill` outside of its own input."""
        (output,) = self.outputs
        axis, rank = output.shape.axis(self.dim_name), output.shape.ndims
        aligners = [aligner(x.shape, output.shape) for x in self.inputs]

        def emit(core: Core, *windows: tf.Tensor) -> tf.Tensor:
            aligned = [align(x) for align, x in zip(aligners, windows, strict=True)]
            position = core.coordinate(axes) * length + tf.range(length)
            position = tf.reshape(position, [length if i == axis else 1 for i in range(rank)])
            # The first input's window holds `fill` elsewhere, so it also provides the gaps.
            y = aligned[0]
            for begin, size, x in zip(begins[1:], sizes[1:], aligned[1:], strict=True):
                y = tf.where((position >= begin) & (position < begin + size), x, y)
            return y

        return emit

    def _lower_whole(self, planner: Planner) -> None:
        (output,) = self.outputs
        if len(self.inputs) == 1:
            values = [read_whole_along(planner, self, self.dim_name)]
            layout = restricted(values[0].layout, values[0].shape, output.shape)
        else:
            layout = without_split(planner.layouts[output], output.shape, self.dim_name)
            values = planner.read_operands(self, [restricted(layout, output.shape, x.shape) for x in self.inputs])
        emit = self._kernel(layout.slice_shape(output.shape, planner.mesh_shape))
        spec = (output.shape, output.dtype, layout)
        planner.write(output, planner.compute("concat", emit, values, [spec], pending=values[0].pending)[0])

    def _kernel(self, size: tuple[int, ...]) -> Callable[..., tf.Tensor]:
        (output,) = self.outputs
        axis, dtype, fill, gaps = output.shape.axis(self.dim_name), output.dtype, self.fill, self._gaps
        aligners = [aligner(x.shape, output.shape) for x in self.inputs]

        def emit_padding(core: Core, x: tf.Tensor) -> tf.Tensor:
            position = gaps.index(None)
            paddings = [[0, 0]] * len(size)
            paddings[axis] = [sum(g or 0 for g in gaps[:position]), sum(g or 0 for g in gaps[position:])]
            return tf.pad(aligners[0](x), paddings, constant_values=fill)

        def gap_filled(gap: int) -> tf.Tensor:
            return tf.fill([*size[:axis], gap, *size[axis + 1 :]], tf.constant(fill, dtype))

        def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
            own = (align(x) for align, x in zip(aligners, slices, strict=True))
            return tf.concat([next(own) if gap is None else gap_filled(gap) for gap in gaps], axis)

        return emit_padding if len(self.inputs) == 1 else emit


class SplitOperation(Operation):
    """Pieces of the given sizes along a dimension."""

    mapped = "by name"

    def __init__(self, x: Tensor, sizes: Sequence[int], dim_name: str, name: str = "split") -> None:
        super().__init__([x], [(x.shape.resize_dimension(dim_name, n), x.dtype) for n in sizes], name=name)
        self.sizes = list(sizes)
        self.dim_name = dim_name

    def needs_whole(self, name: str) -> bool:
        return False

    def gathers_because(self, layouts: LayoutTable) -> str:
        return _gathers_few(layouts, self.inputs[0], self.dim_name, self.sizes)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x,) = self.inputs
        pieces = [n if dy is None else dy for n, dy in zip(self.sizes, grad_ys, strict=True)]
        return [ConcatOperation(_merged(pieces), x.shape, self.dim_name).outputs[0]]

    def lower(self, planner: Planner) -> None:
        (x,) = self.inputs
        axis = x.shape.axis(self.dim_name)
        begins = itertools.accumulate(self.sizes, initial=0)
        if is_split_for(planner, planner.layouts[x], axis, self.sizes):
            value = planner.read(x, fill=None)
            for output, begin in zip(self.outputs, begins, strict=False):
                if planner.readers.is_used(output):
                    planner.write(output, read_range(planner, value, axis, begin, output.shape))
            return
        value = planner.read(x, without_split(planner.layouts[x], x.shape, self.dim_name))
        sizes = len(self.sizes) if len(set(self.sizes)) == 1 else self.sizes
        specs = [(y.shape, y.dtype, value.layout) for y in self.outputs]
        values = planner.compute("split", lambda core, s: tf.split(s, sizes, axis), [value], specs)
        for output, piece in zip(self.outputs, values, strict=True):
            planner.write(output, piece)


class SliceOperation(Operation):
    """A segment of a dimension."""

    passes_pending_sums = True
    mapped = "by name"

    def __init__(self, x: Tensor, begin: int, size: int, dim_name: str, name: str = "slice") -> None:
        super().__init__([x], [(x.shape.resize_dimension(dim_name, size), x.dtype)], name=name)
        self.begin, self.size, self.dim_name = begin, size, dim_name

    def needs_whole(self, name: str) -> bool:
        return False

    def gathers_because(self, layouts: LayoutTable) -> str:
        return _gathers_few(layouts, self.inputs[0], self.dim_name, [self.size])

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x,), (dy,) = self.inputs, grad_ys
        assert dy is not None
        after = x.shape.get_dim_by_name(self.dim_name).size - self.begin - self.size
        return [ConcatOperation([self.begin, dy, after], x.shape, self.dim_name, name="pad").outputs[0]]

    def lower(self, planner: Planner) -> None:
        (x,), (output,) = self.inputs, self.outputs
        axis = x.shape.axis(self.dim_name)
        (held,) = planner.read_operands_as_they_are(self, fill=None)
        if not held.pending:
            held = planner.read(x, fill=None)
        if is_split_for(planner, held.layout, axis, [self.size]):
            planner.write(output, read_range(planner, held, axis, self.begin, output.shape))
            return
        value = read_whole_along(planner, self, self.dim_name)
        begin = [self.begin if d.name == self.dim_name else 0 for d in output.shape]
        size = value.layout.slice_shape(output.shape, planner.mesh_shape)
        spec = (output.shape, output.dtype, value.layout)
        facts = WorkFacts(only_moves=True, is_trivial=True)
        (piece,) = planner.compute(
            "slice", lambda core, s: tf.slice(s, begin, size), [value], [spec], pending=value.pending, facts=facts
        )
        planner.write(output, piece)


def is_split_for(planner: Planner, layout: TensorLayout, axis: int, sizes: Sequence[int]) -> bool:
    """Whether a dimension is split, and has enough elements in each segment of these sizes for every core to have
    some.
    """
    parts = axes_size(layout.axes[axis], planner.mesh_shape)
    return parts > 1 and min(sizes) >= parts


def read_range(planner: Planner, value: Value, axis: int, begin: int, shape: Shape) -> Value:
    """The elements of a split dimension from `begin` on, split in the same way, as a value of this shape."""
    length = value.layout.slice_shape(shape, planner.mesh_shape)[axis]
    return relabelled(planner.moves, read_window(planner, value, axis, Window(begin, length, length)), shape)


def _gathers_few(layouts: LayoutTable, whole: Tensor, dim_name: str, sizes: Sequence[int]) -> str:
    """Why segments of these sizes are not computed from slices of the whole; empty if they are, or if nothing is
    split.
    """
    parts = axes_size(layouts[whole].axes[whole.shape.axis(dim_name)], layouts.mesh_shape)
    return f"{min(sizes)} of {dim_name} are too few for {parts} parts" if min(sizes) < parts else ""


def _merged(pieces: Sequence[Tensor | int]) -> list[Tensor | int]:
    """The pieces, with neighbouring gaps merged."""
    merged: list[Tensor | int] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if isinstance(piece, int) and isinstance(last, int):
            merged[-1] = last + piece
        else:
            merged.append(piece)
    return merged
