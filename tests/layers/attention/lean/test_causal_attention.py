"""Causal attention in blocks: what the mask hides is not computed, and all else is as in the plain form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from written_out import Sizes, segments

import meshtf as mtf
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
from tests.built_program import BuiltProgram
from tests.house.layouts_of_run import layouts_of_run

CAUSAL = AttentionMask(is_causal=True)
LAYOUTS = ["", "length:rows;heads:cols", "batch:rows;memory_length:cols", "length:rows;memory_length:cols"]


def with_gradients(
    attend: Callable[..., mtf.Tensor],
    mask: AttentionMask = CAUSAL,
    options: AttentionOptions | None = None,
    **more: Any,
) -> Any:
    """Of a loss in which every row counts, with a bias and an extra logit that are learnt."""
    config = AttentionConfig(num_heads=2, d_kv=4)

    def program(q: Any, k: Any, v: Any, extra: Any, packed: Any) -> list[mtf.Tensor | None]:
        bias = RelativePositionBias.make(q.mesh, config, 8, 6, is_bidirectional=False)
        pattern = AttentionPattern.within(Tokens.along(q, packed), mask, bias)
        own = AttentionOptions(extra_logit=extra) if options is None else options
        y = attend(q, k, v, pattern, own, is_training=True, **more)
        xs = [q, k, v, bias.table, *([] if options else [extra])]
        return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), xs)]

    return program


def inputs(sizes: Sizes) -> dict[str, Any]:
    extra = np.array([0.5, -1.0], np.float32)
    packed = segments(sizes.batch, sizes.length)
    return {
        **sizes.operands(),
        "extra": ("heads:2", extra),
        "packed": (f"batch:{sizes.batch} length:{sizes.length}", packed),
    }


def of_length(length: int, **more: Any) -> Sizes:
    return Sizes(length=length, memory_length=length, **more)


MASKS = [CAUSAL, *(AttentionMask(is_causal=True, window=n) for n in (1, 3, 6))]
SIZES = [(16, 4), (16, 1), (13, 3)]
"""Of the length and of blocks."""
SHARPEST = {(0, 2), (2, 0), (3, 1)}
"""Places of masks and sizes."""


@pytest.mark.parametrize(
    ("mask", "length", "block_size"),
    [
        pytest.param(mask, *sizes, marks=[] if (i, j) in SHARPEST else [pytest.mark.long])
        for i, mask in enumerate(MASKS)
        for j, sizes in enumerate(SIZES)
    ],
    ids=str,
)
def test_values_and_gradients_are_the_plain_ones(
    mask: AttentionMask, length: int, block_size: int, request: pytest.FixtureRequest
) -> None:
    """Of packed sequences, whose last token is padding, under several layouts."""
    sizes = of_length(length)
    given = inputs(sizes)
    plain = interpret(with_gradients(dot_product_attention, mask), given, "rows:1").results
    built = BuiltProgram(with_gradients(lean_attention, mask, block_size=block_size), given)
    for layout in layouts_of_run(LAYOUTS, request.config) if (length, block_size) == (16, 4) else [""]:
        lean = built.interpret("rows:2;cols:2", layout)
        for found, wanted in zip(lean.results, plain, strict=True):
            assert_close(found, wanted, terms=sizes.gradient_terms)


@pytest.mark.parametrize("heads", [{"queries_per_head": 2}, pytest.param({"is_shared": True}, marks=pytest.mark.long)])
def test_heads_that_share_keys(heads: dict[str, Any]) -> None:
    sizes = of_length(12, **heads)

    def program(attend: Callable[..., mtf.Tensor], **more: Any) -> Any:
        def attended(q: Any, k: Any, v: Any) -> list[mtf.Tensor | None]:
            y = attend(q, k, v, AttentionPattern.within(Tokens.along(q), CAUSAL), **more)
            return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v])]

        return attended

    plain = interpret(program(dot_product_attention), sizes.operands(), "rows:1").results
    for layout in ["", "heads:rows;batch:cols"]:
        lean = interpret(program(lean_attention, block_size=3), sizes.operands(), "rows:2;cols:2", layout).results
        for found, wanted in zip(lean, plain, strict=True):
            assert_close(found, wanted, terms=sizes.gradient_terms)


@pytest.mark.parametrize(
    "together",
    [
        ("length", "heads"),
        *(pytest.param(dims, marks=pytest.mark.long) for dims in ((), ("length",), ("memory_length",))),
    ],
)
def test_dropout_drops_what_the_plain_form_drops(together: tuple[str, ...]) -> None:
    """Also of a length that is padded."""
    options = AttentionOptions(dropout_rate=0.5, dropout_broadcast_dims=together)
    for length, layout in ((16, "length:rows;memory_length:cols"), (16, "batch:rows;heads:cols"), (11, "")):
        sizes = of_length(length)
        given = inputs(sizes)
        plain = interpret(with_gradients(dot_product_attention, options=options), given, "rows:1").results
        lean = interpret(with_gradients(lean_attention, options=options, block_size=4), given, "rows:2;cols:2", layout)
        for found, wanted in zip(lean.results, plain, strict=True):
            assert_close(found, wanted, terms=sizes.gradient_terms)


def test_positions_that_are_not_known_are_not_taken_for_an_index() -> None:
    """The second half of a sequence, attending to the first: all is seen, though sizes are those of one sequence."""
    sizes = of_length(8)

    def program(attend: Callable[..., mtf.Tensor], **more: Any) -> Any:
        def attended(q: Any, k: Any, v: Any) -> mtf.Tensor:
            own = Tokens.along(q)
            assert own.positions is not None
            pattern = AttentionPattern(CAUSAL, Tokens(own.positions + 8), own.as_memory())
            return attend(q, k, v, pattern, **more)

        return attended

    plain = interpret(program(dot_product_attention), sizes.operands(), "rows:1").results
    lean = interpret(program(lean_attention, block_size=2), sizes.operands(), "rows:1").results
    assert_close(lean, plain, terms=sizes.terms)


def report(
    attend: Callable[..., mtf.Tensor], sizes: Sizes, mask: AttentionMask = CAUSAL, layout: str = "", **more: Any
) -> Any:
    """Of a training step, on four cores."""

    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor | None]:
        y = attend(q, k, v, AttentionPattern.within(Tokens.along(q), mask), **more)
        return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v])]

    specs = {name: mtf.TensorSpec(shape) for name, (shape, _) in sizes.operands().items()}
    return mtf.function(program, mtf.PlanMeshImpl("rows:4", layout), inputs=specs).report()


def test_what_is_hidden_is_not_computed() -> None:
    """Of 32 blocks 33 / 64 of the scores; plain: 2 products forward and 4 backward, lean: one more, the scores again.

    What is left, a twentieth, is exponentials and sums of what is computed.
    """
    sizes = of_length(512, d_kv=32)
    plain, lean = report(dot_product_attention, sizes), report(lean_attention, sizes, block_size=32)
    products = 2 * sizes.batch * sizes.heads * sizes.length**2 * sizes.d_kv
    assert 7 * 33 / 64 * products < lean.flops_per_core < 1.1 * 7 * 33 / 64 * products
    assert 6 * products < plain.flops_per_core
    near = report(lean_attention, sizes, AttentionMask(is_causal=True, window=33), block_size=32)
    pairs = 32 + 16 + 4 * (8 + 4 + 2 + 1)  # blocks themselves, neighbours, two of the later half with two before
    assert near.flops_per_core < 1.05 * pairs / (33 * 16) * lean.flops_per_core


def test_a_sequence_that_is_split_changes_places_once() -> None:
    """Queries and means, and the gradients of both, by an alltoall each; keys and values are gathered, as ever. Every
    core has the same share of what is computed."""
    sizes = of_length(512)
    lean, whole = (
        report(lean_attention, sizes, mask, "length:rows", block_size=64) for mask in (CAUSAL, AttentionMask())
    )
    found = [(c.kind, c.shape) for c in lean.collectives if "d_kv" in c.shape]
    assert {kind for kind, _ in found} == {"all_to_all"}
    assert len(found) == 4
    own = sizes.q.size * 4 / 4
    assert lean.bytes_sent_per_core - whole.bytes_sent_per_core < 4.1 * own
    assert lean.flops_per_core < 0.6 * whole.flops_per_core


def test_the_program_grows_with_the_logarithm_of_the_length() -> None:
    def num_operations(length: int) -> int:
        graph = mtf.Graph()
        with graph:
            mesh, sizes = mtf.Mesh(graph), of_length(length)
            q, k = (mtf.zeros(mesh, shape, tf.float32) for shape in (sizes.q, sizes.k))
            y = lean_attention(q, k, k, AttentionPattern.within(Tokens.along(q), CAUSAL), block_size=32)
            mtf.gradients([mtf.reduce_sum(y)], [q, k])
        return sum(1 for _ in graph.every_operation())

    short, middle, long = (num_operations(n) for n in (256, 512, 1024))
    assert long - middle == middle - short < 128


@pytest.mark.long
def test_on_devices() -> None:
    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor | None]:
        pattern, options = AttentionPattern.within(Tokens.along(q), CAUSAL), AttentionOptions(dropout_rate=0.3)
        y = lean_attention(q, k, v, pattern, options, is_training=True, block_size=3)
        return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v])]

    given = of_length(8).operands()
    assert_layout_invariant(program, given, ["length:rows;memory_length:cols"], with_gradients=False)
