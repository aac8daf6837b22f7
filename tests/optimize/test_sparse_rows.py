"""Sparse updates of a table, beside NumPy's account of one core, on many meshes and layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.errors import GraphError, NonFiniteError
from meshtf.planning.plan import Compute
from meshtf.testing import build
from tests.house.sharpest import sharpest
from tests.optimize.interpreted_training import InterpretedTraining

ROWS, BATCH, BAG, DIM = (mtf.Dimension(n, s) for n, s in (("rows", 22), ("batch", 8), ("bag", 3), ("d", 4)))
INPUTS = {"ids": mtf.TensorSpec([BATCH, BAG], tf.int32), "wanted": mtf.TensorSpec([BATCH, DIM])}
FIRST = np.random.default_rng(0).normal(size=(22, 4)).astype(np.float32)

MESHES = (
    ("all:1", ""),
    ("all:4", "batch:all;rows:all"),  # rows do not divide
    ("all:2", "batch:all;rows:all"),
    ("rows:2;cols:2", "batch:rows+cols;rows:cols+rows"),
    ("rows:2;cols:2", "batch:rows+cols;rows:cols"),
    ("rows:2;cols:2", "batch:cols;bag:rows;rows:cols"),
    ("rows:2;cols:2", "batch:rows;rows:cols"),
    ("rows:2;cols:2", "batch:rows;rows:rows;d:cols"),
    ("rows:2;cols:2", "batch:rows;rows:rows+cols"),
    ("all:2", "batch:all"),
    ("all:2", "rows:all"),
    ("all:2", "d:all"),
)


def batches() -> list[dict[str, np.ndarray]]:
    """Duplicates, empty bags, ids at the boundaries of cores' parts, and ids that name no row."""
    generator = np.random.default_rng(1)
    ids = [generator.integers(-3, 25, (8, 3)), np.full((8, 3), 21), generator.integers(10, 13, (8, 3))]
    ids[0][2], ids[0][0] = -1, [0, 21, 11]
    wanted = generator.normal(size=(3, 8, 4)).astype(np.float32)
    return [{"ids": i.astype(np.int32), "wanted": w} for i, w in zip(ids, wanted, strict=True)]


def training(
    optimizer: optimize.Optimizer, mesh: str = "all:1", layout: str = "", factor: float | None = 4.0
) -> InterpretedTraining:
    def step(ids: mtf.Tensor, wanted: mtf.Tensor) -> mtf.Tensor:
        table = mtf.get_variable(ids.mesh, "table", [ROWS, DIM], initializer=FIRST)
        rows = mtf.embedding_lookup(table, ids, ROWS, capacity_factor=factor)
        loss = mtf.reduce_sum(mtf.square(mtf.reduce_sum(rows, reduced_dim=BAG) - wanted))
        optimizer.minimize(loss)
        return loss

    return InterpretedTraining(step, INPUTS, mesh, layout, max_padding=1.0)


Rule = Callable[[list[np.ndarray], np.ndarray, int], None]


def account(rule: Rule, slots: int) -> tuple[list[float], list[np.ndarray]]:
    """Losses, the table and its state, in float64, row by row."""
    arrays = [FIRST.astype(np.float64), *(np.zeros((22, 4)) for _ in range(slots))]
    losses = []
    for number, batch in enumerate(batches(), 1):
        table, ids = arrays[0], batch["ids"]
        known = (ids >= 0) & (ids < 22)
        rows = np.where(known[..., None], table[np.where(known, ids, 0)], 0)
        error = rows.sum(1) - batch["wanted"]
        losses.append(float((error**2).sum()))
        sums: dict[int, np.ndarray] = {}
        for i, j in zip(*np.nonzero(known), strict=True):
            sums[ids[i, j]] = sums.get(ids[i, j], 0) + 2 * error[i]
        for row, g in sums.items():
            rule([x[row] for x in arrays], g, number)
    return losses, arrays


def sgd(x: list[np.ndarray], g: np.ndarray, step: int) -> None:
    x[0] -= 0.05 * g


def adagrad(x: list[np.ndarray], g: np.ndarray, step: int) -> None:
    x[1] += g**2
    x[0] -= 0.05 * g / (np.sqrt(x[1] + 0.1) + 1e-8)


def adam(x: list[np.ndarray], g: np.ndarray, step: int) -> None:
    x[1] += 0.1 * (g - x[1])
    x[2] += 0.001 * (g**2 - x[2])
    x[0] -= 0.05 * x[1] / (1 - 0.9**step) / (np.sqrt(x[2] / (1 - 0.999**step)) + 1e-8)


