"""Over which mesh axes a convolution splits each dimension."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from meshtf.dimension import Shape
from meshtf.graph import Tensor
from meshtf.layout import Axes, axes_size
from meshtf.ops.algebra.einsum import layout_over
from meshtf.planning.layout_table import LayoutTable
from meshtf.planning.reshard import cheapest_route


def choose_splits(
    inputs: Sequence[Tensor], output: Tensor, layouts: LayoutTable, *, shapes: Sequence[Shape], whole: Sequence[str]
) -> dict[str, Axes]:
    """By name, the mesh axes that send the fewest bytes; among equals the most cores work.

    Splits are those that the operands and the output have, where they divide every size that the name has in `shapes`.
    Dimensions in `whole` are split nowhere.
    """
    seen: dict[str, set[Axes]] = {}
    for tensor in (*inputs, output):
        for dim, axes in zip(tensor.shape, layouts[tensor].axes, strict=True):
            is_allowed = dim.name not in whole and _divides(axes, dim.name, shapes, layouts.mesh_shape)
            seen.setdefault(dim.name, set()).add(axes if is_allowed else ())
    return min(_candidates(seen), key=lambda splits: _cost(splits, inputs, output, layouts))


def _divides(axes: Axes, name: str, shapes: Sequence[Shape], mesh_shape: Shape) -> bool:
    parts = axes_size(axes, mesh_shape)
    return all(s.get_dim_by_name(name).size % parts == 0 for s in shapes if s.has(name))


def _candidates(seen: Mapping[str, set[Axes]]) -> Iterator[dict[str, Axes]]:
    if all(len(choices) == 1 for choices in seen.values()):
        agreed = {name: next(iter(choices)) for name, choices in seen.items()}
        if _is_disjoint(agreed):
            yield agreed
            return
    choices = [sorted({*axes, ()}, key=lambda a: (-len(a), a)) for axes in seen.values()]
    for chosen in itertools.product(*choices):
        splits = dict(zip(seen, chosen, strict=True))
        if _is_disjoint(splits):
            yield splits


def _is_disjoint(splits: Mapping[str, Axes]) -> bool:
    used = [a for axes in splits.values() for a in axes]
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


def summed_axes(splits: Mapping[str, Axes], output_shape: Shape) -> Axes:
    """The mesh axes of the dimensions that the output lacks."""
    return tuple(a for name, axes in splits.items() if not output_shape.has(name) for a in axes)
