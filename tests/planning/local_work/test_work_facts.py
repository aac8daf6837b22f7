"""Passes go by what work declares of itself: a name that a user gives changes nothing but reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.report import accounting
from meshtf.lowering.report.memory.peak_memory import working_memory
from meshtf.optimize.parameter import Parameter
from meshtf.planning.local_work.work_facts import NOTHING_KNOWN, WorkFacts
from meshtf.planning.plan import Collective, Compute, Plan, walk

BATCH, ROWS, COLUMNS = mtf.Dimension("batch", 8), mtf.Dimension("rows", 64), mtf.Dimension("columns", 32)
"""Weights are so small that their updates are not fused: each step can be looked at."""
X = {"x": mtf.TensorSpec([BATCH, ROWS])}
NEUTRAL = "squash"
NAMES_OF_MOVES = ("pad", "crop", "slice", "zero padding", "view", "pack", "unpack", "cast", "fused update")
Squash = Callable[[mtf.Tensor, str], mtf.Tensor]


def squashed_slicewise(g: mtf.Tensor, name: str) -> mtf.Tensor:
    return mtf.slicewise(lambda x: x * tf.abs(x), [g], splittable_dims=g.shape.dims, name=name)


def squashed_elementwise(g: mtf.Tensor, name: str) -> mtf.Tensor:
    return mtf.tanh(g, name=name)


class SquashingOptimizer(mtf.optimize.Optimizer):
    """Moves a weight by a function of its gradient that would round, or overflow, in a shorter dtype."""

    def __init__(self, squash: Squash, name: str) -> None:
        self._squash, self._name = squash, name

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        return [p.value - self._squash(p.grad, self._name) for p in parameters]


def planned(squash: Squash, name: str, **options: object) -> Plan:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        weight = mtf.get_variable(x.mesh, "weight", [ROWS, COLUMNS])
        # Right behind the sum of a gradient stands the optimizer's work; a weight kept split goes through its own.
        used = weight if "gradient_sum_dtype" in options else squash(weight, name)
        activations = squash(mtf.einsum([x, used], [BATCH, COLUMNS]), name)
        loss = mtf.reduce_mean(activations)
        SquashingOptimizer(squash, name).minimize(loss)
        return loss

    mesh_impl = mtf.PlanMeshImpl("all:8", "batch:all", **options)  # type: ignore[arg-type]
    return mtf.function(step, mesh_impl, inputs=X).lowering.plan_for(())


def described(plan: Plan) -> list[str]:
    """Its instructions but for what they are called."""
    texts = []
    for i, times in walk(plan.instructions):
        step = str(i.step) if isinstance(i, Collective) else ""
        texts.append(f"{type(i).__name__} {step} {times} {list(map(str, (*i.inputs, *i.outputs)))}")
    return texts


@pytest.mark.parametrize("squash", [squashed_slicewise, squashed_elementwise])
@pytest.mark.parametrize(
    "options",
    [
        {"gradient_sum_dtype": tf.bfloat16},
        {"gradient_sum_dtype": tf.bfloat16, "shard_weight_update": False},
        {"parameter_layout": "rows:all"},
    ],
)
def test_a_program_is_planned_alike_whatever_its_work_is_called(squash: Squash, options: dict[str, object]) -> None:
    def facts(name: str) -> tuple[Any, ...]:
        plan = planned(squash, name, **options)
        work = [(w.axes, w.times, w.flops) for w in accounting.repeated_work(plan)]
        return described(plan), working_memory(plan), work

    expected = facts(NEUTRAL)
    for name in NAMES_OF_MOVES:
        assert facts(name) == expected, name


@pytest.mark.parametrize("squash", [squashed_slicewise, squashed_elementwise])
@pytest.mark.parametrize("name", ["pad", "crop"])
def test_what_is_called_like_a_move_keeps_its_dtype(squash: Squash, name: str) -> None:
    plan = planned(squash, name, gradient_sum_dtype=tf.bfloat16, shard_weight_update=False)
    squashing = [i for i, _ in walk(plan.instructions) if isinstance(i, Compute) and i.operation.name.startswith(name)]
    assert {v.dtype for i in squashing for v in (*i.inputs, *i.outputs)} <= {tf.float32, tf.bool}


def test_what_is_called_random_is_computed_where_its_slices_are() -> None:
    """Random bits may be drawn on another device than the core's."""

    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        drawn = mtf.random_uniform(mesh, [ROWS], name="drawn")
        return mtf.tanh(drawn, name="random")

    plan = mtf.testing.plan(step, {}, "all:2", "rows:all")
    facts = {i.operation.name: i.facts for i in plan.instructions if isinstance(i, Compute)}
    assert facts["drawn"].draws_random_bits
    assert not facts["random"].draws_random_bits


def test_nothing_is_assumed_of_work_that_declares_nothing() -> None:
    assert WorkFacts() == NOTHING_KNOWN
    assert not NOTHING_KNOWN.keeps_elements
    assert not NOTHING_KNOWN.is_elementwise_or_moves


@pytest.mark.parametrize("fn", [tf.identity, tf.negative])
def test_only_what_gives_elements_as_they_are_keeps_them(fn: Callable[[tf.Tensor], tf.Tensor]) -> None:
    assert WorkFacts(kernel=fn).is_elementwise_or_moves
    kept = bool(np.all(fn(tf.ones([2])) == 1))
    assert WorkFacts(kernel=fn).keeps_elements == kept
