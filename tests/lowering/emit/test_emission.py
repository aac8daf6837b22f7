"""What a program's first call costs: how often it is traced, and how many functions each device compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.emission import EmittedProgram
from meshtf.lowering.variable_store import handles

BATCH, ROWS, COLUMNS = mtf.Dimension("batch", 8), mtf.Dimension("rows", 128), mtf.Dimension("columns", 512)
MESH = mtf.SpmdMeshImpl("all:2", "batch:all")
BY_RUNTIME = mtf.SpmdMeshImpl("all:2", "batch:all", share_memory=False)


def there_and_back(x: mtf.Tensor) -> mtf.Tensor:  # [batch, rows]
    """A checked step with two weights of as many elements, in shapes that differ, and an update that no kernel does."""
    there = mtf.get_variable(x.mesh, "there", [ROWS, COLUMNS])
    back = mtf.get_variable(x.mesh, "back", [COLUMNS, ROWS])
    hidden = mtf.relu(mtf.einsum([mtf.dropout(x, True, rate=0.1), there], [BATCH, COLUMNS]))
    loss = mtf.reduce_mean(mtf.square(mtf.einsum([hidden, back], [BATCH, ROWS]) - x))
    mtf.check_finite(loss)
    mtf.optimize.WeightDecayOptimizer(mtf.optimize.SgdOptimizer(1.0), rate=0.01).minimize(loss)
    return loss


def made(mesh_impl: mtf.SpmdMeshImpl = MESH) -> mtf.Function:
    return mtf.function(there_and_back, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, ROWS])})


def compiled_calls(program: EmittedProgram) -> list[tuple[str, str]]:
    """The name of each compiled function that each core calls, and the device that the call is bound to."""
    graphs = [function.graph for function in program.core_functions]
    inside = [f for graph in graphs for f in graph._functions.values()]
    graphs += [f.graph for f in inside if "_XlaMustCompile" not in f.definition.attr]
    calls = [o for g in graphs for o in g.get_operations() if "_XlaMustCompile" in o.node_def.attr]
    return [(o.get_attr("f").name, o.device) for o in calls]


def emitted(step: mtf.Function) -> EmittedProgram:
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    return program


def number(device: str) -> int | None:
    """Of a virtual CPU."""
    return tf.DeviceSpec.from_string(device).device_index


def test_updates_of_as_many_elements_share_what_is_compiled() -> None:
    calls = [name for name, _ in compiled_calls(emitted(made())) if "values" in name]
    assert len(calls) == 2
    assert len(set(calls)) == 1


def test_shapes_of_updates_come_back() -> None:
    step = made()
    losses = [float(step(x=np.linspace(-1, 1, 8 * 128, dtype=np.float32).reshape(8, 128))) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert (step.variables["there"].shape, step.variables["back"].shape) == ((128, 512), (512, 128))


def test_virtual_cpus_share_what_is_compiled() -> None:
    """Each device compiles for itself: all cores call their program on the first, where all slices are, and only
    collectives of the runtime, which take tokens of their core's own device, are elsewhere."""
    step = made(BY_RUNTIME)
    step.initialize()
    assert {number(own.device) for own in handles(step.variables, ["there"])["there"].values()} == {0}
    program = emitted(step)
    assert {device for _, device in compiled_calls(program)} == {""}
    graph: Any = program._traced(asserted=False).function.graph  # type: ignore[attr-defined]
    calls = [o for o in graph.get_operations() if o.type == "StatefulPartitionedCall"]
    assert [number(call.device) for call in calls] == [0, 0]
    held = {inner.name: number(outer.device) for outer, inner in graph.captures}
    given = [[held[x.name] for x in call.inputs if x.dtype == tf.resource] for call in calls]
    assert set(given[0]) == {0}
    assert given[1] == [1, 1, *[0] * (len(given[1]) - 2)]


def test_equal_constants_of_a_core_are_one() -> None:
    (core_function,) = emitted(made(BY_RUNTIME)).core_functions
    values = [
        o.get_attr("value").SerializeToString() for o in core_function.graph.get_operations() if o.type == "Const"
    ]
    assert len(set(values)) == len(values) > 0


def test_a_tensor_is_reshaped_once_for_all_that_multiply_it() -> None:
    head, depth = mtf.Dimension("head", 4), mtf.Dimension("depth", 8)

    def step(x: mtf.Tensor) -> list[mtf.Tensor]:  # [batch, rows, head]
        first = mtf.einsum([x, mtf.get_variable(x.mesh, "first", [head, depth])], reduced_dims=[head])
        second = mtf.einsum([x, mtf.get_variable(x.mesh, "second", [head, depth])], reduced_dims=[head])
        back = mtf.einsum([first, mtf.get_variable(x.mesh, "back", [depth, head])], reduced_dims=[depth])
        return [mtf.reduce_sum(second), mtf.reduce_sum(back)]

    program = mtf.function(step, BY_RUNTIME, inputs={"x": mtf.TensorSpec([BATCH, ROWS, head])})
    (core_function,) = emitted(program).core_functions
    reshaped = [o.inputs[0].op.type for o in core_function.graph.get_operations() if o.type == "Reshape"]
    assert reshaped.count("Placeholder") == 1  # x
    assert reshaped.count("MatMul") == 3  # of which the first is multiplied again as it came from the product
    assert "Reshape" not in reshaped


def test_a_function_of_the_users_around_it_is_traced_once() -> None:
    step, traces = made(), []

    @tf.function(autograph=False)
    def twice(x: tf.Tensor) -> tf.Tensor:
        traces.append(x)
        return step(x) + step(x)

    for _ in range(2):
        twice(tf.ones([8, 128]))
    assert len(traces) == 1
    assert set(emitted(step).traces.values()) == {1}