RULES: Sequence[tuple[optimize.Optimizer, Rule, tuple[str, ...]]] = (
    (optimize.SparseSgdOptimizer(0.05), sgd, ()),
    (optimize.SparseAdagradOptimizer(0.05), adagrad, ("table/adagrad_s",)),
    (optimize.SparseAdamOptimizer(0.05), adam, ("table/adam_m", "table/adam_v")),
)


@pytest.mark.parametrize(("mesh", "layout"), sharpest(MESHES, [MESHES[0], MESHES[1], *MESHES[3:9:2], MESHES[10]]))
def test_every_layout_gives_the_account_of_one_core(mesh: str, layout: str) -> None:
    number = MESHES.index((mesh, layout))
    # Each layout has one of the optimizers, with an exchange and without, so that the table of all stays small.
    optimizer, rule, slots = RULES[number % 3]
    for factor in (4.0, None) if "rows:" in layout else (4.0,):
        made = training(optimizer, mesh, layout, factor)
        losses, arrays = account(rule, len(slots))
        np.testing.assert_allclose([made.step(**b) for b in batches()], losses, rtol=1e-4)
        for name, wanted in zip(("table", *slots), arrays, strict=True):
            np.testing.assert_allclose(made[name][:22], wanted, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_a_step_makes_no_array_of_the_size_of_the_table(dtype: tf.DType) -> None:
    """All that a core makes or sends in a step, but for the variables themselves, is as small as the batch."""

    def sizes(rows: int) -> list[int]:
        def step(ids: mtf.Tensor) -> mtf.Tensor:
            table = mtf.get_variable(ids.mesh, "table", [("rows", rows), ("d", 8)], dtype)
            looked_up = mtf.cast(mtf.embedding_lookup(table, ids, "rows"), tf.float32)
            loss = mtf.check_finite(mtf.reduce_sum(mtf.square(looked_up)), "the loss")
            optimize.SparseAdamOptimizer(0.1).minimize(loss)
            return loss

        graph, loss = build(step, {"ids": mtf.TensorSpec("batch:32", tf.int32)})
        lowering = mtf.Lowering(graph, {loss.mesh: mtf.PlanMeshImpl("all:4", "batch:all;rows:all")})
        plan = lowering.plan_for((loss,))
        assert len(plan.assignments) == 4
        kept = {i.input for i in plan.assignments} | {i.output for i in plan.reads}
        made = [v.slice_bytes for i in plan.instructions for v in i.outputs if v not in kept]
        touched = [i.bytes_of(v) for i in plan.instructions if isinstance(i, Compute) for v in (*i.inputs, *i.outputs)]
        variables = rows // 4 * 8 * (dtype.size + 2 * tf.float32.size)
        return [*made, *touched, lowering.report((loss,)).memory.peak - variables]

    assert sizes(4096) == sizes(4096 * 64)


def test_a_failed_step_leaves_every_row_as_it_was() -> None:
    def step(ids: mtf.Tensor, wanted: mtf.Tensor) -> mtf.Tensor:
        table = mtf.get_variable(ids.mesh, "table", [ROWS, DIM], initializer=mtf.ones)
        rows = mtf.embedding_lookup(table, ids, ROWS)
        loss = mtf.check_finite(mtf.reduce_sum(mtf.reduce_sum(rows, reduced_dim=BAG) * wanted), "the loss")
        optimize.SparseSgdOptimizer(0.05).minimize(loss)
        return loss

    made = InterpretedTraining(step, INPUTS, "all:2", "batch:all;rows:all")
    batch = batches()[0]
    with pytest.raises(NonFiniteError):
        made.step(ids=batch["ids"], wanted=np.full_like(batch["wanted"], np.inf))
    np.testing.assert_array_equal(made["table"], np.ones((22, 4)))
    made.step(**batch)
    assert (made["table"] != 1).any()


NARROW = mtf.VariableDType(tf.bfloat16)
STEP = 2.0**-10
"""A quarter of the distance of 1 and the bfloat16 number below it."""


def trained(optimizer: optimize.Optimizer, dtype: mtf.VariableDType) -> InterpretedTraining:
    """Twelve steps of a table of ones, of which each looks up the rows 0, 1, 1 and 2."""

    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        with mtf.variable_scope("model"):
            table = mtf.get_variable(mesh, "table", [ROWS, DIM], dtype, initializer=mtf.ones)
            ids = mtf.constant(mesh, [0, 1, 1, 2], "n:4", tf.int32)
            loss = mtf.reduce_sum(mtf.cast(mtf.embedding_lookup(table, ids, ROWS), tf.float32)) * STEP
            optimizer.minimize(loss)
        return loss

    made = InterpretedTraining(step, {}, "all:2", "rows:all")
    for _ in range(12):
        made.step()
    return made


SGD = optimize.SparseSgdOptimizer(1.0)


@pytest.mark.parametrize(
    ("optimizer", "dtype", "weights"),
    [
        (SGD, mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16), "model/table"),
        (optimize.MasterWeightsOptimizer(SGD), NARROW, "model/table/master"),
    ],
)
def test_tables_that_are_read_in_bfloat16_are_updated_in_float32(
    optimizer: optimize.Optimizer, dtype: mtf.VariableDType, weights: str
) -> None:
    found = trained(optimizer, dtype)[weights]
    np.testing.assert_array_equal(found[:4, 0], 1 - 12 * STEP * np.array([1, 2, 1, 0]))


