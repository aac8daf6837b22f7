from __future__ import annotations

import dataclasses
from collections.abc import Callable

import gin
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.models import ResNet, ResNet50
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.configuration import find_gin_file
from tests.models.transformers import configured

BATCH = mtf.Dimension("batch", 8)
IMAGES, LABELS = mtf.Shape([BATCH, ("height", 16), ("width", 16), ("channels", 3)]), mtf.Shape([BATCH])
LAYOUTS = ["height:rows;width:cols", "batch:rows;filters:cols", "batch:rows+cols"]
TINY = ResNet50(num_classes=4, stage_sizes=(1, 1), width=4, batch_norm_epsilon=1e-3)
TERMS = (7 * 7 * 3, 6 * 3 * 3 * 16, 7 * 2 * 8 * 8 * 8, 7 * 3 * FUNCTION_TERMS)
"""Roundings of a forward pass: the first convolution, the six others, statistics over a batch of images of 8 by 8, and
what divides by them."""


def graph_of(model: ResNet50, images: mtf.Shape, *, is_training: bool) -> tuple[mtf.Graph, dict[str, mtf.Tensor]]:
    graph = mtf.Graph()
    with graph:
        mesh = mtf.Mesh(graph)
        features = {"images": mtf.zeros(mesh, images), "labels": mtf.zeros(mesh, LABELS, tf.int32)}
        return graph, model.metrics(features, is_training)


def test_is_the_published_network() -> None:
    graph, metrics = graph_of(ResNet50(1000), mtf.Shape([BATCH, ("h", 224), ("w", 224), ("rgb", 3)]), is_training=False)
    assert sum(variable.shape.size for variable in graph.trainable_variables) == 25_557_032
    assert {name: x.shape for name, x in metrics.items()} == {
        "loss": LABELS,
        "accuracy": LABELS,
        "top_5_accuracy": LABELS,
    }
    convolutions = [o for o in graph.operations if o.name.endswith("conv2d/conv2d")]
    assert len(convolutions) == 53  # 49 in a row, and 4 beside the first block of each stage
    assert str(convolutions[0].outputs[0].shape) == "batch:8 h:112 w:112 filters:64"
    # Version 1.5: the image is halved by the 3x3 convolution, and not by the 1x1 before.
    sizes = {o.name: str(o.outputs[0].shape) for o in convolutions if o.name.startswith("stage_1/block_0/")}
    assert sizes == {
        "stage_1/block_0/reduce/conv2d/conv2d": "batch:8 h:56 w:56 filters:128",
        "stage_1/block_0/convolve/conv2d/conv2d": "batch:8 h:28 w:28 filters:128",
        "stage_1/block_0/expand/conv2d/conv2d": "batch:8 h:28 w:28 filters:512",
        "stage_1/block_0/shortcut/conv2d/conv2d": "batch:8 h:28 w:28 filters:512",
    }
    assert str(convolutions[-1].outputs[0].shape) == "batch:8 h:7 w:7 filters:2048"


def test_a_plain_stem_keeps_small_images_whole() -> None:
    """The network for CIFAR (section 4.2 of He et al. 2016): 3x3 filters from the first layer on, and no pooling."""
    model = dataclasses.replace(TINY, block="basic", stem="plain")
    graph, _ = graph_of(model, IMAGES, is_training=False)
    shapes = [str(o.outputs[0].shape) for o in graph.operations if o.name.endswith("conv2d/conv2d")]
    assert shapes[0] == "batch:8 height:16 width:16 filters:4"
    assert shapes[-1] == "batch:8 height:8 width:8 filters:8"
    with pytest.raises(ValueError, match="stem must be one of pooled, plain, and is 'pool'"):
        ResNet(num_classes=4, stem="pool")


SIZES = {"resnet18": 11_689_512, "resnet34": 21_797_672, "resnet101": 44_549_160, "resnet152": 60_192_808}


@pytest.mark.parametrize("name", SIZES)
def test_other_sizes_are_the_published_ones(name: str) -> None:
    model = configured(name, sizes="")
    graph, _ = graph_of(model, mtf.Shape([BATCH, ("h", 224), ("w", 224), ("rgb", 3)]), is_training=False)
    assert sum(variable.shape.size for variable in graph.trainable_variables) == SIZES[name]
    convolutions = [o for o in graph.operations if o.name.endswith("conv2d/conv2d") and "shortcut" not in o.name]
    assert f"resnet{len(convolutions) + 1}" == name  # the last layer is dense


