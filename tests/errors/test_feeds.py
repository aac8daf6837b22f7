"""Arrays that do not fit a program's inputs, and bodies that do not fit the specifications."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError, GraphError

SPECS = {"images": mtf.TensorSpec("batch:4 pixels:6"), "labels": mtf.TensorSpec("batch:4", tf.int32)}
IMAGES, LABELS = np.ones([4, 6], np.float32), np.zeros(4, np.int32)


def train_step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
    return mtf.reduce_sum(images, reduced_dim="pixels") * mtf.to_float(labels)


@pytest.fixture(scope="module")
def step() -> mtf.Function:
    return mtf.function(train_step, mtf.SpmdMeshImpl("rows:2", "batch:rows"), SPECS)


@pytest.mark.parametrize(
    ("feeds", "parts"),
    [
        ({"images": IMAGES[:3]}, ['input "images" must be [batch:4 pixels:6] float32, and has shape [3, 6]']),
        ({"images": IMAGES.T}, ["has shape [6, 4]"]),
        ({"images": 1.0}, ["has shape []"]),
        ({"images": [[1, 2], [3]]}, ["is a list that is not an array: its parts differ in length"]),
        ({"images": IMAGES.astype(np.float64)}, ["has dtype float64; convert it, as in x.astype('float32')"]),
        ({"images": tf.ones([4, 6], tf.bfloat16)}, ["has dtype bfloat16; convert it, as in tf.cast(x, tf.float32)"]),
        ({"images": tf.ragged.constant([[1.0], []])}, ["is a RaggedTensor; make it dense first"]),
        ({"images": "a name"}, ["is a str of <U6, not an array of numbers"]),
        ({"labels": [0, 1, 2, 3.5]}, ['input "labels" must be [batch:4] int32, and has float64 values']),
        ({"labels": [0, 1, 2, 1 << 40]}, ["has values from 0 to 1099511627776, beyond int32"]),
        ({"labels": [True, False, True, True]}, ["has bool values"]),
        ({"images": None}, ['input "images" [batch:4 pixels:6] float32 is missing']),
        ({"lables": LABELS}, ['no input "lables"; did you mean "labels"?']),
        ({"extra": LABELS}, ['no input "extra"; the inputs are: images, labels']),
    ],
)
def test_the_message(read: Callable[..., str], step: mtf.Function, feeds: dict[str, Any], parts: list[str]) -> None:
    def call() -> None:
        step(**{"images": IMAGES, "labels": LABELS, **feeds})

    text = read(FeedError, call)
    assert 'program "train_step" was given wrong inputs:\n  ' in text
    for part in parts:
        assert part in text


def test_all_mistakes_are_told_at_once(read: Callable[..., str], step: mtf.Function) -> None:
    text = read(FeedError, lambda: step(images=IMAGES.T, lables=LABELS))
    assert [line.strip()[:16] for line in text.splitlines()[1:4]] == [
        'no input "lables',
        'input "images" m',
        'input "labels" [',
    ]


def test_positions(read: Callable[..., str], step: mtf.Function) -> None:
    text = read(FeedError, lambda: step(IMAGES, LABELS, LABELS))
    assert 'program "train_step" has 2 inputs (images, labels) and was given 3 arguments' in text
    text = read(FeedError, lambda: step({"images": IMAGES, "labels": LABELS}))
    assert 'program "train_step" was given a dict; inputs are given by name, as in step(**batch)' in text
    assert 'was given input "images" twice' in read(FeedError, lambda: step(IMAGES, LABELS, images=IMAGES))


def test_inside_a_tf_function(read: Callable[..., str], step: mtf.Function) -> None:
    """Autograph, which rewrites the function, changes neither the error nor the line."""

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(x) > 0:
            x = x + 1.0
        return step(images=x, labels=LABELS)

    with pytest.raises(FeedError) as caught:
        outer(tf.ones([4, 7]))
    assert 'input "images" must be [batch:4 pixels:6] float32, and has shape [4, 7]' in str(caught.value)
    assert f"at {__file__}:{outer.python_function.__code__.co_firstlineno + 4} in outer" in str(caught.value)


def test_a_lowering_by_hand(read: Callable[..., str], step: mtf.Function) -> None:
    text = read(FeedError, lambda: step.lowering.run(step.lowering.graph.operations[0].outputs[0], {"image": IMAGES}))
    assert 'no input "image"; did you mean "images"?' in text
    text = read(GraphError, lambda: step.lowering.run(3))  # type: ignore[arg-type]
    assert "the fetch must be an mtf.Tensor, not int" in text


@dataclasses.dataclass(frozen=True, slots=True)
class Results:
    loss: mtf.Tensor


def test_bodies_and_specifications(read: Callable[..., str]) -> None:
    mesh = mtf.SpmdMeshImpl("rows:2", "")
    text = read(GraphError, lambda: mtf.function(train_step, mesh, {**SPECS, "lables": SPECS["labels"]}))
    assert 'inputs names "lables", which train_step does not take; did you mean "labels"?' in text
    text = read(GraphError, lambda: mtf.function(train_step, mesh, {"images": SPECS["images"]}))
    assert 'train_step takes "labels", which inputs does not name' in text
    text = read(GraphError, lambda: mtf.function(train_step, "rows:2", SPECS))  # type: ignore[arg-type]
    assert "mesh_impl must be an mtf.SpmdMeshImpl" in text
    text = read(GraphError, lambda: mtf.function(mesh, train_step, SPECS))  # type: ignore[arg-type]
    assert "the function comes first: mtf.function(fn, mesh_impl)" in text
    text = read(GraphError, lambda: mtf.function(train_step, mesh, {"images": tf.TensorSpec([4, 6])}))  # type: ignore[dict-item]
    assert 'input "images" must be an mtf.TensorSpec, not tensorflow.' in text
    text = read(GraphError, lambda: mtf.function(lambda: tf.ones([]), mesh))
    assert "returned an array of TensorFlow, EagerTensor, known before it runs; it must return mtf.Tensors" in text
    text = read(GraphError, lambda: mtf.function(lambda: {"loss": np.ones(3)}, mesh))
    assert "returned an array of NumPy, ndarray, known before it runs; it must return mtf.Tensors" in text
    images = {"images": SPECS["images"]}
    for result, kind in ((Results, "Results"), (lambda x: {x}, "set")):
        text = read(GraphError, lambda result=result: mtf.function(lambda images: [result(images)], mesh, images))
        assert f"returned mtf.Tensors in a {kind}, whose parts would get no values; return them in a dict" in text
    text = read(GraphError, lambda: mtf.function(operator.neg, mesh, {"a": SPECS["images"]}))
    assert 'neg takes "a" by position alone, and inputs are given by name' in text
    text = read(GraphError, lambda: mtf.function(lambda images: images.operation, mesh, images))
    assert "returned the operation images, not its outputs" in text
    text = read(GraphError, lambda: mtf.function(train_step, mesh, [*SPECS.values()]))  # type: ignore[arg-type]
    assert "inputs must be a dict from names to mtf.TensorSpecs, not list" in text
