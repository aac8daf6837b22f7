"""Draws which core holds which part of a tensor, in colour in the terminal or as a PNG."""

from __future__ import annotations

import colorsys
import dataclasses
import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import rich.console
import rich.table

from meshtf.call_sites import says_where
from meshtf.dimension import Shape, ShapeLike, convert_to_shape
from meshtf.errors import LayoutError, UsageError
from meshtf.graph.tensor import Tensor
from meshtf.layout import LayoutLike, LayoutRules, TensorLayout, convert_to_layout_rules
from meshtf.mesh_impl.mesh_options import MeshOptions
from meshtf.picture_html import picture_html
from meshtf.planning import core_positions
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.rules_by_place import RuleSet

_MOST_ROWS, _MOST_PANELS = 64, 16
_NEEDS_MATPLOTLIB = "a picture is drawn with matplotlib: install it with `pip install meshtf[plots]`"


class LaidOutMesh(Protocol):
    """A mesh implementation: a shape and rules."""

    @property
    def shape(self) -> Shape: ...

    @property
    def layout_rules(self) -> LayoutRules: ...

    @property
    def options(self) -> MeshOptions: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A part of a tensor, as [begin, end) along each dimension, and the cores that hold it."""

    bounds: tuple[tuple[int, int], ...]
    cores: tuple[int, ...]

    def text(self, shape: Shape) -> str:
        """Returns text such as `batch 0:4, hidden all`, and `all` for a scalar."""
        parts = [
            f"{d.name} {'all' if (begin, end) == (0, d.size) else f'{begin}:{end}'}"
            for d, (begin, end) in zip(shape, self.bounds, strict=True)
        ]
        return ", ".join(parts) or "all"


@dataclasses.dataclass(frozen=True)
class LayoutPicture:
    """A tensor's blocks. `print` shows them in colour, `save` writes a PNG, and the text is the table without
    colour.
    """

    title: str
    shape: Shape
    layout: TensorLayout
    mesh_shape: Shape
    blocks: tuple[Block, ...]

    @property
    def panels(self) -> dict[str, list[int]]:
        """The numbers of the blocks in each panel, keyed by the panel's place.

        A panel shows the two drawn dimensions. Its place, such as `length 0:4`, gives the bounds of the other split
        dimensions. If there are no others, all blocks lie in one panel.
        """
        panels: dict[str, list[int]] = {}
        for number, block in enumerate(self.blocks):
            panels.setdefault(self._other_bounds(block), []).append(number)
        return panels

    def print(self, console: rich.console.Console | None = None) -> None:
        """Prints a row for each block in the terminal, in its colour, with the cores that hold it."""
        (console or rich.console.Console()).print(self._table())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a PNG. The tensor's first split dimension runs downwards, and the second to the right.

        If more dimensions are split, there is a panel for each part of the others.

        Raises:
          UsageError: if matplotlib is not installed, or the file cannot be written.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            raise UsageError(_NEEDS_MATPLOTLIB) from None
        if not (folder := Path(path).absolute().parent).is_dir():
            raise UsageError(f"the picture cannot be written to {os.fspath(path)}: there is no folder {folder}")
        panels = self.shown_panels
        columns = math.ceil(math.sqrt(len(panels)))
        rows = math.ceil(len(panels) / columns)
        figure = Figure(figsize=(max(8, 4 * columns), max(6, 3 * rows)), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(self.title, fontsize=10)
        for place, (others, numbers) in enumerate(panels.items()):
            self._draw_panel(figure.add_subplot(rows, columns, place + 1), others, numbers)
        try:
            figure.savefig(os.fspath(path), format="png", dpi=120)
        except OSError as error:
            raise UsageError(f"the picture {os.fspath(path)} cannot be written: {error.strerror or error}") from error

    def __str__(self) -> str:
        console = rich.console.Console(width=110, color_system=None, force_jupyter=False)  # a notebook would show it
        with console.capture() as captured:
            console.print(self._table())
        return captured.get().rstrip()

    def _repr_html_(self) -> str:
        return picture_html(self)

    @property
    def hues(self) -> list[int]:
        """The hue of each block, in degrees."""
        return [round(360 * number / max(len(self.blocks), 1)) for number in range(len(self.blocks))]

    def cores_text(self, block: Block) -> str:
        """The cores that hold a block, such as `0-3, 8`."""
        return runs(block.cores)

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

    @property
    def shown_panels(self) -> dict[str, list[int]]:
        """The panels that a picture has room for."""
        panels = self.panels
        if len(panels) <= _MOST_PANELS:
            return panels
        *first, last = itertools.islice(panels, _MOST_PANELS)
        shown = {name: panels[name] for name in first}
        return {**shown, f"{last}, and {len(panels) - _MOST_PANELS} more": panels[last]}

    def _draw_panel(self, plot: Any, others: str, numbers: Sequence[int]) -> None:
        from matplotlib.patches import Rectangle

        axes = self.drawn_dimensions
        for number in numbers:
            block = self.blocks[number]
            (top, bottom), (left, right) = (block.bounds[axis] if axis is not None else (0, 1) for axis in axes)
            box = Rectangle((left, top), right - left, bottom - top, facecolor=self._colour(number), edgecolor="black")
            plot.add_patch(box)
            if len(self.blocks) <= _MOST_ROWS:
                middle = (left + right) / 2, (top + bottom) / 2
                plot.text(*middle, f"core {runs(block.cores)}", ha="center", va="center", fontsize=8)
        down, right_dim = (None if axis is None else self.shape[axis] for axis in axes)
        plot.set_xlim(0, right_dim.size if right_dim else 1)
        plot.set_ylim(down.size if down else 1, 0)
        plot.set_xlabel(str(right_dim or ""))
        plot.set_ylabel(str(down or ""))
        plot.set_xticks(self._bounds_of(axes[1]))
        plot.set_yticks(self._bounds_of(axes[0]))
        plot.set_title(others, fontsize=9)

    def _bounds_of(self, axis: int | None) -> list[int]:
        return [] if axis is None else sorted({bound for block in self.blocks for bound in block.bounds[axis]})

    def _other_bounds(self, block: Block) -> str:
        """Returns the bounds of split dimensions that are not drawn, as `length 0:4`."""
        drawn = self.drawn_dimensions
        return ", ".join(
            f"{d.name} {begin}:{end}"
            for axis, (d, (begin, end)) in enumerate(zip(self.shape, block.bounds, strict=True))
            if axis not in drawn and self.layout.axes[axis]
        )

    @property
    def drawn_dimensions(self) -> tuple[int | None, int | None]:
        """Returns the dimensions to draw, downwards and to the right. Split dimensions come first."""
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
    """Shows which core holds which part of a tensor, in the terminal in colour and, given a path, as a PNG.

    Args:
      tensor_or_shape: a tensor of a program, with its layout overrides, or a named shape.
      mesh: a mesh implementation, which has layout rules, or a mesh shape.
      layout: layout rules; required with a mesh shape.
      path: the path of a PNG to write, with matplotlib.
      show: whether to print.

    Returns:
      The picture, with its blocks. Its text is the printed text without colour.

    Raises:
      LayoutError: if there is no layout, or the tensor cannot have it.
      UsageError: if a path is given, and matplotlib is not installed or the path's folder is missing.

    Examples:
      >>> picture = mtf.visualize_layout("batch:4 hidden:8", "rows:2", "batch:rows", show=False)
      >>> picture.title, len(picture.blocks)
      ('batch:4/rows hidden:8 on mesh rows:2', 2)
    """
    mesh_shape, rules, options = _mesh_and_rules(mesh, layout)
    shape, own, name = _laid_out(tensor_or_shape, mesh_shape, rules, options)
    mesh_shape = options.parts_of_axes(mesh_shape).taken_apart(mesh_shape)
    picture = picture_of(name, shape, own, mesh_shape)
    if show:
        picture.print()
    if path is not None:
        picture.save(path)
    return picture


def picture_of(name: str, shape: Shape, layout: TensorLayout, mesh_shape: Shape) -> LayoutPicture:
    """Returns the picture of a known layout. Its title starts with `name`, such as `logits: `."""
    title = f"{name}{layout.to_string(shape) or 'a scalar'} on mesh {mesh_shape}"
    return LayoutPicture(title, shape, layout, mesh_shape, tuple(_blocks(shape, layout, mesh_shape)))


def runs(numbers: tuple[int, ...]) -> str:
    """Returns ascending numbers as text such as `0-3, 8`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ", ".join("-".join(map(str, run)) for run in found)


