"""Chooses splits for work on dimensions that every core must have whole: another dimension takes over their split.

For example, a sort along `length` of [batch:8 length:16/cols] needs `length` whole. With [batch:8/cols length:16] each
core sorts a part of the batch, which sends less than a gather of everything on every core.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from meshtf.dimension import Dimension, Shape
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, axes_size
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.moves.reshard import cheapest_route
from meshtf.planning.planner import Planner
from meshtf.planning.splits import layout_over

Splits = Mapping[str, Axes]
"""The mesh axes that split each dimension, keyed by its name. A dimension that is absent is whole."""


def whole_splits(
    planner: Planner, inputs: Sequence[Tensor], names: Iterable[str], outputs: Sequence[Tensor]
) -> dict[str, Axes]:
    """The splits under which an operation sends the fewest bytes, with the dimensions `names` whole.

    The mesh axes that split `names` may split other dimensions instead, where they divide them. Among equals, the
    splits with the least work win.
    """
    whole = set(names)
    tensors = [*inputs, *outputs]
    others = {d.name: d for t in tensors for d in t.shape if d.name not in whole}
    found: dict[tuple[tuple[str, Axes], ...], dict[str, Axes]] = {}
    for base in _bases(planner, tensors, whole):
        used = {a for axes in base.values() for a in axes}
        axes = [a for t in tensors for own in planner.layouts[t].axes for a in own]
        for splits in _extended(base, [a for a in dict.fromkeys(axes) if a not in used], others, planner.mesh_shape):
            found.setdefault(tuple(sorted(splits.items())), splits)
    return min(found.values(), key=lambda splits: _preference(planner, inputs, outputs, splits))


def whole_because(layouts: LayoutTable, inputs: Sequence[Tensor], names: Iterable[str], why: str) -> str:
    """The reason `why`, followed by the split dimensions among `names`; empty if none of them is split."""
    whole = set(names)
    dims = (
        d.name for x in inputs for d, axes in zip(x.shape, layouts[x].axes, strict=True) if axes and d.name in whole
    )
    split = list(dict.fromkeys(dims))
    return f"{why} ({', '.join(split)})" if split else ""


def _bases(planner: Planner, tensors: Sequence[Tensor], whole: set[str]) -> Iterator[dict[str, Axes]]:
    """The splits of the other dimensions in each of the tensors."""
    for tensor in tensors:
        layout = planner.layouts[tensor]
        yield {d.name: a for d, a in zip(tensor.shape, layout.axes, strict=True) if a and d.name not in whole}


def _extended(
    base: Splits, free: Sequence[str], dims: Mapping[str, Dimension], mesh_shape: Shape
) -> Iterator[dict[str, Axes]]:
    """The base, extended in every way: each free mesh axis is left out, or splits one of the dimensions."""
    for targets in itertools.product([None, *dims], repeat=len(free)):
        splits = dict(base)
        for axis, name in zip(free, targets, strict=True):
            if name is not None:
                splits[name] = (*splits.get(name, ()), axis)
        grown = {name: axes for name, axes in splits.items() if axes != base.get(name)}
        if all(dims[name].size % axes_size(axes, mesh_shape) == 0 for name, axes in grown.items()):
            yield splits


def bytes_sent(planner: Planner, inputs: Sequence[Tensor], outputs: Sequence[Tensor], splits: Splits) -> int:
    """The bytes that bring the inputs to these splits, and the outputs from the splits to their own layouts."""
    sent = sum(planner.tensors.bytes_to_read(x, layout_over(x.shape, splits)) for x in inputs)
    for y in outputs:
        source, size = layout_over(y.shape, splits), y.dtype.size
        sent += cheapest_route(source, (), planner.layouts[y], y.shape, size, planner.mesh_shape).bytes_sent
    return sent


def _preference(
    planner: Planner, inputs: Sequence[Tensor], outputs: Sequence[Tensor], splits: Splits
) -> tuple[int, int, tuple[tuple[str, Axes], ...]]:
    parts = axes_size((a for axes in splits.values() for a in axes), planner.mesh_shape)
    return bytes_sent(planner, inputs, outputs, splits), -parts, tuple(sorted(splits.items()))
