"""Lookups by an exchange of ids and rows: values, what travels, and blocks that are too small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, RowCapacityError, ShapeError
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.testing import interpret, plan

TABLE = np.random.default_rng(0).standard_normal((22, 6)).astype(np.float32)
IDS = np.random.default_rng(1).integers(-2, 25, (8, 3)).astype(np.int32)
LAYOUTS = ["", "n:a", "batch:a", "batch:a;n:a", "batch:a+b;n:b+a", "batch:a+b;n:b", "batch:b;n:a", "bag:a;n:a;d:b",
           "batch:a;n:a;d:b"]  # fmt: skip


def _inputs(ids: np.ndarray = IDS) -> dict[str, Any]:
    return {"table": ("n:22 d:6", TABLE), "ids": (f"batch:{len(ids)} bag:3", ids)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_rows_of_one_core_and_their_gradient(layout: str) -> None:
    def looked_up(table: mtf.Tensor, ids: mtf.Tensor) -> list[mtf.Tensor]:
        rows = mtf.embedding_lookup(table, ids, "n", capacity_factor=4.0)
        return [rows, *mtf.gradients([mtf.reduce_sum(mtf.square(rows))], [table])]

    rows, grad = interpret(looked_up, _inputs(), "a:2;b:2", layout, max_padding=1.0).results
    known = (IDS >= 0) & (IDS < 22)
    np.testing.assert_array_equal(rows, np.where(known[..., None], TABLE[np.where(known, IDS, 0)], 0))
    counts = np.bincount(IDS[known], minlength=22)[:, None]
    np.testing.assert_allclose(grad, 2 * counts * TABLE, rtol=1e-6)


def test_rows_travel_by_alltoall_and_their_bytes_do_not_depend_on_the_table() -> None:
    def sent(rows: int) -> list[int]:
        inputs = {"table": mtf.TensorSpec(f"n:{rows} d:8"), "ids": mtf.TensorSpec("batch:64", tf.int32)}
        made = plan(lambda table, ids: mtf.embedding_lookup(table, ids, "n"), inputs, "all:8", "batch:all;n:all")
        steps = [c for c in made.collectives if isinstance(c.step, AllToAll)]
        assert len(steps) == 2
        return [c.step.bytes_sent(c.input.slice_bytes, made.mesh_shape) for c in steps]

    # 8 ids a core: room for 2 to each of 8 cores, of which 7 are others.
    assert sent(64) == sent(6400) == [7 * 2 * 4, 7 * 2 * 8 * 4]


def test_a_batch_that_is_too_uneven_stops_the_step_and_says_so() -> None:
    def looked_up(ids: mtf.Tensor) -> mtf.Tensor:
        table = mtf.get_variable(ids.mesh, "t", "n:24 d:2", initializer=mtf.ones)
        return mtf.reduce_sum(mtf.embedding_lookup(table, ids, "n", capacity_factor=1.0))

    ids = np.arange(12, dtype=np.int32).reshape(4, 3) % 6  # six different rows, all on the first of two cores
    with pytest.raises(RowCapacityError, match=r"(?s)more than 3 different rows of \"n:24\".*larger capacity_factor"):
        interpret(looked_up, {"ids": ("batch:4 bag:3", ids)}, "all:2", "batch:all;n:all")
    # Duplicates count once, and so the same number of ids fits.
    assert interpret(looked_up, {"ids": ("batch:4 bag:3", ids % 3)}, "all:2", "batch:all;n:all").results == 24


def test_wrong_arguments_are_named() -> None:
    def looked_up(table: str, factor: Any) -> None:
        inputs = {"table": mtf.TensorSpec(table), "ids": mtf.TensorSpec("batch:2", tf.int32)}
        plan(lambda table, ids: mtf.embedding_lookup(table, ids, "n", factor), inputs, "a:1", "")

    with pytest.raises(ShapeError, match='share "batch"'):
        looked_up("n:2 batch:2", 2.0)
    with pytest.raises(ShapeError, match="capacity_factor must be positive"):
        looked_up("n:2 d:2", 0)
    with pytest.raises(DtypeError, match="capacity_factor must be a number or None"):
        looked_up("n:2 d:2", "2")
