"""The published Transformers in tiny sizes, from the configurations that meshtf brings along, and batches for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import FUNCTION_TERMS, Interpretation, interpret_graph
from meshtf.train.configuration import find_gin_file, read_configuration

BATCH, LENGTH, INPUTS_LENGTH = mtf.Dimension("batch", 4), mtf.Dimension("length", 6), mtf.Dimension("length", 8)
TOKENS, INPUT_TOKENS = mtf.Shape([BATCH, LENGTH]), mtf.Shape([BATCH, INPUTS_LENGTH])
VOCAB_SIZE = 100
_LAYER = 3 * 32 + 3 * (2 * 32 + 8 + LENGTH.size) + 64 + 8 * FUNCTION_TERMS  # norms; at most three attentions; products
TERMS = (2 * (4 * _LAYER + VOCAB_SIZE + 2 * FUNCTION_TERMS), TOKENS.size)
"""Roundings of a step of a tiny model: through at most four layers and the logits, and back; a sum over the tokens."""

MODELS = {
    "gpt2": "TransformerLM",
    "gpt2_xl": "TransformerLM",
    "llama": "TransformerLM",
    "llama_2_70b": "TransformerLM",
    "qwen3_8b": "TransformerLM",
    "bert": "MaskedLM",
    "t5_1_0": "EncoderDecoder",
    "t5_1_1": "EncoderDecoder",
    "mesh_tensorflow_lm_5b": "TransformerLM",
    "mesh_tensorflow_translation_3b": "EncoderDecoder",
}
WITH_EXPERTS = {
    "moe_tiny": "TransformerLM",
    "qwen3_30b_a3b": "TransformerLM",
    "mixtral_8x7b": "TransformerLM",
    "deepseek_v2": "TransformerLM",
    "deepseek_v3": "TransformerLM",
    "gpt_oss_20b": "TransformerLM",
    "gpt_oss_120b": "TransformerLM",
    **dict.fromkeys((f"gshard_{n}b" for n in (12, 37, 50, 150, 200, 600)), "EncoderDecoder"),
    **dict.fromkeys((f"switch_{size}" for size in ("base", "large", "xxl", "c")), "EncoderDecoder"),
}
WITH_TASKS_OR_EXPERTS = WITH_EXPERTS | dict.fromkeys(
    ("lm_tiny", *(f"lamda_{size}" for size in ("2b", "8b", "137b", "tiny", "tiny_finetuned"))), "TransformerLM"
)
IMPORTED = {"roberta": "MaskedLM", "modernbert": "MaskedLM", "opt": "TransformerLM", "bart": "EncoderDecoder"}
"""Others, whose layers are those of BERT, GPT-2 and T5; weights of theirs are imported."""
OF_IMAGES = {
    **dict.fromkeys((f"resnet{layers}" for layers in (18, 34, 101, 152)), "ResNet"),
    "resnet50": "ResNet50",
    **dict.fromkeys(("vit_s16", "vit_b16", "deit_s16"), "VisionTransformer"),
}
KINDS = MODELS | IMPORTED | WITH_TASKS_OR_EXPERTS | OF_IMAGES | {"digits_mlp": "MLPClassifier"}
"""The model of each configuration."""


def like(name: str) -> str:
    """The variable whose size says how large the terms of another's gradient are: its own, but for a bias of keys. That
    moves all logits of a query alike, which softmax does not see: what is left of its gradient is rounding."""
    return name.replace("k_bias", "q_bias")


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and what it is fed."""

    model: Any
    specs: Mapping[str, mtf.TensorSpec]

    def batch(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Random ids, packed as two examples in each row, with some padding."""
        generator = np.random.default_rng(seed)
        return {name: _feature(name, spec, generator) for name, spec in self.specs.items()}

    def loss(self, features: Mapping[str, mtf.Tensor]) -> mtf.Tensor:
        values, weights = self.model.metrics(features, True)["loss"]
        return mtf.reduce_sum(values * weights) / mtf.reduce_sum(weights)

    def training_step(self, learning_rate: float = 0.1) -> Callable[..., mtf.Tensor]:
        def training_step(**features: mtf.Tensor) -> mtf.Tensor:
            loss = self.loss(features)
            mtf.optimize.SgdOptimizer(learning_rate).minimize(loss)
            return loss

        return training_step


def configured(name: str, *parameters: str, sizes: str = "size_tiny.gin") -> Any:
    """A model by the name of its configuration."""
    files = [find_gin_file(f"{name}.gin"), *([find_gin_file(sizes)] if sizes else [])]
    try:
        read_configuration(files, parameters)
        return gin.get_configurable(KINDS[name])()
    finally:
        gin.clear_config()  # which would change every layer that another test makes


def case(name: str, *parameters: str, sizes: str = "size_tiny.gin") -> Case:
    model, spec = configured(name, *parameters, sizes=sizes), mtf.TensorSpec
    specs = {f"targets{suffix}": spec(TOKENS, tf.int32) for suffix in ("", "_segmentation", "_position")}
    specs["targets_weights"] = spec(TOKENS, tf.float32)
    inputs = {"EncoderDecoder": INPUT_TOKENS, "MaskedLM": TOKENS}.get(KINDS[name])
    if inputs is not None:
        specs |= {f"inputs{suffix}": spec(inputs, tf.int32) for suffix in ("", "_segmentation", "_position")}
    return Case(model, specs)


def interpreted(
    program: Callable[..., Any],
    arrays: Mapping[str, tuple[mtf.Shape, np.ndarray]],
    mesh_shape: str = "rows:1",
    layout: str = "",
    activation_dtype: tf.DType = tf.float32,
) -> Interpretation:
    """What a list of tensors made from named arrays comes to, in models whose activations are of this type."""
    graph = mtf.Graph("program", mtf.VariableDType(tf.float32, activation_dtype=activation_dtype))
    mesh = mtf.Mesh(graph)
    with graph:
        inputs = {n: mtf.placeholder(mesh, shape, tf.as_dtype(a.dtype), name=n) for n, (shape, a) in arrays.items()}
        fetches = program(**inputs)
    return interpret_graph(graph, fetches, {n: a for n, (_, a) in arrays.items()}, mesh_shape, layout)


def _feature(name: str, spec: mtf.TensorSpec, generator: np.random.Generator) -> np.ndarray:
    rows, length = spec.shape.to_integer_list
    segments = np.zeros((rows, length), np.int32)
    for row in range(rows):
        border, end = length // 2 + row % 2, length - row % 3
        segments[row, :border], segments[row, border:end] = 1, 2
    if name.endswith("_segmentation"):
        return segments
    places = np.arange(length)
    if name.endswith("_position"):
        return np.where(segments == 2, places - np.argmax(segments == 2, axis=1)[:, None], places).astype(np.int32)
    if name.endswith("_weights"):
        return (segments > 0).astype(np.float32)
    return generator.integers(2, VOCAB_SIZE, size=(rows, length)).astype(np.int32) * (segments > 0)
