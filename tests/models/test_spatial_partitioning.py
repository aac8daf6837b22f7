"""Images split over cores, at sizes that do not divide: each layer sends the rows that windows need, and no more."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.models import SSD, ResNet, ResNet50, UNet
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from tests.house.sharpest import sharpest

RESNET = ResNet50(10, width=4, batch_norm_epsilon=1e-3)
DETECTOR = SSD(3, ResNet(3, stage_sizes=(3, 4, 6), stage_strides=(1, 2, 1), width=4, block="basic"), small_size=10)
U_NET = UNet(3, width=4, num_levels=3)
TERMS = (49 * 3 + 60 * 9 * 32, 60 * 3 * FUNCTION_TERMS)
"""Roundings of at most 60 convolutions and of what divides by statistics."""


def rows_sent(slide: Any, cores: int, *, is_transposed: bool) -> int:
    """The fewest rows that each core sends, where all cores send the same rows of their own to the same distances.

    Window p has the rows from p * stride - before on. A transposed convolution reads windows, and makes rows.
    """
    sizes = (slide.image_size, slide.result_size)
    read, made = sizes[::-1] if is_transposed else sizes
    held, own = -(-read // cores), -(-made // cores)
    needed = collections.defaultdict[int, set[int]](set)
    for window in range(slide.result_size):
        first = window * slide.stride - slide.before
        for row in range(max(first, 0), min(first + slide.kernel_size, slide.image_size)):
            source, result = (window, row) if is_transposed else (row, window)
            needed[source // held - result // own].add(source % held)
    return sum(max(rows) - min(rows) + 1 for distance, rows in needed.items() if distance)


def bounds(graph: mtf.Graph, cores: int) -> Iterator[tuple[str, int]]:
    """Yields the name and the fewest bytes from each core of each convolution and pooling over split rows.

    The gradient of a kernel reads the rows that the convolution was sent, and the places of the largest elements are
    found in those that the pooling was sent.
    """
    operation: Any
    for operation in graph.operations:
        kind = type(operation).__name__
        reads_again = kind == "ConvolutionKernelOperation" or operation.name.endswith("taps")
        slides = operation.geometry.slides if hasattr(operation, "geometry") else [getattr(operation, "windows", None)]
        for slide in [] if reads_again else slides:
            if slide is not None and slide.image_dim == "height":
                is_backwards = kind in ("ConvolutionImageOperation", "WindowSumGradientOperation")
                rows = rows_sent(slide, cores, is_transposed=is_backwards)
                images = operation.inputs if kind == "WindowSumGradientOperation" else operation.inputs[:1]
                of_rows = [x.size * x.dtype.size // x.shape.get_dim_by_name("height").size for x in images]
                yield operation.name, rows * sum(of_rows)


def detector_maps(images: mtf.Tensor) -> mtf.Tensor:
    with mtf.variable_scope("backbone"):
        x = DETECTOR.backbone.feature_map(images, is_training=False)
    return mtf.layers.conv2d(x, ("filters", 8), 3, 2, name="further")


PROGRAMS: dict[str, Callable[[mtf.Tensor], mtf.Tensor]] = {
    "resnet50": lambda images: RESNET.feature_map(images, is_training=False),
    "detector": detector_maps,
    "unet": lambda images: U_NET.logits(images, is_training=False),
}


@pytest.mark.parametrize(
    ("name", "size", "cores"),
    sharpest(
        [("resnet50", 225, 3), ("resnet50", 300, 7), ("detector", 300, 3), ("detector", 300, 4), ("unet", 52, 3)],
        [("resnet50", 225, 3), ("detector", 300, 4), ("unet", 52, 3)],
    ),
)
def test_each_layer_sends_the_rows_that_windows_need(name: str, size: int, cores: int) -> None:
    """And so does each layer's gradient."""
    graphs = list[mtf.Graph]()

    def program(images: mtf.Tensor) -> list[mtf.Tensor | None]:
        graphs.append(images.graph)
        loss = mtf.reduce_sum(PROGRAMS[name](images))
        return [loss, *mtf.gradients(loss, [images, *(v.value for v in images.graph.trainable_variables)])]

    specs = {"images": mtf.TensorSpec(f"batch:2 height:{size} width:16 channels:3")}
    report = mtf.function(program, mtf.PlanMeshImpl(f"a:{cores}", "height:a"), inputs=specs).report()
    sent = collections.defaultdict[str, int](int)
    for collective in report.collectives:
        assert collective.kind in ("permute", "all_reduce")
        if collective.kind == "permute":
            sent[collective.operation] += collective.bytes_sent
    expected = {operation: count for operation, count in bounds(graphs[0], cores) if count}
    assert len(expected) > 20
    assert dict(sent) == expected


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("mesh", "layout"), [("a:3", "height:a"), ("a:2;b:3", "height:b;width:a")])
def test_results_and_gradients_are_those_of_one_core(name: str, mesh: str, layout: str) -> None:
    """ResNet-50 and the detector at 75 rows, which become 3 and 10; U-Net at 52, which become 13."""
    size = 52 if name == "unet" else 75
    images = np.random.default_rng(0).normal(size=(2, size, size, 3)).astype(np.float32)
    inputs = {"images": (f"batch:2 height:{size} width:{size} channels:3", images)}

    def program(images: mtf.Tensor) -> dict[str, mtf.Tensor]:
        y = PROGRAMS[name](images)
        weights = mtf.cast(mtf.reshape(mtf.range(y.mesh, ("n", y.size)), y.shape), y.dtype) / float(y.size)
        trainable = y.graph.trainable_variables
        gradients = mtf.gradients(mtf.reduce_sum(y * weights) / float(y.size), [v.value for v in trainable])
        found = {v.full_name: grad for v, grad in zip(trainable, gradients, strict=True) if grad is not None}
        return {"result": y, **found}

    expected = interpret(program, inputs, "a:1").results
    found = interpret(program, inputs, mesh, layout).results
    for own, value in expected.items():
        assert_close(found[own], value, terms=(*TERMS, size * size), what=f"{own} {layout}")
