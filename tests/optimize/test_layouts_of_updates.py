"""Every optimizer under every layout, updates divided among cores: the same losses, state in shares, no more sent."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from traced_training import TracedTraining

import meshtf as mtf
from meshtf import optimize
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.report.accounting import stored_variables, traffic
from meshtf.ops.reductions.sum_of_squares import SCALES
from meshtf.planning.plan import Plan
from meshtf.testing import FUNCTION_TERMS, assert_close, build
from tests.optimize.interpreted_training import INPUTS, LAYOUTS, perceptron_batches, perceptron_step

NUM_STEPS = 50

OPTIMIZERS: dict[str, optimize.Optimizer] = {
    "sgd": optimize.SgdOptimizer(optimize.LinearSchedule(0.2, 0.0, 50)),
    "momentum": optimize.MomentumOptimizer(0.05, 0.9),
    "adam": optimize.AdamOptimizer(0.02),
    "adamw": optimize.AdamWOptimizer(0.02, weight_decay=0.1, exclude_from_weight_decay=["bias"]),
    "adam weight decay": optimize.AdamWeightDecayOptimizer(0.01, weight_decay_rate=0.1),
    "adafactor": optimize.AdafactorOptimizer(),
    "adafactor of mesh tensorflow": optimize.AdafactorOptimizer(0.05, beta_1=0.5, is_mesh_tensorflow_variant=True),
    "lars": optimize.LarsOptimizer(1.0, weight_decay=0.1, trust_coefficient=0.02),
    "lamb": optimize.LambOptimizer(0.02, weight_decay=0.1),
    "lars, plain momentum": optimize.LarsOptimizer(1.0, 0.9, 0.1, 0.02, scales_momentum=False),
    "sm3": optimize.Sm3Optimizer(0.05),
    "lion": optimize.LionOptimizer(0.005, weight_decay=0.1),
    "clipped": optimize.ClippedOptimizer(
        optimize.MomentumOptimizer(0.05, 0.9), [optimize.ClipByValue(0.2), optimize.ClipByGlobalNorm(0.5)]
    ),
    "mean of nesterov with decay": optimize.MovingAverageOptimizer(
        optimize.WeightDecayOptimizer(optimize.MomentumOptimizer(0.05, 0.9, nesterov=True), 0.01), 0.9
    ),
    "master weights": optimize.MasterWeightsOptimizer(optimize.AdamWOptimizer(0.02)),
    "groups": optimize.ParameterGroups(
        [("^first/", optimize.AdamOptimizer(0.02)), ("bias", optimize.FrozenOptimizer())], optimize.SgdOptimizer(0.1)
    ),
    "all around adamw": optimize.MovingAverageOptimizer(
        optimize.MasterWeightsOptimizer(
            optimize.ClippedOptimizer(
                optimize.ParameterGroups([("bias", optimize.SgdOptimizer(0.1))], optimize.AdamWOptimizer(0.02)),
                [optimize.ClipByGlobalNorm(0.5)],
            )
        ),
        0.9,
    ),
}
NARROW = {"master weights", "all around adamw"}
"""Whose weights are float16."""

TERMS = (2 * (16 + 24 + 8), 8, 6 * FUNCTION_TERMS)
"""Roundings of one step: three sums there and back, one over the batch, and the update of each element."""
SHARE_OF_A_WEIGHT = 1 / (24 * 8)
"""A sum in another order now and then rounds a float16 weight the other way: one in a step, of those of the smaller
matrix, among which the loss is shared."""

NUM_NORMS = {"adafactor": 2 * 3, "adafactor of mesh tensorflow": 2 * 3, "lars": 2 * 3, "lars, plain momentum": 2 * 3,
             "lamb": 2 * 3, "clipped": 1, "all around adamw": 1}  # fmt: skip
NUM_ROWS_AND_COLUMNS = {"adafactor": (16 + 24 + 1) + (24 + 8 + 1), "sm3": (16 + 24) + (24 + 8)}
NUM_STATISTICS = {
    name: SCALES.size * NUM_NORMS.get(name, 0) + NUM_ROWS_AND_COLUMNS.get(name, 0)
    for name in {**NUM_NORMS, **NUM_ROWS_AND_COLUMNS}
}
"""The sums and maxima that an optimizer takes over whole weights, or over their rows or columns; a norm is three."""

EVERY_UPDATE_DIVIDED = PassOptions(smallest_divided_update=2)


def step_of(name: str) -> Callable[..., mtf.Tensor]:
    dtype = mtf.VariableDType(tf.float16, activation_dtype=tf.float32) if name in NARROW else None
    return perceptron_step(OPTIMIZERS[name], dtype)


def losses(name: str, mesh_shape: str, layout: str) -> list[float]:
    training = TracedTraining(step_of(name), INPUTS, mesh_shape, layout, pass_options=EVERY_UPDATE_DIVIDED)
    return training.losses(perceptron_batches(NUM_STEPS))


@functools.cache
def losses_of_one_core(name: str) -> list[float]:
    return losses(name, "all:1", "")


COMPUTED = {
    "adafactor": [4],
    "lars": [3],
    "sm3": [1, 3],
    "all around adamw": [0],
    "mean of nesterov with decay": [2],
}
"""Numbers of layouts. The statistics of other optimizers are those of these: LARS's of LAMB and of its other form,
Adafactor's of its other form, and that of all around AdamW of clipping."""


