from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, IndexRangeError, ShapeError
from meshtf.layers import MASKED_LOGIT, NormalInitializer, VocabularyEmbedding, padded_vocab_size
from meshtf.testing import assert_close, interpret

BATCH, LENGTH, D_MODEL = mtf.Dimension("batch", 4), mtf.Dimension("length", 4), mtf.Dimension("d_model", 6)
NARROW = VocabularyEmbedding(11, multiple=8, d_embedding=4, name="narrow")
LAYOUTS = [
    "vocab:rows",
    "vocab:rows+cols",
    "batch:rows;vocab:cols",
    "batch:rows;d_model:cols",
    "vocab:cols;d_model:rows",
    "length:cols;batch:rows",
    "d_embedding:rows;vocab:cols",
]
IDS = np.array([[0, 10, 3, 3], [10, 1, 2, 0], [9, 8, 7, 6], [5, 5, 5, 4]], np.int32)
TIED = VocabularyEmbedding(
    11, multiple=8, scale_embeddings=True, scale_logits=True, use_output_bias=True, name="shared"
)
FREE = VocabularyEmbedding(16, multiple=8, name="head")


def test_both_ways_are_the_formulas(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(ids: mtf.Tensor, x: mtf.Tensor) -> list[mtf.Tensor]:
        logits = TIED.hidden_to_logits(x)
        assert logits.shape == mtf.Shape([BATCH, LENGTH, ("vocab", 16)])
        return [
            TIED.ids_to_embedding(ids, D_MODEL),
            mtf.softmax(logits, TIED.vocab),
            FREE.hidden_to_logits(x, D_MODEL),
            mtf.layers.embedding(ids, mtf.Dimension("vocab", 12), D_MODEL, vocab_size=11, name="own"),
            NARROW.ids_to_embedding(ids, D_MODEL),
            mtf.softmax(NARROW.hidden_to_logits(x), NARROW.vocab),
        ]

    def formulas(variables: dict[str, tf.Tensor], ids: tf.Tensor, x: tf.Tensor) -> list[tf.Tensor]:
        table, bias = variables["shared/weights"], variables["shared/bias"]
        logits = (x @ tf.transpose(table[:11]) / 6**0.5) + bias[:11]
        narrow = variables["narrow/weights"]
        narrow_logits = x @ variables["narrow/projection_out"] @ tf.transpose(narrow)
        return [
            tf.gather(table, ids) * 6**0.5,
            tf.pad(tf.nn.softmax(logits), [[0, 0], [0, 0], [0, 5]]),
            x @ tf.transpose(variables["head/weights"]),
            tf.gather(variables["own"], ids),
            tf.gather(narrow, ids) @ variables["narrow/projection_in"],
            tf.pad(tf.nn.softmax(narrow_logits[..., :11]), [[0, 0], [0, 0], [0, 5]]),
        ]

    inputs = {"ids": ([BATCH, LENGTH], IDS), "x": normal([BATCH, LENGTH, D_MODEL])}
    done = check_layers(layers, formulas, inputs, LAYOUTS)
    gradient = done.results[1]["shared/weights"]
    assert gradient[:11].any(axis=-1).all()
    assert not gradient[11:].any()


@pytest.mark.parametrize("layout", ["", "vocab:rows+cols"])
def test_padding_is_never_chosen(layout: str) -> None:
    k = mtf.Dimension("k", 11)

    def program(x: mtf.Tensor) -> tuple[mtf.Tensor, ...]:
        # All real logits are far below 0, which is what the padding's rows give.
        logits = mtf.layers.mask_padded_logits(mtf.cast(x - 1000.0, tf.float16), TIED.vocab, 11)
        values, indices = mtf.top_k(logits, TIED.vocab, k)
        everywhere = mtf.reduce_sum(mtf.layers.mask_padded_logits(x, TIED.vocab, 11))
        return values, indices, mtf.softmax(logits, TIED.vocab), mtf.gradients(everywhere, x)[0]

    x = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    values, indices, probabilities, gradient = interpret(
        program, {"x": ([BATCH, TIED.vocab], x)}, "rows:2;cols:2", layout
    ).results
    assert sorted(indices[0]) == list(range(11))
    assert np.isfinite(values).all()
    assert not probabilities[:, 11:].any()
    np.testing.assert_array_equal(gradient, np.repeat([[1.0] * 11 + [0.0] * 5], 4, axis=0))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16, tf.float64])
def test_masked_logits_are_finite_and_have_no_probability(dtype: tf.DType) -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        logits = mtf.layers.mask_padded_logits(mtf.cast(x, dtype), TIED.vocab, 11)
        return [mtf.cast(y, tf.float64) for y in (logits, mtf.softmax(logits, TIED.vocab))]

    x = np.full([4, 16], -50, np.float32)
    logits, probabilities = interpret(program, {"x": ([BATCH, TIED.vocab], x)}, "cores:1").results
    assert np.isfinite(logits).all()
    assert (logits[:, 11:] <= max(MASKED_LOGIT, -32752)).all()
    assert not probabilities[:, 11:].any()
    assert_close(probabilities[:, :11], 1 / 11, terms=2, dtype=dtype)


