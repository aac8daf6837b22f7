"""Weights of a model of `lm_tiny`'s shape, by the names that they have in its checkpoints."""

from __future__ import annotations

import numpy as np

LAYERS, D_MODEL, HEADS, D_KV, D_FF, VOCAB = 4, 128, 4, 32, 512, 258

EMBEDDING, FINAL = "embedding/weights", "decoder/final/norm/scale"
OF_LAYERS = {
    "self_attention/norm/scale": ("d_model",),
    "self_attention/q": ("d_model", "heads", "d_kv"),
    "self_attention/k": ("d_model", "heads", "d_kv"),
    "self_attention/v": ("d_model", "heads", "d_kv"),
    "self_attention/o": ("heads", "d_kv", "d_model"),
    "feed_forward/norm/scale": ("d_model",),
    "feed_forward/wi/kernel": ("d_model", "d_ff"),
    "feed_forward/wo/kernel": ("d_ff", "d_model"),
}
SIZES = {"d_model": D_MODEL, "heads": HEADS, "d_kv": D_KV, "d_ff": D_FF, "vocab": VOCAB}
NAMES = {
    EMBEDDING: ("vocab", "d_model"),
    FINAL: ("d_model",),
    **{f"decoder/layer/{name}": ("layer", *dims) for name, dims in OF_LAYERS.items()},
}


def weights() -> dict[str, np.ndarray]:
    generator, sizes = np.random.default_rng(0), {**SIZES, "layer": LAYERS}
    shapes = {name: [sizes[dim] for dim in dims] for name, dims in NAMES.items()}
    return {
        name: np.ones(shape, np.float32)
        if name.endswith("scale")
        else generator.normal(0, 0.08, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
