"""Gradients of stacks that are added up over micro-batches: layer by layer, as after the loop over layers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import PipelineSchedule, pipeline
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.report.memory.peak_memory import peak_memory
from meshtf.ops.algebra.mask import masking
from meshtf.planning.plan import Compute, Plan, walk
from meshtf.testing import build
from meshtf.thresholds import SMALL_ELEMENTS
from tests.lowering.passes.update_programs import known, started

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 4), mtf.Dimension("d_model", 6), mtf.Dimension("d_ff", 8)
LAYERS, GROUPS = mtf.Dimension("layers", 2), mtf.Dimension("groups", 2)
X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
EVERY, NONE = PassOptions(smallest_added_in_place=0), PassOptions(smallest_added_in_place=1 << 60)

Program: TypeAlias = Callable[[mtf.Tensor], list[mtf.Tensor]]


def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
    h = mtf.layers.dense(carried[0], [D_FF], activation=mtf.tanh)
    return [carried[0] + mtf.layers.dense(h, [D_MODEL], [D_FF], use_bias=False, name="out")], []


def in_micro_batches(loss: Callable[[mtf.Tensor], mtf.Tensor]) -> Program:
    """A program that gives the gradients over two micro-batches."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return mtf.serialize_training_step({"x": x}, lambda own: {"loss": loss(own["x"])}, BATCH, 2)[0]

    return program


def squares_of(recompute: str | None) -> Callable[[mtf.Tensor], mtf.Tensor]:
    return lambda x: mtf.reduce_sum(mtf.square(mtf.layer_stack(layer, x, LAYERS, recompute=recompute)[0][0]))


