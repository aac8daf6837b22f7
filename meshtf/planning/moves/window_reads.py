"""Windows along a dimension that may be split: a core reads parts of the slices beside its own.

A core is sent only the elements that it lacks: the border of a slice, or of several where a window reaches further. For
example, a convolution with a window of 3 over [rows:8/cols] on two cores sends each core one row of its neighbour.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from meshtf.graph.operation import Operation
from meshtf.layout import axes_size, without_split
from meshtf.planning.local_work.sliced import sliced
from meshtf.planning.moves.padded_moves import relabelled
from meshtf.planning.plan import Core, Emit, Value

if TYPE_CHECKING:
    from meshtf.planning.planner import Planner


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A window of `length` elements, which starts at (j * step + begin) // divisor for the core at position j of a
    split.

    Elements are counted in the whole dimension, and may lie outside it. If cores use only a part of their windows,
    `needed` has each core's part as (first element, end). The rest may hold anything finite.
    """

    begin: int
    step: int
    length: int
    divisor: int = 1
    needed: tuple[tuple[int, int], ...] | None = None

    def start(self, position: Any) -> Any:
        """The first element of the window at a position, which is an integer or an int32 tensor."""
        start = position * self.step + self.begin
        return start if self.divisor == 1 else start // self.divisor


def read_window(
    planner: Planner, value: Value, dim: int, window: Window, *, wrap: bool = False, fill: complex | bool = 0
) -> Value:
    """Each core's window of a dimension; sums stay pending.

    Elements outside the dimension are `fill`, or with `wrap` the elements at its other end. Where a window covers the
    dimension's padding, it holds `fill` or the padding's content. The result is split like the value. Its size is the
    number of parts times the window's length.
    """
    axes, n, size = value.layout.axes[dim], value.slice_shape[dim], value.shape[dim].size
    parts = axes_size(axes, planner.mesh_shape)
    value = relabelled(planner.moves, value, value.shape.resize_dimension(value.shape[dim].name, parts * n))
    fill = bool(fill) if value.dtype == tf.bool else fill
    assembly = _assembled_by(window, parts, (n, n), None if wrap else size)
    held = value
    # A single piece is sent directly. This sends as many bytes as a gather of two slices, and needs less memory.
    if assembly.num_received(parts) > 1 and assembly.received(parts) >= n * (parts - 1):
        held = planner.moves.once(value, ("whole", dim), lambda: planner.all_gather(value, dim))
        assembly = _assembled_by(window, parts, (n * parts, 0), None if wrap else size)
    if assembly.is_whole_slice:
        return value
    pieces = [_received(planner, held, dim, piece) for piece in assembly.pieces]
    shape = value.shape.resize_dimension(value.shape[dim].name, parts * window.length)
    own = value.layout.slice_shape(shape, planner.mesh_shape)
    emit = assembly.kernel(dim, own, axes, value.dtype, fill)
    spec = (shape, value.dtype, value.layout)
    return planner.compute("window", emit, pieces, [spec], pending=value.pending)[0]


def part_of(planner: Planner, value: Value, dim: int, begin: int, size: int) -> Value:
    """The `size` elements from `begin` on of each core's own slice, along a dimension. Sums stay pending."""
    n = value.slice_shape[dim]
    if size == n:
        return value
    parts = axes_size(value.layout.axes[dim], planner.mesh_shape)
    shape = value.shape.resize_dimension(value.shape[dim].name, parts * size)
    starts = [begin if i == dim else 0 for i in range(shape.ndims)]
    sizes = value.layout.slice_shape(shape, planner.mesh_shape)
    spec = (shape, value.dtype, value.layout)

    def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
        return sliced(x, starts, sizes)

    return planner.compute("border", emit, [value], [spec], pending=value.pending)[0]


