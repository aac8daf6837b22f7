"""Four small models with Adam, each with eight layouts on eight cores, for `benchmarks.cost_model.predicted_times`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import meshtf as mtf

BATCH = mtf.Dimension("batch", 64)
LENGTH = mtf.Dimension("length", 64)
D_MODEL, D_FF, VOCAB = mtf.Dimension("d_model", 256), mtf.Dimension("d_ff", 1024), mtf.Dimension("vocab", 2048)
HEADS, D_KV = mtf.Dimension("heads", 8), mtf.Dimension("d_kv", 32)
PIXELS, CLASSES = mtf.Dimension("pixels", 1024), mtf.Dimension("classes", 64)
HEIGHT, WIDTH, CHANNELS = mtf.Dimension("height", 16), mtf.Dimension("width", 16), mtf.Dimension("channels", 8)

Program = Callable[[mtf.Tensor], mtf.Tensor]


def mlp(x: mtf.Tensor) -> mtf.Tensor:  # [batch, pixels]
    h = mtf.layers.dense(x, [D_FF], activation=mtf.relu, name="first")
    h = mtf.layers.dense(h, [D_MODEL], activation=mtf.relu, name="second")
    return _trained(mtf.square(mtf.layers.dense(h, [CLASSES], name="third")))


def feed_forward(x: mtf.Tensor) -> mtf.Tensor:  # [batch, length, d_model]
    for i in range(2):
        with mtf.variable_scope(f"layer_{i}"):
            h = mtf.layers.dense(x, [D_FF], [D_MODEL], activation=mtf.gelu, name="wide")
            x = x + mtf.layers.dense(h, [D_MODEL], [D_FF], name="narrow")
    return _trained(mtf.square(x))


def attention(x: mtf.Tensor) -> mtf.Tensor:  # [batch, length, d_model]
    q, k, v = (mtf.layers.dense(x, [HEADS, D_KV], [D_MODEL], name=name) for name in "qkv")
    memory = "memory_length"
    k, v = mtf.rename_dimension(k, "length", memory), mtf.rename_dimension(v, "length", memory)
    scores = mtf.einsum([q, k], reduced_dims=[D_KV])
    weights = mtf.softmax(scores, memory)
    heads = mtf.einsum([weights, v], [BATCH, LENGTH, HEADS, D_KV])
    logits = mtf.layers.dense(
        mtf.layers.dense(heads, [D_MODEL], [HEADS, D_KV], name="o"), [VOCAB], [D_MODEL], name="vocab"
    )
    return _trained(mtf.reduce_logsumexp(logits, VOCAB))


def convolutions(x: mtf.Tensor) -> mtf.Tensor:  # [batch, height, width, channels]
    for i, channels in enumerate((32, 64)):
        outer = mtf.Dimension(f"channels_{i}", channels)
        x = mtf.relu(mtf.layers.conv2d(x, outer, filter_size=(3, 3), name=f"conv_{i}"))
    return _trained(mtf.square(x))


def _trained(losses: mtf.Tensor) -> mtf.Tensor:
    loss = mtf.reduce_mean(losses)
    mtf.optimize.AdamOptimizer(1e-3).minimize(loss)
    return loss


TOKENS = [BATCH, LENGTH, D_MODEL]
FEED_FORWARD = (
    ("all:8", "batch:all"),
    ("all:8", "d_ff:all"),
    ("a:2;b:4", "batch:a;d_ff:b"),
    ("a:4;b:2", "batch:a;d_ff:b"),
    ("a:2;b:4", "batch:a;d_model:b"),
    ("a:4;b:2", "batch:a;d_model:b"),
    ("a:2;b:4", "d_model:a;d_ff:b"),
    ("all:8", "length:all"),
)
ATTENTION = (
    ("all:8", "batch:all"),
    ("all:8", "heads:all;vocab:all"),
    ("a:2;b:4", "batch:a;heads:b;vocab:b"),
    ("a:4;b:2", "batch:a;heads:b;vocab:b"),
    ("a:2;b:4", "batch:a;d_model:b"),
    ("a:2;b:4", "batch:a;vocab:b"),
    ("a:2;b:4", "d_model:a;vocab:b"),
    ("a:2;b:4", "batch:a;length:b"),
)
IMAGES = (
    ("all:8", "batch:all"),
    ("all:8", "height:all"),
    ("all:8", "channels_0:all"),
    ("all:8", "channels_1:all"),
    ("a:2;b:4", "batch:a;height:b"),
    ("a:2;b:4", "batch:a;channels_1:b"),
    ("a:2;b:4", "batch:b;channels_0:a"),
    ("a:2;b:4", "height:a;width:b"),
)
MLP = (
    ("all:8", "batch:all"),
    ("all:8", "d_ff:all"),
    ("all:8", "pixels:all"),
    ("a:2;b:4", "batch:a;d_ff:b"),
    ("a:2;b:4", "batch:b;d_ff:a"),
    ("a:2;b:4", "batch:a;pixels:b"),
    ("a:2;b:4", "pixels:a;d_ff:b"),
    ("a:2;b:4", "batch:a;d_model:b"),
)
MODELS: dict[str, tuple[Program, Sequence[mtf.Dimension], Sequence[tuple[str, str]]]] = {
    "mlp": (mlp, [BATCH, PIXELS], MLP),
    "feed_forward": (feed_forward, TOKENS, FEED_FORWARD),
    "attention": (attention, TOKENS, ATTENTION),
    "convolutions": (convolutions, [BATCH, HEIGHT, WIDTH, CHANNELS], IMAGES),
}
