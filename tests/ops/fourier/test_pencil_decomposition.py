"""The order in which dimensions are transformed: each once, where it is whole, and no order sends less."""

from __future__ import annotations

import functools
import itertools

import pytest

from meshtf.dimension import convert_to_shape
from meshtf.layout import TensorLayout
from meshtf.ops.fourier._pencil_decomposition import cheapest_stages
from meshtf.planning.moves.reshard import cheapest_route
from tests.planning.every_layout import every_layout

pytestmark = pytest.mark.quick

MESH = convert_to_shape("rows:2;cols:4")
SHAPE = convert_to_shape("a:8 b:4 c:6")
LAYOUTS = [TensorLayout(axes) for axes in every_layout((8, 4, 6), MESH)]
FULL = [layout for layout in LAYOUTS if len(layout.used) == 2]


@functools.cache
def sent(source: TensorLayout, target: TensorLayout) -> int:
    return cheapest_route(source, (), target, SHAPE, 8, MESH).bytes_sent


def hands_over(before: TensorLayout, after: TensorLayout, dim: int) -> bool:
    """Whether the second is the first with `dim` whole, the axes of its split at the end of others' or nowhere."""
    added = [
        new[len(old) :] if new[: len(old)] == old else None
        for i, (old, new) in enumerate(zip(before.axes, after.axes, strict=True))
        if i != dim
    ]
    return not after.axes[dim] and all(axes is not None and set(axes) <= set(before.axes[dim]) for axes in added)


def least(source: TensorLayout, target: TensorLayout, dims: tuple[int, ...]) -> int:
    """Of all orders of the dimensions, and all ways in which each hands its split over when its turn comes."""
    found = []
    for order in itertools.permutations(dims):
        costs = {source: 0}
        for dim in order:
            ways = [(b, a) for b in costs for a in LAYOUTS if hands_over(b, a, dim)]
            costs = {after: min(costs[b] + sent(b, after) for b, a in ways if a == after) for _, after in ways}
        found.append(min(cost + sent(layout, target) for layout, cost in costs.items()))
    return min(found)


@pytest.mark.parametrize("dims", [(0,), (0, 1), (0, 1, 2)])
def test_no_sequence_of_layouts_sends_less(dims: tuple[int, ...]) -> None:
    for source in FULL[::3]:
        for target in FULL[1::4]:
            stages = cheapest_stages([source], target, SHAPE, dims, 8, MESH)
            assert sorted(d for stage in stages for d in stage.dims) == list(dims)
            assert not any(stage.layout.axes[d] for stage in stages for d in stage.dims)
            way = [source, *(stage.layout for stage in stages), target]
            assert sum(itertools.starmap(sent, itertools.pairwise(way))) == least(source, target, dims)


def test_the_version_that_is_nearest_is_the_source() -> None:
    split, whole = TensorLayout((("rows",), (), ())), TensorLayout(((), ("rows",), ()))
    (stage,) = cheapest_stages([split, whole], whole, SHAPE, [0], 8, MESH)
    assert (stage.layout, stage.dims) == (whole, (0,))
