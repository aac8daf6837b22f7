"""Small programs, planned on several machines: a loop, a pipeline, a branch, collectives beside work and alone."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import meshtf as mtf
from meshtf.costs import Machine, load_machine, predict
from meshtf.plan_view.planned_layout import PlannedLayout, Settings

BATCH, HIDDEN, OUT = mtf.Dimension("batch", 512), mtf.Dimension("hidden", 1024), mtf.Dimension("out", 1024)
LAYERS = mtf.Dimension("layers", 4)
TOKENS = 4096


def stack_with_update(x: mtf.Tensor) -> mtf.Tensor:
    """Layers in a loop, their gradients and Adam."""

    def layer(carried: Sequence[mtf.Tensor], _: Sequence[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        w = mtf.get_variable(x.mesh, "w", [HIDDEN, OUT])
        return [mtf.rename_dimension(mtf.relu(mtf.einsum([carried[0], w], [BATCH, OUT])), "out", "hidden")], []

    (y,), _ = mtf.layer_stack(layer, x, LAYERS)
    loss = mtf.reduce_mean(mtf.square(y))
    mtf.optimize.AdamOptimizer(1e-3).minimize(loss)
    return loss


def pipeline(x: mtf.Tensor) -> mtf.Tensor:
    """Four stages, of whose rounds three in seven are of no use."""
    schedule = mtf.layers.PipelineSchedule(num_stages=4, num_microbatches=4)

    def layer(carried: list[mtf.Tensor], _: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
        return [mtf.layers.dense(carried[0], [HIDDEN], [HIDDEN], activation=mtf.tanh)]

    (y,) = mtf.layers.pipeline(layer, x, mtf.Dimension("layers", 8), schedule)
    return mtf.reduce_sum(y)


def branch(x: mtf.Tensor) -> list[mtf.Tensor]:
    """One way is longer than the other, which sends something, too."""
    w = mtf.get_variable(x.mesh, "w", [HIDDEN, OUT])
    is_large = mtf.greater(mtf.reduce_sum(x), 0.0)
    return mtf.cond(
        is_large,
        lambda: mtf.reduce_sum(mtf.relu(mtf.einsum([x, w], [BATCH, OUT]))),
        lambda: mtf.reduce_sum(mtf.square(x)),
    )


def _planned(
    program: Callable[[mtf.Tensor], Any], mesh_shape: str, layout: str, machine: Machine, options: str = ""
) -> PlannedLayout:
    mesh_impl = mtf.PlanMeshImpl(mesh_shape, layout, parameter_layout=options or None)
    step = mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, HIDDEN], tf.float32)})
    report = step.report()
    prediction = predict(report, machine, tokens_per_step=TOKENS)
    settings = Settings(mesh_shape, layout, options, "", BATCH.size)
    return PlannedLayout(f"{program.__name__} on {machine.name}, {layout}", settings, "", report, prediction, machine)


@functools.cache
def plans_of_one_machine() -> list[list[PlannedLayout]]:
    """For a page each."""
    v5e, v3 = load_machine("v5e"), load_machine("v3")
    slow_to_start = dataclasses.replace(load_machine("a100"), step_seconds=3e-5, host_bandwidth=math.inf)
    return [
        [
            _planned(stack_with_update, "rows:4;cols:2", "batch:rows;out:cols", v5e, "hidden:rows"),
            _planned(stack_with_update, "rows:4;cols:2", "batch:rows+cols", v5e),
            _planned(pipeline, "stages:4;rows:2", "stage:stages;batch:rows", v5e),
            _planned(branch, "rows:4;cols:2", "batch:rows;out:cols", v5e),
        ],
        [_planned(stack_with_update, "rows:4;cols:2", "batch:rows;out:cols", v3)],
        [_planned(pipeline, "stages:4;rows:2", "stage:stages;batch:rows", slow_to_start)],
    ]
