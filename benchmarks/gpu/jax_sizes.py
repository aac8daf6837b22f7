"""The sizes and the initial weights of a Transformer's step, hand-written in JAX and PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

CHANNELS = 3
"""The channels of images."""


@dataclasses.dataclass(frozen=True)
class JaxSizes:
    """The sizes of the model and of its batch. The defaults are of GPT-2 124M, with a padded vocabulary.

    Attributes:
      dtype: the dtype of activations.
      is_causal: whether a token sees only earlier tokens.
    """

    batch: int
    length: int = 1024
    dtype: str = "bfloat16"
    vocab: int = 50304
    layers: int = 12
    d_model: int = 768
    heads: int = 12
    d_ff: int = 3072
    is_causal: bool = True


def layer_shapes(sizes: JaxSizes) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of all layers, and of the norm after them."""
    layers, width, heads, d_ff = sizes.layers, sizes.d_model, sizes.heads, sizes.d_ff
    own = width // heads
    return {
        "layer_norm_1": (layers, width),
        "layer_qkv": (layers, width, 3, heads, own),
        "layer_qkv_bias": (layers, 3, heads, own),
        "layer_out": (layers, heads, own, width),
        "layer_out_bias": (layers, width),
        "layer_norm_2": (layers, width),
        "layer_wi": (layers, width, d_ff),
        "layer_wi_bias": (layers, d_ff),
        "layer_wo": (layers, d_ff, width),
        "layer_wo_bias": (layers, width),
        "norm": (width,),
    }


def vit_shapes(sizes: JaxSizes, patch: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a Vision Transformer's weights, for patches with `patch` pixels on each side."""
    return {
        "patches": (patch * patch * CHANNELS, sizes.d_model),
        "patches_bias": (sizes.d_model,),
        "class_token": (sizes.d_model,),
        "positions": (sizes.length, sizes.d_model),
        "logits": (sizes.d_model, sizes.vocab),
        "logits_bias": (sizes.vocab,),
        **layer_shapes(sizes),
    }


def first_weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Random weights of these shapes, biases of 0 and scales of 1."""
    generator, found = np.random.default_rng(0), dict[str, np.ndarray]()
    for name, shape in shapes.items():
        fixed = 1.0 if "norm" in name else 0.0 if name.endswith("bias") else None
        found[name] = generator.normal(0, 0.02, shape) if fixed is None else np.full(shape, fixed)
    return {name: value.astype(np.float32) for name, value in found.items()}
