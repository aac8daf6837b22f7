"""Common refinements: a reshape between split tensors is a change of layout over them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import numpy as np
import pytest

from meshtf.dimension import Shape, convert_to_shape
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.lowering.core_slices import split
from meshtf.planning.moves.refinement import Refinement, coarser, over_dimensions, refine
from meshtf.planning.plan import Plan

pytestmark = pytest.mark.quick

MESHES = ["rows:2;cols:4", "x:2;y:2;z:2", "rows:3;cols:2"]
_FACTORS = [1, 2, 3, 4, 5, 6, 8]


def layout(rng: random.Random, shape: Shape, mesh_shape: Shape) -> TensorLayout:
    axes = mesh_shape.dimension_names
    rng.shuffle(axes)
    chosen: list[Axes] = [()] * shape.ndims
    for axis in axes:
        dim = rng.randrange(shape.ndims + 1)
        if dim < shape.ndims and shape[dim].size % axes_size((*chosen[dim], axis), mesh_shape) == 0:
            chosen[dim] = (*chosen[dim], axis)
    return TensorLayout(tuple(chosen))


def reshapes(count: int) -> Iterator[tuple[Shape, TensorLayout, Shape, TensorLayout, Shape]]:
    """Two shapes of one size, each grouping the same factors in its own order or way, laid out at random."""
    rng = random.Random(count)
    for _ in range(count):
        mesh_shape = convert_to_shape(rng.choice(MESHES))
        factors = [rng.choice(_FACTORS) for _ in range(rng.randint(1, 4))]
        shapes = []
        for name in "st":
            if rng.randrange(3) == 0:
                rng.shuffle(factors)
            cuts = sorted(rng.sample(range(1, len(factors)), rng.randint(0, len(factors) - 1)))
            groups = [factors[i:j] for i, j in itertools.pairwise([0, *cuts, len(factors)])]
            shapes.append(Shape([(f"{name}{i}", math.prod(g)) for i, g in enumerate(groups)]))
        source, target = shapes
        yield source, layout(rng, source, mesh_shape), target, layout(rng, target, mesh_shape), mesh_shape


def same_slices(shape: Shape, own: TensorLayout, sizes: tuple[int, ...], over: TensorLayout, mesh_shape: Shape) -> bool:
    """Whether every core holds the same elements, in the same order, by a shape and by its factors."""
    plan = Plan(mesh_shape, (), (), (), False)
    whole = np.arange(shape.size)
    by_shape = split(whole.reshape(shape.to_integer_list), own, plan)
    by_factors = split(whole.reshape(sizes), over, plan)
    return all(np.array_equal(x.ravel(), y.ravel()) for x, y in zip(by_shape, by_factors, strict=True))


def check(found: Refinement, source: Shape, own: TensorLayout, target: Shape, to: TensorLayout, mesh: Shape) -> None:
    assert math.prod(found.sizes) == source.size
    assert same_slices(source, own, found.sizes, found.source, mesh)
    assert same_slices(target, to, found.sizes, found.target, mesh)


def test_cores_hold_the_same_by_dimensions_and_by_factors() -> None:
    refined = 0
    for source, own, target, to, mesh_shape in reshapes(1500):
        found = refine(source, own, target, to, mesh_shape)
        if found is not None:
            refined += 1
            check(found, source, own, target, to, mesh_shape)
            merged = found.merged(mesh_shape)
            assert len(merged.sizes) <= len(found.sizes)
            check(merged, source, own, target, to, mesh_shape)
    assert refined > 800, f"only {refined} of 1500 reshapes have a refinement"


def test_some_coarser_layouts_have_a_refinement() -> None:
    """Lowering gathers until there is one: where nothing is split there always is."""
    for source, own, target, to, mesh_shape in reshapes(300):
        pairs = itertools.product(coarser(own), coarser(to))
        assert any(refine(source, s, target, t, mesh_shape) is not None for s, t in pairs)


def test_a_layout_over_factors_is_one_over_dimensions_or_none() -> None:
    """What it claims is true; and mostly it finds the layout again from which the factors came."""
    again = []
    for source, own, target, to, mesh_shape in reshapes(500):
        found = refine(source, own, target, to, mesh_shape)
        if found is None:
            continue
        returned = over_dimensions(target, found.sizes, found.target.axes, mesh_shape)
        assert returned in (None, to)
        again.append(returned == to)
        local = over_dimensions(target, found.sizes, found.source.axes, mesh_shape)
        if local is not None:
            assert same_slices(target, local, found.sizes, found.source, mesh_shape)
    # None where dimensions of the target share a factor: of little use, but no mistake.
    assert sum(again) > 0.8 * len(again)


@pytest.mark.parametrize(
    ("source", "source_axes", "target", "target_axes", "expected"),
    [
        # Merging: [batch:rows, heads:cols, key] to [batch:rows, heads*key:cols] is local.
        ("batch:8 heads:4 key:6", (("rows",), ("cols",), ()), "batch:8 d:24", (("rows",), ("cols",)), True),
        # The major part of what is split stays where it is.
        ("batch:8 d:24", (("rows",), ()), "n:192", (("rows",),), True),
        # [4, 6] to [6, 4] has no common factors inside; a common split of the leading ones is 2.
        ("a:4 b:6", (("rows",), ()), "c:6 d:4", (("rows",), ()), True),
        ("a:4 b:6", (("cols",), ()), "c:6 d:4", ((), ("cols",)), False),
    ],
)
def test_examples(
    source: str, source_axes: tuple[Axes, ...], target: str, target_axes: tuple[Axes, ...], expected: bool
) -> None:
    mesh_shape = convert_to_shape("rows:2;cols:4")
    shapes = convert_to_shape(source), convert_to_shape(target)
    found = refine(shapes[0], TensorLayout(source_axes), shapes[1], TensorLayout(target_axes), mesh_shape)
    assert (found is not None and found.source == found.target) == expected