def test_a_table_in_bfloat16_has_a_wider_mean_and_no_random_rounding() -> None:
    means = trained(optimize.MovingAverageOptimizer(optimize.SparseSgdOptimizer(8.0), 0.5), NARROW)
    assert means["model/table/ema"].dtype == np.float32
    assert means["model/table"][1, 0] < means["model/table/ema"][1, 0] < 1
    with pytest.raises(GraphError, match="nothing to round in model/table: its new rows are bfloat16 already"):
        trained(optimize.StochasticRoundingOptimizer(SGD), NARROW)


def test_other_gradients_than_of_one_lookup_are_refused() -> None:
    def step(ids: mtf.Tensor, wanted: mtf.Tensor) -> mtf.Tensor:
        table = mtf.get_variable(ids.mesh, "table", [ROWS, DIM])
        loss = mtf.reduce_sum(mtf.square(table))
        optimize.SparseSgdOptimizer(0.05).minimize(loss)
        return loss

    message = r'(?s)the gradient of "table" \[rows:22 d:4\] must be that of such a lookup, unchanged.*ParameterGroups'
    with pytest.raises(GraphError, match=message):
        InterpretedTraining(step, INPUTS, "all:1", "")


@pytest.mark.parametrize("num_microbatches", [1, 2])
def test_a_clip_and_a_sum_over_microbatches_are_refused_with_advice(num_microbatches: int) -> None:
    def step(ids: mtf.Tensor, wanted: mtf.Tensor) -> mtf.Tensor:
        table = mtf.get_variable(ids.mesh, "table", [ROWS, DIM])

        def loss(features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            rows = mtf.embedding_lookup(table, features["ids"], ROWS)
            return {"loss": mtf.reduce_sum(mtf.square(mtf.reduce_sum(rows, reduced_dim=BAG) - features["wanted"]))}

        grads, results = mtf.serialize_training_step({"ids": ids, "wanted": wanted}, loss, "batch", num_microbatches)
        clipped = optimize.ClippedOptimizer(SGD, [optimize.ClipByValue(1.0)])
        (clipped if num_microbatches == 1 else SGD).apply_grads(grads, ids.mesh.graph.trainable_variables)
        return results["loss"]

    with pytest.raises(GraphError, match=r"(?s)without micro-batches, and leave out clips and other changes"):
        InterpretedTraining(step, INPUTS, "all:1", "")


def test_virtual_cpus_give_the_account_too() -> None:
    """With the real collectives, and writes to TensorFlow's variables."""
    optimizer, rule, slots = RULES[1]

    def step(ids: mtf.Tensor, wanted: mtf.Tensor) -> mtf.Tensor:
        table = mtf.get_variable(ids.mesh, "table", [ROWS, DIM], initializer=FIRST)
        rows = mtf.embedding_lookup(table, ids, ROWS, capacity_factor=4.0)
        loss = mtf.check_finite(mtf.reduce_sum(mtf.square(mtf.reduce_sum(rows, reduced_dim=BAG) - wanted)), "the loss")
        optimizer.minimize(loss)
        return loss

    program = mtf.function(step, mtf.SpmdMeshImpl("all:2", "batch:all;rows:all"), inputs=INPUTS)
    losses, arrays = account(rule, len(slots))
    np.testing.assert_allclose([float(program(**b)) for b in batches()], losses, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(program.variables["table"]), arrays[0], rtol=1e-4, atol=1e-5)
