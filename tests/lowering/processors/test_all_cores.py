"""Cores of one process that hand one another their slices in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.lowering.emitted import CALLS, core_functions, cores_in_memory, graph_of, nodes_in

B, D, LAYERS = mtf.Dimension("batch", 8), mtf.Dimension("d", 8), mtf.Dimension("layers", 3)
X = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 8, 8)).astype(np.float32)
SHARED = mtf.SpmdMeshImpl("rows:2;cols:4", "batch:rows;d:cols")


def trained(x: mtf.Tensor) -> list[mtf.Tensor]:
    """With collectives in a loop over layers and in its gradient, in a loop's condition, and in a branch."""
    next_d = mtf.Dimension("next_d", D.size)
    w = mtf.get_variable(x.mesh, "w", [LAYERS, D, next_d], initializer=W)

    def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        y = mtf.rename_dimension(mtf.einsum([carried[0], parts[0]], [B, next_d]), "next_d", "d")
        return [mtf.softmax(y, D)], [mtf.reduce_sum(y, reduced_dim=D)]

    (y,), (sums,) = mtf.scan(layer, [x], [w], LAYERS)
    turns, doubled = mtf.while_loop(
        lambda turn, y: mtf.less(mtf.reduce_max(y), 20.0),
        lambda turn, y: [turn + 1, 2.0 * y + mtf.reduce_mean(y)],
        [mtf.constant(x.mesh, 0, dtype=tf.int32), y],
        maximum_iterations=20,
    )
    (chosen,) = mtf.cond(
        mtf.greater(mtf.reduce_sum(doubled), 0.0), lambda: mtf.reduce_max(y), lambda: mtf.reduce_min(y)
    )
    loss = mtf.reduce_mean(mtf.square(y - x)) + mtf.reduce_mean(mtf.square(sums)) + chosen
    mtf.optimize.AdamOptimizer(0.01).minimize(loss)
    return [loss, doubled, turns]


