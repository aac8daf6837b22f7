"""Blocks as people write them with the original's attention, GPT-Neo's among them, have NumPy's numbers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import evaluated, graph_mode, initial

BATCH, LENGTH, IO, KV = (mtf.Dimension(n, s) for n, s in (("batch", 2), ("sequence", 8), ("embd", 16), ("kv", 4)))
HEADS, FEED = mtf.Dimension("hidden", 4), mtf.Dimension("intermediate", 32)
RADIUS = 3
X = initial("x", [2, 8, 16])


def norm(x: mtf.Tensor, scope: str, axis: mtf.Dimension, epsilon: float = 1e-5) -> mtf.Tensor:
    with tf.compat.v1.variable_scope(scope):
        ones = tf.compat.v1.constant_initializer(1)
        g = mtf.get_variable(x.mesh, "g", [axis], initializer=ones, master_dtype=tf.float32, slice_dtype=tf.float32)
        u = mtf.reduce_mean(x, reduced_dim=axis)
        s = mtf.reduce_mean(mtf.square(x - u), reduced_dim=axis)
        return (x - u) * mtf.rsqrt(s + epsilon) * g


def block(x: mtf.Tensor, scope: str, *, local: bool) -> mtf.Tensor:
    """With the scopes, loops over recomputation and reduced dimensions that people's code has."""

    def fn(x: mtf.Tensor) -> mtf.Tensor:
        with tf.compat.v1.variable_scope(scope):
            y = norm(x, "norm_1", axis=x.shape[-1])
            with tf.compat.v1.variable_scope("attn"):
                params = mtf.transformer.attention.attention_params_simple(
                    x.mesh, io_dim=IO, kv_dim=KV, heads_dim=HEADS, variable_dtype=mtf.VariableDType()
                )
                q, k, v = params.compute_q(y), params.compute_k(y), params.compute_v(y)
                if local:
                    a = mtf.transformer.attention.local_attention_1d(
                        q, k, v, LENGTH, KV, KV, radius=RADIUS, attention_kwargs={"dropout_rate": 0.0}
                    )
                else:
                    memory = mtf.Dimension("memory_length", LENGTH.size)
                    k, v = (mtf.replace_dimensions(t, LENGTH, memory) for t in (k, v))
                    i, j = mtf.range(x.mesh, LENGTH, tf.int32), mtf.range(x.mesh, memory, tf.int32)
                    i, j = (mtf.broadcast(t, [LENGTH, memory]) for t in (i, j))
                    bias = mtf.cast(mtf.less(i, j), tf.float32) * -1e10
                    context = SimpleNamespace(train=True)
                    a = mtf.transformer.attention.attention(q, k, v, memory, KV, KV, bias, 0.0, context=context)
                x += params.compute_output(a, x.shape)
            h = mtf.gelu(mtf.layers.dense(norm(x, "norm_2", IO), FEED, variable_dtype=mtf.VariableDType(), name="c_fc"))
            return x + mtf.layers.dense(h, IO, name="c_proj")

    return mtf.recompute_grad(fn, [x])


def _program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
    x = mtf.import_fully_replicated(mesh, X, [BATCH, LENGTH, IO])
    y = block(block(x, "h0", local=False), "h1", local=True)
    loss = mtf.reduce_mean(mtf.square(y))
    weights = {v.full_name: v for v in x.graph.trainable_variables}
    return [y, *mtf.gradients([loss], [weights["h0/attn/q"].outputs[0], weights["h1/c_proj/bias"].outputs[0]])]


def _own_block(x: tf.Tensor, scope: str, w: dict[str, tf.Tensor], *, local: bool) -> tf.Tensor:
    def normed(x: tf.Tensor, name: str) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return (x - mean) / tf.sqrt(variance + 1e-5) * w[f"{scope}/{name}/g"]

    y = normed(x, "norm_1")
    q, k, v = (tf.reshape(y @ w[f"{scope}/attn/{n}"], [2, 8, 4, 4]) for n in "qkv")
    distance = np.arange(8)[:, None] - np.arange(8)
    seen = (distance >= 0) & (distance < (RADIUS if local else 8))
    weights = tf.nn.softmax(tf.einsum("blhk,bmhk->bhlm", q, k) + np.where(seen, 0.0, -1e9))
    x += tf.reshape(tf.einsum("bhlm,bmhk->blhk", weights, v), [2, 8, 16]) @ w[f"{scope}/attn/o"]
    h = tf.nn.gelu(normed(x, "norm_2") @ w[f"{scope}/c_fc/kernel"] + w[f"{scope}/c_fc/bias"], approximate=True)
    return x + h @ w[f"{scope}/c_proj/kernel"] + w[f"{scope}/c_proj/bias"]


