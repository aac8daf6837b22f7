"""The operations behind halo exchange: blocks with the ends of their neighbours, and the gradient of that.

With a halo of 1, the blocks 1 2 | 3 4 become 0 1 2 3 | 2 3 4 0. The gradient adds each halo to the element that it was
copied from: a b c d | e f g h becomes b, c + e | d + f, g.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.planning.moves.window_reads import Window, part_of, read_whole_along, read_window
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner


class HaloOperation(Operation):
    """Each block with `halo` = (left, right) elements from the blocks before and after it."""

    passes_pending_sums = True
    mapped = "by name"

    def __init__(
        self, x: Tensor, blocks: str, block: str, halo: tuple[int, int], *, wrap: bool, name: str = "halo_exchange"
    ) -> None:
        shape = x.shape.resize_dimension(block, x.shape.get_dim_by_name(block).size + sum(halo))
        super().__init__([x], [(shape, x.dtype)], name=name)
        self.blocks_dim, self.block_dim, self.halo, self.wrap = blocks, block, halo, wrap

    def needs_whole(self, name: str) -> bool:
        return name == self.block_dim or (self.wrap and name == self.blocks_dim)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return [
            HaloSumOperation(check_tensor(grad_ys[0]), self.blocks_dim, self.block_dim, self.halo, self.wrap).outputs[0]
        ]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = read_whole_along(planner, self, self.block_dim)
        axis, n = value.shape.axis(self.block_dim), self.inputs[0].shape.get_dim_by_name(self.block_dim).size
        along, ranges = value.shape.axis(self.blocks_dim), _ranges(n, self.halo)
        # A core without blocks has no window to read.
        b = value.slice_shape[along]
        if not b:
            size = value.layout.slice_shape(output.shape, planner.mesh_shape)
            spec = (output.shape, output.dtype, value.layout)
            nothing = planner.compute(
                "halo", lambda core, x: tf.zeros(size, x.dtype), [value], [spec], pending=value.pending
            )
            planner.write(output, nothing[0])
            return
        # A core's first or last block may need only a segment of the outermost block; blocks between need it whole.
        reach = [max(0, -(-halo // n) - 1) for halo in self.halo]
        inner = read_window(planner, value, along, Window(-reach[0], b, reach[0] + b + reach[1]), wrap=self.wrap)
        outer = [s for s in (ranges[0], ranges[-1]) if s[0]]
        ends = [
            read_window(
                planner,
                part_of(planner, value, axis, begin, size),
                along,
                Window(d if d < 0 else b + d - 1, b, 1),
                wrap=self.wrap,
            )
            for d, begin, size in outer
        ]

        def blocks_from(x: tf.Tensor, first: int, count: int, begin: int, size: int) -> tf.Tensor:
            starts, sizes = [0] * len(x.shape), x.shape.as_list()
            starts[along], sizes[along], starts[axis], sizes[axis] = first, count, begin, size
            return x if sizes == x.shape.as_list() else tf.slice(x, starts, sizes)

        def emit(core: Core, x: tf.Tensor, *ends: tf.Tensor) -> tf.Tensor:
            parts, edges = [], iter(ends)
            for d, begin, size in ranges:
                if (d, begin, size) not in outer:
                    parts.append(blocks_from(x, reach[0] + d, b, begin, size))
                    continue
                rest = blocks_from(x, reach[0] + d + 1 if d < 0 else reach[0] + d, b - 1, begin, size)
                parts.append(tf.concat([next(edges), rest] if d < 0 else [rest, next(edges)], along))
            return tf.concat(parts, axis)

        spec = (output.shape, output.dtype, value.layout)
        planner.write(output, planner.compute("halo", emit, [inner, *ends], [spec], pending=value.pending)[0])


class HaloSumOperation(Operation):
    """Blocks without their halos, which are added to the elements that they were copied from."""

    passes_pending_sums = True
    mapped = "by name"

    def __init__(self, x: Tensor, blocks: str, block: str, halo: tuple[int, int], wrap: bool) -> None:
        shape = x.shape.resize_dimension(block, x.shape.get_dim_by_name(block).size - sum(halo))
        super().__init__([x], [(shape, x.dtype)], name="halo_sum")
        self.blocks_dim, self.block_dim, self.halo, self.wrap = blocks, block, halo, wrap

    def needs_whole(self, name: str) -> bool:
        return name == self.block_dim or (self.wrap and name == self.blocks_dim)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        dy = check_tensor(grad_ys[0])
        return [HaloOperation(dy, self.blocks_dim, self.block_dim, self.halo, wrap=self.wrap).outputs[0]]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = read_whole_along(planner, self, self.block_dim)
        axis, n = value.shape.axis(self.block_dim), output.shape.get_dim_by_name(self.block_dim).size
        # A halo moves back to the blocks that it was copied from. These are the moves of `HaloOperation`, reversed.
        ranges, pieces, place = _ranges(n, self.halo), [], 0
        for distance, _, size in ranges:
            border = part_of(planner, value, axis, place, size)
            pieces.append(_moved(planner, border, self.blocks_dim, -distance, self.wrap))
            place += size

        def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
            dtype = slices[0].dtype
            # An element may be in several halos. 16-bit floats are rounded once for all of them.
            wide = [tf.cast(x, sum_dtype(dtype)) for x in slices]
            total = wide[[s[0] for s in ranges].index(0)]
            for (distance, begin, size), x in zip(ranges, wide, strict=True):
                if distance:
                    paddings = [[begin, n - begin - size] if i == axis else [0, 0] for i in range(len(x.shape))]
                    total = total + tf.pad(x, paddings)
            return tf.cast(total, dtype)

        spec = (output.shape, output.dtype, value.layout)
        planner.write(output, planner.compute("halo sum", emit, pieces, [spec], pending=value.pending)[0])


def _ranges(n: int, halo: tuple[int, int]) -> list[tuple[int, int, int]]:
    """The parts of a block of n with its halos, in order: (distance of the part's block, begin in it, size)."""
    left = [(-d, n - min(n, halo[0] - (d - 1) * n), min(n, halo[0] - (d - 1) * n)) for d in _distances(n, halo[0])]
    right = [(d, 0, min(n, halo[1] - (d - 1) * n)) for d in _distances(n, halo[1])]
    return [*reversed(left), (0, 0, n), *right]


def _distances(n: int, halo: int) -> range:
    return range(1, -(-halo // n) + 1)


def _moved(planner: Planner, value: Value, blocks: str, distance: int, wrap: bool) -> Value:
    """The values of the block that is `distance` blocks further on, for each block."""
    axis = value.shape.axis(blocks)
    n = value.slice_shape[axis]
    fill = False if value.dtype == tf.bool else 0
    return read_window(planner, value, axis, Window(distance, n, n), wrap=wrap, fill=fill) if distance else value
