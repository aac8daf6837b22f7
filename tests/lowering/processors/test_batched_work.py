"""Convolutions of few rows on each of several cores: one kernel for all, and the values of one core."""

from __future__ import annotations

import collections
import functools
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from tests.lowering.emitted import graph_of

KINDS = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
PRODUCTS = ("MatMul", "BatchMatMulV2")
LEARNING_RATE = 2.0**-10
_rng = np.random.default_rng(0)

pytestmark = pytest.mark.plain_cpu


def whole_numbers(*shape: int) -> np.ndarray:
    """Small ones, of which all sums here are exact in whatever order."""
    return _rng.integers(-2, 3, shape).astype(np.float32)


FIRST, SECOND = whole_numbers(3, 3, 3, 4), whole_numbers(3, 3, 4, 8)


def train_step(images: mtf.Tensor, taps: int) -> list[mtf.Tensor]:
    """Two layers; what is between them does not depend on the batch's other images."""
    height, width = (mtf.Dimension(name, taps) for name in ("filter_height", "filter_width"))
    channels, hidden, out = mtf.Dimension("channels", 3), mtf.Dimension("hidden", 4), mtf.Dimension("out", 8)
    first = mtf.get_variable(images.mesh, "first", [height, width, channels, hidden], initializer=FIRST[:taps, :taps])
    second = mtf.get_variable(images.mesh, "second", [height, width, hidden, out], initializer=SECOND[:taps, :taps])
    y = mtf.relu(mtf.conv2d(images, first))
    y = mtf.conv2d(y, second, strides=2 if taps > 1 else 1)
    loss = mtf.reduce_sum(y)
    by_images, *by_filters = mtf.gradients([loss], [images, first, second])
    for filters, gradient in zip((first, second), by_filters, strict=True):
        mtf.assign_sub(filters, LEARNING_RATE * mtf.relu(gradient))
    return [loss, by_images]


class Run:
    """One step on a mesh: its results, its variables, and how many kernels of each kind the program starts."""

    def __init__(self, mesh_shape: str, layout: str, side: int = 4, taps: int = 3, **options: Any) -> None:
        images = np.random.default_rng(1).integers(-2, 3, [8, side, side, 3]).astype(np.float32)
        spec = mtf.TensorSpec(f"batch:8 height:{side} width:{side} channels:3")
        mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout, bucket_bytes=0, **options)
        step = mtf.function(lambda images: train_step(images, taps), mesh_impl, {"images": spec})
        self.results = [x.numpy() for x in step(images=images)]
        self.variables = {name: step.variables[name] for name in step.variables}
        graph = graph_of(step).as_graph_def()
        bodies = {f.signature.name: f.node_def for f in graph.library.function}
        self.kernels = collections.Counter(_started(graph.node, bodies))


@functools.cache
def on_one_core(side: int = 4, taps: int = 3) -> Run:
    return Run("all:1", "", side, taps)


def _started(nodes: Any, bodies: dict[str, Any]) -> list[str]:
    found = []
    for node in nodes:
        kind = node.op.removeprefix("_MklNative").removeprefix("_Mkl")
        found += [kind] if kind in (*KINDS, *PRODUCTS) else []
        found += _started(bodies[node.attr["f"].func.name], bodies) if "f" in node.attr else []
    return found


def check(run: Run, alone: Run) -> None:
    for own, expected in zip(run.results, alone.results, strict=True):
        np.testing.assert_array_equal(own, expected)
    for name, value in alone.variables.items():
        np.testing.assert_array_equal(run.variables[name], value, name)


ALONE = {"Conv2D": 2, "Conv2DBackpropInput": 2, "Conv2DBackpropFilter": 2}


@pytest.mark.parametrize(
    ("mesh_shape", "layout", "options", "groups"),
    [
        ("all:8", "batch:all", {}, (1, 1)),
        ("rows:2;cols:4", "batch:cols", {}, (1, 1)),
        ("rows:4;cols:2", "batch:rows;out:cols", {}, (1, 2)),
        ("rows:4;cols:2", "batch:rows;hidden:cols", {}, (2, 2)),
        ("rows:4;cols:2", "batch:rows+cols", {}, (1, 1)),
    ],
    ids=str,
)
def test_one_kernel_for_all_cores_that_have_filters_alike(
    mesh_shape: str, layout: str, options: dict[str, Any], groups: tuple[int, int]
) -> None:
    """`groups`: of cores that hold different filters, for the first layer and for the second."""
    alone, run = on_one_core(), Run(mesh_shape, layout, **options)
    check(run, alone)
    assert alone.kernels == dict.fromkeys(KINDS, 2)
    assert run.kernels == dict.fromkeys(KINDS, sum(groups))


def test_images_of_other_places_go_apart() -> None:
    run = Run("rows:4;cols:2", "batch:rows;height:cols")
    check(run, on_one_core())
    assert run.kernels["Conv2D"] == run.kernels["Conv2DBackpropFilter"] == 2 * 2


def test_cores_of_different_processes_go_apart() -> None:
    """So that the bits are those of real ones; and each core has a gradient by filters, to be summed between them."""
    run = Run("rows:4;cols:2", "batch:rows", num_processes=2)
    check(run, on_one_core())
    assert run.kernels == {"Conv2D": 2 * 2, "Conv2DBackpropInput": 2 * 2, "Conv2DBackpropFilter": 2 * 8}


def test_cores_with_many_rows_convolve_by_themselves() -> None:
    """A first layer of 16 x 16 positions for each image, and a second of a quarter of them."""
    alone, run = on_one_core(16), Run("all:8", "batch:all", side=16)
    check(run, alone)
    assert run.kernels == {"Conv2D": 8 + 1, "Conv2DBackpropInput": 8 + 1, "Conv2DBackpropFilter": 8 + 1}


@pytest.mark.parametrize(("side", "times"), [(4, 1), (16, 8)])
def test_single_elements_are_a_product(side: int, times: int) -> None:
    """Of few rows on each core one for all cores, as a convolution is."""
    alone, run = on_one_core(side, taps=1), Run("all:8", "batch:all", side, taps=1)
    check(run, alone)
    assert alone.kernels == {"MatMul": 6}
    assert run.kernels == {"MatMul": 6 * times}
