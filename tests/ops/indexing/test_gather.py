"""gather, its gradient scatter-add, and one_hot: values, and what they send."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.lowering.interpreter import KnownCore
from meshtf.planning.plan import Compute
from meshtf.testing import assert_close, interpret, plan, unit_roundoff

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((8, 12))
WHERE = np.array([[0, 3, 7, 3], [8, -1, 3, 2**30], [5, 6, 0, 0], [-(2**31), 1, 1, 1]], np.int32)  # some outside
LAYOUTS = ["", "vocab:rows", "vocab:rows+cols", "vocab:cols+rows", "vocab:rows;d:cols", "batch:rows;d:cols",
           "batch:rows;vocab:cols", "length:rows;batch:cols", "length:rows;vocab:cols", "batch:rows+cols"]  # fmt: skip


def _lookup(table: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """What the original's one-hot product gives."""
    return tf.tensordot(tf.one_hot(where, table.shape[0], dtype=table.dtype), table, 1)


def _inputs(where: np.ndarray = WHERE) -> dict[str, Any]:
    return {"table": ("vocab:8 d:12", TABLE), "where": ("batch:4 length:4", where)}


def test_gather_and_its_gradients(agrees: Any) -> None:
    agrees(lambda table, where: mtf.gather(table, where, "vocab"), _lookup, _inputs(), LAYOUTS)


def test_gather_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    where = RNG.integers(-3, 15, (12, 12))
    agrees_on_many_meshes(
        lambda table, where: mtf.gather(table, where, "vocab"),
        _lookup,
        {"table": ("vocab:12 d:12", RNG.standard_normal((12, 12))), "where": ("batch:12 length:12", where)},
    )


@pytest.mark.parametrize(
    "layout", [None, "vocab:rows", "batch:rows;vocab:cols", "vocab:cols+rows", "d:rows;length:cols"]
)
def test_gather_with_dimensions_in_common(agrees: Any, layout: str | None) -> None:
    table = RNG.standard_normal((6, 8, 4))  # d vocab batch
    agrees(
        lambda table, where: mtf.gather(table, where, mtf.Dimension("vocab", 8)),
        lambda table, where: tf.einsum("blv,dvb->bld", tf.one_hot(where, 8, dtype=table.dtype), table),
        {"table": ("d:6 vocab:8 batch:4", table), "where": ("batch:4 length:4", WHERE)},
        layout and [layout],
    )


def test_gather_of_one_element_per_row(agrees: Any) -> None:
    agrees(
        lambda table, where: mtf.gather(table, where, "vocab"),
        lambda table, where: tf.reduce_sum(tf.one_hot(where, 4, dtype=table.dtype) * table, -1),
        {"table": ("a:4 b:4 vocab:4", RNG.standard_normal((4, 4, 4))), "where": ("a:4 b:4", WHERE % 6)},
    )


def test_gather_into_another_order(agrees: Any) -> None:
    agrees(
        lambda table, where: mtf.gather(table, where, "vocab", output_shape="length:4 d:12 batch:4"),
        lambda table, where: tf.transpose(_lookup(table, where), [1, 2, 0]),
        _inputs(),
        ["", "vocab:rows", "length:rows;d:cols"],
    )


@pytest.mark.parametrize("index", [0, 5, np.int64(7), 8, -1, 2**40])
def test_gather_of_a_known_index(agrees: Any, index: int) -> None:
    agrees(
        lambda table: mtf.gather(table, index, "vocab"),
        lambda table: table[index] if 0 <= index < 8 else 0 * table[0],
        {"table": ("vocab:8 d:12", TABLE)},
        ["", "vocab:rows", "vocab:rows+cols"],
    )
    agrees(  # looked up where it lies: no dimension is moved to the front
        lambda table: mtf.gather(table, index, "vocab"),
        lambda table: table[:, index] if 0 <= index < 8 else 0 * table[:, 0],
        {"table": ("d:12 vocab:8", TABLE.T)},
        ["", "vocab:rows", "vocab:rows;d:cols"],
    )


def test_one_index_for_all_transposes_no_table() -> None:
    inputs = {"table": mtf.TensorSpec("batch:4 length:8 d:2"), "place": mtf.TensorSpec("", tf.int32)}
    made = plan(lambda table, place: mtf.gather(table, place, "length"), inputs, "rows:2", "batch:rows")
    (lookup,) = [i for i in made.instructions if isinstance(i, Compute) and i.kind == "gather"]
    with tf.Graph().as_default() as graph:
        slices = [tf.zeros(v.slice_shape, v.dtype) for v in lookup.inputs]
        assert lookup.emit(KnownCore(made, 1), *slices).shape == [2, 2]
    assert not [op.name for op in graph.get_operations() if op.type == "Transpose"]


