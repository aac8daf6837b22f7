"""Shifts along a dimension: shift, roll, reverse, and halos between blocks. If it is split, only borders are sent."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike
from meshtf.errors import ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import axes_size
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.inputs.scalars import whole_number
from meshtf.ops.windows._halo import HaloOperation
from meshtf.planning.layouts.padding import ZEROS, Fill
from meshtf.planning.moves.padded_moves import relabelled
from meshtf.planning.moves.window_reads import Window, read_window
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner


class ShiftOperation(Operation):
    """x moved along a dimension. Zeros enter or, with `wrap`, the elements that left at the other end."""

    passes_pending_sums = True
    mapped = "by name"

    def __init__(self, x: Tensor, offset: int, dim_name: str, *, wrap: bool, name: str = "shift") -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self.offset, self.dim_name, self.wrap = offset, dim_name, wrap

    def needs_whole(self, name: str) -> bool:
        return self.wrap and name == self.dim_name  # padding would separate the last element from the first

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        dy = check_tensor(grad_ys[0])
        return [ShiftOperation(dy, -self.offset, self.dim_name, wrap=self.wrap).outputs[0]]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = _read_where_it_is(planner, self, Fill(0, frozenset([self.dim_name])))
        axis = output.shape.axis(self.dim_name)
        n = value.slice_shape[axis]
        fill = False if output.dtype == tf.bool else 0
        moved = read_window(planner, value, axis, Window(-self.offset, n, n), wrap=self.wrap, fill=fill)
        planner.write(output, relabelled(planner.moves, moved, output.shape))


class ReverseOperation(Operation):
    """x in reverse order along a dimension: whole slices are exchanged, and each is reversed."""

    passes_pending_sums = True
    mapped = "by name"

    def __init__(self, x: Tensor, dim_name: str, name: str = "reverse") -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self.dim_name = dim_name

    def needs_whole(self, name: str) -> bool:
        return name == self.dim_name

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return [ReverseOperation(check_tensor(grad_ys[0]), self.dim_name).outputs[0]]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = _read_where_it_is(planner, self)
        axis = output.shape.axis(self.dim_name)
        axes = value.layout.axes[axis]
        last = axes_size(axes, planner.mesh_shape) - 1
        # The core at place j gets the slice of place last - j. Then only elements within a slice are in the wrong
        # order.
        value = planner.permute(value, axes, lambda j: last - j)

        def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
            return tf.reverse(x, [axis])

        spec = (value.shape, value.dtype, value.layout)
        planner.write(output, planner.compute("reverse", emit, [value], [spec], pending=value.pending)[0])


def _read_where_it_is(planner: Planner, operation: Operation, fill: Fill = ZEROS) -> Value:
    """The one input. If a sum is pending in it, it is read as it is held; else it is read in the output's layout."""
    (held,) = planner.read_operands_as_they_are(operation, fill)
    return held if held.pending else planner.read(operation.inputs[0], planner.layouts[operation.outputs[0]], fill)


@language_function
def shift(x: Tensor, offset: int, dim: DimensionLike, wrap: bool, name: str | None = None) -> Tensor:
    """x moved by `offset` along a dimension: y[i] = x[i - offset].

    Args:
      x: a tensor of any dtype.
      offset: a whole number, of either sign and any size.
      dim: a dimension of x.
      wrap: whether elements that leave at one end enter at the other. Otherwise zeros (False) enter.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension, or the offset is no Python or NumPy integer.

    Examples:
      >>> numbers = mtf.range(mesh, ("n", 4))
      >>> value(mtf.shift(numbers, 1, "n", wrap=False)), value(mtf.shift(numbers, 1, "n", wrap=True))
      (array([0, 0, 1, 2], dtype=int32), array([3, 0, 1, 2], dtype=int32))
    """
    own, offset = reduced_dimension(check_tensor(x), dim), whole_number(offset, "offset")
    if not isinstance(wrap, bool):
        raise ShapeError(f"wrap must be True or False, not {wrap!r}")
    if wrap and own.size:
        offset %= own.size
    if not offset or not x.size:
        return x
    return ShiftOperation(x, offset, own.name, wrap=wrap, name=name or "shift").outputs[0]