def test_ids_that_are_not_checked_have_no_vector_outside_the_vocabulary(normal: Callable[..., Any]) -> None:
    free, tied = (dataclasses.replace(v, check_ids=False) for v in (FREE, TIED))

    def program(ids: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        y = free.ids_to_embedding(ids, D_MODEL) + tied.ids_to_embedding(ids, D_MODEL)
        return y, mtf.gradients(mtf.reduce_sum(y), tied.weights(ids.mesh, D_MODEL))[0]

    ids = np.array([-1, 11, 15, 16], np.int32)
    for layout in ("", "vocab:rows+cols"):
        y, gradient = interpret(program, {"ids": ([BATCH], ids)}, "rows:2;cols:2", layout).results
        np.testing.assert_array_equal(y.any(-1), [False, True, True, False])  # 11 and 15 are among the 16 of one
        assert not gradient.any()


def test_an_id_outside_the_vocabulary_ends_the_step_unless_it_does_not_count() -> None:
    vocab = mtf.Dimension("vocab", 16)

    def program(ids: mtf.Tensor, weights: mtf.Tensor) -> list[mtf.Tensor]:
        own = mtf.layers.embedding(ids, vocab, D_MODEL, vocab_size=11, weights=weights)
        return [own, TIED.ids_to_embedding(ids, D_MODEL, weights=weights)]

    ids, weights = np.array([3, 11, 10, -100], np.int32), np.array([1, 0, 1, 0], np.float32)
    for layout in ("", "batch:rows", "vocab:rows+cols"):
        given = {"ids": ([BATCH], ids), "weights": ([BATCH], weights)}
        for vectors in interpret(program, given, "rows:2;cols:2", layout).results:
            np.testing.assert_array_equal(vectors.any(-1), weights != 0)
        with pytest.raises(IndexRangeError) as caught:
            interpret(program, given | {"weights": ([BATCH], np.ones(4, np.float32))}, "rows:2;cols:2", layout)
        assert 'an id outside of 0 to 10 in input "ids" [batch:4] int32: 11 at batch 1' in str(caught.value)
        assert "check_ids=False" in str(caught.value)


def test_files_and_counts_see_the_true_size(build: Callable[..., mtf.Graph]) -> None:
    graph = build(TIED.hidden_to_logits, [BATCH, D_MODEL])
    assert {name: str(v.unpadded_shape) for name, v in graph.variables.items()} == {
        "shared/weights": "vocab:11 d_model:6",
        "shared/bias": "vocab:11",
    }
    assert str(graph.variables["shared/weights"].shape) == "vocab:16 d_model:6"


def test_initial_values(normal: Callable[..., Any]) -> None:
    small = VocabularyEmbedding(1000, initializer=NormalInitializer(stddev=0.02), name="small")
    usual = VocabularyEmbedding(1000, name="usual")
    d_model = mtf.Dimension("d_model", 32)

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        return [small.weights(mesh, d_model), usual.weights(mesh, d_model)]

    own, default = interpret(program, {}, "cores:1").results
    assert own[:1000].std() == pytest.approx(0.02, rel=5 / np.sqrt(2 * 32_000))  # five standard errors
    assert default[:1000].std() == pytest.approx(1.0, rel=5 / np.sqrt(2 * 32_000))
    assert not own[1000:].any()


def test_sizes() -> None:
    assert [padded_vocab_size(n) for n in (1, 128, 129, 50257, 30522)] == [128, 128, 256, 50304, 30592]
    assert padded_vocab_size(50257, 1) == 50257
    with pytest.raises(GraphError, match=r"multiple must be a positive integer, and is 0"):
        padded_vocab_size(5, 0)
    with pytest.raises(GraphError, match=r"vocab_size must be an integer, and is 'many'"):
        VocabularyEmbedding("many")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"d_embedding must be a positive integer, and is 0"):
        VocabularyEmbedding(5, d_embedding=0)


def test_bad_operands(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(DtypeError, match=r"ids must be int32 or int64, not float32"):
        build(lambda ids: FREE.ids_to_embedding(ids, D_MODEL), [BATCH])
    with pytest.raises(ShapeError, match=r"vocab_size is 17, and must be from 1 to the size of \[vocab:16\]"):
        build(lambda x: mtf.layers.mask_padded_logits(x, FREE.vocab, 17), [BATCH, FREE.vocab])
    with pytest.raises(ShapeError, match=r'no dimension "vocab" in \[batch:4 d_model:6\]'):
        build(lambda x: mtf.layers.mask_padded_logits(x, FREE.vocab, 11), [BATCH, D_MODEL])
    with pytest.raises(ShapeError, match=r'no dimension "d_modl" .*did you mean "d_model"'):
        build(lambda x: FREE.hidden_to_logits(x, mtf.Dimension("d_modl", 6)), [BATCH, D_MODEL])