@pytest.mark.parametrize("dtype", [bool, np.int32, np.int64, np.float16, np.float32, np.uint8])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_dtypes(agrees: Any, dtype: Any, index_dtype: Any) -> None:
    agrees(
        lambda table, where: mtf.gather(table, where, "vocab"),
        lambda table, where: tf.cast(_lookup(tf.cast(table, tf.float64), where), table.dtype),
        {
            "table": ("vocab:8 d:12", (TABLE > 0).astype(dtype)),
            "where": ("batch:4 length:4", WHERE.astype(index_dtype)),
        },
        ["", "vocab:rows", "vocab:rows;batch:cols", "batch:rows"],
        order=0,
    )


def test_a_row_that_is_not_read_may_be_nan() -> None:
    table = TABLE.copy()
    table[2] = np.nan
    done = interpret(lambda table, where: mtf.gather(table, where, "vocab"),
                     {"table": ("vocab:8 d:12", table), "where": ("batch:4 length:4", WHERE)},
                     "rows:2;cols:2", "vocab:rows;batch:cols")  # fmt: skip
    assert np.isfinite(done.results).all()


def _collectives(layout: str, vocab: int, batch: int, *, of_gradient: bool = False) -> list[str]:
    def program(mesh: mtf.Mesh, where: mtf.Tensor) -> list[Any]:
        table = mtf.get_variable(mesh, "table", [("vocab", vocab), ("d", 4)])
        rows = mtf.gather(table, where, "vocab")
        return mtf.gradients(rows, [table]) if of_gradient else [rows]

    done = interpret(program, {"where": (f"batch:{batch}", np.zeros(batch, np.int32))}, "rows:2;cols:2", layout)
    return [c.step.kind for c in done.plan.collectives]


def test_what_moves_is_the_smaller_of_table_and_result() -> None:
    assert _collectives("vocab:rows", vocab=1024, batch=8) == ["all_reduce"]
    assert _collectives("vocab:rows", vocab=8, batch=1024) == ["all_gather"]
    assert _collectives("vocab:rows;d:cols", vocab=1024, batch=8) == ["all_reduce"]
    assert _collectives("batch:rows", vocab=8, batch=8) == []


def test_two_gathers_summed_are_reduced_once() -> None:
    def program(table: mtf.Tensor, where: mtf.Tensor) -> mtf.Tensor:
        return mtf.gather(table, where, "vocab") + 2.0 * mtf.gather(table, where + 1, "vocab")

    table, where = RNG.standard_normal((64, 12)), WHERE % 60
    inputs = {"table": ("vocab:64 d:12", table), "where": ("batch:4 length:4", where)}
    done = interpret(program, inputs, "rows:2;cols:2", "vocab:rows+cols")
    assert [c.step.kind for c in done.plan.collectives] == ["all_reduce"]
    assert_close(done.results, table[where] + 2 * table[where + 1], terms=2)


def test_what_moves_for_the_gradient_is_the_smaller_of_updates_and_table() -> None:
    assert _collectives("batch:rows", vocab=8, batch=1024, of_gradient=True) == ["all_reduce"]
    assert _collectives("batch:rows", vocab=1024, batch=8, of_gradient=True) == ["all_gather"]
    assert _collectives("batch:rows;vocab:cols", vocab=8, batch=1024, of_gradient=True) == ["all_reduce"]
    assert _collectives("vocab:rows", vocab=64, batch=8, of_gradient=True) == []


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_scatter_add_is_the_same_run_after_run_and_sums_narrow_floats_in_float32(dtype: Any) -> None:
    def program(table: mtf.Tensor, where: mtf.Tensor) -> list[Any]:
        return mtf.gradients(mtf.gather(table, where, "vocab") * 0.1, [table])

    inputs = {"table": ("vocab:2 d:3", np.zeros((2, 3), dtype)), "where": ("batch:9000", np.arange(9000) % 2)}
    runs = [interpret(program, inputs, "rows:1").results[0] for _ in range(3)]
    assert all(np.array_equal(runs[0], other) for other in runs)
    # Terms all alike may be rounded all one way: the worst case, of 4,500 sums, and 0.1 and the result rounded once.
    allowed = 450.0 * (4500 * unit_roundoff(tf.float32) + 2 * unit_roundoff(dtype))
    assert np.abs(runs[0].astype(np.float64) - 450.0).max() <= allowed


def test_gradient_of_an_overridden_table_follows_it() -> None:
    def program(table: mtf.Tensor, where: mtf.Tensor) -> list[Any]:
        own = mtf.with_layout(table, "d:rows")  # takes `rows` from vocab, to which the rules give it
        return mtf.gradients(mtf.reduce_sum(mtf.square(mtf.gather(own, where, "vocab"))), [table])

    done = interpret(program, _inputs(), "rows:2;cols:2", "vocab:rows")
    counts = np.array([np.sum(i == WHERE) for i in range(8)])
    assert_close(done.results[0], 2 * counts[:, None] * TABLE, terms=16)