@language_function
def roll(x: Tensor, offset: int, dim: DimensionLike, name: str | None = None) -> Tensor:
    """x moved along a dimension, with elements that leave at one end entering at the other, as in `numpy.roll`.

    Args:
      x: a tensor.
      offset: the number of elements, a Python or NumPy integer. A negative number moves to the other side.
      dim: a dimension of x.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension, or the offset is no Python or NumPy integer.

    Examples:
      >>> value(mtf.roll(mtf.range(mesh, ("n", 4)), -1, "n"))
      array([1, 2, 3, 0], dtype=int32)
    """
    return shift(x, offset, dim, wrap=True, name=name or "roll")


@language_function
def reverse(x: Tensor, dim: DimensionLike, name: str | None = None) -> Tensor:
    """x in reverse order along a dimension.

    Raises:
      ShapeError: x lacks the dimension.

    Examples:
      >>> value(mtf.reverse(mtf.range(mesh, ("n", 4)), "n"))
      array([3, 2, 1, 0], dtype=int32)
    """
    own = reduced_dimension(check_tensor(x), dim)
    return ReverseOperation(x, own.name, name or "reverse").outputs[0] if own.size > 1 and x.size else x


@language_function
def halo_exchange(
    x: Tensor, blocks_dim: DimensionLike, block_size_dim: DimensionLike, halo_size: int, wrap: bool = False
) -> Tensor:
    """Each block with the ends of the blocks before and after it: `block_size_dim` grows by twice the halo.

    Args:
      x: [.., blocks, .., block_size, ..], in any order: a dimension cut into blocks.
      blocks_dim: the dimension that counts blocks.
      block_size_dim: the dimension inside a block. Its size in the result must fit the layout, like any other.
      halo_size: how many elements come from each side. A halo may span several blocks.
      wrap: whether the first block is the neighbour of the last. Otherwise the outer halos are zeros.

    Raises:
      ShapeError: x lacks a dimension, the two are one, or `halo_size` is no whole number of at least 0.

    Examples:
      >>> blocks = mtf.constant(mesh, [[1, 2], [3, 4]], "blocks:2 block:2", tf.int32)
      >>> value(mtf.halo_exchange(blocks, "blocks", "block", halo_size=1))
      array([[0, 1, 2, 3],
             [2, 3, 4, 0]], dtype=int32)
    """
    return _with_halo(x, blocks_dim, block_size_dim, halo_size, wrap, both=True)


@language_function
def left_halo_exchange(
    x: Tensor, blocks_dim: DimensionLike, block_size_dim: DimensionLike, halo_size: int, wrap: bool = False
) -> Tensor:
    """Each block with the end of the block before it: `block_size_dim` grows by the halo.

    Args:
      x: a tensor cut into blocks; see `halo_exchange`.
      blocks_dim: counts the blocks.
      block_size_dim: the elements of a block.
      halo_size: how many elements come from the block before, or from earlier blocks.
      wrap: whether the last block precedes the first. Otherwise the first halo is zeros.

    Raises:
      ShapeError: x lacks a dimension, the two are one, or `halo_size` is no whole number of at least 0.

    Examples:
      >>> blocks = mtf.constant(mesh, [[1, 2], [3, 4]], "blocks:2 block:2", tf.int32)
      >>> value(mtf.left_halo_exchange(blocks, "blocks", "block", halo_size=1))
      array([[0, 1, 2],
             [2, 3, 4]], dtype=int32)
    """
    return _with_halo(x, blocks_dim, block_size_dim, halo_size, wrap, both=False)


def _with_halo(
    x: Tensor,
    blocks_dim: DimensionLike,
    block_size_dim: DimensionLike,
    halo_size: int,
    wrap: bool,
    *,
    both: bool,
) -> Tensor:
    blocks, block = (reduced_dimension(check_tensor(x), d) for d in (blocks_dim, block_size_dim))
    if blocks.name == block.name:
        raise ShapeError(f'dimension "{blocks.name}" cannot be both blocks_dim and block_size_dim')
    halo = whole_number(halo_size, "halo_size")
    if halo < 0:
        raise ShapeError(f"halo_size must be at least 0, and is {halo}")
    if not halo:
        return x
    if not block.size:
        raise ShapeError(f'dimension "{block.name}" has size 0: its blocks have no ends to give')
    right = halo if both else 0
    name = "halo_exchange" if both else "left_halo_exchange"
    return HaloOperation(x, blocks.name, block.name, (halo, right), wrap=wrap, name=name).outputs[0]
