"""Updates divided among the cores that would repeat them, where sizes divide and where they do not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.report import accounting
from meshtf.planning.layouts.divided_layouts import MOST_PADDING
from meshtf.planning.plan import Plan
from meshtf.testing import assert_close, build
from tests.lowering.passes.update_programs import EVERY_UPDATE_DIVIDED, OPTIMIZERS, TwoMatrices, known, started

SIZES = TwoMatrices.of_sizes(15, 23, 17)
MESHES = (("data:2", "batch:data"), ("data:8", "batch:data"), ("rows:2;cols:4", "batch:rows+cols"))
NUM_STEPS = 20


@dataclasses.dataclass(frozen=True)
class ExponentialsOptimizer(optimize.Optimizer):
    """w <- w - g / (mean of exp(g)): where the padding of g is 0, that of what is summed is 1."""

    def update(self, parameters: Sequence[optimize.Parameter]) -> list[mtf.Tensor]:
        return [p.value - p.grad / mtf.reduce_mean(mtf.exp(p.grad)) for p in parameters]


@pytest.mark.parametrize(
    "name",
    [
        "lamb",
        "exponentials",
        *(pytest.param(n, marks=pytest.mark.long) for n in ("adamw", "adafactor", "clipped", "rounded")),
    ],
)
def test_sizes_that_do_not_divide_change_nothing(name: str) -> None:
    """Padding is in no norm and no mean."""
    optimizer = {**OPTIMIZERS, "exponentials": ExponentialsOptimizer()}[name]
    expected = SIZES.losses(optimizer, "all:1", "", 4)
    for mesh_shape, layout in MESHES[1:]:
        actual = SIZES.losses(optimizer, mesh_shape, layout, 4)
        assert_close(actual, expected, terms=SIZES.terms, steps=np.arange(4), dtype="float32", what=mesh_shape)


def test_twenty_steps_with_and_without() -> None:
    arguments = (OPTIMIZERS["adamw"], "data:4", "batch:data", NUM_STEPS)
    expected = SIZES.losses(*arguments, shard_weight_update=False)
    assert expected[-1] < expected[0]
    assert_close(SIZES.losses(*arguments), expected, terms=SIZES.terms, steps=np.arange(NUM_STEPS), dtype="float32")


@pytest.mark.parametrize("mesh_shape_and_layout", MESHES)
def test_slots_and_bytes(mesh_shape_and_layout: tuple[str, str]) -> None:
    """A core keeps its part of each slot, rounded up, and sends what an allreduce would, but for the padding."""
    optimizer, cores = OPTIMIZERS["adamw"], mtf.convert_to_shape(mesh_shape_and_layout[0]).size
    _, divided = SIZES.lowered(optimizer, *mesh_shape_and_layout)
    _, whole = SIZES.lowered(optimizer, *mesh_shape_and_layout, shard_weight_update=False)
    stored = accounting.stored_variables(divided)
    for name, full in accounting.stored_variables(whole).items():
        if name.endswith(("adam_m", "adam_v")):
            share = math.prod(stored[name].slice_shape) * cores / math.prod(full.slice_shape)
            assert 1 <= share <= 1 + MOST_PADDING
            assert stored[name].shape == full.shape
    sent = [sum(t.bytes_sent for t in accounting.traffic(plan)) for plan in (divided, whole)]
    assert {t.kind for t in accounting.traffic(whole)} == {"all_reduce"}
    assert sent[0] <= sent[1] * (1 + MOST_PADDING)


def test_where_sizes_divide_no_more_bytes_than_the_allreduce() -> None:
    batch, inner, hidden = mtf.Dimension("batch", 8), mtf.Dimension("inner", 16), mtf.Dimension("hidden", 24)

    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [inner, hidden])
        loss = mtf.reduce_mean(mtf.square(mtf.einsum([x, w], output_shape=[batch, hidden])))
        OPTIMIZERS["adamw"].minimize(loss)
        return loss

    inputs = {"x": mtf.TensorSpec([batch, inner])}
    reports = [
        mtf.function(
            step,
            mtf.PlanMeshImpl("data:8", "batch:data", shard_weight_update=sharded),
            inputs=inputs,
            pass_options=EVERY_UPDATE_DIVIDED,
        ).report()
        for sharded in (True, False)
    ]
    assert reports[0].bytes_sent_per_core <= reports[1].bytes_sent_per_core
    count = 4  # bytes, of the steps: on every core
    assert reports[0].memory.slots - count == (reports[1].memory.slots - count) // 8


def test_on_devices_and_through_a_checkpoint(tmp_path: Any) -> None:
    """Slots are saved without padding, and continue on another number of cores."""
    first, second, third = SIZES.batches(3)

    def program(mesh_shape: str, **options: bool) -> mtf.Function:
        return SIZES.on_devices(OPTIMIZERS["adamw"], mesh_shape, "batch:data", **options)

    reference = program("data:2", shard_weight_update=False)
    expected = [float(reference(**batch)) for batch in (first, second, third)]
    saving = program("data:4")
    actual = [float(saving(**first)), float(saving(**second))]
    slices = saving.variables.slices("first/adam_m")
    assert slices.layout.to_string(slices.shape) == "inner:15 hidden:23/data"
    assert slices.slices[3].shape == [15, 6]
    np.testing.assert_array_equal(slices.numpy()[:, 18:], slices.slices[3].numpy()[:, :5])
    folder = CheckpointFolder(tmp_path)
    folder.save(2, saving.variables, {})
    restored = program("data:2")
    restore(folder.open(2), [restored])
    np.testing.assert_array_equal(restored.variables["first/adam_v"], saving.variables["first/adam_v"])
    assert_close([*actual, float(restored(**third))], expected, terms=SIZES.terms, steps=np.arange(3), dtype="float32")


def test_a_new_value_that_is_fetched_has_no_padding() -> None:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [SIZES.inner, SIZES.hidden], initializer=mtf.ones)
        loss = mtf.reduce_sum(mtf.einsum([x, w], output_shape=[SIZES.batch, SIZES.hidden]))
        (new,) = optimize.SgdOptimizer(1.0).minimize(loss)
        return new

    x = np.random.default_rng(0).normal(size=(8, 15)).astype(np.float32)
    mesh_impl = mtf.SpmdMeshImpl("data:4", "batch:data")
    new = mtf.function(step, mesh_impl, inputs={"x": SIZES.inputs["x"]}, pass_options=EVERY_UPDATE_DIVIDED)(x=x)
    assert_close(new, np.broadcast_to(1 - x.sum(0)[:, None], [15, 23]), terms=8 + 1)


REASONS: Mapping[str, tuple[Mapping[str, int], str]] = {
    "small": ({"inner": 8}, "fewer than 1024 elements"),
    "padding": (
        {"inner": 1025},
        "neither a mesh axis nor two parts of one divide it with at most 12.5% of padding",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_the_report_says_why_not(name: str) -> None:
    sizes, reason = REASONS[name]
    dims = [mtf.Dimension(*item) for item in sizes.items()]
    report = _report_of(dims, "data:4" if name == "small" else "data:2048")
    assert [dataclasses.astuple(u) for u in report.repeated_updates] == [("w", reason)]
    assert "weights that every core updates whole" in str(report)
    assert reason in str(report)
    assert report.memory_without_sharding is None


def test_parts_of_an_axis_divide_two_dimensions() -> None:
    """[768, 768] on one axis of 2,048 cores: no more bytes than the allreduce sends, and the slot in equal shares."""
    dims = [mtf.Dimension("inner", 768), mtf.Dimension("outer", 768)]
    report, whole = (_report_of(dims, "data:2048", shard_weight_update=sharded) for sharded in (True, False))
    assert report.mesh == (("data", 2048),)
    assert report.axis_parts == (("data.0", 32), ("data.1", 64))
    assert not report.repeated_updates
    (slot,) = (v for v in report.variables if v.name.startswith("w/"))
    assert slot.layout == "inner:768/data.0 outer:768/data.1"
    assert slot.bytes_per_core == 768 * 768 * 4 // 2048
    assert report.bytes_sent_per_core <= whole.bytes_sent_per_core
    assert {c.axes for c in report.collectives if c.shape == "inner:768 outer:768"} == {("data.0",), ("data.1",)}
    assert "mesh [data:2048], in parts [data.0:32 data.1:64]" in str(report)
    assert whole.axis_parts == ()


def _report_of(dims: list[mtf.Dimension], mesh_shape: str, **options: bool) -> Any:
    batch = mtf.Dimension("batch", 2048)

    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", dims)
        loss = mtf.reduce_sum(mtf.einsum([x, w], output_shape=[batch]))
        optimize.MomentumOptimizer(0.1, 0.9).minimize(loss)
        return loss

    inputs = {"x": mtf.TensorSpec([batch, *dims])}
    mesh_impl = mtf.PlanMeshImpl(mesh_shape, "batch:data", **options)
    return mtf.function(step, mesh_impl, inputs=inputs, pass_options=PassOptions(smallest_divided_update=1024)).report()


def test_a_reader_that_padding_would_mislead_keeps_the_update_whole() -> None:
    def step(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [SIZES.inner, SIZES.hidden])
        loss = mtf.reduce_sum(mtf.einsum([x, w], output_shape=[SIZES.batch, SIZES.hidden])) + mtf.reduce_sum(y)
        (grad,) = mtf.gradients([loss], [w])
        largest = mtf.reduce_max(mtf.abs(grad), name="largest")
        mtf.assign_sub(w, grad * mtf.reciprocal(largest))
        return loss

    mesh_impl = mtf.PlanMeshImpl("data:4", "batch:data")
    step_on_four = mtf.function(step, mesh_impl, inputs=SIZES.inputs, pass_options=EVERY_UPDATE_DIVIDED)
    assert [(u.name, u.reason) for u in step_on_four.report().repeated_updates] == [
        ("w", "neither a mesh axis nor two parts of one divide it without padding, which largest needs")
    ]


@pytest.mark.parametrize("override", ["", "hidden:cols"])
def test_an_override_in_micro_batches_leaves_updates_divided(override: str) -> None:
    """Only what is overridden is laid out so, and not all that the loop over micro-batches gives.

    The batch is large, so that gradients are summed over the cores, and not made of the whole batch on each.
    """
    sizes = TwoMatrices.of_sizes(15, 23, 17, batch=512)

    def step(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            hidden = mtf.layers.dense(features["x"], [sizes.hidden], activation=mtf.tanh)
            hidden = mtf.with_layout(hidden, override) if override else hidden
            error = mtf.layers.dense(hidden, [sizes.outer], name="out") - features["y"]
            return {"loss": mtf.reduce_mean(mtf.square(error)) / 2.0}

        grads, outputs = mtf.serialize_training_step({"x": x, "y": y}, model, sizes.batch, 2)
        OPTIMIZERS["adamw"].apply_grads(grads, x.graph.trainable_variables)
        return outputs["loss"]

    def trained(mesh_shape: str, layout: str) -> tuple[Plan, list[float]]:
        graph, loss = build(step, sizes.inputs)
        lowering = mtf.Lowering(
            graph, {loss.mesh: mtf.PlanMeshImpl(mesh_shape, layout)}, pass_options=EVERY_UPDATE_DIVIDED
        )
        plan = lowering.plan_for((loss,))
        interpreter = started(lowering, plan)
        return plan, [float(interpreter.run({**known(plan), **batch})[0]) for batch in sizes.batches(4)]

    (_, expected), (plan, losses) = trained("rows:1;cols:1", ""), trained("rows:2;cols:2", "batch:rows")
    assert_close(losses, expected, terms=sizes.terms, steps=np.arange(4), dtype="float32")
    slots = {n: v for n, v in accounting.stored_variables(plan).items() if n.endswith(("adam_m", "adam_v"))}
    assert len(slots) == 2 * 4
    for name, slot in slots.items():
        assert "rows" in slot.layout.used, name


def test_the_report_compares_memory_with_and_without() -> None:
    report = _report_of([mtf.Dimension("inner", 1024)], "data:8")
    memory, without = report.memory, report.memory_without_sharding
    assert without is not None
    assert (memory.weights, memory.slots) == (1024 * 4, 1024 * 4 // 8)
    assert (without.weights, without.slots) == (1024 * 4, 1024 * 4)
    assert memory.variables == memory.weights + memory.slots
    assert 0 < memory.gradients <= without.gradients
    assert memory.activations > 0
    assert memory.peak <= memory.variables + memory.feeds + memory.gradients + memory.activations
    rows = [line for line in str(report).splitlines() if "as planned" in line or "if every core" in line]
    assert [row.split()[:4] for row in rows] == [["4.0", "KiB", "512", "B"], ["4.0", "KiB", "4.0", "KiB"]]


def read_in_bfloat16(x: mtf.Tensor) -> mtf.Tensor:
    """A loss of a matrix [d_model, d_ff], and of a stack of [d_ff, d_ff], which are kept in float32."""
    dtype = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)
    batch, d_model = x.shape
    normal, d_ff, out = mtf.RandomNormal(stddev=0.2), mtf.Dimension("d_ff", 32), mtf.Dimension("out", 32)
    w = mtf.get_variable(x.mesh, "w", [d_model, d_ff], dtype, initializer=normal)

    def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        u = mtf.get_variable(x.mesh, "u", [d_ff, out], dtype, initializer=normal)
        y = mtf.tanh(mtf.einsum([carried[0], u], [batch, out]))
        return [mtf.rename_dimension(y, "out", "d_ff")], []

    y = mtf.tanh(mtf.einsum([mtf.cast(x, tf.bfloat16), w], [batch, d_ff]))
    (y,), _ = mtf.layer_stack(layer, y, mtf.Dimension("layers", 3))
    return mtf.reduce_sum(mtf.cast(y, tf.float32))


def trained_in_bfloat16(x: mtf.Tensor) -> mtf.Tensor:
    loss = read_in_bfloat16(x)
    optimize.AdamOptimizer(0.1).minimize(loss)
    return loss


BFLOAT16_INPUTS = {"x": mtf.TensorSpec("batch:8 d_model:64")}
BFLOAT16_FEED = np.random.default_rng(0).normal(size=[8, 64]).astype(np.float32)


def test_weights_are_gathered_in_the_dtype_in_which_they_are_read() -> None:
    """Kept in float32, in shares, and read in bfloat16, each gathered once: half the bytes of the new weights, and the
    same bits."""

    def losses_and_gathers(**options: int) -> tuple[list[np.ndarray], set[tuple[tf.DType, int, int]]]:
        graph, loss = build(trained_in_bfloat16, BFLOAT16_INPUTS)
        mesh_impl = mtf.PlanMeshImpl("data:4", "batch:data", bucket_bytes=0)
        pass_options = PassOptions(smallest_divided_update=2, **options)
        lowering = mtf.Lowering(graph, {loss.mesh: mesh_impl}, pass_options=pass_options)
        plan = lowering.plan_for((loss,))
        gathers = [(c, times) for c, times in accounting.collectives(plan) if c.step.kind == "all_gather"]
        sent = {(c.input.dtype, accounting.collective_bytes(c, plan), times) for c, times in gathers}
        interpreter = started(lowering, plan)
        return [interpreter.run({**known(plan), "x": BFLOAT16_FEED})[0] for _ in range(3)], sent

    expected, kept_whole = losses_and_gathers()
    actual, kept_in_shares = losses_and_gathers(largest_bucket_member=0)
    np.testing.assert_array_equal(actual, expected)
    w, u = 64 * 32 * 3 // 4, 3 * 32 * 32 * 3 // 4
    assert kept_whole == {(tf.float32, 4 * w, 1), (tf.float32, 4 * u, 1)}
    assert kept_in_shares == {(tf.bfloat16, 2 * w, 1), (tf.bfloat16, 2 * u, 1)}


@pytest.mark.parametrize("first", ["evaluation", "training"])
def test_programs_that_share_weights_follow_the_one_that_ran_first(first: str) -> None:
    store, mesh_impl = mtf.VariableStore(), mtf.SpmdMeshImpl("data:2", "batch:data")
    options = PassOptions(smallest_divided_update=2, largest_bucket_member=0)
    evaluation, training = (
        mtf.function(fn, mesh_impl, BFLOAT16_INPUTS, store, pass_options=options)
        for fn in (read_in_bfloat16, trained_in_bfloat16)
    )
    (evaluation if first == "evaluation" else training).initialize()
    assert bool(store.slices("w").layout.used) == (first == "training")
    before = float(evaluation(x=BFLOAT16_FEED))
    training(x=BFLOAT16_FEED)
    assert float(evaluation(x=BFLOAT16_FEED)) < before
    assert store["w"].shape == (64, 32)
