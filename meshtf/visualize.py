"""Which core holds what of a tensor: in the terminal in colour, and as a picture."""

from __future__ import annotations

import colorsys
import dataclasses
import itertools
import math
import os
from typing import Any, Protocol, cast

import rich.console
import rich.table

from meshtf.call_sites import says_where
from meshtf.dimension import Shape, ShapeLike, convert_to_shape
from meshtf.errors import LayoutError, UsageError
from meshtf.graph import Tensor
from meshtf.layout import LayoutLike, LayoutRules, TensorLayout, convert_to_layout_rules
from meshtf.planning import core_positions
from meshtf.planning.layout_table import LayoutTable

_MOST_ROWS = 64
_NEEDS_MATPLOTLIB = "a picture is drawn with matplotlib: install it with `pip install meshtf[plots]`"


class LaidOutMesh(Protocol):
    """A mesh implementation: a shape and rules."""

    @property
    def shape(self) -> Shape: ...

    @property
    def layout_rules(self) -> LayoutRules: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A part of a tensor, as [begin, end) along each dimension, and the cores that hold it."""

    bounds: tuple[tuple[int, int], ...]
    cores: tuple[int, ...]

    def text(self, shape: Shape) -> str:
        """As `batch 0:4, hidden all`; of a scalar, `all`."""
        parts = [
            f"{d.name} {'all' if (begin, end) == (0, d.size) else f'{begin}:{end}'}"
            for d, (begin, end) in zip(shape, self.bounds, strict=True)
        ]
        return ", ".join(parts) or "all"


@dataclasses.dataclass(frozen=True)
class LayoutPicture:
    """A tensor's blocks. `print` shows it in colour, `save` writes a PNG; its text is the table without colour."""

    title: str
    shape: Shape
    layout: TensorLayout
    mesh_shape: Shape
    blocks: tuple[Block, ...]

    def print(self, console: rich.console.Console | None = None) -> None:
        """In the terminal: a row for each block, in its colour, with the cores that hold it."""
        (console or rich.console.Console()).print(self._table())

    def save(self, path: str | os.PathLike[str]) -> None:
        """As a PNG: the tensor's first dimension that is split downwards, the second to the right.

        Raises:
          UsageError: matplotlib is not installed, or the file cannot be written.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            raise UsageError(_NEEDS_MATPLOTLIB) from None
        figure = Figure(figsize=(8, 6), layout="constrained")
        FigureCanvasAgg(figure)
        self._draw(figure.add_subplot())
        try:
            figure.savefig(os.fspath(path), format="png", dpi=120)
        except OSError as error:
            reason = error.strerror if os.path.isdir(os.path.dirname(path) or ".") else "its folder is not there"
            raise UsageError(f"the picture {os.fspath(path)} cannot be written: {reason}") from error

    def __str__(self) -> str:
        console = rich.console.Console(width=110, color_system=None, force_jupyter=False)  # a notebook would show it
        with console.capture() as captured:
            console.print(self._table())
        return captured.get().rstrip()

    def _table(self) -> rich.table.Table:
        table = rich.table.Table(title=self.title, title_justify="left", expand=False)
        table.add_column("part")
        table.add_column(f"cores of {self.mesh_shape}")
        for number, block in enumerate(self.blocks[:_MOST_ROWS]):
            red, green, blue = (round(255 * c) for c in self._colour(number))
            table.add_row(block.text(self.shape), runs(block.cores), style=f"black on rgb({red},{green},{blue})")
        if len(self.blocks) > _MOST_ROWS:
            table.add_row(f"and {len(self.blocks) - _MOST_ROWS} more", "")
        return table

    def _colour(self, number: int) -> tuple[float, float, float]:
        return colorsys.hsv_to_rgb(number / max(len(self.blocks), 1), 0.35, 0.95)

    def _draw(self, plot: Any) -> None:
        down, right = self._drawn_dimensions()
        places: dict[tuple[tuple[int, int], tuple[int, int]], list[int]] = {}
        for number, block in enumerate(self.blocks):
            rows, columns = (block.bounds[axis] if axis is not None else (0, 1) for axis in (down, right))
            places.setdefault((rows, columns), []).append(number)
        for (rows, columns), numbers in places.items():
            self._draw_place(plot, rows, columns, numbers)
        downwards, to_the_right = (None if axis is None else self.shape[axis] for axis in (down, right))
        plot.set_xlim(0, to_the_right.size if to_the_right else 1)
        plot.set_ylim(downwards.size if downwards else 1, 0)
        plot.set_xlabel(str(to_the_right or ""))
        plot.set_ylabel(str(downwards or ""))
        plot.set_xticks(sorted({bound for _, columns in places for bound in columns}) if to_the_right else [])
        plot.set_yticks(sorted({bound for rows, _ in places for bound in rows}) if downwards else [])
        plot.set_title(self.title, fontsize=10)

    def _draw_place(self, plot: Any, rows: tuple[int, int], columns: tuple[int, int], numbers: list[int]) -> None:
        """Blocks that differ in dimensions that are not drawn share a place: side by side in it."""
        from matplotlib.patches import Rectangle

        width = (columns[1] - columns[0]) / len(numbers)
        for i, number in enumerate(numbers):
            block, left = self.blocks[number], columns[0] + i * width
            height = rows[1] - rows[0]
            plot.add_patch(Rectangle((left, rows[0]), width, height, facecolor=self._colour(number), edgecolor="black"))
            if len(self.blocks) <= _MOST_ROWS:
                text = "\n".join([*self._other_bounds(block), f"core {runs(block.cores)}"])
                plot.text(left + width / 2, rows[0] + height / 2, text, ha="center", va="center", fontsize=8)

    def _other_bounds(self, block: Block) -> list[str]:
        """Of the dimensions that are split and not drawn."""
        drawn = self._drawn_dimensions()
        return [
            f"{d.name} {begin}:{end}"
            for axis, (d, (begin, end)) in enumerate(zip(self.shape, block.bounds, strict=True))
            if axis not in drawn and self.layout.axes[axis]
        ]

    def _drawn_dimensions(self) -> tuple[int | None, int | None]:
        """Those that are split come first; of two, the first goes down."""
        order = sorted(range(self.shape.ndims), key=lambda axis: not self.layout.axes[axis])[:2]
        down, right = [*sorted(order), None, None][:2]
        return down, right


@says_where
def visualize_layout(
    tensor_or_shape: Tensor | ShapeLike,
    mesh: LaidOutMesh | ShapeLike,
    layout: LayoutLike | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    show: bool = True,
) -> LayoutPicture:
    """Shows which core holds what of a tensor, in the terminal in colour and, given a path, as a PNG.

    Args:
      tensor_or_shape: a tensor of a program, whose overrides count, or a named shape.
      mesh: a mesh implementation, which has a layout, or a mesh shape.
      layout: rules; needed with a mesh shape.
      path: of a PNG to write, with matplotlib.
      show: whether to print.

    Returns:
      The picture, with its blocks; its text is what was printed, without colour.

    Raises:
      LayoutError: there is no layout, or the tensor cannot have it.
      UsageError: a path is given and matplotlib is not installed.

    Examples:
      >>> picture = mtf.visualize_layout("batch:4 hidden:8", "rows:2", "batch:rows", show=False)
      >>> picture.title, len(picture.blocks)
      ('batch:4/rows hidden:8 on mesh rows:2', 2)
    """
    mesh_shape, rules = _mesh_and_rules(mesh, layout)
    shape, own, name = _laid_out(tensor_or_shape, mesh_shape, rules)
    title = f"{name}{own.to_string(shape) or 'a scalar'} on mesh {mesh_shape}"
    picture = LayoutPicture(title, shape, own, mesh_shape, tuple(_blocks(shape, own, mesh_shape)))
    if show:
        picture.print()
    if path is not None:
        picture.save(path)
    return picture


def runs(numbers: tuple[int, ...]) -> str:
    """As `0-3, 8`: ascending numbers, neighbours together."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ", ".join("-".join(map(str, run)) for run in found)