def of_stages(schedule: PipelineSchedule) -> Program:
    """Gradients of a pipeline, added up over its steps: the stacks [stage layers ...] are made transposed, and masked
    where a stage has nothing to do."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        (y,) = pipeline(
            lambda xs, beside: layer(xs, beside)[0], x, mtf.Dimension("layers", 4), schedule, recompute="nothing"
        )
        loss = mtf.reduce_sum(mtf.square(y))
        return [g for g in mtf.gradients(loss, [v.value for v in x.graph.trainable_variables]) if g is not None]

    return program


def of_loops(x: mtf.Tensor, count: int) -> mtf.Tensor:
    """So many loops over the layers of one stack [d_ff layers d_model] of weights, read in bfloat16."""
    w = mtf.get_variable(x.mesh, "w", [D_FF, LAYERS, D_MODEL], initializer=mtf.RandomNormal(stddev=0.5))
    w, x = mtf.cast(w, tf.bfloat16), mtf.cast(x, tf.bfloat16)

    def own(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        h = mtf.tanh(mtf.einsum([carried[0], parts[0]], reduced_dims=[D_MODEL]))
        return [carried[0] + mtf.einsum([h, parts[0]], reduced_dims=[D_FF])], []

    for _ in range(count):
        x = mtf.scan(own, x, [w], LAYERS)[0][0]
    return mtf.reduce_sum(mtf.square(mtf.cast(x, tf.float32)))


def of_loops_in_a_loop(x: mtf.Tensor) -> mtf.Tensor:
    """Groups of layers [groups d_model layers d_ff]."""
    w = mtf.get_variable(x.mesh, "w", [GROUPS, D_MODEL, LAYERS, D_FF], initializer=mtf.RandomNormal(stddev=0.5))

    def own(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        h = mtf.tanh(mtf.einsum([carried[0], parts[0]], reduced_dims=[D_MODEL]))
        return [carried[0] + mtf.einsum([h, parts[0]], reduced_dims=[D_FF])], []

    def group(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [mtf.scan(own, carried[0], parts, LAYERS)[0][0]], []

    return mtf.reduce_sum(mtf.square(mtf.scan(group, x, [w], GROUPS)[0][0]))


def of_random_loops(rng: random.Random) -> Callable[[mtf.Tensor], mtf.Tensor]:
    """A loop in a loop over one stack of weights: orders of dimensions, sizes, dtype, what is kept, and direction."""
    layers, groups = mtf.Dimension("layers", rng.randint(1, 3)), mtf.Dimension("groups", rng.randint(1, 3))
    order, dtype = rng.sample([D_MODEL, D_FF, layers, groups], 4), rng.choice([tf.float32, tf.bfloat16])
    inner, outer = (
        {"recompute": rng.choice([None, "products", "nothing", "nested"]), "reverse": rng.choice([True, False])}
        for _ in range(2)
    )

    def own(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        h = mtf.tanh(mtf.einsum([carried[0], mtf.cast(parts[0], dtype)], reduced_dims=[D_MODEL]))
        return [carried[0] + mtf.einsum([h, mtf.cast(parts[0], dtype)], reduced_dims=[D_FF])], []

    def group(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [mtf.scan(own, carried[0], parts, layers, **inner)[0][0]], []

    def loss(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", order, initializer=mtf.RandomNormal(stddev=0.5))
        y = mtf.scan(group, mtf.cast(x, dtype), [w], groups, **outer)[0][0]
        return mtf.reduce_sum(mtf.square(mtf.cast(y, tf.float32)))

    return loss


def random_layout(rng: random.Random) -> str:
    """Of a mesh of rows and cols; the two examples of a micro-batch are on one of them at most."""
    rows = rng.choice(["batch", "d_model", "d_ff", None])
    cols = rng.choice([n for n in ("batch", "d_model", "d_ff", None) if n != "batch" or rows != "batch"])
    return ";".join(f"{name}:{axis}" for name, axis in ((rows, "rows"), (cols, "cols")) if name and rows != cols)


def planned(program: Program, options: PassOptions, mesh_shape: str, layout: str) -> tuple[Any, Plan]:
    graph, results = build(program, {"x": mtf.TensorSpec([BATCH, D_MODEL])})
    mesh_impl = mtf.PlanMeshImpl(mesh_shape, layout)
    lowering = mtf.Lowering(graph, {results[0].mesh: mesh_impl}, pass_options=options)
    return lowering, lowering.plan_for(tuple(results))


def additions(plan: Plan) -> list[Compute]:
    return [i for i, _ in walk(plan.instructions) if isinstance(i, Compute) and i.facts.adds_to_part]


def num_added(program: Program, mesh_shape: str, layout: str) -> int:
    """How many gradients are added in place; all are what they are without, to the bit."""
    results, counts = [], []
    for options in (EVERY, NONE):
        lowering, plan = planned(program, options, mesh_shape, layout)
        counts.append(len(additions(plan)))
        results.append(started(lowering, plan).run({**known(plan), "x": X}))
    for in_place, whole in zip(*results, strict=True):
        np.testing.assert_array_equal(in_place.view(np.uint8), whole.view(np.uint8))
    assert counts[1] == 0
    return counts[0]


def check(program: Program, mesh_shape: str, layout: str, count: int) -> None:
    assert num_added(program, mesh_shape, layout) == count


def check_random(numbers: range) -> None:
    """All but a few add in place: recomputation in segments stacks their layers otherwise."""
    added = 0
    for number in numbers:
        rng = random.Random(number)
        program, layout = in_micro_batches(of_random_loops(rng)), random_layout(rng)
        try:
            added += num_added(program, "rows:2;cols:2", layout) > 0
        except Exception as error:
            raise AssertionError(f"of random.Random({number}), {layout=}") from error
    assert added >= len(numbers) / 3


@pytest.mark.parametrize(
    ("recompute", "mesh_shape", "layout"),
    [
        (None, "rows:2", "batch:rows"),
        ("costly", "rows:3", "d_ff:rows"),
    ],
)
def test_gradients_are_the_same_to_the_bit(recompute: str | None, mesh_shape: str, layout: str) -> None:
    """With sums over cores pending, and with recomputed layers of which d_ff is padded."""
    check(in_micro_batches(squares_of(recompute)), mesh_shape, layout, 3)


@pytest.mark.parametrize(
    ("schedule", "mesh_shape", "layout"),
    [
        (PipelineSchedule(2, 2), "stages:2", "stage:stages"),
        (PipelineSchedule(2, 2), "data:2", "batch:data"),
    ],
)
def test_gradients_of_a_pipeline_are_the_same_to_the_bit(
    schedule: PipelineSchedule, mesh_shape: str, layout: str
) -> None:
    """In one piece of each core's memory, or in as many as it has stages."""
    check(of_stages(schedule), mesh_shape, layout, 3)


