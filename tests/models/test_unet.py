from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.models import UNet
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from tests.built_program import BuiltProgram

TERMS = (4 * 9 * 16, 4 * 12 * 20, 12 * FUNCTION_TERMS)
"""Roundings of the convolutions, of sums over the pixels of a batch, and of functions."""


def test_it_is_the_published_network() -> None:
    """31 million weights: each of 3x3 windows with a bias, in levels of 64 to 1,024 filters, and windows of 2x2 up."""
    graph = mtf.Graph()
    with graph:
        mesh = mtf.Mesh(graph)
        logits = UNet(2).logits(mtf.zeros(mesh, "batch:1 height:64 width:48 channels:1"), True)
    assert str(logits.shape) == "batch:1 height:64 width:48 classes:2"
    sizes = [1, 64, 128, 256, 512, 1024]
    pairs = [pair for a, b in itertools.pairwise(sizes) for pair in ((a, b), (b, b))]
    pairs += [pair for b in sizes[4:0:-1] for pair in ((2 * b, b), (b, b))]
    count = sum(9 * a * b + b for a, b in pairs) + sum(4 * 2 * b * b + b for b in sizes[1:5]) + 64 * 2 + 2
    assert sum(variable.shape.size for variable in graph.trainable_variables) == count
    assert count == 31_030_658


FLAT, DEEP = {"height": 20, "width": 12}, {"depth": 4, "height": 6, "width": 8}
LAYOUTS = [("a:3;b:2", "height:a;width:b"), ("a:2;b:2", "filters:a;batch:b")]


@pytest.mark.parametrize(
    ("spatial", "layouts"),
    [
        (FLAT, LAYOUTS[:1]),
        (DEEP, LAYOUTS[1:]),
        *(pytest.param(spatial, LAYOUTS, marks=pytest.mark.long) for spatial in (FLAT, DEEP)),
    ],
    ids=len,
)
def test_layout_changes_neither_loss_nor_gradients(spatial: dict[str, int], layouts: list[tuple[str, str]]) -> None:
    """Sizes 20, 10 and 5 on 3 cores, and 12, 6 and 3 on 2."""
    is_flat = len(spatial) == 2
    model = UNet(3, width=2, num_levels=3 if is_flat else 2, num_spatial=len(spatial), batch_norm=is_flat)
    random = np.random.default_rng(0)
    shape = mtf.Shape([("batch", 2), *spatial.items()])
    images = random.normal(size=[*shape.to_integer_list, 2]).astype(np.float32)
    labels = random.integers(0, 3, shape.to_integer_list).astype(np.int32)
    inputs = {"images": (mtf.Shape([*shape, ("channels", 2)]), images), "labels": (shape, labels)}

    def program(**features: mtf.Tensor) -> dict[str, mtf.Tensor]:
        loss = model.metrics(features, True)["loss"]
        assert isinstance(loss, mtf.Tensor)
        trainable = loss.graph.trainable_variables
        gradients = mtf.gradients(mtf.reduce_mean(loss), [variable.value for variable in trainable])
        found = {v.full_name: grad for v, grad in zip(trainable, gradients, strict=True) if grad is not None}
        assert len(found) == len(trainable)
        return {"loss": loss, **found}

    built = BuiltProgram(program, inputs)
    expected = built.interpret("a:1").results
    for mesh, layout in layouts:
        found = built.interpret(mesh, layout).results
        for name, value in expected.items():
            assert_close(found[name], value, terms=(*TERMS, *TERMS), what=f"{name} {layout}")


def test_intersection_over_union_is_over_all_pixels_together() -> None:
    model = UNet(3, width=2, num_levels=1)
    random = np.random.default_rng(1)
    images = random.normal(size=(4, 3, 5, 1)).astype(np.float32)
    labels = random.integers(0, 2, (4, 3, 5)).astype(np.int32)
    inputs = {"images": ("batch:4 h:3 w:5 channels:1", images), "labels": ("batch:4 h:3 w:5", labels)}

    def program(**features: mtf.Tensor) -> dict[str, object]:
        return {**model.metrics(features, False), **model.predict(features)}

    for layout in ("", "h:a;batch:b", "classes:a"):
        found = interpret(program, inputs, "a:3;b:2", layout).results
        value, weight = found["intersection_over_union"]
        classes = [(found["classes"] == n, labels == n) for n in range(3)]
        union = np.array([(a | b).sum() for a, b in classes])
        shared = np.array([(a & b).sum() for a, b in classes])
        np.testing.assert_allclose(weight, union / 4, rtol=1e-6)
        np.testing.assert_allclose(value, shared / np.maximum(union, 1), rtol=1e-6)
    there = np.where(union > 0, value, np.nan)
    expected = float(np.nanmean(there))
    assert model.held_out_metrics({"intersection_over_union": there}) == {
        "mean_intersection_over_union": pytest.approx(expected)
    }
    assert model.held_out_metrics({"intersection_over_union": np.full(3, np.nan)}) == {}


def test_pixels_without_a_class_count_in_no_metric() -> None:
    model = UNet(3, width=2, num_levels=1, check_labels=False)
    random = np.random.default_rng(2)
    images = random.normal(size=(4, 3, 5, 1)).astype(np.float32)
    labels = random.choice(np.array([0, 1, 2, -1, 255], np.int32), (4, 3, 5))
    inputs = {"images": ("batch:4 h:3 w:5 channels:1", images), "labels": ("batch:4 h:3 w:5", labels)}

    def program(**features: mtf.Tensor) -> dict[str, object]:
        likelihoods = mtf.log_softmax(model.logits(features["images"], False), "classes")
        return {"likelihoods": likelihoods, **model.metrics(features, False), **model.predict(features)}

    found = interpret(program, inputs, "a:3;b:2", "h:a;batch:b").results
    is_class = (labels >= 0) & (labels < 3)
    loss, weight = found["loss"]
    np.testing.assert_array_equal(weight, is_class)
    of_labels = np.take_along_axis(found["likelihoods"], np.where(is_class, labels, 0)[..., None], -1)[..., 0]
    assert_close(loss[is_class], -of_labels[is_class], terms=3 + 2 * FUNCTION_TERMS)
    assert 0 < is_class.sum() < is_class.size
    np.testing.assert_array_equal(found["accuracy"][0][is_class], (found["classes"] == labels)[is_class])
    np.testing.assert_array_equal(found["accuracy"][1], is_class)
    classes = [((found["classes"] == n) & is_class, labels == n) for n in range(3)]
    shared = np.array([(a & b).sum() / max((a | b).sum(), 1) for a, b in classes])
    np.testing.assert_allclose(found["intersection_over_union"][0], shared, rtol=1e-6)


def test_bad_sizes() -> None:
    graph = mtf.Graph()
    with graph, pytest.raises(ShapeError, match=r"multiple of 4, for 3 levels"):
        UNet(2, num_levels=3).logits(mtf.zeros(mtf.Mesh(graph), "batch:1 h:6 w:8 c:1", tf.float32), True)
    with pytest.raises(ValueError, match="num_spatial is 2 for images or 3 for volumes, not 1"):
        UNet(2, num_spatial=1)
