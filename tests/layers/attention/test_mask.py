"""Masks by themselves, and the errors of what does not fit together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from written_out import Sizes, segments, visible

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.layers import AttentionMask, AttentionOptions, AttentionPattern, Tokens, dot_product_attention
from meshtf.testing import interpret

SHAPE = mtf.Shape([("batch", 2), ("length", 8)])
MASKS = [
    AttentionMask(),
    AttentionMask(is_causal=True),
    AttentionMask(is_causal=True, window=1),
    AttentionMask(window=3),
    AttentionMask(is_causal=True, sees_prefix=True),
    AttentionMask(is_causal=True, window=4, sees_prefix=True),
]


def packed() -> dict[str, np.ndarray]:
    own = segments(2, 8)
    positions = np.array([[sum(row[:i] == row[i]) for i in range(8)] for row in own], np.int32)
    return {"positions": positions, "segments": own, "is_prefix": (positions < 2).astype(np.int32)}


def tokens_of(mesh: mtf.Mesh) -> Tokens:
    return Tokens(**{name: mtf.import_tf_tensor(mesh, array, SHAPE) for name, array in packed().items()})


@pytest.mark.parametrize("layout", ["", "batch:rows;memory_length:cols"])
def test_positions_within_segments_and_indices_along_them_are_alike(layout: str) -> None:
    def program(mesh: mtf.Mesh) -> list[tuple[mtf.Tensor | None, ...]]:
        tokens, found = tokens_of(mesh), []
        for positions in (tokens.positions, mtf.range(mesh, SHAPE[1])):
            own = Tokens(positions, tokens.segments, tokens.is_prefix)
            found.append(tuple(mask.visible(own, own.as_memory()) for mask in MASKS))
        return found

    by_position, by_index = interpret(program, {}, "rows:2;cols:2", layout).results
    for mask, one, other in zip(MASKS, by_position, by_index, strict=True):
        expected = visible(mask, packed(), packed())
        np.testing.assert_array_equal(one, expected, str(mask))
        np.testing.assert_array_equal(other, expected, str(mask))


def test_one_query_and_blocks_of_the_memory() -> None:
    """A query without length, at a position of its own in each row; and half of the memory at a time."""

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor | None]:
        tokens = tokens_of(mesh)
        one = tokens.map(lambda x: mtf.gather(x, 5, "length"))
        halves = [tokens.as_memory().map(lambda x, i=i: mtf.slice(x, i, 4, "memory_length")) for i in (0, 4)]
        return [mask.visible(one, half) for mask in MASKS for half in halves]

    found = interpret(program, {}, "rows:1").results
    for mask, *halves in zip(MASKS, found[::2], found[1::2], strict=True):
        np.testing.assert_array_equal(np.concatenate(halves, 1), visible(mask, packed(), packed())[:, 5], str(mask))


def test_without_rules_there_is_no_mask() -> None:
    assert AttentionMask().visible(Tokens(), Tokens()) is None
    assert AttentionMask() == AttentionMask(window=None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"window": 0}, r"window must be at least 1 \(a token sees itself\), and is 0"),
        ({"sees_prefix": True}, r"sees_prefix lifts is_causal within the prefix, but is_causal is False"),
    ],
)
def test_masks_that_make_no_sense(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"AttentionMask: {message}"):
        AttentionMask(**fields)


def attend(
    pattern: Any = AttentionPattern, q: str = "", k: str = "", options: Any = AttentionOptions, v: str = ""
) -> None:
    graph = mtf.Graph()
    with graph:
        mesh = mtf.Mesh(graph)
        shapes = [mtf.convert_to_shape(text) if text else own for text, own in ((q, Sizes().q), (k, Sizes().k))]
        values = mtf.convert_to_shape(v) if v else shapes[1]
        operands = [mtf.zeros(mesh, shape, tf.float32) for shape in (*shapes, values)]
        given = pattern(mesh) if pattern is not AttentionPattern else pattern()
        dot_product_attention(*operands, given, options(), is_training=True)


def test_tokens_that_lack_what_is_asked_for() -> None:
    def pattern(mask: AttentionMask, *fields: str) -> Any:
        return lambda mesh: AttentionPattern(mask, *_some(tokens_of(mesh), fields))

    causal = AttentionMask(is_causal=True)
    with pytest.raises(
        GraphError, match=r"compares positions, but the queries have none; give Tokens\(positions=\.\.\)"
    ):
        attend(pattern(causal, "segments"))
    with pytest.raises(GraphError, match=r"must know which tokens are a prefix; give Tokens\(is_prefix=\.\.\)"):
        attend(pattern(AttentionMask(is_causal=True, sees_prefix=True), "positions"))
    with pytest.raises(GraphError, match=r"the queries have segments and the memory has none"):
        attend(lambda mesh: AttentionPattern(query=tokens_of(mesh)))
    with pytest.raises(GraphError, match=r"a bias needs the tokens' positions, but they have none"):
        attend(lambda mesh: AttentionPattern(bias=lambda q, k: q))
    with pytest.raises(DtypeError, match=r"Tokens: segments \[batch:2 length:8\] must be integers, not float32"):
        attend(lambda mesh: AttentionPattern(query=Tokens(segments=mtf.zeros(mesh, SHAPE))))


@pytest.mark.parametrize(
    "attend_in_blocks",
    [
        mtf.layers.local_attention,
        lambda *operands: mtf.layers.lean_attention(*operands, block_size=3),
        lambda *operands: mtf.layers.ring_attention(*operands, num_blocks=3),
    ],
    ids=["local", "lean", "ring"],
)
def test_segments_of_the_queries_alone_are_refused_in_blocks_too(attend_in_blocks: Any) -> None:
    """Blocks pad the memory, and give it segments to hide the padding."""
    with mtf.Graph() as graph:
        q = mtf.zeros(mtf.Mesh(graph), "length:7 d_kv:4")
        k, tokens = q.rename({"length": "memory_length"}), Tokens.along(q, mtf.ones(q.mesh, "length:7", tf.int32))
        memory, mask = Tokens.along(q).as_memory(), AttentionMask(window=3)
        with pytest.raises(GraphError, match=r"the queries have segments and the memory has none"):
            attend_in_blocks(q, k, k, AttentionPattern(mask, tokens, memory))


def _some(tokens: Tokens, fields: tuple[str, ...]) -> tuple[Tokens, Tokens]:
    chosen = Tokens(**{name: tensor for name, tensor in tokens.given().items() if name in fields})
    return chosen, chosen.as_memory()


def test_dimensions_that_do_not_fit() -> None:
    def misspelt(mesh: mtf.Mesh) -> AttentionPattern:
        return AttentionPattern(memory=Tokens(segments=mtf.ones(mesh, [("memory_lenght", 8)], tf.int32)))

    with pytest.raises(ShapeError, match=r'mask \[memory_lenght:8\] has dimension "memory_lenght".*"memory_length"\?'):
        attend(misspelt)
    with pytest.raises(ShapeError, match=r'the bias \[length:8 batches:2\] has dimension "batches".*"batch"\?'):
        attend(lambda mesh: _with_bias(mesh, mtf.zeros(mesh, [("length", 8), ("batches", 2)])))
    with pytest.raises(ShapeError, match=r'no dimension "memory_length" in \[batch:2 heads:2 d_kv:4\]'):
        attend(k="batch:2 heads:2 d_kv:4")
    with pytest.raises(
        ShapeError, match=r'k \[batch:2 memory_length:8 head:2 d_kv:4\] has dimension "head", which q .*'
    ):
        attend(k="batch:2 memory_length:8 head:2 d_kv:4")
    with pytest.raises(ShapeError, match=r'q \[memory_length:8 d_kv:4\] has dimension "memory_length"; .* "length"'):
        attend(q="memory_length:8 d_kv:4", k="memory_length:8 d_kv:4")
    with pytest.raises(ShapeError, match=r"k \[memory_length:8 d_kv:4\] and v \[memory_length:9 d_kv:4\] must have"):
        attend(k="memory_length:8 d_kv:4", v="memory_length:9 d_kv:4")
    with pytest.raises(ShapeError, match=r'no dimension "lengths" in \[.*\]; did you mean "length"\?'):
        attend(options=lambda: AttentionOptions(dropout_rate=0.1, dropout_broadcast_dims=("lengths",)))


def _with_bias(mesh: mtf.Mesh, bias: mtf.Tensor) -> AttentionPattern:
    tokens = Tokens(mtf.range(mesh, SHAPE[1]))
    return AttentionPattern.within(tokens, AttentionMask(), lambda q, k: bias)


def test_types_that_do_not_fit() -> None:
    graph = mtf.Graph()
    with graph:
        q, k = (mtf.zeros(mtf.Mesh(graph), s, t) for s, t in ((Sizes().q, tf.float32), (Sizes().k, tf.bfloat16)))
        with pytest.raises(
            DtypeError, match=r"q, k and v must have the same floating dtype; q is float32, k is bfloat16"
        ):
            dot_product_attention(q, k, k, AttentionPattern())


def test_dropout_rate() -> None:
    with pytest.raises(ValueError, match=r"AttentionOptions: dropout_rate must be in \[0, 1\), and is 1\.0"):
        AttentionOptions(dropout_rate=1.0)
