"""Attention with the original's signature is NumPy's, on split heads; a step of decoding is a row of it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import evaluated, initial

BATCH, LENGTH, IO, KV = (mtf.Dimension(n, s) for n, s in (("batch", 4), ("length", 8), ("io", 16), ("kv", 4)))
HEADS = mtf.Dimension("hidden", 2)  # the name that the meshes of these tests split
X = initial("x", [4, 8, 16])
POSITION = 5


def _program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
    x = mtf.import_tf_tensor(mesh, X, [BATCH, LENGTH, IO])
    mask = mtf.layers.attention_mask_autoregressive(mtf.range(mesh, LENGTH, tf.float32))
    y = mtf.layers.multihead_attention(x, None, mask, KV, HEADS, is_training=True, name="attention")
    wk, wv = (mtf.get_variable(mesh, f"attention/{n}", [HEADS, IO, KV]) for n in "kv")
    memory = mtf.layers.rename_length_to_memory_length(x)
    positions = memory.shape[1]
    before = mtf.cast(mtf.less(mtf.range(mesh, positions, tf.int32), POSITION), tf.float32)
    k, v = (mtf.einsum([memory, w], [BATCH, HEADS, positions, KV]) * before for w in (wk, wv))
    now = mtf.reshape(mtf.slice(x, POSITION, 1, "length"), [BATCH, IO])
    step = mtf.constant(mesh, POSITION, dtype=tf.int32)
    float32 = tf.float32
    row, _, _ = mtf.layers.multihead_self_attention_incremental(now, k, v, step, float32, float32, name="attention")
    return [y, row]


def test_multihead_attention_and_a_step_of_decoding() -> None:
    y, row = evaluated(_program)
    q, k, v, o = (initial(f"attention/{name}", [2, 16, 4]) for name in "qkvo")
    scores = np.einsum("bhlk,bhmk->bhlm", np.einsum("bli,hik->bhlk", X, q), np.einsum("bmi,hik->bhmk", X, k))
    scores = np.where(np.tril(np.ones([8, 8], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhlm,bmi,hik,hjk->blj", weights, X, v, o, optimize=True)
    terms = (IO.size, KV.size, LENGTH.size * 4, IO.size, HEADS.size * KV.size)
    assert_close(y, expected, terms=terms)
    assert_close(row, expected[:, POSITION], terms=terms)