def test_variables_of_a_bottleneck_keep_their_names() -> None:
    """Checkpoints have them."""
    graph, _ = graph_of(TINY, IMAGES, is_training=True)
    norm = [f"batch_norm/{name}" for name in ("moving_mean", "moving_variance", "scale", "bias")]
    layers = [f"stage_{n}/block_0/{name}" for n in (0, 1) for name in ("reduce", "convolve", "expand", "shortcut")]
    convolved = [f"{layer}/{name}" for layer in ("stem", *layers) for name in ("conv2d/kernel", *norm)]
    assert sorted(graph.variables) == sorted([*convolved, "logits/kernel", "logits/bias"])
    plain, _ = graph_of(ResNet(**dataclasses.asdict(TINY)), IMAGES, is_training=True)
    assert [*plain.variables] == [*graph.variables]


def test_version_1_halves_the_image_in_the_first_convolution() -> None:
    graph, _ = graph_of(dataclasses.replace(TINY, version="1"), IMAGES, is_training=False)
    sizes = {o.name: str(o.outputs[0].shape) for o in graph.operations if o.name.endswith("conv2d/conv2d")}
    assert sizes["stage_1/block_0/reduce/conv2d/conv2d"] == "batch:8 height:2 width:2 filters:8"
    assert sizes["stage_1/block_0/convolve/conv2d/conv2d"] == "batch:8 height:2 width:2 filters:8"


@pytest.mark.parametrize("layouts", [LAYOUTS[:1], pytest.param(LAYOUTS[:2], marks=pytest.mark.long)], ids=len)
def test_layout_does_not_change_a_basic_block(layouts: list[str]) -> None:
    model = ResNet(num_classes=4, stage_sizes=(1, 1), width=4, batch_norm_epsilon=1e-3, block="basic")

    def program(images: mtf.Tensor, labels: mtf.Tensor) -> dict[str, mtf.Tensor]:
        loss = model.metrics({"images": images, "labels": labels}, True)["loss"]
        trainable = images.graph.trainable_variables
        gradients = mtf.gradients(mtf.reduce_mean(loss), [variable.value for variable in trainable])
        found = {v.full_name: grad for v, grad in zip(trainable, gradients, strict=True) if grad is not None}
        return {"loss": loss} | found

    given = examples(0)
    inputs = {"images": (IMAGES, given["images"]), "labels": (LABELS, given["labels"])}
    expected = interpret(program, inputs, "rows:1").results
    assert "stage_1/block_0/convolve_1/conv2d/kernel" in expected
    assert "stage_1/block_0/shortcut/conv2d/kernel" in expected
    assert expected["stage_1/block_0/convolve_1/batch_norm/scale"].any()
    for layout in layouts:
        done = interpret(program, inputs, "rows:2;cols:2", layout)
        for name, value in expected.items():
            assert_close(done.results[name], value, terms=(*TERMS, *TERMS), what=f"{name} {layout}")


