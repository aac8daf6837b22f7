from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.models import SSD, DefaultBoxes, ResNet
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.data import drawn_objects
from tests.built_program import BuiltProgram

PUBLISHED = SSD(81, ResNet(81, stage_sizes=(3, 4, 6), stage_strides=(1, 2, 1), block="basic"))
TINY = SSD(
    4,
    ResNet(4, stage_sizes=(1, 1), stage_strides=(2, 2), width=4, block="basic", stem="plain", batch_norm_epsilon=1e-3),
    DefaultBoxes(23, (4, 8, 12), (7, 10, 12, 15), ((1.5,), (), ())),
    ((8, 8, 2), (8, 8, 1)),
    num_candidates=8,
    num_detections=6,
    small_size=5,
    negatives_per_positive=100.0,  # each box counts
)
SIZE = 23
TERMS = (7 * 9 * 16, 8 * SIZE * SIZE, 12 * FUNCTION_TERMS)
"""Roundings of the convolutions, of statistics over the batch, and of functions."""


LAYOUTS = [
    "a:3;b:2|height:a;width:b",
    "a:4;b:2|height:a;filters:b;anchors:b",
    "a:2;b:2|batch:a;objects:b;classes:b",
]


def convolution(window: int, inputs: int, outputs: int) -> int:
    return window * window * inputs * outputs


def test_it_is_the_detector_of_mlperf() -> None:
    graph = mtf.Graph()
    with graph:
        mesh = mtf.Mesh(graph)
        logits, offsets, anchors = PUBLISHED.outputs(mtf.zeros(mesh, "batch:2 height:300 width:300 channels:3"), True)
    assert str(logits.shape) == "batch:2 anchors:8732 classes:81"
    assert str(offsets.shape) == "batch:2 anchors:8732 coordinates:4"
    assert str(anchors.shape) == "anchors:8732 coordinates:4"
    stages = [(3, 64, 64), (4, 64, 128), (6, 128, 256)]
    count = convolution(7, 3, 64) + 2 * 64
    for blocks, before, filters in stages:
        count += convolution(3, before, filters) + (2 * blocks - 1) * convolution(3, filters, filters)
        count += 2 * blocks * 2 * filters  # scales and biases
        count += (convolution(1, before, filters) + 2 * filters) * (before != filters)
    maps = [256]
    for narrow, filters, _ in PUBLISHED.further_maps:
        count += convolution(1, maps[-1], narrow) + narrow + convolution(3, narrow, filters) + filters
        maps.append(filters)
    for filters, boxes in zip(maps, (4, 6, 6, 6, 4, 4), strict=True):
        count += (convolution(3, filters, 1) + 1) * boxes * (81 + 4)
    assert sum(variable.shape.size for variable in graph.trainable_variables) == count


@pytest.mark.parametrize("layouts", [LAYOUTS[::2], pytest.param(LAYOUTS, marks=pytest.mark.long)], ids=len)
def test_layout_changes_neither_loss_nor_gradients_nor_detections(layouts: list[str]) -> None:
    """Images of 23 rows become maps of 6, 3 and 1, on 3 and 4 cores."""
    task = drawn_objects(size=SIZE, num_train=4, num_held_out=1)
    inputs = {name: (mtf.Shape([("batch", 4)]) + task.shapes[name], task.train[name]) for name in task.shapes}

    def program(**features: mtf.Tensor) -> dict[str, mtf.Tensor]:
        loss = TINY.metrics(features, True)["loss"]
        assert isinstance(loss, mtf.Tensor)
        trainable = loss.graph.trainable_variables
        gradients = mtf.gradients(mtf.reduce_mean(loss), [variable.value for variable in trainable])
        found = {v.full_name: grad for v, grad in zip(trainable, gradients, strict=True) if grad is not None}
        assert len(found) == len(trainable)
        return {"loss": loss, **found}

    built = BuiltProgram(program, inputs)
    expected = built.interpret("a:1").results
    assert expected["head_0/coordinates/kernel"].any()
    assert expected["head_2/classes/bias"].any()
    for mesh, layout in (text.split("|") for text in layouts):
        found = built.interpret(mesh, layout).results
        for name, value in expected.items():
            assert_close(found[name], value, terms=(*TERMS, *TERMS), what=f"{name} {layout}")


def test_predictions_are_in_order_and_each_layouts() -> None:
    task = drawn_objects(size=SIZE, num_train=2, num_held_out=1)
    inputs = {"images": (mtf.Shape([("batch", 2)]) + task.shapes["images"], task.train["images"])}

    def program(images: mtf.Tensor) -> dict[str, mtf.Tensor]:
        return TINY.predict({"images": images})

    expected = interpret(program, inputs, "a:1").results
    assert (expected["scores"] > TINY.least_score).any()
    assert (np.diff(expected["scores"]) <= 0).all()
    assert expected["classes"].min() >= 1
    found = interpret(program, inputs, "a:2", "height:a;anchors:a;candidates:a").results
    np.testing.assert_array_equal(found["classes"], expected["classes"])
    assert_close(found["boxes"], expected["boxes"], terms=TERMS)


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match=r"SSD: there are 2 feature maps.*default_boxes are for 6"):
        SSD(4, TINY.backbone, further_maps=((8, 8, 2),))
    with pytest.raises(ValueError, match=r"(?s)DefaultBoxes: .* the same number of feature maps .* are for 2, 1 and 1"):
        DefaultBoxes(steps=(8, 16), scales=(21, 45), aspect_ratios=((2,),))
    with pytest.raises(ValueError, match=r"stage_strides must be 2 positive integers.* is \(2,\)"):
        ResNet(4, stage_sizes=(1, 1), stage_strides=(2,))
    graph = mtf.Graph()
    small = dataclasses.replace(TINY, default_boxes=dataclasses.replace(TINY.default_boxes, image_size=12))
    with graph, pytest.raises(ShapeError, match="too small: feature map 2 needs 3 rows and columns"):
        small.outputs(mtf.zeros(mtf.Mesh(graph), "batch:2 height:12 width:12 channels:3", tf.float32), True)


@pytest.mark.parametrize("size", ["height:23 width:46", "height:46 width:46"])
def test_images_of_another_size_than_the_boxes_are_refused(size: str) -> None:
    graph = mtf.Graph()
    with (
        graph,
        pytest.raises(ShapeError, match=r"images \[batch:2 .*\] are not of 23 x 23, for which the default boxes"),
    ):
        TINY.outputs(mtf.zeros(mtf.Mesh(graph), f"batch:2 {size} channels:3", tf.float32), True)
