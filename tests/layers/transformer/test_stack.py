"""What surrounds sublayers: residual connections, norms, dropout, scopes; and what a stack refuses."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.layers import AttentionConfig, AttentionMask, AttentionOptions, Tokens
from meshtf.layers.transformer import (
    Context,
    CrossAttention,
    DecodingSpace,
    FeedForward,
    LayerNorm,
    Memory,
    RelativeBias,
    Residual,
    RmsNorm,
    Rotary,
    SelfAttention,
    Sublayer,
    TransformerStack,
)
from meshtf.layers.transformer.dropout import dropped
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

X = mtf.Shape([("batch", 2), ("length", 4), ("d_model", 8)])
VALUES = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
CONFIG = AttentionConfig(num_heads=2, d_kv=4)


@dataclasses.dataclass(frozen=True)
class Tripled:
    """3 x."""

    name: str = "tripled"
    num_states: int = 0

    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        return 3.0 * x

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        return self(x, context), []

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        return []

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        return self(x, context), []


def applied(stack: TransformerStack, is_training: bool = False) -> np.ndarray:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return stack(x, Context(AttentionMask(is_causal=True), Tokens.along(x), is_training=is_training))

    return interpret(program, {"x": (X, VALUES)}, "rows:1").results


def built(stack: TransformerStack, mask: AttentionMask | None = None) -> mtf.Graph:
    graph = mtf.Graph()
    with graph:
        x = mtf.zeros(mtf.Mesh(graph), X)
        stack(x, Context(mask or AttentionMask(is_causal=True), Tokens.along(x), is_training=True))
    return graph


def rms(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def standard(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("unroll", [False, True])
def test_the_norm_is_before_the_sublayer_or_after_the_sum(unroll: bool) -> None:
    before = TransformerStack([Tripled(), Tripled()], 2, unroll=unroll)
    expected = VALUES
    for _ in range(4):
        expected = expected + 3.0 * rms(expected)
    assert_close(applied(before), rms(expected), terms=5 * (8 + 2 * FUNCTION_TERMS))

    residual = Residual(LayerNorm(), is_post_norm=True)
    after = TransformerStack([Tripled()], 2, residual, use_final_norm=False, unroll=unroll)
    expected = VALUES
    for _ in range(2):
        expected = standard(expected + 3.0 * expected)
    assert_close(applied(after), expected, terms=2 * (2 * 8 + 2 * FUNCTION_TERMS))


def test_the_norm_is_behind_the_sublayer_alone_and_what_it_gives_is_scaled() -> None:
    residual = Residual(norms_input=False, norms_output=True, scale=0.5)
    expected = VALUES
    for _ in range(2):
        expected = expected + 0.5 * rms(3.0 * expected)
    assert_close(applied(TransformerStack([Tripled()], 2, residual)), rms(expected), terms=3 * (8 + 2 * FUNCTION_TERMS))
    with pytest.raises(
        ValueError, match=r"norms_input = False needs sublayers one after the other.*is_parallel is True"
    ):
        Residual(norms_input=False, is_parallel=True)


def test_dropout_is_of_what_a_sublayer_adds_and_of_the_end() -> None:
    residual = Residual(dropout_rate=0.5, dropout_broadcast_dims=("length",))
    stack = TransformerStack([Tripled()], 1, residual, use_final_norm=False)
    added = applied(stack, is_training=True) - VALUES
    is_dropped = added == 0.0
    assert 0 < is_dropped.sum() < is_dropped.size
    np.testing.assert_array_equal(is_dropped, np.repeat(is_dropped[:, :1], 4, axis=1))
    assert_close(added[~is_dropped], 6.0 * rms(VALUES)[~is_dropped], terms=8 + 2 * FUNCTION_TERMS)
    assert_close(applied(stack), VALUES + 3.0 * rms(VALUES), terms=8 + 2 * FUNCTION_TERMS)

    ends = applied(dataclasses.replace(stack, use_final_norm=True), is_training=True)
    assert 0 < (ends == 0.0).sum() < ends.size


def test_stochastic_depth_drops_terms_and_not_the_result() -> None:
    """With the same terms dropped, the end is the norm of what the layers gave."""
    residual = Residual(dropout_rate=0.5, dropout_broadcast_dims=("length", "d_model"))
    stack = TransformerStack([Tripled()], 1, residual, use_final_norm=False)
    given = applied(stack, is_training=True)
    assert (given == VALUES).all(axis=(1, 2)).any()  # an example whose term was dropped
    ends = applied(dataclasses.replace(stack, use_final_norm=True), is_training=True)
    assert_close(ends, rms(given), terms=2 * (8 + 2 * FUNCTION_TERMS))


def test_dropout_that_grows_is_none_in_the_first_layer_and_whole_in_the_last() -> None:
    """A scan and unrolled layers drop the same."""
    residual = Residual(dropout_rate=0.5, dropout_grows=True)
    two = TransformerStack([Tripled()], 2, residual, use_final_norm=False)
    after_first, terms = VALUES + 3.0 * rms(VALUES), 4 * (8 + 2 * FUNCTION_TERMS)
    found = applied(two, is_training=True)
    is_dropped = np.abs(found - after_first) < 1e-3
    assert 0 < is_dropped.sum() < is_dropped.size
    assert_close(found, after_first + np.where(is_dropped, 0.0, 6.0 * rms(after_first)), terms=terms)
    assert_close(applied(dataclasses.replace(two, unroll=True), is_training=True), found, terms=terms)
    assert_close(applied(two), after_first + 3.0 * rms(after_first), terms=terms)


def test_dropout_at_a_depth_drops_its_part_of_the_rate_and_keeps_the_mean() -> None:
    """The share of n draws of a probability p is within 5 standard deviations of it: 5 sqrt(p (1 - p) / n)."""
    shape = mtf.Shape([("batch", 64), ("d_model", 64)])
    given = {"x": (shape, np.ones([64, 64], np.float32))}
    for depth, together in ((0.0, ()), (0.5, ()), (1.0, ()), (0.5, ("d_model",))):

        def program(x: mtf.Tensor, depth: float = depth, together: Sequence[str] = together) -> mtf.Tensor:
            return dropped(x, 0.4, together, depth=mtf.constant(x.mesh, depth, []), is_training=True)

        found, rate = interpret(program, given, "rows:1").results, 0.4 * depth
        np.testing.assert_array_equal(interpret(program, given, "rows:4", "batch:rows").results, found)
        kept = found != 0.0
        np.testing.assert_allclose(found[kept], 1.0 / (1.0 - rate), rtol=1e-6)
        assert abs(kept.mean() - (1.0 - rate)) <= 5.0 * (rate * (1.0 - rate) / (64 if together else 4096)) ** 0.5
        assert not together or (kept.all(1) | ~kept.any(1)).all()


def test_sublayers_of_one_name_have_weights_of_their_own() -> None:
    sublayers = [FeedForward(4, name="part_1"), FeedForward(4, name="part"), FeedForward(4, name="part")]
    names = [name for name in built(TransformerStack(sublayers, 2)).variables if name.endswith("wi/kernel")]
    assert names == [f"layer/{scope}/wi/kernel" for scope in ("part_1", "part", "part_2")]


def test_one_relative_bias_serves_all_layers() -> None:
    stack = TransformerStack([SelfAttention(CONFIG)], 3, bias=RelativeBias(CONFIG))
    shapes = {name: str(variable.shape) for name, variable in built(stack).variables.items()}
    assert shapes["relative_attention_bias"] == "relative_position_buckets:32 heads:2"
    assert sum("bias" in name for name in shapes) == 1


def test_each_layer_has_its_own_relative_bias() -> None:
    """In place of the stack's, which then nothing makes but the stack."""
    stack = TransformerStack([SelfAttention(CONFIG, bias=RelativeBias(CONFIG))], 3)
    shapes = {name: str(variable.shape) for name, variable in built(stack).variables.items()}
    own = shapes.pop("layer/self_attention/relative_attention_bias")
    assert own == "layers:3 relative_position_buckets:32 heads:2"
    assert not any("bias" in name for name in shapes)