def examples(seed: int) -> dict[str, np.ndarray]:
    """Images in which every fourth row, counted from the label, is bright: something to learn."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, 8).astype(np.int32)
    images = generator.normal(size=[d.size for d in IMAGES]).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        image[label::4] += 2.0
    return {"images": images, "labels": labels}


def train_step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
    features = {"images": images, "labels": labels}
    loss = mtf.reduce_mean(TINY.metrics(features, True)["loss"])
    mtf.optimize.SgdOptimizer(0.1).minimize(loss)
    return loss


@pytest.fixture(scope="module")
def losses_under() -> Callable[[str], list[float]]:
    def run(layout: str) -> list[float]:
        inputs = {"images": mtf.TensorSpec(IMAGES), "labels": mtf.TensorSpec(LABELS, tf.int32)}
        step = mtf.function(
            train_step, mtf.SpmdMeshImpl("rows:2" if layout else "rows:1", layout), inputs=inputs, seed=1
        )
        return [float(step(**examples(number % 4))) for number in range(20)]

    return run


@pytest.mark.parametrize("layout", ["height:rows", pytest.param("batch:rows", marks=pytest.mark.long)])
def test_twenty_steps_are_those_of_one_core(losses_under: Callable[[str], list[float]], layout: str) -> None:
    expected = losses_under("")
    assert expected[-1] < 0.5 * expected[0]
    assert_close(losses_under(layout), expected, terms=(*TERMS, *TERMS), steps=np.arange(20), dtype="float32")


@pytest.mark.parametrize("layouts", [LAYOUTS[1:2], pytest.param(LAYOUTS, marks=pytest.mark.long)], ids=len)
def test_layout_changes_neither_gradients_nor_moving_averages(layouts: list[str]) -> None:
    def program(images: mtf.Tensor, labels: mtf.Tensor) -> dict[str, mtf.Tensor]:
        metrics = TINY.metrics({"images": images, "labels": labels}, True)
        trainable = images.graph.trainable_variables
        gradients = mtf.gradients(mtf.reduce_mean(metrics["loss"]), [variable.value for variable in trainable])
        return metrics | {v.full_name: grad for v, grad in zip(trainable, gradients, strict=True) if grad is not None}

    given = examples(0)
    inputs = {"images": (IMAGES, given["images"]), "labels": (LABELS, given["labels"])}
    expected = interpret(program, inputs, "rows:1;cols:1")
    averages = [name for name in expected.variables if "moving" in name]
    assert len(averages) == 2 * len([name for name in expected.variables if "kernel" in name]) - 2
    for layout in layouts:
        done = interpret(program, inputs, "rows:2;cols:2", layout)
        for name, value in expected.results.items():
            assert_close(done.results[name], value, terms=(*TERMS, *TERMS), what=f"{name} {layout}")
        for name in averages:
            assert_close(done.variables[name], expected.variables[name], terms=TERMS)


@pytest.mark.parametrize("size", [28, pytest.param(224, marks=pytest.mark.long)])
def test_nothing_is_gathered_for_want_of_a_way_to_work_on_slices(size: int) -> None:
    """Data parallelism, and images that are split, whose rows are even and odd: 224 are 7 in the end."""
    model = TINY if size == 28 else ResNet50(1000)
    images = mtf.Shape([BATCH, ("height", size), ("width", size), ("channels", 3)])
    specs = {"images": mtf.TensorSpec(images), "labels": mtf.TensorSpec(LABELS, tf.int32)}

    def step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
        loss = mtf.reduce_mean(model.metrics({"images": images, "labels": labels}, True)["loss"])
        mtf.optimize.SgdOptimizer(0.1).minimize(loss)
        return loss

    for layout in ("batch:rows+cols", "batch:cols;height:rows", "height:rows;width:cols"):
        report = mtf.function(step, mtf.PlanMeshImpl("rows:4;cols:2", layout), inputs=specs).report()
        assert report.gathers_for_want == (), layout


def test_evaluation_uses_the_averages_and_no_smoothing() -> None:
    plain = ResNet50(num_classes=4, stage_sizes=(1,), width=4)
    smooth = dataclasses.replace(plain, label_smoothing=0.5)

    def program(images: mtf.Tensor, labels: mtf.Tensor) -> list[mtf.Tensor]:
        every = {"images": images, "labels": labels}
        first = {"images": mtf.slice(images, 0, 1, "batch"), "labels": mtf.slice(labels, 0, 1, "batch")}
        calls = [(plain, every, False), (smooth, first, False), (plain, every, True), (smooth, every, True)]
        return [model.metrics(features, is_training)["loss"] for model, features, is_training in calls]

    given = examples(0)
    inputs = {"images": (IMAGES, given["images"]), "labels": (LABELS, given["labels"])}
    together, alone, training, smoothed = interpret(program, inputs, "cores:1").results
    assert_close(together[:1], alone, terms=TERMS)
    for other in (together, smoothed):
        assert (abs(training - other) > 1e-3).all()


def test_configuration_is_the_published_one() -> None:
    with gin.unlock_config():
        try:
            gin.parse_config_file(str(find_gin_file("resnet50.gin")), skip_unknown=["Training"])
            assert ResNet50() == ResNet50(1000)  # type: ignore[call-arg]  # gin fills in the arguments
        finally:
            gin.clear_config()


def test_bad_sizes() -> None:
    with pytest.raises(ValueError, match=r"ResNet50: num_classes and width must be .* they are 10, 64 and \(3, 0\)"):
        ResNet50(10, stage_sizes=(3, 0))
    with pytest.raises(
        ValueError, match=r'ResNet: block must be one of basic, bottleneck, and is .basics.; did you mean "basic"'
    ):
        ResNet(10, block="basics")
    with pytest.raises(ValueError, match=r"ResNet: padding must be one of SAME, SYMMETRIC, and is 'VALID'"):
        ResNet(10, padding="VALID")
    other = ResNet(num_classes=4, stage_sizes=(1,), width=4, num_channels=1)
    with pytest.raises(ShapeError, match=r"takes 1 channel, but the images are \[batch:8 .* channels:3\]"):
        graph_of(other, IMAGES, is_training=False)
    with pytest.raises(ValueError, match=r"ResNet: version must be a string, and is 1\.5"):
        ResNet(10, version=1.5)  # type: ignore[arg-type]