def test_two_blocks_of_gpt_neo_and_their_gradients() -> None:
    sizes = {"norm_1/g": [16], "norm_2/g": [16], **{f"attn/{n}": [16, 16] for n in "qkvo"}}
    sizes |= {"c_fc/kernel": [16, 32], "c_fc/bias": [32], "c_proj/kernel": [32, 16], "c_proj/bias": [16]}
    w = {
        f"{s}/{n}": tf.Variable(initial(f"{s}/{n}", d).astype(np.float64))
        for s in ("h0", "h1")
        for n, d in sizes.items()
    }
    with tf.GradientTape() as tape:
        y = _own_block(_own_block(tf.constant(X, tf.float64), "h0", w, local=False), "h1", w, local=True)
        loss = tf.reduce_mean(tf.square(y))
    grads = tape.gradient(loss, [w["h0/attn/q"], w["h1/c_proj/bias"]])
    for found, wanted in zip(evaluated(_program), [y, *grads], strict=True):
        assert_close(found, wanted, terms=(16 * 8, 32 * 8, 16 * 8, 32 * 8), magnitude=max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("combine_dims", [True, False])
def test_keys_that_are_values_and_scaled_queries(combine_dims: bool) -> None:
    """With heads of their own kept in the output, and without."""
    attention = mtf.transformer.attention
    own = {"shared_kv": True, "combine_dims": combine_dims, "fold_scaling_into_initializer": False}

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        x = mtf.import_tf_tensor(mesh, X, [BATCH, LENGTH, IO])
        params = attention.AttentionParams(mesh, IO, IO, IO, KV, KV, [HEADS], [HEADS], mtf.VariableDType(), **own)
        kv = mtf.rename_dimension(params.compute_kv(x), LENGTH.name, "memory")
        context = SimpleNamespace(train=True, nonpadding=mtf.ones(mesh, [BATCH, LENGTH]), num_microbatches=2, losses=[])
        memory = kv.shape.get_dim_by_name("memory")
        seen = mtf.less(mtf.range(mesh, memory), 6)
        o = attention.attention(
            params.compute_q(x),
            kv,
            kv,
            memory,
            KV,
            KV,
            bias=attention.visibility_mask_to_attention_bias(seen, tf.float32),
            context=context,
            z_loss_coeff=0.5,
        )
        return [params.compute_output(o, [BATCH, LENGTH, IO]), *context.losses]

    y, loss = evaluated(program)
    sizes = [[16, 16], [16, 16], [16, 16]] if combine_dims else [[16, 4, 4], [16, 4, 4], [4, 4, 16]]
    q, kv, o = (
        initial(n, size).reshape(shape)
        for n, size, shape in zip(["q", "kv", "o"], sizes, [(16, 4, 4), (16, 4, 4), (4, 4, 16)], strict=True)
    )
    queries, memory = (np.einsum("bli,ihk->bhlk", X, w).astype(np.float64) for w in (q / 2, kv))
    weights = np.exp(queries @ memory[:, :, :6].swapaxes(2, 3))
    found = np.einsum("bhlk,hki->bli", weights / weights.sum(-1, keepdims=True) @ memory[:, :, :6], o)
    np.testing.assert_allclose(y, found, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(loss, (np.log(weights.sum(-1)) ** 2).mean() * 0.5 / 2, rtol=1e-4)


def test_what_shared_keys_cannot_do_is_said() -> None:
    with graph_mode():
        mesh = mtf.Mesh(mtf.Graph(), "mesh")
        x = mtf.ones(mesh, [BATCH, LENGTH, IO])
        rest = ([HEADS], [HEADS], mtf.VariableDType())
        params = mtf.transformer.attention.AttentionParams(
            mesh, IO, IO, IO, KV, KV, *rest, shared_kv=True, no_query=True
        )
        assert not hasattr(params, "wq")
        with pytest.raises(GraphError, match="call compute_kv"):
            params.compute_k(x)
        with pytest.raises(ShapeError, match="give both one dimension"):
            mtf.transformer.attention.AttentionParams(mesh, IO, IO, IO, KV, IO, *rest, shared_kv=True)


@pytest.mark.parametrize("train", [None, True, False])
def test_weights_are_dropped_unless_a_context_says_that_nothing_trains(train: bool | None) -> None:
    """Without a context as with one that trains: early versions read none."""

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        q = mtf.zeros(mesh, [BATCH, HEADS, LENGTH, KV])
        memory = mtf.Dimension("memory", 64)
        k, v = mtf.zeros(mesh, [BATCH, memory, KV]), mtf.ones(mesh, [BATCH, memory, KV])
        context = None if train is None else SimpleNamespace(train=train)
        return mtf.transformer.attention.attention(
            q, k, v, memory, KV, KV, dropout_rate=0.5, context=context, float32_logits=True
        )

    means = evaluated(program)
    assert (np.ptp(means) < 1e-6) == (train is False)
    np.testing.assert_allclose(means.mean(), 1.0, atol=0.1)


def test_scores_of_bfloat16_are_float32() -> None:
    """The scores are 256 and 257, which is 256 in bfloat16."""
    keys, memory = np.array([[16, 0, 0, 0], [16, 1, 0, 0]], np.float32), mtf.Dimension("memory", 2)

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        q = mtf.cast(mtf.import_tf_tensor(mesh, keys[[1, 1]], [BATCH, KV]), tf.bfloat16)
        k = mtf.cast(mtf.import_tf_tensor(mesh, keys, [memory, KV]), tf.bfloat16)
        v = mtf.broadcast(mtf.range(mesh, memory, tf.bfloat16), [memory, KV])
        return mtf.to_float(mtf.transformer.attention.attention(q, k, v, memory, KV, KV))

    np.testing.assert_allclose(evaluated(program, "one core"), 1 / (1 + np.exp(-1)), rtol=0.01)


def test_local_attention_with_priorities_never_sees_positions_ahead() -> None:
    """The keys are the values, and no sequence has a number."""
    keys, read, write = initial("keys", [2, 8, 4]), np.array([1, 0, 1, 1, 1, 1, 1, 1]), np.arange(8) % 2

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        k = mtf.import_tf_tensor(mesh, keys, [BATCH, LENGTH, KV])
        priorities = [mtf.import_tf_tensor(mesh, x.astype(np.int32), [LENGTH]) for x in (write, read)]
        return mtf.transformer.attention.local_attention_1d(
            mtf.zeros_like(k), k, None, LENGTH, KV, KV, True, 1, RADIUS, None, *priorities
        )

    distance = np.arange(8)[:, None] - np.arange(8)
    seen = (distance >= 0) & (distance < RADIUS) & (read[:, None] >= write)
    means = (seen / seen.sum(1, keepdims=True)) @ keys
    np.testing.assert_allclose(evaluated(program, "one core"), means, rtol=1e-5, atol=1e-6)


def test_each_copy_of_keys_has_a_softmax_of_its_own() -> None:
    """The copies, which queries lack, are summed only with the values."""
    copies, memory = mtf.Dimension("copies", 3), mtf.Dimension("memory", 5)
    queries, keys, values = initial("queries", [2, 4]), initial("keys", [3, 5, 4]), initial("values", [3, 5, 4])

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        q = mtf.import_tf_tensor(mesh, queries, [BATCH, KV])
        k, v = (mtf.import_tf_tensor(mesh, x, [copies, memory, KV]) for x in (keys, values))
        return mtf.transformer.attention.attention(q, k, v, memory, KV, KV)

    weights = np.exp(np.einsum("bk,cmk->bcm", queries, keys))
    expected = np.einsum("bcm,cmk->bk", weights / weights.sum(-1, keepdims=True), values)
    np.testing.assert_allclose(evaluated(program, "one core"), expected, rtol=1e-5, atol=1e-6)
