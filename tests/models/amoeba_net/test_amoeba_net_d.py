from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.layers import PipelineSchedule
from meshtf.models import AmoebaNetD, ResNet
from meshtf.testing import interpret_graph

GPIPE = {(18, 208): 82e6, (18, 416): 318e6, (18, 544): 542e6, (36, 544): 1.05e9, (72, 512): 1.8e9}
"""The numbers of parameters in table 1 of Huang et al. (2018), by L and D."""

PIPED = PipelineSchedule(num_stages=2, num_microbatches=2)


def convolved(inner: int, outer: int, size: int = 1) -> int:
    """The weights of a convolution, and a scale and a bias of its normalization."""
    return size * inner * outer + 2 * outer


def bottleneck(filters: int, *sizes: int) -> int:
    narrow = filters // 4
    return convolved(filters, narrow) + sum(convolved(narrow, narrow, n) for n in sizes) + convolved(narrow, filters)


def number_of_parameters(num_layers: int, num_filters: int, num_classes: int) -> int:
    """The sum over all cells, from the operations that each has."""
    before = last = num_filters // 4
    count = convolved(3, last, 9)
    was_reduction = False
    each = num_layers // 3
    kinds = [True, True, *[False] * each, True, *[False] * each, True, *[False] * each]
    filters = last
    for is_reduction in kinds:
        filters *= 2 if is_reduction else 1
        count += convolved(last, filters)
        if was_reduction or before != filters:
            count += convolved(before, filters)
        ones = 1 if is_reduction else 3
        count += ones * convolved(filters, filters)
        count += bottleneck(filters, 9) + bottleneck(filters, 7, 7) if is_reduction else 2 * bottleneck(filters, 7, 7)
        before, last, was_reduction = last, filters * (3 if is_reduction else 4), is_reduction
    return count + last * num_classes + num_classes


def test_it_has_about_as_many_parameters_as_in_gpipes_table() -> None:
    """Within 0.7 %, and within the rounding of 1.8 billion."""
    counts = {size: number_of_parameters(*size, 1000) for size in GPIPE}
    assert [*counts.values()] == [81_505_540, 319_024_120, 542_734_840, 1_055_832_376, 1_844_858_344]
    for size, published in GPIPE.items():
        assert abs(counts[size] / published - 1) < (0.007 if published < 1.5e9 else 0.028)
    graph = mtf.Graph()
    with graph:
        AmoebaNetD(1000).logits(mtf.zeros(mtf.Mesh(graph), "batch:8 height:224 width:224 channels:3"), True)
    assert sum(v.shape.size for v in graph.trainable_variables) == counts[18, 208]
    (last,) = (o for o in graph.operations if o.name.endswith("logits/einsum"))
    assert str(last.inputs[0].shape) == f"batch:8 filters:{16 * 208}"


def twice() -> dict[str, tuple[str, np.ndarray]]:
    """Images of which two micro-batches have the same, so that their statistics are those of the whole batch.

    Images become 1 x 2 pixels, and statistics of eight numbers make rounding errors larger layer by layer.
    """
    images = np.random.default_rng(0).normal(size=(2, 32, 64, 3)).repeat(2, axis=0)
    return {
        "images": ("batch:4 height:32 width:64 channels:3", images),
        "labels": ("batch:4", np.array([0, 0, 2, 2], np.int32)),
    }


def trained(
    model: AmoebaNetD, inputs: Mapping[str, tuple[str, np.ndarray]], mesh_shape: str, layout: str = ""
) -> dict[str, np.ndarray]:
    """The loss, the averages and the gradients, in 64 bits as the variables: large terms of a gradient may cancel."""
    with mtf.Graph(variable_dtype=mtf.VariableDType(tf.float64)) as graph:
        mesh = mtf.Mesh(graph)
        features = {
            name: mtf.placeholder(mesh, shape, tf.as_dtype(array.dtype), name=name)
            for name, (shape, array) in inputs.items()
        }
        loss = model.metrics(features, is_training=True)["loss"]
        found = {v.full_name: mtf.read_variable(v) for v in graph.variables.values() if not v.trainable}
        variables = graph.trainable_variables
        gradients = mtf.gradients(mtf.reduce_mean(loss), [v.value for v in variables])
        found |= {v.full_name: grad for v, grad in zip(variables, gradients, strict=True) if grad is not None}
        assert len(found) == len(graph.variables)
        found["loss"] = loss
    feeds = {name: array for name, (_, array) in inputs.items()}
    results = interpret_graph(graph, [*found.values()], feeds, mesh_shape, layout).results
    return dict(zip(found, results, strict=True))