def test_a_sum_is_carried_into_loops_in_loops() -> None:
    check(in_micro_batches(of_loops_in_a_loop), "rows:2", "d_ff:rows", 1)


def test_no_stack_stands_beside_its_sum() -> None:
    program = in_micro_batches(of_loops_in_a_loop)
    of_one = 4 * GROUPS.size * D_MODEL.size * LAYERS.size * D_FF.size
    in_place, whole = (peak_memory(planned(program, o, "all:1", "")[1]).total for o in (EVERY, NONE))
    assert whole - in_place == of_one + of_one // GROUPS.size  # and that of a group, which would be made in each turn


def test_on_processors_sums_are_written_over() -> None:
    """In each run anew."""
    inputs = {"x": mtf.TensorSpec([BATCH, D_MODEL])}
    in_place, whole = (
        mtf.function(in_micro_batches(of_loops_in_a_loop), mtf.SpmdMeshImpl("all:1", ""), inputs=inputs, pass_options=o)
        for o in (EVERY, NONE)
    )
    expected = whole(x=X)
    for _ in range(2):
        for own, other in zip(in_place(x=X), expected, strict=True):
            np.testing.assert_array_equal(own, other)


def test_a_part_with_one_condition_is_masked_without_a_copy() -> None:
    """A stage that waits adds nothing to large gradients, and one that does not adds them as they are."""
    wide = mtf.Dimension("wide", SMALL_ELEMENTS // 16)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def layer(xs: list[mtf.Tensor], _: list[mtf.Tensor]) -> list[mtf.Tensor]:
            h = mtf.layers.dense(xs[0], [wide], use_bias=False)
            return [xs[0] + mtf.layers.dense(h, [xs[0].shape[-1]], [wide], use_bias=False, name="out")]

        (y,) = pipeline(layer, x, mtf.Dimension("layers", 4), PipelineSchedule(2, 2), recompute="nothing")
        return mtf.gradients(mtf.reduce_sum(y), [v.value for v in x.graph.trainable_variables])

    inputs = {"x": mtf.TensorSpec([BATCH, ("d_model", 16)])}
    x = np.random.default_rng(0).normal(size=[4, 16]).astype(np.float32)
    results = []
    for options in (EVERY, NONE):
        step = mtf.function(program, mtf.SpmdMeshImpl("stages:2", "stage:stages"), inputs, pass_options=options)
        results.append(step(x=x))
    for own, other in zip(*results, strict=True):
        np.testing.assert_array_equal(own, other)
    graph, made = build(program, inputs)
    lowering = mtf.Lowering(graph, {made[0].mesh: mtf.PlanMeshImpl("stages:2", "stage:stages")}, pass_options=EVERY)
    masks = [
        i for i, _ in walk(lowering.plan_for(tuple(made)).instructions)
        if isinstance(i, Compute) and i.kind == "mask" and i.outputs[0].shape.has("wide")
    ]  # fmt: skip
    assert [i.emit for i in masks] == [masking(*i.inputs) for i in masks] != []


def test_what_several_loops_make_together_is_added_as_a_whole() -> None:
    check(in_micro_batches(lambda x: of_loops(x, 1)), "rows:2", "d_ff:rows", 1)
    check(in_micro_batches(lambda x: of_loops(x, 2)), "rows:2", "d_ff:rows", 0)


def test_random_stacks() -> None:
    check_random(range(6))


@pytest.mark.long
def test_many_random_stacks() -> None:
    check_random(range(6, 300))


def test_a_round_of_a_pipeline_adds_to_its_part_alone() -> None:
    """No zeros of the size of all rounds stand beside the sum of a weight's gradient."""
    schedule = PipelineSchedule(num_stages=2, num_microbatches=2, num_rounds=2)
    plan = planned(of_stages(schedule), EVERY, "stages:2", "stage:stages")[1]
    kinds = [type(i.emit).__name__ for i, _ in walk(plan.instructions) if isinstance(i, Compute)]
    assert "AddToPart" in kinds
    assert not any(i.facts.places_part is not None for i, _ in walk(plan.instructions) if isinstance(i, Compute))
