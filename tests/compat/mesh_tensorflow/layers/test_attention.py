"""Attention with the original's signature is NumPy's, on split heads; a step of decoding is a row of it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import evaluated, initial

BATCH, LENGTH, IO, KV = (mtf.Dimension(n, s) for n, s in (("batch", 4), ("length", 8), ("io", 16), ("kv", 4)))
HEADS = mtf.Dimension("hidden", 2)  # the name that the meshes of these tests split
X = initial("x", [4, 8, 16])
POSITION = 5
WINDOW, BLOCK = 2, 4


def _program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
    x = mtf.import_tf_tensor(mesh, X, [BATCH, LENGTH, IO])
    mask = mtf.layers.attention_mask_autoregressive(mtf.range(mesh, LENGTH, tf.float32))
    y = mtf.layers.multihead_attention(x, None, mask, KV, HEADS, is_training=True, name="attention")
    qkvo = mtf.get_variable(mesh, "attention/qkvo", [mtf.Dimension("qkvo", 4), HEADS, IO, KV])
    wqkvo = mtf.unstack(qkvo, qkvo.shape[0])
    _, wk, wv, _ = wqkvo
    memory = mtf.layers.rename_length_to_memory_length(x)
    positions = memory.shape[1]
    before = mtf.cast(mtf.less(mtf.range(mesh, positions, tf.int32), POSITION), tf.float32)
    k, v = (mtf.einsum([memory, w], [BATCH, HEADS, positions, KV]) * before for w in (wk, wv))
    now = mtf.reshape(mtf.slice(x, POSITION, 1, "length"), [BATCH, IO])
    step = mtf.constant(mesh, POSITION, dtype=tf.int32)
    float32 = tf.float32
    row, _, _ = mtf.layers.multihead_self_attention_incremental(now, k, v, step, float32, float32, name="attention")
    kept: list[mtf.Tensor] = []
    local = mtf.layers.masked_local_attention_1d(
        x, KV, HEADS, is_training=True, window_size=WINDOW, length_per_split=BLOCK, return_kv=kept, params=wqkvo
    )
    window = mtf.Dimension("window", WINDOW)
    oldest = mtf.cast(
        mtf.equal(mtf.range(mesh, window, tf.int32), 0), tf.float32
    )  # this position takes the other place
    shape = [BATCH, HEADS, window, KV]
    last = [mtf.reshape(mtf.slice(t, POSITION - 1, WINDOW, "length"), shape) * oldest for t in kept]
    local_row, *_ = mtf.layers.masked_local_attention_1d_incremental(now, *last, step, params=wqkvo)
    assert [v.full_name for v in mesh.graph.all_variables] == ["attention/qkvo"]  # one for training and for decoding
    return [y, row, local, local_row]


def test_multihead_attention_and_a_step_of_decoding() -> None:
    y, row, local, local_row = evaluated(_program)
    q, k, v, o = initial("attention/qkvo", [4, 2, 16, 4])
    scores = np.einsum("bhlk,bhmk->bhlm", np.einsum("bli,hik->bhlk", X, q), np.einsum("bmi,hik->bhmk", X, k))
    scores = np.where(np.tril(np.ones([8, 8], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhlm,bmi,hik,hjk->blj", weights, X, v, o, optimize=True)
    terms = (IO.size, KV.size, LENGTH.size * 4, IO.size, HEADS.size * KV.size)
    assert_close(y, expected, terms=terms)
    assert_close(row, expected[:, POSITION], terms=terms)

    # Blocks of 4 see the 2 positions before them, of zeros before the first, and none that is 4 or more before.
    padded = np.pad(X, [(0, 0), (WINDOW, 0), (0, 0)])
    places, positions = np.arange(-WINDOW, 8), np.arange(8)[:, None]
    seen = (places <= positions) & (places > positions - BLOCK) & (places >= positions // BLOCK * BLOCK - WINDOW)
    scores = np.einsum("bhlk,bhmk->bhlm", np.einsum("bli,hik->bhlk", X, q), np.einsum("bmi,hik->bhmk", padded, k))
    weights = np.exp(np.where(seen, scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    assert_close(local, np.einsum("bhlm,bmi,hik,hjk->blj", weights, padded, v, o, optimize=True), terms=terms)

    near = X[:, POSITION - 1 : POSITION + 1]
    scores = np.einsum(
        "bhk,bhmk->bhm", np.einsum("bi,hik->bhk", X[:, POSITION], q), np.einsum("bmi,hik->bhmk", near, k)
    )
    weights = np.exp(scores)
    weights /= weights.sum(-1, keepdims=True)
    assert_close(local_row, np.einsum("bhm,bmi,hik,hjk->bj", weights, near, v, o, optimize=True), terms=terms)


def test_the_mask_of_a_block_is_of_two_blocks() -> None:
    """Whatever size the memory is said to have: programs give the size of one block."""

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        block = mtf.Dimension("block", BLOCK)
        sizes = (BLOCK, 2 * BLOCK)
        return [mtf.layers.attention_bias_local_block(mesh, block, mtf.Dimension("memory", n)) for n in sizes]

    with pytest.warns(UserWarning, match="has no effect"):
        found = evaluated(program)
    for mask in found:
        assert mask.dtype == np.float32
        np.testing.assert_array_equal(mask < 0, np.tril(np.ones([4, 8]), 4) == 0)
