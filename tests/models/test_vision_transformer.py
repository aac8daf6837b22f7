from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.layers import AttentionConfig, NormalInitializer
from meshtf.layers.transformer import FeedForward, LayerNorm, Residual, SelfAttention, TransformerStack
from meshtf.models import VisionTransformer
from meshtf.testing import FUNCTION_TERMS, assert_close, build, interpret, largest, rounding_bound
from tests.house.sharpest import sharpest
from tests.models.transformers import configured
from tests.optimize.interpreted_training import InterpretedTraining

BATCH = mtf.Dimension("batch", 6)
IMAGES, LABELS = mtf.Shape([BATCH, ("height", 8), ("width", 12), ("channels", 3)]), mtf.Shape([BATCH])
SPECS = {"images": mtf.TensorSpec(IMAGES), "labels": mtf.TensorSpec(LABELS, tf.int32)}
D_MODEL, D_FF, HEADS, D_KV, LAYERS = 8, 16, 2, 4, 2
WIDE = NormalInitializer(stddev=0.3)
TINY = VisionTransformer(
    num_classes=4,
    d_model=D_MODEL,
    patch_size=4,
    stack=TransformerStack(
        [SelfAttention(AttentionConfig(HEADS, D_KV, use_bias=True)), FeedForward(D_FF, "gelu_exact", use_bias=True)],
        LAYERS,
        Residual(LayerNorm()),
        use_final_norm=False,
    ),
    kernel_initializer=WIDE,
    head_initializer=WIDE,
)
MEAN = dataclasses.replace(TINY, pooling="mean")
_LAYER = 2 * D_MODEL + 3 * D_MODEL + D_KV + 7 + D_MODEL + D_MODEL + D_FF + 8 * FUNCTION_TERMS
TERMS = (2 * (4 * 4 * 3 + LAYERS * _LAYER + 2 * D_MODEL + 3 * FUNCTION_TERMS), BATCH.size * 7)
"""Roundings of a step: patches, the layers, norm and logits, and back; sums over the batch and its tokens."""
RATE = 0.1
SGD = mtf.optimize.SgdOptimizer(RATE)
PUBLISHED = {"vit_s16": 22_050_664, "vit_b16": 86_567_656, "deit_s16": 22_050_664}


