"""Promise 2: nothing in the per-core program grows with the mesh, and it is traced once."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from tests.fresh_process import run_fresh
from tests.lowering.emitted import times_traced

_BUILD = """
import json
import sys
import tensorflow as tf
import meshtf as mtf

def step(mesh, images):
    batch, pixels, hidden = mtf.Dimension("batch", 128), mtf.Dimension("pixels", 128), mtf.Dimension("hidden", 48)
    w = mtf.get_variable(mesh, "w", [pixels, hidden])
    v = mtf.get_variable(mesh, "v", [hidden, pixels])
    h = mtf.dropout(mtf.relu(mtf.einsum([images, w], [batch, hidden])), True, rate=0.1)
    y = mtf.einsum([h, v], [batch, pixels])
    loss = mtf.reduce_mean(mtf.square(y - images)) + mtf.reduce_max(mtf.softmax(y, pixels))
    for variable, grad in zip((w, v), mtf.gradients([loss], [w, v])):
        mtf.assign_sub(variable, 0.1 * grad)
    return loss

def made(mesh_shape, layout, share_memory):
    spec = mtf.TensorSpec("batch:128 pixels:128")
    mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout, share_memory=share_memory)
    return mtf.function(step, mesh_impl, inputs={"images": spec})
"""

_COUNT = """
from meshtf.lowering.variable_store import handles
from tests.lowering.emitted import functions_of, nodes_in, times_traced

def operations(function):
    # Variables without initial values: computing those runs a program, and this only traces.
    lowering, plan = function.lowering, function.lowering.plan
    store, mesh_impl = lowering.variables, lowering.mesh_impl
    for i in [*plan.reads, *plan.assignments]:
        layout = (i.output if i in plan.reads else i.input).layout
        if i.name not in store:
            store.create(lowering.graph.variables[i.name], layout, mesh_impl, lowering.axis_parts)
    program = mesh_impl.program(plan, handles(store, plan.variable_names))
    operations = sum(len(nodes_in(function.graph)) for function in functions_of(program))
    assert times_traced(program) == {1}
    return operations

mtf.virtual_cpus(int(sys.argv[2]))
ways = (True, False)
print(json.dumps([[operations(made(*of, way)) for of in json.loads(sys.argv[1])] for way in ways]))
"""


def operations_of(meshes: list[tuple[str, str]], num_cores: int) -> list[list[int]]:
    """Operations of the per-core program on each mesh, traced in one process with so many virtual CPUs: where these
    share their memory, and where TensorFlow's collectives are between them."""
    done = run_fresh(["-c", _BUILD + _COUNT, json.dumps(meshes), str(num_cores)])
    assert done.status == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("num_cores", "larger"), [(8, "rows:4;cols:2"), pytest.param(64, "rows:8;cols:8", marks=pytest.mark.long)]
)
def test_the_per_core_program_does_not_grow_with_the_mesh(num_cores: int, larger: str) -> None:
    meshes = [("all:2", "batch:all"), (f"all:{num_cores}", "batch:all")]
    meshes += [("rows:2;cols:2", "batch:rows;hidden:cols"), (larger, "batch:rows;hidden:cols")]
    for counts in operations_of(meshes, num_cores):
        assert counts[0] == counts[1] > 50
        assert counts[2] == counts[3] > 50


@pytest.mark.parametrize("mesh_shape", ["rows:2", "rows:4;cols:2"])
def test_it_is_traced_once(mesh_shape: str) -> None:
    batch = mtf.Dimension("batch", 8)

    def total(mesh: mtf.Mesh, x: mtf.Tensor) -> mtf.Tensor:
        steps = mtf.get_variable(mesh, "steps", [], initializer=0.0)
        return mtf.reduce_sum(x) + mtf.assign_add(steps, mtf.ones(mesh, []))

    step = mtf.function(total, mtf.SpmdMeshImpl(mesh_shape, "batch:rows"), inputs={"x": mtf.TensorSpec([batch])})
    results = [float(step(x=np.full([8], i, np.float32))) for i in range(3)]
    assert results == [1.0, 10.0, 19.0]
    assert times_traced(step._execution.program) == {1}


def test_building_a_graph_makes_no_tensorflow_op() -> None:
    with tf.Graph().as_default() as graph:
        mesh = mtf.Mesh(mtf.Graph("program"))
        with mesh.graph:
            x = mtf.placeholder(mesh, "batch:8 hidden:16")
            w = mtf.get_variable(mesh, "w", "hidden:16 classes:4")
            y = mtf.softmax(mtf.einsum([mtf.dropout(x, True, rate=0.1), w], "batch:8 classes:4"), "classes")
            z = mtf.gather(mtf.slicewise(tf.sin, [y]), mtf.argmax(y, "classes"), "classes")
            mtf.assign_sub(w, mtf.gradients([z], [w])[0])
        assert graph.get_operations() == []