@pytest.mark.parametrize("layout", [None, "vocab:rows", "vocab:rows+cols", "vocab:cols+rows", "batch:rows;vocab:cols"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_one_hot(agrees: Any, layout: str | None, dtype: Any) -> None:
    agrees(
        lambda where: [
            mtf.one_hot(where, mtf.Dimension("vocab", 8)),
            mtf.one_hot(where, ("vocab", 8), 2, -3, tf.int32),
            mtf.one_hot(where, ("vocab", 8), True, False, tf.bool),
        ],
        lambda where: [
            tf.one_hot(where, 8),
            tf.one_hot(where, 8, 2, -3, dtype=tf.int32),
            tf.one_hot(where, 8, True, False, dtype=tf.bool),
        ],
        {"where": ("batch:4 length:4", WHERE.astype(dtype))},
        layout and [layout],
        order=0,
    )


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    table = mtf.placeholder(mesh, "vocab:8 d:12", name="table")
    where = mtf.placeholder(mesh, "batch:4", tf.int32, name="where")
    before = len(mesh.graph.operations)
    own = mtf.placeholder(mesh, "batch:4 vocab:8", tf.int32, name="own")
    wide = mtf.placeholder(mesh, "d:3", tf.int32, name="wide")
    cases = [
        (ShapeError, lambda: mtf.gather(table, where, "vocb"), r'no dimension "vocb" .*; did you mean "vocab"'),
        (ShapeError, lambda: mtf.gather(table, where, ("vocab", 9)), r"has size 8 in .*, not 9"),
        (ShapeError, lambda: mtf.gather(table, own, "vocab"), r'have dimension "vocab", along which they point'),
        (ShapeError, lambda: mtf.gather(table, wide, "vocab"), r'dimension "d" has size 3 in one operand and 12'),
        (ShapeError, lambda: mtf.gather(table, where, "vocab", "batch:4"), r"have the dimensions \[batch:4 d:12\]"),
        (DtypeError, lambda: mtf.gather(table, table, "vocab"), r"must be int32 or int64, not float32; .*mtf.cast"),
        (DtypeError, lambda: mtf.gather(table, 1.5, "vocab"), r"a whole number, not 1.5"),  # type: ignore[arg-type]
        (DtypeError, lambda: mtf.one_hot(table, ("n", 3)), r"int32 or int64, not float32"),
        (DtypeError, lambda: mtf.one_hot(where, ("n", 3), 0.5, dtype=tf.int32), r"0.5 is no int32"),
        (ShapeError, lambda: mtf.one_hot(own, ("vocab", 8)), r'dimension "vocab"'),
    ]  # fmt: skip
    for kind, call, message in cases:
        with pytest.raises(kind, match=message):
            call()
    assert len(mesh.graph.operations) == before + 2


CORES = 4


def sent(vocab: int, tokens: int, width: int, layout: str) -> tuple[int, list[str]]:
    table = mtf.TensorSpec([("vocab", vocab), ("width", width)])
    inputs = {"table": table, "tokens": mtf.TensorSpec([("tokens", tokens)], tf.int32)}
    made = plan(
        lambda table, tokens: mtf.gather(mtf.exp(table), tokens, table.shape[0]), inputs, f"all:{CORES}", layout
    )
    moves = made.collectives
    return sum(c.step.bytes_sent(c.input.slice_bytes, made.mesh_shape) for c in moves), [c.step.kind for c in moves]


@pytest.mark.parametrize(("vocab", "tokens"), [(64, 4), (64, 8), (64, 64), (8, 64)])
def test_the_cheaper_of_the_rows_asked_for_and_the_table_moves(vocab: int, tokens: int) -> None:
    width = 3
    # No core knows which rows another holds: each sends its part of the sum of all, and receives the whole.
    rows = 2 * (tokens * width * 4) * (CORES - 1) // CORES
    table = (vocab // CORES * width * 4) * (CORES - 1)
    assert sent(vocab, tokens, width, "vocab:all")[0] == min(rows, table)


def test_rows_wanted_split_are_scattered() -> None:
    # The part of each core of the sum of all goes to the cores that want it, once: half of what the whole result takes.
    tokens, width = 8, 3
    rows = (tokens * width * 4) * (CORES - 1) // CORES
    assert sent(64, tokens, width, "vocab:all;tokens:all") == (rows, ["reduce_scatter"])


def test_rows_over_one_axis_of_a_table_over_another() -> None:
    # tokens of one axis, table of another: each core sums over the table's axis only what it was asked for
    width, tokens = 3, 8
    inputs = {"table": mtf.TensorSpec("vocab:64 width:3"), "tokens": mtf.TensorSpec([("tokens", tokens)], tf.int32)}
    made = plan(
        lambda table, tokens: mtf.gather(mtf.exp(table), tokens, table.shape[0]),
        inputs,
        "rows:2;cols:2",
        "tokens:rows;vocab:cols",
    )
    (reduction,) = made.collectives
    assert (reduction.step.kind, reduction.step.axes) == ("all_reduce", ("cols",))
    assert reduction.input.slice_bytes == tokens // 2 * width * 4


def test_an_unsplit_table_moves_nothing() -> None:
    assert sent(64, 8, 3, "tokens:all") == (0, [])
