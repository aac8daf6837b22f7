"""Attention with whole matrices, written out in TensorFlow and NumPy: what every way to attend must give."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import AttentionMask
from meshtf.testing import FUNCTION_TERMS

LAYOUTS = [
    "batch:rows;heads:cols",
    "batch:rows;length:cols",
    "length:rows;heads:cols",
    "memory_length:rows;batch:cols",
    "d_kv:rows;length:cols",
    "memory_length:rows+cols",
]


@dataclasses.dataclass(frozen=True)
class Sizes:
    batch: int = 2
    length: int = 8
    memory_length: int = 8
    heads: int = 2
    queries_per_head: int | None = None
    is_shared: bool = False
    d_kv: int = 4

    @property
    def q(self) -> mtf.Shape:
        grouped = [] if self.queries_per_head is None else [("queries_per_head", self.queries_per_head)]
        dims = [("batch", self.batch), ("length", self.length), ("heads", self.heads), *grouped, ("d_kv", self.d_kv)]
        return mtf.Shape(dims)

    @property
    def k(self) -> mtf.Shape:
        heads = [] if self.is_shared else [("heads", self.heads)]
        return mtf.Shape([("batch", self.batch), ("memory_length", self.memory_length), *heads, ("d_kv", self.d_kv)])

    @property
    def terms(self) -> tuple[int, ...]:
        """Roundings of a result: of logits, as often as the largest of them is large, since exponentials make relative
        errors of absolute ones; of the exponentials, of their sum, and of the weighted sum of values."""
        q, k = (np.abs(array).reshape(-1, self.d_kv) for _, array in (self.operands()[name] for name in "qk"))
        return (math.ceil((q @ k.T).max()) * self.d_kv, FUNCTION_TERMS, self.memory_length, self.memory_length)

    @property
    def gradient_terms(self) -> tuple[int, ...]:
        """Those of a result and of the way back, and of sums over the tokens that attend."""
        return (*self.terms, *self.terms, self.length)

    def operands(self) -> dict[str, tuple[mtf.Shape, np.ndarray]]:
        """Random q, k and v."""
        shapes = {"q": self.q, "k": self.k, "v": self.k}
        return {name: (s, normal(s.to_integer_list, seed)) for seed, (name, s) in enumerate(shapes.items())}


def normal(size: list[int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def segments(batch: int, length: int) -> np.ndarray:
    """Rows of one to three segments of random sizes, then padding."""
    generator = np.random.default_rng(length)
    rows = [np.sort(generator.choice(np.arange(1, 4), size=length)) for _ in range(batch)]
    is_padding = np.arange(length) >= length - 1
    return np.where(is_padding, 0, np.stack(rows)).astype(np.int32)


def visible(mask: AttentionMask, tokens: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray]) -> np.ndarray:
    """[batch, length, memory_length], token by token. Of tokens: positions, segments, is_prefix, each [batch, n]."""
    batch, length = tokens["positions"].shape
    seen = np.zeros([batch, length, memory["positions"].shape[1]], bool)
    for b, i, j in np.ndindex(*seen.shape):
        ahead = memory["positions"][b, j] - tokens["positions"][b, i]
        is_allowed = not mask.is_causal or ahead <= 0 or (mask.sees_prefix and memory["is_prefix"][b, j] == 1)
        is_near = mask.window is None or abs(ahead) < mask.window
        is_same = memory["segments"][b, j] != 0 and memory["segments"][b, j] == tokens["segments"][b, i]
        seen[b, i, j] = is_allowed and is_near and is_same
    return seen


def attention(q: Any, k: Any, v: Any, seen: np.ndarray, bias: Any = 0.0, extra_logit: Any = None) -> tf.Tensor:
    """q [b, length, h, (g), d]; k, v [b, memory, (h), d]; seen [b, length, memory]; bias [(h, g,) length, memory]."""
    is_grouped, is_shared = len(q.shape) == 5, len(k.shape) == 3
    of_q, of_k = "bih" + "g" * is_grouped + "d", "bj" + "h" * (not is_shared) + "d"
    of_logits = "bh" + "g" * is_grouped + "ij"
    logits = tf.einsum(f"{of_q},{of_k}->{of_logits}", q, k) + bias
    seen = seen[:, None, None] if is_grouped else seen[:, None]
    terms = tf.where(seen, tf.exp(tf.where(seen, logits, 0.0)), 0.0)
    total = tf.reduce_sum(terms, -1, keepdims=True)
    if extra_logit is not None:
        total += tf.exp(extra_logit)
    weights = terms / tf.where(total > 0, total, 1.0)
    return tf.einsum(f"{of_logits},{of_k}->{of_q}", weights, v)
