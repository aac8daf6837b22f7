"""A loop of a plan in TensorFlow's loop, and its iterations one after the other: the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.control_flow import emit_loop, emit_unrolled
from meshtf.lowering.emit.core import TracedCore
from meshtf.lowering.emit.core_program import CoreProgram, LocalWork
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.variable_slices import SlicesByValue
from meshtf.mesh_impl.spmd.shared_memory_collectives import SharedMemoryCollectives
from meshtf.planning.plan import Loop
from meshtf.testing import plan
from tests.lowering.emitted import LOOPS

LAYERS, D = mtf.Dimension("layers", 5), mtf.Dimension("d", 3)
SHAPES = {"x": [D], "first": [LAYERS, D], "second": [D, LAYERS]}
GIVEN = {
    name: np.random.default_rng(n).uniform(0.5, 1.5, [d.size for d in dims]).astype(np.float32)
    for n, (name, dims) in enumerate(SHAPES.items())
}


def scanned(is_reversed: bool) -> Callable[..., list[mtf.Tensor]]:
    """Stacks are cut along their first and their second dimension; one part that is made does not depend on others."""

    def program(x: mtf.Tensor, first: mtf.Tensor, second: mtf.Tensor) -> list[mtf.Tensor]:
        def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            y = carried[0] * parts[0] + parts[1]
            return [y], [y, parts[0] - parts[1]]

        (y,), stacks = mtf.scan(layer, [x], [first, second], LAYERS, reverse=is_reversed)
        return [y, *stacks]

    return program


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_loop_and_its_iterations_one_by_one(is_reversed: bool) -> None:
    own = plan(scanned(is_reversed), {n: mtf.TensorSpec(dims) for n, dims in SHAPES.items()}, "all:1")
    assert [type(i) for i in own.instructions].count(Loop) == 1
    order = range(LAYERS.size)[:: -1 if is_reversed else 1]
    y, ys = GIVEN["x"], np.empty_like(GIVEN["first"])
    for n in order:
        ys[n] = y = y * GIVEN["first"][n] + GIVEN["second"][:, n]
    expected = [y, ys, GIVEN["first"] - GIVEN["second"].T]
    for emit, loops in ((emit_loop, 1), (emit_unrolled, 0)):

        @tf.function(autograph=False)
        def run(feeds: dict[str, tf.Tensor], emit: Callable[[Any, Loop], None] = emit) -> list[tf.Tensor]:
            facts, collectives = PlanFacts.of(own, writes_in_place=False), SharedMemoryCollectives(own.mesh_shape)
            core = TracedCore(own, {"all": tf.constant(0)})
            return CoreProgram(facts, core, collectives, SlicesByValue({}), LocalWork(loop=emit)).run(feeds)

        feeds = {name: tf.constant(x) for name, x in GIVEN.items()}
        *found, failed = run(feeds)
        assert failed == -1
        for value, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, right, rtol=1e-6)  # a product and a sum, five times: ten roundings
        graph = run.get_concrete_function(feeds).graph
        assert len([o for o in graph.get_operations() if o.type in LOOPS]) == loops
