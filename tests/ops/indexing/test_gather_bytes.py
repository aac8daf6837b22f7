"""A gather over a split dimension sends what was asked for, or the table where that is less."""

from __future__ import annotations

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import plan

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