@dataclasses.dataclass(frozen=True, slots=True)
class _Piece:
    """Elements [begin, end) of the slice of the core that is `distance` further along the split."""

    distance: int
    begin: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Assembly:
    """How cores assemble their windows: pieces in order, with `before` and `after` filled elements around them."""

    window: Window
    parts: int
    pieces: tuple[_Piece, ...]
    origin: int
    """The distance between the starts of adjacent cores' slices; 0 if all cores hold the whole dimension."""
    first: int
    """Where the pieces begin, relative to the core's own slice."""
    before: int
    after: int
    is_fixed: bool
    """Whether the window of every core is the whole assembly."""
    wrap: bool

    @property
    def is_whole_slice(self) -> bool:
        """Whether each core's window is its slice."""
        return self.is_fixed and self.origin == self.window.length and self.pieces == (_Piece(0, 0, self.origin),)

    def received(self, parts: int) -> int:
        """The number of elements that a core receives from other cores."""
        return sum(p.end - p.begin for p in self.pieces if p.distance % parts)

    def num_received(self, parts: int) -> int:
        """The number of pieces that come from other cores."""
        return sum(1 for p in self.pieces if p.distance % parts)

    def kernel(
        self, dim: int, size: Sequence[int], axes: tuple[str, ...], dtype: tf.DType, fill: complex | bool
    ) -> Emit:
        """The work that joins the pieces to the window."""

        def filled(n: int) -> list[tf.Tensor]:
            shape = [n if i == dim else m for i, m in enumerate(size)]
            return [tf.fill(np.array(shape, np.int32), tf.constant(fill, dtype))] if n else []

        def masked(core: Core, piece: _Piece, x: tf.Tensor) -> tf.Tensor:
            if self.wrap or not piece.distance:
                return x
            source = core.coordinate(axes) + piece.distance
            return tf.where((source >= 0) & (source < self.parts), x, tf.constant(fill, dtype))

        def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
            inner = [masked(core, piece, x) for piece, x in zip(self.pieces, slices, strict=True)]
            joined = [*filled(self.before), *inner, *filled(self.after)]
            y = joined[0] if len(joined) == 1 else tf.concat(joined, dim)
            if self.is_fixed:
                return y
            position = core.coordinate(axes)
            start = self.window.start(position) - position * self.origin - (self.first - self.before)
            return tf.slice(y, [start if i == dim else 0 for i in range(len(size))], size)

        return emit


def _assembled_by(window: Window, parts: int, slices: tuple[int, int], size: int | None) -> _Assembly:
    """The smallest assembly that contains the windows of all cores.

    Args:
      window: each core's window.
      parts: the number of cores along the split.
      slices: the number of elements that a core holds, and the distance to the start of the next core's elements.
      size: the dimension's size without padding; None if windows wrap around.
    """
    n, origin = slices
    starts = [window.start(j) for j in range(parts)]
    wanted = window.needed or [(s, s + window.length) for s in starts]
    # Elements outside the dimension, and its padding, are filled and not sent.
    if size is not None:
        wanted = [(max(start, 0), min(end, size)) for start, end in wanted]
    inside = [(start - j * origin, end - j * origin) for j, (start, end) in enumerate(wanted) if start < end and n]
    # All cores run one program, so each receives the pieces that any of them needs, relative to its own slice.
    first, end = (min(s for s, _ in inside), max(e for _, e in inside)) if inside else (0, 0)
    distances = range(first // n, -(-end // n)) if inside else ()
    pieces = tuple(_Piece(d, max(first - d * n, 0), min(end - d * n, n)) for d in distances)
    # A window may begin before the pieces or end after them, by an amount that depends on the core. The largest amounts
    # are filled.
    offsets = [s - j * origin - first for j, s in enumerate(starts)]
    before, after = max(0, -min(offsets)), max(0, max(offsets) + window.length - (end - first))
    is_fixed = len(set(offsets)) == 1 and end - first + before + after == window.length
    return _Assembly(window, parts, pieces, origin, first, before, after, is_fixed, size is None)


def _received(planner: Planner, value: Value, dim: int, piece: _Piece) -> Value:
    """Brings the piece to each core from the core at the piece's distance."""
    axes = value.layout.axes[dim]
    parts = axes_size(axes, planner.mesh_shape)

    def send() -> Value:
        border = part_of(planner, value, dim, piece.begin, piece.end - piece.begin)
        return planner.permute(border, axes, lambda j: (j - piece.distance) % parts)

    if not piece.distance % parts:
        return part_of(planner, value, dim, piece.begin, piece.end - piece.begin)
    return planner.moves.once(value, (dim, piece), send)  # a gradient often needs the same border as its operation


def read_whole_along(planner: Planner, operation: Operation, dim_name: str) -> Value:
    """The one input of an operation that passes pending sums, with a dimension whole on every core."""
    (x,) = operation.inputs
    (held,) = planner.read_operands_as_they_are(operation)
    if held.pending and not held.layout.axes[x.shape.axis(dim_name)]:
        return held
    return planner.read(x, without_split(planner.layouts[x], x.shape, dim_name))