def some_layouts_of_each_optimizer() -> list[Any]:
    """One or two of its five, of an optimizer that takes sums over a weight, since those treat elements by their place;
    of one that does not, data times model parallelism; all in the long run."""
    return [
        pytest.param(name, layout, marks=[] if j in COMPUTED.get(name, []) else [pytest.mark.long])
        for name in OPTIMIZERS
        for j, layout in enumerate(LAYOUTS)
    ]


@pytest.mark.parametrize(("name", "mesh_shape_and_layout"), some_layouts_of_each_optimizer())
def test_losses_do_not_depend_on_the_layout(name: str, mesh_shape_and_layout: tuple[str, str]) -> None:
    expected = losses_of_one_core(name)
    assert expected[-1] < 0.9 * expected[0]
    actual, steps = losses(name, *mesh_shape_and_layout), np.arange(NUM_STEPS)
    if name in NARROW:
        assert_close(
            actual, expected, terms=2, magnitude=SHARE_OF_A_WEIGHT * expected[0], dtype=tf.float16, steps=steps
        )
    else:
        assert_close(actual, expected, terms=TERMS, dtype=tf.float32, steps=steps)


def planned(name: str, mesh_shape: str, layout: str, **options: bool) -> Plan:
    graph, loss = build(step_of(name), INPUTS)
    mesh_impl = mtf.PlanMeshImpl(mesh_shape, layout, **options)
    return mtf.Lowering(graph, {loss.mesh: mesh_impl}, pass_options=EVERY_UPDATE_DIVIDED).plan_for((loss,))


PARTS = {
    ("data:2", "batch:data"): (2, 2, 2),
    ("data:2", "hidden:data"): (2, 2, 1),
    ("rows:2;cols:2", "batch:rows;hidden:cols"): (4, 4, 2),
    ("rows:2;cols:2", "batch:rows+cols"): (4, 4, 4),
    ("rows:2;cols:2", "inner:rows;outer:cols"): (2, 2, 2),
}
"""Into how many parts the state of the two kernels and of the bias is divided: over the mesh axes that split the
weight, and those over which its gradient is summed."""


def some_layouts_of_each_plan() -> list[Any]:
    """Of each optimizer the layout that divides most, and of two every one: of Adafactor, which keeps rows and columns,
    and of the one that wraps all others."""
    under_each = ("adafactor", "all around adamw")
    return [
        pytest.param(name, layout, marks=[] if j == 3 or name in under_each else [pytest.mark.long])
        for name in OPTIMIZERS
        for j, layout in enumerate(LAYOUTS)
    ]


@pytest.mark.parametrize(("name", "mesh_shape_and_layout"), some_layouts_of_each_plan())
def test_cores_share_the_state(name: str, mesh_shape_and_layout: tuple[str, str]) -> None:
    """Each keeps an equal part of all that is remembered of each element of a weight."""
    stored = stored_variables(planned(name, *mesh_shape_and_layout))
    weights = dict(zip(("first/kernel", "second/kernel", "second/bias"), PARTS[mesh_shape_and_layout], strict=True))
    slots = {
        slot: parts
        for slot, value in stored.items()
        for weight, parts in weights.items()
        if slot.startswith(f"{weight}/") and value.shape == stored[weight].shape
    }
    assert slots or name == "sgd"
    assert {slot: stored[slot].shape.size // math.prod(stored[slot].slice_shape) for slot in slots} == slots


@pytest.mark.parametrize(("name", "mesh_shape_and_layout"), some_layouts_of_each_plan())
def test_cores_send_no_more_than_allreduces(name: str, mesh_shape_and_layout: tuple[str, str]) -> None:
    """But for statistics of whole weights, of which each core knows a part: at most an allreduce of each number."""
    divided, whole = (
        sum(t.bytes_sent for t in traffic(planned(name, *mesh_shape_and_layout, shard_weight_update=is_divided)))
        for is_divided in (True, False)
    )
    assert divided <= whole + 2 * tf.float32.size * NUM_STATISTICS.get(name, 0)
