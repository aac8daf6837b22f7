"""What lean attention is for, memory, and what could set it apart from the plain form: dropout, higher derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from written_out import Sizes

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.layers import (
    AttentionConfig,
    AttentionMask,
    AttentionOptions,
    AttentionPattern,
    RelativePositionBias,
    Tokens,
    dot_product_attention,
    lean_attention,
)
from meshtf.testing import assert_close, assert_layout_invariant, interpret

CAUSAL, EVERYTHING = AttentionMask(is_causal=True), AttentionMask()


def report(attend: Callable[..., mtf.Tensor], length: int, mask: AttentionMask = EVERYTHING, **options: Any) -> Any:
    """Of a training step of attention with a relative bias, on one core."""
    sizes = Sizes(length=length, memory_length=length, heads=4, d_kv=8)
    config = AttentionConfig(num_heads=4, d_kv=8)

    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor | None]:
        bias = RelativePositionBias.make(q.mesh, config, 8, 64, is_bidirectional=False)
        y = attend(q, k, v, AttentionPattern.within(Tokens.along(q), mask, bias), **options)
        return mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v, bias.table])

    specs = {name: mtf.TensorSpec(shape) for name, (shape, _) in sizes.operands().items()}
    return mtf.function(program, mtf.SpmdMeshImpl("rows:1", ""), inputs=specs).report()


@pytest.mark.parametrize("mask", [EVERYTHING, CAUSAL], ids=str)
def test_memory_grows_with_length_and_not_with_its_square(mask: AttentionMask) -> None:
    short, long = (report(lean_attention, n, mask, block_size=32) for n in (256, 1024))
    assert long.memory.peak < 4.05 * short.memory.peak
    matrix = 2 * 4 * 1024**2 * 4  # bytes of scores of batch 2 and 4 heads
    assert long.memory.peak < matrix / 4
    assert report(dot_product_attention, 1024).memory.peak > 3 * matrix


def test_the_gradient_runs_each_block_once_again() -> None:
    """Plain: 2 products forward, 4 backward. Lean: 2 forward, then the scores again and 4 backward."""
    lean, plain = report(lean_attention, 512, block_size=32), report(dot_product_attention, 512)
    assert lean.flops_per_core < 1.3 * plain.flops_per_core


def test_a_memory_that_is_split_stays_where_it_is() -> None:
    sizes = Sizes(length=8, memory_length=64)
    specs = {name: mtf.TensorSpec(shape) for name, (shape, _) in sizes.operands().items()}

    def program(q: Any, k: Any, v: Any) -> mtf.Tensor:
        return lean_attention(q, k, v, AttentionPattern(), block_size=16)

    step = mtf.function(program, mtf.SpmdMeshImpl("rows:4", "memory_length:rows"), inputs=specs)
    assert {c.kind for c in step.report().collectives} == {"all_reduce"}
    assert all("memory_length" not in c.shape for c in step.report().collectives)


def with_gradients(attend: Callable[..., mtf.Tensor], options: AttentionOptions, **more: Any) -> Any:
    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor | None]:
        pattern = AttentionPattern.within(Tokens.along(q), CAUSAL)
        y = attend(q, k, v, pattern, options, is_training=True, **more)
        return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v])]

    return program


@pytest.mark.parametrize(
    ("together", "length"),
    [
        (("memory_length",), 7),
        *(pytest.param(t, n, marks=pytest.mark.long) for t in [("length",), (), ("length", "heads")] for n in (8, 7)),
        pytest.param(("memory_length",), 8, marks=pytest.mark.long),
    ],
)
def test_dropout_drops_what_the_plain_form_drops(together: tuple[str, ...], length: int) -> None:
    sizes = Sizes(length=length, memory_length=length)
    inputs = sizes.operands()
    options = AttentionOptions(dropout_rate=0.5, dropout_broadcast_dims=together)
    plain = interpret(with_gradients(dot_product_attention, options), inputs, "rows:1").results
    kept = interpret(with_gradients(dot_product_attention, AttentionOptions()), inputs, "rows:1").results
    assert np.abs(plain[0] - kept[0]).max() > 0.1
    for layout in ["", "batch:rows;heads:cols", *(["length:rows;memory_length:cols"] if length == 8 else [])]:
        lean = interpret(with_gradients(lean_attention, options, block_size=3), inputs, "rows:2;cols:2", layout).results
        for found, wanted in zip(lean, plain, strict=True):
            assert_close(found, wanted, terms=sizes.gradient_terms)


def test_second_derivatives() -> None:
    def program(q: Any, k: Any, v: Any) -> list[list[mtf.Tensor | None]]:
        found = []
        for attend, more in ((dot_product_attention, {}), (lean_attention, {"block_size": 3})):
            y = attend(q, k, v, AttentionPattern.within(Tokens.along(q), CAUSAL), **more)
            first = mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v])
            found.append(
                mtf.gradients(mtf.add_n([mtf.reduce_sum(mtf.square(g)) for g in first if g is not None]), [q, k, v])
            )
        return found

    sizes = Sizes(batch=1)
    plain, lean = interpret(program, sizes.operands(), "rows:1").results
    for found, wanted in zip(lean, plain, strict=True):
        assert_close(found, wanted, terms=2 * sizes.gradient_terms)


@pytest.mark.long
def test_on_devices() -> None:
    config = AttentionConfig(num_heads=2, d_kv=4)

    def program(q: Any, k: Any, v: Any) -> mtf.Tensor:
        bias = RelativePositionBias.make(q.mesh, config, 8, 6, is_bidirectional=False)
        pattern, options = AttentionPattern.within(Tokens.along(q), CAUSAL, bias), AttentionOptions(dropout_rate=0.3)
        return lean_attention(q, k, v, pattern, options, is_training=True, block_size=4)

    assert_layout_invariant(program, Sizes().operands(), ["batch:rows;memory_length:cols", "length:rows;heads:cols"])


def built(options: AttentionOptions, block_size: int = 4, memory_length: int = 8) -> None:
    sizes, graph = Sizes(memory_length=memory_length), mtf.Graph()
    with graph:
        mesh = mtf.Mesh(graph)
        q, k = (mtf.zeros(mesh, shape, tf.float32) for shape in (sizes.q, sizes.k))
        lean_attention(q, k, k, AttentionPattern(), options, is_training=True, block_size=block_size)


def test_what_is_refused() -> None:
    with pytest.raises(GraphError, match=r"(?s)the largest divisor of 31 up to block_size, 16, is 1; pad .*, or drop"):
        built(AttentionOptions(dropout_rate=0.1, dropout_broadcast_dims=("heads",)), 16, memory_length=31)
    with pytest.raises(GraphError, match=r"block_size must be at least 1, and is 0"):
        built(AttentionOptions(), block_size=0)


@pytest.mark.parametrize("together", ["length", "memory_length"])
def test_weights_dropped_together_may_be_of_any_length(together: str) -> None:
    """As the message of the refusal says."""
    built(AttentionOptions(dropout_rate=0.1, dropout_broadcast_dims=(together,)), 16, memory_length=31)
