"""Chooses the mesh axes over which an operation on several tensors splits each dimension.

The tensors may disagree. In a product of x [batch, in] and w [in, out], x may have `batch` split over rows, and w `out`
split over the same rows. A choice gives each dimension one mesh axis, several or none. The operands are moved to the
choice's layouts, and the result from there to its own layout. The choice that sends the fewest bytes wins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from meshtf.dimension import Shape
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, TensorLayout, axes_size, padding_share
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.moves.reshard import cheapest_route


def layout_over(shape: Shape, splits: Mapping[str, Axes]) -> TensorLayout:
    """The layout of a shape whose dimensions are split as `splits` says by name."""
    return TensorLayout(tuple(splits.get(d.name, ()) for d in shape))


def summed_axes(splits: Mapping[str, Axes], output_shape: Shape) -> Axes:
    """The mesh axes of the dimensions that the output lacks."""
    return tuple(a for name, axes in splits.items() if not output_shape.has(name) for a in axes)


def choose_splits(
    inputs: Sequence[Tensor],
    output: Tensor,
    layouts: LayoutTable,
    *,
    shapes: Sequence[Shape] = (),
    whole: Sequence[str] = (),
) -> dict[str, Axes]:
    """The mesh axes of each dimension, by its name: those that operands and output agree on, else the cheapest.

    A split is considered if an operand or the output has it. Every size that the name has in `shapes` must allow it,
    with no more padding than the layouts do. Dimensions in `whole` are split nowhere.
    """
    seen = _seen_splits(inputs, output, layouts, shapes, whole)
    # Tensors nearly always agree, and then no bytes need be counted.
    if all(len(choices) == 1 for choices in seen.values()):
        agreed = {name: next(iter(choices)) for name, choices in seen.items()}
        if _is_disjoint(agreed.values()):
            return agreed
    return _cheapest(seen, inputs, output, layouts)


def cheapest_splits(inputs: Sequence[Tensor], output: Tensor, layouts: LayoutTable) -> dict[str, Axes]:
    """The cheapest splits, even where the layouts agree: it may be cheaper to gather an operand."""
    return _cheapest(_seen_splits(inputs, output, layouts), inputs, output, layouts)


def _seen_splits(
    inputs: Sequence[Tensor],
    output: Tensor,
    layouts: LayoutTable,
    shapes: Sequence[Shape] = (),
    whole: Sequence[str] = (),
) -> dict[str, set[Axes]]:
    seen: dict[str, set[Axes]] = {}
    for tensor in (*inputs, output):
        for dim, axes in zip(tensor.shape, layouts[tensor].axes, strict=True):
            is_allowed = dim.name not in whole and can_split(axes, dim.name, shapes, layouts)
            seen.setdefault(dim.name, set()).add(axes if is_allowed else ())
    return seen


def can_split(axes: Axes, name: str, shapes: Iterable[Shape], layouts: LayoutTable) -> bool:
    """Whether all sizes of a name in the shapes can be split over these axes, with no more padding than is allowed."""
    parts = axes_size(axes, layouts.mesh_shape)
    sizes = [s.get_dim_by_name(name).size for s in shapes if s.has(name)]
    return all(padding_share(size, parts) <= layouts.max_padding for size in sizes)


def _cheapest(
    seen: Mapping[str, set[Axes]], inputs: Sequence[Tensor], output: Tensor, layouts: LayoutTable
) -> dict[str, Axes]:
    """The splits that send the fewest bytes; among equals, the splits that leave each core the least work.

    The bytes bring the operands to the splits, and the output from the splits to its own layout.
    """
    return min(_candidates(seen), key=lambda splits: _cost(splits, inputs, output, layouts))


def _candidates(seen: Mapping[str, set[Axes]]) -> Iterator[dict[str, Axes]]:
    # The choices are sorted because the first of equals wins, and sets have no order that all processes share.
    choices = [sorted({*axes, ()}, key=lambda a: (-len(a), a)) for axes in seen.values()]
    for chosen in itertools.product(*choices):
        if _is_disjoint(chosen):
            yield dict(zip(seen, chosen, strict=True))


def _is_disjoint(splits: Iterable[Axes]) -> bool:
    used = [a for axes in splits for a in axes]
    return len(used) == len(set(used))


def _cost(
    splits: Mapping[str, Axes], inputs: Sequence[Tensor], output: Tensor, layouts: LayoutTable
) -> tuple[int, int]:
    mesh_shape = layouts.mesh_shape
    sent = sum(
        cheapest_route(layouts[x], (), layout_over(x.shape, splits), x.shape, x.dtype.size, mesh_shape).bytes_sent
        for x in inputs
    )
    source, size = layout_over(output.shape, splits), output.dtype.size
    pending = summed_axes(splits, output.shape)
    sent += cheapest_route(source, pending, layouts[output], output.shape, size, mesh_shape).bytes_sent
    return sent, -math.prod(axes_size(axes, mesh_shape) for axes in splits.values())
