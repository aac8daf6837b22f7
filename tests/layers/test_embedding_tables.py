"""Several tables in one variable: rows of ids, bags, pooling, and ids that a table has not."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, IndexRangeError, ShapeError
from meshtf.layers import EmbeddingTables
from meshtf.testing import build, interpret

SIZES, EMBEDDING = (7, 3, 12), mtf.Dimension("embedding", 4)
IDS = np.array([[[0, 6], [2, -1], [11, 11]], [[-1, -1], [-1, 0], [5, 1]]] * 2, np.int32)
WEIGHTS = np.linspace(0.5, 2, 24).reshape(4, 3, 2).astype(np.float32)
INPUTS = {"ids": ("batch:4 tables:3 bag:2", IDS), "weights": ("batch:4 tables:3 bag:2", WEIGHTS)}


def test_rows_of_tables_are_all_different_and_lie_in_turn_in_all_stripes() -> None:
    tables = EmbeddingTables(SIZES, EMBEDDING, num_stripes=4)
    numbers = np.concatenate([tables.row_numbers(t) for t in range(3)])
    assert (tables.rows.size, len({*numbers.tolist()})) == (24, 22)
    assert numbers.max() < 24
    assert (numbers // 6).tolist() == [n % 4 for n in range(22)]


@pytest.mark.parametrize(
    ("mesh", "layout"), [("all:1", ""), ("all:4", "batch:all;rows:all"), ("a:2;b:2", "batch:a;rows:b")]
)
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_bags_are_pooled_as_numpy_pools_them(pooling: str, mesh: str, layout: str) -> None:
    tables = EmbeddingTables(SIZES, EMBEDDING, num_stripes=4, pooling=pooling, initializer=_first, capacity_factor=4.0)

    def pooled(ids: mtf.Tensor, weights: mtf.Tensor) -> list[mtf.Tensor]:
        return [tables.pooled(ids, "tables", "bag"), tables.pooled(ids, "tables", "bag", weights)]

    vectors = np.arange(96.0).reshape(24, 4)
    for found, weights in zip(
        interpret(pooled, INPUTS, mesh, layout).results, (np.ones_like(WEIGHTS), WEIGHTS), strict=True
    ):
        wanted = np.zeros((4, 3, 4))
        for b, t in np.ndindex(4, 3):
            held = [
                (vectors[tables.row_numbers(t)[i]], w) for i, w in zip(IDS[b, t], weights[b, t], strict=True) if i >= 0
            ]
            total = sum((v * w for v, w in held), np.zeros(4))
            wanted[b, t] = total / sum(w for _, w in held) if held and pooling == "mean" else total
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("activations", "weights"), [(tf.bfloat16, tf.float32), (tf.float32, tf.int32), (tf.bfloat16, tf.bfloat16)]
)
def test_weights_of_a_mean_may_have_another_dtype(activations: tf.DType, weights: tf.DType) -> None:
    tables = EmbeddingTables(SIZES, EMBEDDING, num_stripes=4, pooling="mean", initializer=mtf.ones)
    given = (np.arange(24).reshape(4, 3, 2) % 3).astype(weights.as_numpy_dtype)

    def pooled(ids: mtf.Tensor, weights: mtf.Tensor) -> mtf.Tensor:
        return mtf.cast(tables.pooled(ids, "tables", "bag", weights), tf.float32)

    inputs = {"ids": mtf.TensorSpec("batch:4 tables:3 bag:2", tf.int32)}
    inputs["weights"] = mtf.TensorSpec("batch:4 tables:3 bag:2", weights)
    dtype = mtf.VariableDType(tf.float32, activation_dtype=activations)
    program = mtf.function(pooled, mtf.SpmdMeshImpl("all:1", ""), inputs=inputs, variable_dtype=dtype)
    found = program(ids=IDS, weights=given)
    has_any = (np.where(IDS >= 0, given.astype(np.float32), 0).sum(-1) > 0)[..., np.newaxis]
    np.testing.assert_array_equal(found, np.broadcast_to(has_any, (4, 3, 4)))


def test_int32_does_not_number_more_rows_than_it_can() -> None:
    def rows(dtype: tf.DType) -> mtf.Tensor:
        tables = EmbeddingTables((2**31 - 2, 100), EMBEDDING)
        return build(lambda ids: tables.lookup(ids, "t"), {"ids": mtf.TensorSpec("t:2", dtype)})[1]

    with pytest.raises(DtypeError, match=r"the tables have 2,147,483,904 rows, and int32 cannot number them"):
        rows(tf.int32)
    assert rows(tf.int64).shape == mtf.Shape([("t", 2), EMBEDDING])


def test_an_id_of_another_table_is_refused_or_counts_as_nothing() -> None:
    ids = {"ids": ("batch:1 tables:3", np.array([[0, 3, 0]], np.int32))}

    def lookup(check_ids: bool) -> np.ndarray:
        tables = EmbeddingTables(SIZES, EMBEDDING, num_stripes=4, initializer=mtf.ones, check_ids=check_ids)
        return interpret(lambda ids: tables.lookup(ids, "tables"), ids, "all:1", "").results

    with pytest.raises(
        IndexRangeError,
        match=r"an id beyond the last id of its table .*: 3 at batch 0, tables 1\n(.*\n)*"
        r".*numbers of ids, in order: 7, 3, 12\.",
    ):
        lookup(check_ids=True)
    np.testing.assert_array_equal(lookup(check_ids=False), [[[1] * 4, [0] * 4, [1] * 4]])


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_an_unchecked_id_of_another_table_counts_in_no_bag(pooling: str) -> None:
    tables = EmbeddingTables(SIZES, EMBEDDING, num_stripes=4, pooling=pooling, initializer=_first, check_ids=False)

    def pooled(ids: mtf.Tensor, weights: mtf.Tensor) -> list[mtf.Tensor]:
        return [tables.pooled(ids, "tables", "bag"), tables.pooled(ids, "tables", "bag", weights)]

    beyond = np.where(IDS < 0, np.array([[7], [3], [99]], np.int32), IDS)
    expected = interpret(pooled, INPUTS, "all:1").results
    found = interpret(pooled, {**INPUTS, "ids": (INPUTS["ids"][0], beyond)}, "all:1").results
    np.testing.assert_array_equal(found, expected)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(GraphError, match="sizes must be positive integers"):
        EmbeddingTables((3, 0), EMBEDDING)
    with pytest.raises(GraphError, match='pooling must be "sum" or "mean"'):
        EmbeddingTables(SIZES, EMBEDDING, pooling="max")
    with pytest.raises(ShapeError, match="2 tables"):
        interpret(
            lambda ids: EmbeddingTables((3, 4, 5), EMBEDDING).lookup(ids, "t"), {"ids": ("t:2", IDS[0, 0])}, "a:1", ""
        )
    with pytest.raises(DtypeError, match="int32 or int64"):
        interpret(
            lambda x: EmbeddingTables((3,), EMBEDDING).lookup(x, "t"), {"x": ("t:1", np.ones(1, np.float32))}, "a:1", ""
        )


def _first(mesh: mtf.Mesh, shape: mtf.Shape, dtype: tf.DType) -> mtf.Tensor:
    return mtf.cast(mtf.reshape(mtf.range(mesh, ("n", shape.size)), shape), dtype)
