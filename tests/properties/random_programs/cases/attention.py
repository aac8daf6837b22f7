"""Cases of the ways to attend, beside attention with whole matrices in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import (
    AttentionMask,
    AttentionOptions,
    AttentionPattern,
    Tokens,
    dot_product_attention,
    lean_attention,
    local_attention,
)
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case


def attention(attend: Callable[..., mtf.Tensor]) -> Case:
    """Of a sequence with itself: any length, window and mask, packed or not, one memory head or as many as queries."""

    def case(b: Builder) -> None:
        if not b.dtype.is_floating or b.dtype.size == 2:
            raise RejectedError
        batch, length = b.new_dim(b.rng.choice([1, 2, 4])), b.rng.choice([1, 2, 3, 4, 6, 8, 12, 16])
        heads, d_kv = mtf.Dimension("heads", b.rng.choice([1, 2, 4])), mtf.Dimension("d_kv", b.rng.choice([1, 2, 4]))
        own, memory = mtf.Dimension("length", length), mtf.Dimension("memory_length", length)
        of_memory = [] if b.chance(0.3) else [heads]
        q = b.fresh(mtf.Shape([batch, own, heads, d_kv]), b.dtype, -1, 1)
        k, v = (b.fresh(mtf.Shape([batch, memory, *of_memory, d_kv]), b.dtype, -1, 1) for _ in range(2))
        mask = AttentionMask(b.chance(0.5), b.rng.randint(1, length + 1) if _needs_window(b, attend) else None)
        segments = b.fresh(mtf.Shape([batch, own]), tf.int32, 0, 2) if b.chance(0.5) else None
        logit = b.rng.choice([None, None, 0.5])
        tokens = Tokens.along(q.tensor, None if segments is None else segments.tensor)
        more: dict[str, Any] = {"block_size": b.rng.choice([1, 2, 4])} if attend is lean_attention else {}
        pattern, options = AttentionPattern.within(tokens, mask), AttentionOptions(extra_logit=logit)
        z = attend(q.tensor, k.tensor, v.tensor, pattern, options, **more)
        seen = _visible(mask, length, np.ones([batch.size, length]) if segments is None else segments.array)

        def reference(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            k, v = (x if of_memory else tf.repeat(x[:, :, None], heads.size, 2) for x in (k, v))
            logits = tf.einsum("bihd,bjhd->bhij", q, k)
            terms = tf.where(seen, tf.exp(logits), 0.0)
            total = tf.reduce_sum(terms, -1, keepdims=True) + (0.0 if logit is None else np.exp(logit))
            return tf.einsum("bhij,bjhd->bihd", terms / tf.where(total > 0, total, 1.0), v)

        text = f"{attend.__name__}[{mask}, extra_logit={logit}, {more}]"
        b.step(text, [q, k, v, *([] if segments is None else [segments])], z, reference)

    return case


def _needs_window(b: Builder, attend: Callable[..., mtf.Tensor]) -> bool:
    return attend is local_attention or b.chance(0.4)


def _visible(mask: AttentionMask, length: int, segments: np.ndarray) -> np.ndarray:
    """[batch, 1, length, memory_length]."""
    ahead = np.arange(length) - np.arange(length)[:, None]
    allowed = (ahead <= 0) | (not mask.is_causal)
    near = np.abs(ahead) < (mask.window or length + 1)
    same = (segments[:, :, None] == segments[:, None]) & (segments[:, None] != 0)
    return (allowed & near & same)[:, None]


CASES: dict[str, Case] = {
    "dot_product_attention": attention(dot_product_attention),
    "local_attention": attention(local_attention),
    "lean_attention": attention(lean_attention),
}
