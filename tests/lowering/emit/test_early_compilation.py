"""Whether updates are compiled before a program needs them: in a process of its own, where TensorFlow logs what XLA
compiles."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np

import meshtf as mtf
from meshtf.lowering.emit.early_compilation import updates_compiled_meanwhile
from meshtf.lowering.emit.plan_facts import PlanFacts

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
COMPILED_THEN_RUN = """
import sys
import numpy as np
from meshtf.lowering.emit.early_compilation import updates_compiled_meanwhile
from tests.lowering.emit.test_early_compilation import CPU, facts_of, on_two_cores

step = on_two_cores()
with updates_compiled_meanwhile(facts_of(step), CPU):
    pass
print("compiled early", file=sys.stderr, flush=True)
step(x=np.ones([8, 64], np.float32))
"""


def training(mesh_impl: mtf.MeshImpl, size: int = 64) -> mtf.Function:
    """Two shapes of weights, of three variables, and updates that TensorFlow has no kernel for."""

    def step(x: mtf.Tensor) -> mtf.Tensor:
        for name, own in (("a", size), ("b", size), ("c", 2 * size)):
            w = mtf.get_variable(x.mesh, name, [x.shape.dims[-1], (f"{name}_out", own)], initializer=mtf.ones)
            x = mtf.einsum([x, w], output_shape=[x.shape.dims[0], w.shape.dims[1]])
        loss = mtf.reduce_mean(mtf.square(x))
        mtf.optimize.LionOptimizer(1e-3).minimize(loss)
        return loss

    return mtf.function(step, mesh_impl, inputs={"x": mtf.TensorSpec([("batch", 8), ("in", size)])})


def on_two_cores() -> mtf.Function:
    mtf.virtual_cpus(2)
    return training(mtf.SpmdMeshImpl("all:2", "batch:all"))


def facts_of(step: mtf.Function) -> PlanFacts:
    execution = step.lowering.execution([step.results])
    return PlanFacts.of(execution.plan, writes_in_place=True)


def test_what_is_compiled_early_is_what_the_program_runs() -> None:
    environment = {**os.environ, "TF_CPP_VMODULE": "device_compiler=4", "TF_CPP_MIN_LOG_LEVEL": "0"}
    command = [sys.executable, "-c", COMPILED_THEN_RUN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    early, _, by_the_program = done.stderr.partition("compiled early")
    # Of three updates two have the same shapes.
    assert (early.count("Instantly compiling"), by_the_program.count("Instantly compiling")) == (2, 0)


def test_the_thread_is_gone_and_no_variable_has_changed() -> None:
    step = on_two_cores()
    step.initialize()
    before = dict(step.variables)
    with updates_compiled_meanwhile(facts_of(step), CPU):
        pass
    assert "updates_compiled_meanwhile" not in {thread.name for thread in threading.enumerate()}
    for name, value in before.items():
        np.testing.assert_array_equal(step.variables[name], value)


def test_large_updates_are_compiled_when_they_are_run() -> None:
    """Of arrays that would not be there without it, none is made: here of a gibibyte each."""
    facts = facts_of(training(mtf.PlanMeshImpl("all:2", "batch:all"), 1 << 14))
    assert facts.in_place
    with updates_compiled_meanwhile(facts, CPU):
        assert "updates_compiled_meanwhile" not in {thread.name for thread in threading.enumerate()}