def _mesh_and_rules(mesh: LaidOutMesh | ShapeLike, layout: LayoutLike | None) -> tuple[Shape, LayoutRules, MeshOptions]:
    if hasattr(mesh, "layout_rules"):
        impl = cast("LaidOutMesh", mesh)
        return impl.shape, impl.layout_rules if layout is None else convert_to_layout_rules(layout), impl.options
    if layout is None:
        raise LayoutError('with a mesh shape a layout is needed; for one that splits nothing give ""')
    return convert_to_shape(mesh), convert_to_layout_rules(layout), MeshOptions()  # type: ignore[arg-type]


def _laid_out(
    tensor_or_shape: Tensor | ShapeLike, mesh_shape: Shape, rules: LayoutRules, options: MeshOptions
) -> tuple[Shape, TensorLayout, str]:
    axis_parts = options.parts_of_axes(mesh_shape)
    if isinstance(tensor_or_shape, Tensor):
        variables = tensor_or_shape.graph.variables.values()
        rule_set = RuleSet.of_variables(rules, options.activation_layout_rules, variables)
        table = LayoutTable(axis_parts.taken_apart(mesh_shape), rule_set, axis_parts, options.max_padding)
        operations = tensor_or_shape.graph.operations
        last = operations.index(tensor_or_shape.operation)
        table.resolve(operations[: last + 1])
        return tensor_or_shape.shape, table[tensor_or_shape], f"{tensor_or_shape.name}: "
    shape = convert_to_shape(tensor_or_shape)
    table = LayoutTable(axis_parts.taken_apart(mesh_shape), rules, axis_parts, options.max_padding)
    return shape, table.under_rules(shape).layout, ""


def _blocks(shape: Shape, layout: TensorLayout, mesh_shape: Shape) -> list[Block]:
    holders: dict[tuple[int, ...], list[int]] = {}
    for core in range(mesh_shape.size):
        holders.setdefault(core_positions.block(core, layout.axes, mesh_shape), []).append(core)
    sizes = list(zip(shape.to_integer_list, layout.slice_shape(shape, mesh_shape), strict=True))
    parts = layout.parts(mesh_shape)
    assert len(holders) == math.prod(parts)
    return [
        Block(
            tuple((min(p * n, end), min((p + 1) * n, end)) for p, (end, n) in zip(position, sizes, strict=True)),
            tuple(holders[position]),
        )
        for position in itertools.product(*(range(n) for n in parts))
    ]