def examples(seed: int) -> dict[str, np.ndarray]:
    """Images in which the columns from three times the label on are bright: something to learn."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, BATCH.size).astype(np.int32)
    images = generator.normal(size=IMAGES.to_integer_list).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        image[:, 3 * label : 3 * label + 3] += 2.0
    return {"images": images, "labels": labels}


def loss_of(model: VisionTransformer, images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
    return mtf.reduce_mean(model.metrics({"images": images, "labels": labels}, True)["loss"][0])


def trained(
    model: VisionTransformer, mesh_shape: str, layout: str, optimizer: mtf.optimize.Optimizer = SGD
) -> InterpretedTraining:
    def training_step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
        loss = loss_of(model, images, labels)
        optimizer.minimize(loss)
        return loss

    return InterpretedTraining(training_step, SPECS, mesh_shape, layout)


def in_numpy(variables: dict[str, np.ndarray], images: np.ndarray, *, has_token: bool) -> np.ndarray:
    """The logits in float64, from the paper's equations 1 to 4."""
    weights = {name: value.astype(np.float64) for name, value in variables.items()}

    def normed(x: np.ndarray, scope: str, layer: int | None = None) -> np.ndarray:
        scale, bias = (weights[f"{scope}/norm/{name}"] for name in ("scale", "bias"))
        scale, bias = (scale, bias) if layer is None else (scale[layer], bias[layer])
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias

    patches = images.astype(np.float64).reshape(BATCH.size, 2, 4, 3, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(6, 6, 48)
    x = patches @ weights["embedding/patches/kernel"].reshape(48, D_MODEL) + weights["embedding/patches/bias"]
    if has_token:
        token = np.broadcast_to(weights["embedding/class_token"], (BATCH.size, 1, D_MODEL))
        x = np.concatenate([token, x], axis=1)
    x = x + weights["embedding/positions"]
    for layer in range(LAYERS):
        scope = "encoder/layer/self_attention"
        own = {name: weights[f"{scope}/{name}"][layer] for name in "qkvo"}
        biases = {name: weights[f"{scope}/{name}_bias"][layer] for name in "qkvo"}
        y = normed(x, scope, layer)
        q, k, v = (np.einsum("btd,dhk->bhtk", y, own[n]) + biases[n][None, :, None] for n in "qkv")
        scores = np.exp(np.einsum("bhqk,bhmk->bhqm", q, k) / math.sqrt(D_KV))
        attended = np.einsum("bhqm,bhmk->bqhk", scores / scores.sum(-1, keepdims=True), v)
        x = x + np.einsum("bqhk,hkd->bqd", attended, own["o"]) + biases["o"]
        scope = "encoder/layer/feed_forward"
        wi, wo = ([weights[f"{scope}/{w}/{n}"][layer] for n in ("kernel", "bias")] for w in ("wi", "wo"))
        h = normed(x, scope, layer) @ wi[0] + wi[1]
        h = h * 0.5 * (1 + np.vectorize(math.erf)(h / math.sqrt(2)))
        x = x + h @ wo[0] + wo[1]
    x = normed(x, "head")
    pooled = x[:, 0] if has_token else x.mean(1)
    return pooled @ weights["logits/kernel"] + weights["logits/bias"]


@pytest.mark.parametrize("model", [TINY, MEAN], ids=["class_token", "mean"])
def test_logits_are_those_of_the_papers_equations(model: VisionTransformer) -> None:
    def program(images: mtf.Tensor) -> mtf.Tensor:
        return model.logits(images, is_training=False)

    images = examples(0)["images"]
    done = interpret(program, {"images": (IMAGES, images)}, "cores:1")
    expected = in_numpy(done.variables, images, has_token=model is TINY)
    assert_close(done.results, expected, terms=TERMS[:1])


SHARPEST = [
    "length:rows;d_model:cols",
    "batch:rows;height:cols;length:cols",
    "patch_height:rows;channels:cols;layers:rows",
]
OTHERS = ["batch:rows;heads:cols;d_ff:cols", "height:rows;width:cols;classes:rows", "batch:rows+cols"]


@pytest.mark.parametrize(
    "layouts", [SHARPEST, pytest.param(OTHERS, marks=pytest.mark.long)], ids=["sharpest", "others"]
)
def test_loss_and_gradients_are_the_same_under_every_layout(layouts: list[str]) -> None:
    """The seven tokens divide by nothing, nor do the six images by four, nor the three columns of patches by two."""
    batch, one = examples(0), trained(TINY, "rows:1", "")
    before, loss = one.variables, one.step(**batch)
    gradients = {name: (before[name] - value) / RATE for name, value in one.variables.items()}
    still = [name for name, gradient in gradients.items() if not gradient.any()]
    assert not [name for name in still if "k_bias" not in name]  # softmax does not see what moves all keys alike
    for layout in layouts:
        many = trained(TINY, "rows:2;cols:2", layout)
        assert_close(many.step(**batch), loss, terms=TERMS, dtype="float32", what=layout)
        for name, gradient in gradients.items():
            held = many[name][tuple(slice(size) for size in before[name].shape)]  # which may end with padding
            found = (before[name] - held) / RATE
            atol = rounding_bound("float32", TERMS, largest(gradients[name.replace("k_bias", "q_bias")]))
            atol += rounding_bound("float32", 2, largest(before[name]) / RATE)
            np.testing.assert_allclose(found, gradient, rtol=0, atol=atol, err_msg=f"{name} under {layout}")


def test_it_learns_from_images() -> None:
    run = trained(TINY, "rows:1", "", mtf.optimize.AdamWOptimizer(0.03))
    losses = [run.step(**examples(number % 4)) for number in range(16)]
    assert np.mean(losses[-4:]) < 0.5 * np.mean(losses[:4])


def test_soft_labels_and_predictions() -> None:
    def program(images: mtf.Tensor, labels: mtf.Tensor) -> dict[str, mtf.Tensor]:
        soft = mtf.one_hot(labels, TINY.classes)
        hard, same = (TINY.metrics({"images": images, "labels": each}, True) for each in (labels, soft))
        return {"hard": hard["loss"][0], "soft": same["loss"][0], "right": same["accuracy"][0]} | TINY.predict(
            {"images": images}
        )

    given = examples(1)
    results = interpret(
        program, {"images": (IMAGES, given["images"]), "labels": (LABELS, given["labels"])}, "c:1"
    ).results
    assert_close(results["soft"], results["hard"], terms=TERMS[:1])
    np.testing.assert_array_equal(results["classes"], results["probabilities"].argmax(-1))
    np.testing.assert_array_equal(results["right"], results["classes"] == given["labels"])


@pytest.mark.parametrize("name", sharpest(PUBLISHED, ["vit_b16"]))
def test_published_sizes_and_their_plans(name: str) -> None:
    model = configured(name, sizes="")
    images = mtf.Shape([("batch", 64), ("height", 224), ("width", 224), ("channels", 3)])
    specs = {"images": mtf.TensorSpec(images), "labels": mtf.TensorSpec(images[:1], tf.int32)}

    def step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
        loss = loss_of(model, images, labels)
        mtf.optimize.AdamWOptimizer(0.001).minimize(loss)
        return loss

    graph, _ = build(step, specs)
    assert sum(variable.shape.size for variable in graph.trainable_variables) == PUBLISHED[name]
    mesh_impl = mtf.PlanMeshImpl("rows:4;cols:2", "batch:rows;heads:cols;d_ff:cols")
    assert mtf.function(step, mesh_impl, inputs=specs).report().gathers_for_want == ()


def test_bad_settings_and_images() -> None:
    with pytest.raises(
        ValueError, match=r'pooling must be one of class_token, mean, and is .means.; did you mean "mean"\?'
    ):
        dataclasses.replace(TINY, pooling="means")
    with pytest.raises(ValueError, match="VisionTransformer: patch_size must be a positive integer, and is 0"):
        dataclasses.replace(TINY, patch_size=0)
    with pytest.raises(ValueError, match=r"image_shape must be three integers, .* and is \(8, 12\)"):
        dataclasses.replace(TINY, image_shape=(8, 12))
    with (
        mtf.Graph() as graph,
        pytest.raises(ShapeError, match=r"height:9 .* multiples of patch_size, 4; resize or pad"),
    ):
        TINY.logits(mtf.zeros(mtf.Mesh(graph), "batch:2 height:9 width:8 channels:3"), is_training=False)