def _mesh_and_rules(mesh: LaidOutMesh | ShapeLike, layout: LayoutLike | None) -> tuple[Shape, LayoutRules]:
    if hasattr(mesh, "layout_rules"):
        impl = cast("LaidOutMesh", mesh)
        return impl.shape, impl.layout_rules if layout is None else convert_to_layout_rules(layout)
    if layout is None:
        raise LayoutError('with a mesh shape a layout is needed; for one that splits nothing give ""')
    return convert_to_shape(mesh), convert_to_layout_rules(layout)  # type: ignore[arg-type]


def _laid_out(
    tensor_or_shape: Tensor | ShapeLike, mesh_shape: Shape, rules: LayoutRules
) -> tuple[Shape, TensorLayout, str]:
    table = LayoutTable(mesh_shape, rules)
    if isinstance(tensor_or_shape, Tensor):
        operations = tensor_or_shape.graph.operations
        last = operations.index(tensor_or_shape.operation)
        table.resolve(operations[: last + 1])
        return tensor_or_shape.shape, table[tensor_or_shape], f"{tensor_or_shape.name}: "
    shape = convert_to_shape(tensor_or_shape)
    return shape, table.under_rules(shape).layout, ""


def _blocks(shape: Shape, layout: TensorLayout, mesh_shape: Shape) -> list[Block]:
    holders: dict[tuple[int, ...], list[int]] = {}
    for core in range(mesh_shape.size):
        holders.setdefault(core_positions.block(core, layout.axes, mesh_shape), []).append(core)
    sizes, parts = layout.slice_shape(shape, mesh_shape), layout.parts(mesh_shape)
    assert len(holders) == math.prod(parts)
    return [
        Block(tuple((p * n, (p + 1) * n) for p, n in zip(position, sizes, strict=True)), tuple(holders[position]))
        for position in itertools.product(*(range(n) for n in parts))
    ]
