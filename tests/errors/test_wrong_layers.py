"""Layers and optimizers that are given what they cannot use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError, UsageError

MESH = mtf.Mesh(mtf.Graph())
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
IDS = mtf.placeholder(MESH, "batch:4", tf.int32, name="ids")
IMAGE = mtf.placeholder(MESH, "batch:2 height:8 width:8 channels:3", name="image")
LOGITS = mtf.placeholder(MESH, "batch:4 vocab:10", name="logits")
FLAGS = mtf.placeholder(MESH, "batch:4", tf.bool, name="flags")
BATCH, VOCAB, D_MODEL = mtf.Dimension("batch", 4), mtf.Dimension("vocab", 10), mtf.Dimension("d_model", 8)
ARRAY = np.ones([4, 8], np.float32)

# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("dense dims text", lambda: mtf.layers.dense(X, ["out"]),
     ShapeError, 'no operand has dimension "out", and a new dimension needs its size: "out:size"'),
    ("dense dims dim", lambda: mtf.layers.dense(X, mtf.Dimension("out", 3), name="d1"),
     GraphError, "no graph is being built here; call this inside the body of an"),
    ("dense same name", lambda: mtf.layers.dense(X, [BATCH], name="d2"),
     GraphError, "no graph is being built here; call this inside the body of an"),
    ("dense activation", lambda: mtf.layers.dense(X, [("o", 3)], activation="rellu", name="d3"),
     GraphError, 'activation \'rellu\' is not a function; did you mean "relu"?; there are celu, elu,'),
    ("dense initializer text", lambda: mtf.layers.dense(X, [("o", 3)], kernel_initializer="glorot", name="d5"),
     GraphError, "kernel_initializer must be a function of (reduced_dims, new_dims), such as"),
    ("dense initializer class",
     lambda: mtf.layers.dense(X, [("o", 3)], kernel_initializer=mtf.layers.NormalInitializer, name="d6"),
     GraphError, "kernel_initializer must be a function of (reduced_dims, new_dims), such as"),
    ("dense initializer of variables",
     lambda: mtf.layers.dense(X, [("o", 3)], kernel_initializer=mtf.RandomNormal(stddev=0.1), name="d7"),
     GraphError, "kernel_initializer must be a function of (reduced_dims, new_dims), such as"),
    ("dense numpy", lambda: mtf.layers.dense(ARRAY, [("o", 3)]),
     GraphError, "the operand must be an mtf.Tensor, not ndarray; bring values in as inputs"),
    ("dense int", lambda: mtf.layers.dense(IDS, [("o", 3)], name="d4"),
     DtypeError, "a floating tensor is needed, not int32; convert it with mtf.cast"),
    ("embedding float", lambda: mtf.layers.embedding(X, VOCAB, D_MODEL),
     DtypeError, "ids must be int32 or int64, not float32; convert with mtf.cast"),
    ("embedding vocab_size", lambda: mtf.layers.embedding(IDS, VOCAB, D_MODEL, vocab_size=11),
     ShapeError, "vocab_size is 11, and must be from 1 to the size of [vocab:10]"),
    ("embedding weights dims", lambda: mtf.layers.embedding(IDS, VOCAB, D_MODEL, weights=X, name="e1"),
     ShapeError, 'the weights have dimension "hidden:8", which the indices [batch:4] lack'),
    ("embedding vocab text", lambda: mtf.layers.embedding(IDS, "vocab", D_MODEL, name="e2"),
     ShapeError, "not a dimension: 'vocab'; write mtf.Dimension(name, size), or a pair"),
    ("gru length by position", lambda: mtf.layers.gru(X, "hidden", 8),
     ShapeError, 'a dimension or its name is needed, not 8; [batch:4 hidden:8] has "batch", "hidden"'),
    ("embedding numpy", lambda: mtf.layers.embedding(np.zeros(4, np.int32), VOCAB, D_MODEL),
     GraphError, "the ids must be an mtf.Tensor, not ndarray; bring values in as inputs of"),
    ("loss dims", lambda: mtf.layers.softmax_cross_entropy_with_logits(LOGITS, X, VOCAB),
     ShapeError, "targets of type float32 need the dimensions [batch:4 vocab:10], not"),
    ("loss bool targets", lambda: mtf.layers.softmax_cross_entropy_with_logits(LOGITS, FLAGS, VOCAB),
     DtypeError, "targets must be floating (a distribution) or integer (an index), not bool"),
    ("loss vocab size", lambda: mtf.layers.softmax_cross_entropy_with_logits(LOGITS, IDS, ("vocab", 11)),
     ShapeError, 'dimension "vocab" has size 10 in [batch:4 vocab:10], not 11'),
    ("loss vocab text", lambda: mtf.layers.softmax_cross_entropy_with_logits(LOGITS, IDS, "vocap"),
     ShapeError, 'no dimension "vocap" in [batch:4 vocab:10]; did you mean "vocab"?'),
    ("loss smoothing", lambda: mtf.layers.softmax_cross_entropy_with_logits(LOGITS, IDS, VOCAB, label_smoothing=1.5),
     GraphError, "label_smoothing must be in [0, 1], and is 1.5"),
    ("loss smoothing text",
     lambda: mtf.layers.softmax_cross_entropy_with_logits(LOGITS, IDS, VOCAB, label_smoothing="1"),
     GraphError, "label_smoothing must be in [0, 1], and is '1'"),
    ("loss weights", lambda: mtf.layers.softmax_cross_entropy_with_logits(LOGITS, IDS, VOCAB, weights=LOGITS),
     ShapeError, 'the weights have dimension "vocab:10", which the indices [batch:4] lack'),
    ("loss numpy targets", lambda: mtf.layers.softmax_cross_entropy_with_logits(LOGITS, np.zeros(4, np.int32), VOCAB),
     GraphError, "the targets must be an mtf.Tensor, not ndarray; bring values in as inputs"),
    ("sigmoid loss", lambda: mtf.layers.sigmoid_cross_entropy_with_logits(LOGITS, X),
     ShapeError, "targets need the dimensions of the logits, [batch:4 vocab:10], not"),
    ("layer_norm dim", lambda: mtf.layers.layer_norm(X, "hiden", name="ln"),
     ShapeError, 'no dimension "hiden" in [batch:4 hidden:8]; did you mean "hidden"?'),
    ("layer_norm int", lambda: mtf.layers.layer_norm(IDS, "batch", name="ln2"),
     DtypeError, "statistics need floating numbers, and x is int32; convert it with"),
    ("batch_norm momentum", lambda: mtf.layers.batch_norm(IMAGE, True, 2.0, name="bn"),
     GraphError, "momentum must be in [0, 1], and is"),
    ("conv2d layer", lambda: mtf.layers.conv2d(IMAGE, mtf.Dimension("channels", 3), 3, name="c1"),
     GraphError, "no graph is being built here; call this inside the body of an"),
    ("conv2d size", lambda: mtf.layers.conv2d(IMAGE, ("f", 3), 0, name="c2"),
     GraphError, "no graph is being built here; call this inside the body of an"),
    ("activations", lambda: mtf.layers.dense(X, [("o", 3)], activation=["relu"], name="d3"),
     GraphError, 'activation [\'relu\'] is not a function; did you mean "relu"?; there are celu, elu,'),
    ("activation", lambda: mtf.layers.activation_function("gelu2"),
     GraphError, 'activation \'gelu2\' is not a function; did you mean "gelu"?; there are celu, elu,'),
    ("padded vocab", lambda: mtf.layers.padded_vocab_size(0),
     GraphError, "padded_vocab_size: vocab_size must be a positive integer, and is 0"),
    ("mask logits", lambda: mtf.layers.mask_padded_logits(LOGITS, VOCAB, 11),
     ShapeError, "vocab_size is 11, and must be from 1 to the size of [vocab:10]"),
    ("mlp sizes", lambda: mtf.models.MLPClassifier(10, (0,)),
     ValueError, "MLPClassifier: num_classes must be a positive integer and hidden_sizes a"),
    ("mlp activation", lambda: mtf.models.MLPClassifier(10, (5,), "rel"),
     GraphError, 'activation \'rel\' is not a function; did you mean "relu"?; there are celu, elu,'),
    ("attention heads", lambda: mtf.layers.AttentionConfig(num_heads=3, num_kv_heads=2, d_kv=4),
     ValueError, "AttentionConfig: num_heads=3 is not a multiple of num_kv_heads=2; each head"),
    ("learned positions", lambda: mtf.layers.learned_positions(mtf.range(MESH, ("length", 9)), 4, D_MODEL),
     ShapeError, "there are 4 learned positions, fewer than length:9; make max_length larger"),
    ("pipeline layers", lambda: mtf.layers.pipeline(3, X),
     UsageError, "missing a required argument: 'layers'; its parameters are layer_fn,"),
    ("lr negative", lambda: mtf.optimize.AdamOptimizer(-1.0),
     ValueError, "AdamOptimizer: learning_rate must be 0 or more, and is -1.0"),
    ("lr nan", lambda: mtf.optimize.AdamOptimizer(float("nan")),
     ValueError, "AdamOptimizer: learning_rate must be 0 or more, and is nan"),
    ("lr text", lambda: mtf.optimize.AdamOptimizer("0.1"),
     ValueError, "AdamOptimizer: learning_rate must be a number, a scalar of the program or"),
    ("lr none", lambda: mtf.optimize.SgdOptimizer(None),
     ValueError, "SgdOptimizer: learning_rate must be a number, a scalar of the program or a"),
    ("lr array", lambda: mtf.optimize.SgdOptimizer(np.ones(3)),
     ValueError, "SgdOptimizer: learning_rate must be a number, a scalar of the program or a"),
    ("beta", lambda: mtf.optimize.AdamOptimizer(0.1, beta_1=1.5),
     ValueError, "AdamOptimizer: beta_1 must be in [0, 1), and is 1.5"),
    ("eps", lambda: mtf.optimize.AdamOptimizer(0.1, epsilon=-1.0),
     ValueError, "AdamOptimizer: epsilon must be 0 or more, and is -1.0"),
    ("momentum", lambda: mtf.optimize.MomentumOptimizer(0.1, momentum="a"),
     ValueError, "MomentumOptimizer: momentum must be a number, and is 'a'"),
    ("weight decay", lambda: mtf.optimize.AdamWOptimizer(0.1, weight_decay=-0.1),
     ValueError, "AdamWOptimizer: weight_decay must be 0 or more, and is -0.1"),
    ("clip", lambda: mtf.optimize.ClipByGlobalNorm(0.0),
     ValueError, "ClipByGlobalNorm: max_norm must be above 0, and is 0.0"),
    ("clip value", lambda: mtf.optimize.ClipByValue(-1.0),
     ValueError, "ClipByValue: limit must be above 0, and is -1.0"),
    ("clipped", lambda: mtf.optimize.ClippedOptimizer(3, 4),
     ValueError, "ClippedOptimizer: optimizer must be an Optimizer, and is 3"),
    ("average decay", lambda: mtf.optimize.MovingAverageOptimizer(mtf.optimize.SgdOptimizer(0.1), decay=2.0),
     ValueError, "MovingAverageOptimizer: decay must be in [0, 1), and is"),
    ("warm", lambda: mtf.optimize.WarmUpSchedule(-5, 0.1),
     ValueError, "WarmUpSchedule: num_steps must be above 0, and is -5"),
    ("cosine", lambda: mtf.optimize.CosineSchedule(0.1, 0),
     ValueError, "CosineSchedule: num_steps must be above 0, and is 0"),
    ("piecewise", lambda: mtf.optimize.PiecewiseSchedule([5, 3], [0.1, 0.2]),
     ValueError, "PiecewiseSchedule: 2 boundaries need 3 pieces, but there are 2"),
]
# fmt: on


L: Any = mtf.layers  # what a type checker would refuse
SEQUENCE = mtf.placeholder(MESH, "batch:4 length:6 vocab:10", name="sequence")
LABELS = mtf.placeholder(MESH, "batch:4 labels:2", tf.int32, name="labels")

BY_POSITION: dict[str, Callable[[], Any]] = {
    "softmax_cross_entropy_with_logits": lambda: L.softmax_cross_entropy_with_logits(LOGITS, IDS, 1),
    "ctc_loss, length": lambda: L.ctc_loss(SEQUENCE, LABELS, 1, "labels", "vocab"),
    "ctc_loss, labels": lambda: L.ctc_loss(SEQUENCE, LABELS, "length", 1, "vocab"),
    "ctc_loss, vocab": lambda: L.ctc_loss(SEQUENCE, LABELS, "length", "labels", 2),
    "kl_divergence": lambda: L.kl_divergence(X, X, 1),
    "cosine_similarity": lambda: L.cosine_similarity(X, X, 1),
    "contrastive_loss, batch": lambda: L.contrastive_loss(X, X, 0, "hidden"),
    "contrastive_loss": lambda: L.contrastive_loss(X, X, "batch", 1),
    "mask_padded_logits": lambda: L.mask_padded_logits(LOGITS, 1, 5),
    "adaptive_avg_pool": lambda: L.adaptive_avg_pool(IMAGE, {1: 4}),
    "adaptive_max_pool": lambda: L.adaptive_max_pool(IMAGE, {1: 4}),
    "layer_norm": lambda: L.layer_norm(X, 1),
    "rms_norm": lambda: L.rms_norm(X, 1),
    "group_norm": lambda: L.group_norm(IMAGE, 3, spatial_dims=1),
    "instance_norm": lambda: L.instance_norm(IMAGE, channel_dim=3),
    "weight_norm": lambda: L.weight_norm(X, 1),
    "spectral_norm": lambda: L.spectral_norm(X, 1, True),
    "dense, reduced": lambda: L.dense(X, "o:3", reduced_dims=1),
    "dense, experts": lambda: L.dense(X, "o:3", expert_dims=0),
    "dense_product": lambda: L.dense_product(X, 1, "o:3"),
    "gru": lambda: L.gru(X, "h:8", 0),
    "lstm": lambda: L.lstm(X, "h:8", 0),
}


@pytest.mark.parametrize("wrong", BY_POSITION.values(), ids=BY_POSITION)
def test_a_number_in_place_of_a_dimension_is_named(refused: Callable[..., None], wrong: Callable[[], Any]) -> None:
    refused(wrong, ShapeError, "a dimension or its name is needed")


HEADS = mtf.placeholder(MESH, "batch:4 length:8 heads:2 d_kv:4", name="heads")
MEMORY = mtf.placeholder(MESH, "batch:4 memory_length:8 heads:2 d_kv:4", name="memory")
PLACES = mtf.placeholder(MESH, "length:8", tf.int32, name="places")
PATTERN = L.AttentionPattern()

OF_ANOTHER_KIND: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "config must be an AttentionConfig, and is 4": (lambda: L.project_queries(X, 4), UsageError),
    "config must be a LatentConfig, and is None": (lambda: L.project_latents(X, None), UsageError),
    "pattern must be an AttentionPattern, and is 4": (
        lambda: L.dot_product_attention(HEADS, MEMORY, MEMORY, 4),
        UsageError,
    ),
    "options must be an AttentionOptions, and is 'x'": (
        lambda: L.dot_product_attention(HEADS, MEMORY, MEMORY, PATTERN, "x"),
        UsageError,
    ),
    "block_size must be an integer, and is 2.5": (
        lambda: L.lean_attention(HEADS, MEMORY, MEMORY, PATTERN, block_size=2.5),
        UsageError,
    ),
    "scaling must be a RotaryScaling, or None, and is 2": (
        lambda: L.rotary_embedding(HEADS, PLACES, scaling=2),
        UsageError,
    ),
    "delta must be a number, and is 'a'": (lambda: L.huber_loss(X, X, "a"), UsageError),
    "sizes must be a dict, and is 4": (lambda: L.adaptive_avg_pool(IMAGE, 4), UsageError),
    "base must be a number above 0, and is -1": (lambda: L.rotary_embedding(HEADS, PLACES, -1), GraphError),
    "max_wavelength must be a number above 0, and is 0": (lambda: L.sinusoidal_positions(PLACES, "d:8", 0), GraphError),
    "offset must be an integer, 0 or more, and is -1": (
        lambda: L.learned_positions(PLACES, 8, "d:8", offset=-1),
        GraphError,
    ),
}


@pytest.mark.parametrize("words", OF_ANOTHER_KIND)
def test_a_value_of_another_kind_is_named(refused: Callable[..., None], words: str) -> None:
    refused(*OF_ANOTHER_KIND[words], words)


def test_a_mask_of_another_kind_is_named() -> None:
    with pytest.raises(GraphError, match="AttentionPattern: mask must be an AttentionMask, and is 4"):
        L.AttentionPattern.within(L.Tokens(), 4)


def test_the_initializers_of_t5_need_a_size() -> None:
    with pytest.raises(ValueError, match="t5_attention_initializers: d_kv must be a positive integer, and is 0"):
        L.t5_attention_initializers(0)


def test_an_error_of_the_users_own_function_stays() -> None:
    """Even where an argument, here `use_bias`, is not of its kind."""

    def activation(x: mtf.Tensor) -> mtf.Tensor:
        raise TypeError("mine")

    with MESH.graph, pytest.raises(TypeError, match="mine"):
        L.dense(X, "o:3", use_bias=0, activation=activation, name="own")


def test_the_size_of_a_filter_is_named() -> None:
    with MESH.graph, pytest.raises(ShapeError, match="or 2, one for each spatial dimension, and is None"):
        L.conv2d(IMAGE, "o:4", None)


@pytest.mark.parametrize(("wrong", "kind", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_no_layer_or_optimizer_can_use_is_named(
    refused: Callable[..., None], wrong: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    refused(wrong, kind, words)