@pytest.mark.long
def test_a_pipeline_has_the_loss_the_averages_and_the_gradients_of_one_core() -> None:
    plain, piped = (AmoebaNetD(3, 12, 4, pipeline, "nothing" if pipeline else None) for pipeline in (None, PIPED))
    expected = trained(plain, twice(), "a:1")
    found = trained(piped, twice(), "stages:2;b:2", "stage:stages;batch:stages;microbatch:stages;width:b")
    for name, value in expected.items():  # gradients may be 0 but for rounding
        np.testing.assert_allclose(found[name].reshape(value.shape), value, rtol=1e-5, atol=1e-9, err_msg=name)


@pytest.mark.long
def test_it_learns_on_two_stages() -> None:
    """Eight images by heart."""
    model = AmoebaNetD(2, 12, 8, PIPED, "nothing", batch_norm_momentum=0.5)
    shapes = {
        "images": mtf.TensorSpec("batch:8 height:64 width:64 channels:3"),
        "labels": mtf.TensorSpec("batch:8", tf.int32),
    }

    def step(**features: mtf.Tensor) -> mtf.Tensor:
        loss = mtf.reduce_mean(model.metrics(features, is_training=True)["loss"])
        mtf.optimize.AdamWOptimizer(0.01).minimize(loss)
        return loss

    random = np.random.default_rng(0)
    batch = {
        "images": random.normal(size=(8, 64, 64, 3)).astype(np.float32),
        "labels": random.integers(0, 2, 8).astype(np.int32),
    }
    mtf.virtual_cpus(2)
    mesh_impl = mtf.SpmdMeshImpl("stages:2", "stage:stages;batch:stages")
    train = mtf.function(step, mesh_impl, inputs=shapes)
    losses = [float(train(**batch)) for _ in range(30)]
    assert losses[-1] < 0.1 < losses[0]


@pytest.mark.long
def test_nested_recomputation_changes_no_number() -> None:
    """Nor do stages with it. Twelve layers, so that each stage of two has a cell."""
    images = {**twice(), "images": ("batch:4 height:4 width:4 channels:1", twice()["images"][1][:, :4, :4, :1])}
    plain = AmoebaNetD(3, 12, 4, stem="plain")
    expected = trained(plain, images, "a:1")
    for pipeline in (None, PIPED):
        model = dataclasses.replace(plain, pipeline=pipeline, recompute="nested")
        found = trained(model, images, "stages:2", "stage:stages;batch:stages;microbatch:stages")
        for name, value in expected.items():
            np.testing.assert_allclose(found[name].reshape(value.shape), value, rtol=1e-5, atol=1e-9, err_msg=name)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match="num_layers must be a multiple of 3, at least 9, and is 8"):
        AmoebaNetD(10, num_layers=8)
    with pytest.raises(ValueError, match="num_filters must be a multiple of 4, and is 6"):
        AmoebaNetD(10, num_filters=6)
    with pytest.raises(ValueError, match=r'stem must be one of reduced, plain, and is .plan.; did you mean "plain"'):
        AmoebaNetD(10, stem="plan")
    for model in (AmoebaNetD, ResNet):
        with pytest.raises(ValueError, match=rf"{model.__name__}: batch_norm_momentum must be in \[0, 1\], and is 1.5"):
            model(10, batch_norm_momentum=1.5)
        for epsilon, wanted in ((-1e-3, "0 or more"), (float("nan"), "a number"), ("1e-3", "a number")):
            with pytest.raises(
                ValueError, match=f"{model.__name__}: batch_norm_epsilon must be {wanted}, and is {epsilon!r}"
            ):
                model(10, batch_norm_epsilon=epsilon)  # type: ignore[arg-type]
    graph = mtf.Graph()
    with (
        graph,
        pytest.raises(ShapeError, match=r"batch:2 height:8 channels:3. must be .batch, height, width, channels."),
    ):
        AmoebaNetD(10).logits(mtf.zeros(mtf.Mesh(graph), "batch:2 height:8 channels:3"), True)
