"""The operations behind halo exchange: blocks with the ends of their neighbours, and the way back."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.graph import Operation, Tensor, check_tensor
from meshtf.lowering.plan import Core, Value
from meshtf.lowering.planner import Planner
from meshtf.ops.neighbours import Window, part_of, read_window
from meshtf.ops.piece_operations import read_whole_along


class HaloOperation(Operation):
    """Each block between `halo` = (left, right) elements of those before and after it."""

    passes_pending_sums = True

    def __init__(
        self, x: Tensor, blocks: str, block: str, halo: tuple[int, int], *, wrap: bool, name: str = "halo_exchange"
    ) -> None:
        shape = x.shape.resize_dimension(block, x.shape.get_dim_by_name(block).size + sum(halo))
        super().__init__([x], [(shape, x.dtype)], name=name)
        self.blocks, self.block, self.halo, self.wrap = blocks, block, halo, wrap

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return [HaloSumOperation(check_tensor(grad_ys[0]), self.blocks, self.block, self.halo, self.wrap).outputs[0]]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = read_whole_along(planner, self, self.block)
        axis, n = value.shape.axis(self.block), self.inputs[0].shape.get_dim_by_name(self.block).size
        pieces = []
        for distance, begin, size in _stretches(n, self.halo):
            border = part_of(planner, value, axis, begin, size)
            pieces.append(_moved(planner, border, self.blocks, distance, self.wrap))

        def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
            return tf.concat(slices, axis)

        spec = (output.shape, output.dtype, value.layout)
        planner.write(output, planner.compute("halo", emit, pieces, [spec], pending=value.pending)[0])


class HaloSumOperation(Operation):
    """Blocks without their halos, which are added where they came from."""

    passes_pending_sums = True

    def __init__(self, x: Tensor, blocks: str, block: str, halo: tuple[int, int], wrap: bool) -> None:
        shape = x.shape.resize_dimension(block, x.shape.get_dim_by_name(block).size - sum(halo))
        super().__init__([x], [(shape, x.dtype)], name="halo_sum")
        self.blocks, self.block, self.halo, self.wrap = blocks, block, halo, wrap

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        dy = check_tensor(grad_ys[0])
        return [HaloOperation(dy, self.blocks, self.block, self.halo, wrap=self.wrap).outputs[0]]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = read_whole_along(planner, self, self.block)
        axis, n = value.shape.axis(self.block), output.shape.get_dim_by_name(self.block).size
        stretches, pieces, place = _stretches(n, self.halo), [], 0
        for distance, _, size in stretches:
            border = part_of(planner, value, axis, place, size)
            pieces.append(_moved(planner, border, self.blocks, -distance, self.wrap))
            place += size

        def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
            total = slices[[s[0] for s in stretches].index(0)]
            for (distance, begin, size), x in zip(stretches, slices, strict=True):
                if distance:
                    paddings = [[begin, n - begin - size] if i == axis else [0, 0] for i in range(len(x.shape))]
                    total = total + tf.pad(x, paddings)
            return total

        spec = (output.shape, output.dtype, value.layout)
        planner.write(output, planner.compute("halo sum", emit, pieces, [spec], pending=value.pending)[0])


def _stretches(n: int, halo: tuple[int, int]) -> list[tuple[int, int, int]]:
    """(distance of the block, begin in it, size) of what makes up a block of n with its halos, in order."""
    left = [(-d, n - min(n, halo[0] - (d - 1) * n), min(n, halo[0] - (d - 1) * n)) for d in _distances(n, halo[0])]
    right = [(d, 0, min(n, halo[1] - (d - 1) * n)) for d in _distances(n, halo[1])]
    return [*reversed(left), (0, 0, n), *right]


def _distances(n: int, halo: int) -> range:
    return range(1, -(-halo // n) + 1)


def _moved(planner: Planner, value: Value, blocks: str, distance: int, wrap: bool) -> Value:
    """For each block, what the one `distance` further on holds."""
    axis = value.shape.axis(blocks)
    n = value.slice_shape[axis]
    fill = False if value.dtype == tf.bool else 0
    return read_window(planner, value, axis, Window(distance, n, n), wrap=wrap, fill=fill) if distance else value