@pytest.mark.parametrize(
    ("mask", "is_bidirectional"),
    [
        (AttentionMask(), True),
        (AttentionMask(is_causal=True), False),
        (AttentionMask(is_causal=True, sees_prefix=True), True),
    ],
)
def test_a_bias_tells_what_is_ahead_apart_where_it_is_seen(mask: AttentionMask, is_bidirectional: bool) -> None:
    found = []

    class Seen(Tripled):
        def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
            found.append(context.bias.is_bidirectional)  # type: ignore[union-attr]
            return x

    built(TransformerStack([Seen()], 1, bias=RelativeBias(CONFIG), unroll=True), mask)
    assert found == [is_bidirectional]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TransformerStack([], 2), "must be a list such as [SelfAttention(..), FeedForward(..)], and is []"),
        (
            lambda: TransformerStack(Tripled(), 2),
            "must be a list such as [SelfAttention(..), FeedForward(..)], and is Trip",
        ),  # type: ignore[arg-type]
        (lambda: AttentionConfig(num_heads=2, d_kv=7.5), "d_kv must be an integer, and is 7.5"),  # type: ignore[arg-type]
        (
            lambda: TransformerStack([Tripled()], 2, recompute={"triple": "nothing"}),
            "recompute names 'triple', but the sublayers are tripled; did you mean \"tripled\"?",
        ),
        (lambda: TransformerStack([Tripled()], 0), "num_layers must be a positive integer, and is 0"),
        (lambda: TransformerStack([Tripled(), FeedForward], 2), "sublayers[1] is not a sublayer: <class"),  # type: ignore[list-item]
        (
            lambda: TransformerStack([RmsNorm()], 2),
            "sublayers[0] is not a sublayer: RmsNorm(epsilon=1e-06, scale_offset=0.0); it lacks fill, name, num_st",
        ),  # type: ignore[list-item]
        (lambda: FeedForward(0), "d_ff must be a positive integer, and is 0"),
        (lambda: FeedForward(8, "rellu"), "activation 'rellu' is not a function; did you mean \"relu\"?"),
        (
            lambda: SelfAttention(CONFIG, algorithm="locl"),
            "plain, lean, fused, local, ring, and is 'locl'; did you mean \"local\"?",
        ),
        (
            lambda: CrossAttention(CONFIG, algorithm="ring"),
            "CrossAttention: algorithm must be one of auto, plain, lean, fused, and is 'ring'",
        ),
        (lambda: SelfAttention(CONFIG, algorithm="local"), "the local algorithm needs a window, and window is None"),
        (lambda: SelfAttention(CONFIG, window=0), "window must be at least 1 (a token sees itself), and is 0"),
    ],
)
def test_what_is_configured_wrongly_is_told_when_it_is_made(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@dataclasses.dataclass(frozen=True)
class BatchNorm:
    """A norm that assigns."""

    def __call__(self, x: mtf.Tensor, dim: mtf.Dimension) -> mtf.Tensor:
        return mtf.layers.batch_norm(x, True, 0.9, channel_dims=dim)


@pytest.mark.parametrize(
    ("sublayer", "residual", "error", "message"),
    [
        (
            SelfAttention(AttentionConfig(2, 3), rotary=Rotary()),
            Residual(),
            GraphError,
            "rotary embeddings need the tokens' positions, but the context has none",
        ),
        (
            CrossAttention(CONFIG),
            Residual(),
            GraphError,
            "needs a memory to attend to, but the context has none; use it in dec",
        ),
        (Tripled(), Residual(BatchNorm()), GraphError, "give mtf.layer_stack unroll=True"),
        (
            Tripled(),
            Residual(dropout_rate=0.1, dropout_broadcast_dims=("lenght",)),
            ShapeError,
            'no dimension "lenght" in [batch:2 length:4 d_model:8]; did you mean "length"?',
        ),
    ],
)
def test_what_a_stack_refuses(sublayer: Sublayer, residual: Residual, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        built(TransformerStack([sublayer], 2, residual))


@pytest.mark.parametrize(
    ("length", "is_in_blocks"), [(1023, False), (1024, True), (1031, False)], ids=["short", "long", "prime"]
)
def test_long_sequences_are_attended_to_in_blocks(length: int, is_in_blocks: bool) -> None:
    """Of a prime number of positions dropout of each weight could not be drawn in blocks."""
    graph, options = mtf.Graph(), AttentionOptions(dropout_rate=0.1)
    with graph:
        mesh = mtf.Mesh(graph)
        short, long = (mtf.zeros(mesh, [("batch", 1), ("length", n), ("d_model", 8)]) for n in (4, length))
        SelfAttention(CONFIG, options)(long, Context(AttentionMask(), Tokens.along(long), is_training=True))
        memory = Memory(long, Tokens.along(long))
        CrossAttention(CONFIG, options)(
            short, Context(AttentionMask(), Tokens.along(short), is_training=True, memory=memory)
        )
    loops = [o for o in graph.operations if "custom_gradient" in o.name]  # the loop over blocks has one of its own
    assert len(loops) == (2 if is_in_blocks else 0)


def test_cross_attention_in_blocks_gives_what_the_whole_matrix_gives() -> None:
    options = AttentionOptions(dropout_rate=0.5)

    def results(algorithm: str) -> np.ndarray:
        def program(x: mtf.Tensor) -> mtf.Tensor:
            context = Context(AttentionMask(), Tokens.along(x), is_training=True, memory=Memory(x, Tokens.along(x)))
            return CrossAttention(CONFIG, options, algorithm, block_size=2)(x, context)

        return interpret(program, {"x": (X, VALUES)}, "rows:2", "batch:rows").results

    assert_close(results("lean"), results("plain"), terms=(2 * 8 + 4 + 4 + FUNCTION_TERMS,))


@pytest.mark.parametrize(("own", "of_context"), [(None, 2), (2, 3), (3, 2)])
def test_a_window_narrows_the_mask_of_the_context_and_never_widens_it(own: int | None, of_context: int) -> None:
    """For whole sequences, and token by token with a cache of the window."""

    def results(window: int | None, mask: AttentionMask) -> list[np.ndarray]:
        def program(x: mtf.Tensor) -> list[mtf.Tensor]:
            attention, length = SelfAttention(CONFIG, window=window, name="own"), x.shape["length"]
            state = attention.start(DecodingSpace(x.mesh, x.shape[:1], length.size), Context(mask, Tokens()))

            def token(state: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
                one, place = parts
                y, state = attention.step(one, Context(mask, Tokens(place)), place, state)
                return state, [y]

            whole = attention(x, Context(mask, Tokens.along(x)))
            _, (steps,) = mtf.scan(token, state, [x, mtf.range(x.mesh, length)], length)
            return [whole, steps.transpose(whole.shape)]

        return interpret(program, {"x": (X, VALUES)}, "rows:1").results

    (expected, _), terms = results(2, AttentionMask(is_causal=True)), (2 * 8 + 4 + 4 + FUNCTION_TERMS,)
    for found in results(own, AttentionMask(is_causal=True, window=of_context)):
        assert_close(found, expected, terms=terms)


def test_rotary_embeddings_turn_pairs() -> None:
    attention = SelfAttention(AttentionConfig(num_heads=2, d_kv=3), rotary=Rotary())
    graph = mtf.Graph()
    with graph:
        x = mtf.zeros(mtf.Mesh(graph), X)
        positions = mtf.range(x.mesh, X[1], tf.int32)
        with pytest.raises(ShapeError, match="elements are rotated in pairs, but 3 of d_kv:3 would be"):
            TransformerStack([attention], 2)(x, Context(AttentionMask(), Tokens.along(x), positions))


@pytest.mark.parametrize("algorithm", ["plain", "lean"])
@pytest.mark.parametrize("float32_logits", [True, False])
@pytest.mark.parametrize("is_own", [True, False])
def test_the_gradient_of_a_relative_bias_is_summed_over_cores_once_and_as_large_as_its_table(
    algorithm: str, float32_logits: bool, is_own: bool
) -> None:
    """What a core has of it goes into buckets first, whatever the dtype between. Layers may each have a table."""
    options, bias = AttentionOptions(float32_logits=float32_logits), RelativeBias(CONFIG, 8, 6)
    attention = SelfAttention(CONFIG, options, algorithm=algorithm, block_size=8, bias=bias if is_own else None)
    stack = TransformerStack([attention], 3, bias=None if is_own else bias)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        y = stack(mtf.to_bfloat16(x), Context(AttentionMask(), Tokens.along(x), is_training=True))
        (bias,) = (v for v in x.graph.trainable_variables if v.name.endswith("relative_attention_bias"))
        return mtf.gradients([mtf.reduce_sum(mtf.to_float(mtf.square(y)))], [bias.value])

    narrow = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)
    mesh_impl = mtf.PlanMeshImpl("rows:2", "batch:rows")
    inputs = {"x": mtf.TensorSpec([("batch", 2), ("length", 16), ("d_model", 8)])}
    report = mtf.function(program, mesh_impl, inputs=inputs, variable_dtype=narrow).report()
    (summed,) = report.collectives
    tables = 3 if is_own else 1
    assert (summed.kind, summed.times, summed.bytes_sent) == ("all_reduce", 1, tables * 8 * 2 * 4)