def run(mesh_impl: mtf.SpmdMeshImpl) -> tuple[mtf.Function, list[list[np.ndarray]]]:
    step = mtf.function(trained, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
    return step, steps_of(step)


def steps_of(step: mtf.Function) -> list[list[np.ndarray]]:
    return [[y.numpy() for y in step(x=X)] for _ in range(3)]


def test_loops_branches_and_updates() -> None:
    """As on one core, as by TensorFlow's collectives, and the same bits again.

    Each segment is traced once, and nothing waits for a core.
    """
    one, expected = run(mtf.SpmdMeshImpl("all:1", ""))
    shared, found = run(SHARED)
    after = {name: shared.variables[name] for name in shared.variables}
    for name, value in after.items():
        shared.variables[name] = W if name == "w" else np.zeros_like(value)
    for own, other in zip(found, steps_of(shared), strict=True):
        for y, z in zip(own, other, strict=True):
            np.testing.assert_array_equal(y, z)
    by_runtime, others = run(mtf.SpmdMeshImpl("rows:2;cols:4", "batch:rows;d:cols", share_memory=False))
    terms = 3 * LAYERS.size * (D.size + FUNCTION_TERMS) * B.size
    for step in range(3):
        for own in (found[step], others[step]):
            assert own[2] == expected[step][2] > 2
            assert_close(own[0], expected[step][0], terms=terms)
            assert_close(own[1], expected[step][1], terms=terms * 2 ** int(own[2]), magnitude=40.0)
    assert_close(shared.variables["w"], one.variables["w"], terms=terms, magnitude=4.0)
    assert_close(by_runtime.variables["w"], one.variables["w"], terms=terms, magnitude=4.0)
    assert set(cores_in_memory(shared).traces.values()) == {1}
    assert not [n.op for n in nodes_in(graph_of(shared)) if n.op.startswith("Collective")]


def test_a_gathered_weight_is_there_once() -> None:
    """Kept in eight parts, gathered by one operation, and handed to each core's product."""

    def product(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", "d:8 wide:16")
        return mtf.reduce_sum(mtf.einsum([x, w], "batch:8 wide:16"))

    mesh_impl = mtf.SpmdMeshImpl("all:8", "batch:all", parameter_layout="wide:all")
    step = mtf.function(product, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
    assert [c.kind for c in step.report().collectives] == ["all_gather", "all_reduce"]
    step(x=X)
    graph = graph_of(step)
    calls = [o for o in graph.get_operations() if o.type in CALLS]
    (gather,) = [o for o in graph.get_operations() if o.type == "ConcatV2"]
    assert sum(any(x is gather.outputs[0] for x in call.inputs) for call in calls) == 8


def test_a_training_has_few_segments() -> None:
    """An update waits for its gradient's sum alone: weights are gathered and sums are made between the same calls."""

    def deep(x: mtf.Tensor) -> mtf.Tensor:
        for n in range(6):
            w = mtf.get_variable(x.mesh, f"w_{n}", [D, mtf.Dimension("next_d", 2048)])
            v = mtf.get_variable(x.mesh, f"v_{n}", [mtf.Dimension("next_d", 2048), D])
            x += mtf.einsum([mtf.relu(mtf.einsum([x, w], "batch:8 next_d:2048")), v], [B, D])
        loss = mtf.reduce_mean(mtf.square(x))
        mtf.optimize.AdamOptimizer(0.01).minimize(loss)
        return loss

    mesh_impl = mtf.SpmdMeshImpl("all:8", "batch:all", bucket_bytes=0)
    step = mtf.function(deep, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
    step.initialize()
    kinds = [c.kind for c in step.report().collectives]
    assert (kinds.count("reduce_scatter"), kinds.count("all_gather")) == (12, 12)
    assert len(core_functions(step)) <= 12 + 3


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_bad_options(value: Any) -> None:
    with pytest.raises(mtf.errors.UsageError, match=r"share_memory must be True or False, and is"):
        mtf.SpmdMeshImpl("all:2", "", share_memory=value)


def calls_of(mesh_impl: mtf.SpmdMeshImpl, fn: Any) -> list[tf.Operation]:
    step = mtf.function(fn, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
    step(x=X)
    return [o for o in graph_of(step).get_operations() if o.type in CALLS]


def test_cores_do_not_wait_for_one_another() -> None:
    """But where functions of the user's have effects, which TensorFlow orders."""
    calls = calls_of(SHARED, lambda x: mtf.reduce_sum(mtf.exp(mtf.softmax(x, D))))
    assert len(calls) >= 16
    assert not any(before in calls for call in calls for before in call.control_inputs)


def test_one_core_is_not_optimized_with_what_stands_around_it() -> None:
    """TensorFlow would inline it into the user's function, and compute what it likes."""
    step = mtf.function(
        lambda x: mtf.reduce_sum(mtf.exp(x)), mtf.SpmdMeshImpl("all:1", ""), inputs={"x": mtf.TensorSpec([B, D])}
    )
    around = tf.function(lambda x: 2.0 * step(x=x), autograph=False).get_concrete_function(tf.TensorSpec(X.shape))
    (own,) = [f for f in around.graph.as_graph_def().library.function if "on_every_core" in f.signature.name]
    assert own.attr["_noinline"].b


def test_an_operation_that_fails_is_named_with_its_line() -> None:
    def quotient(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_sum(7 // mtf.cast(x, tf.int32))

    step = mtf.function(quotient, SHARED, inputs={"x": mtf.TensorSpec([B, D])})
    for _ in range(10):
        with pytest.raises(mtf.errors.ExecutionError) as caught:
            step(x=np.zeros([8, 8], np.float32))
        text = str(caught.value)
        if "lost its text" not in text:  # seldom another core's end, which follows from the failure, comes first
            break
    assert f"at {__file__}:{quotient.__code__.co_firstlineno + 1} in quotient" in text
    assert "division by zero" in text.lower()
