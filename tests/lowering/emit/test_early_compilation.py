"""Whether updates and loops are compiled before a program needs them: in a process of its own, where TensorFlow logs
what XLA compiles."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit._compiled_unrun import compiled_meanwhile
from meshtf.lowering.emit._traced_function import traced_function
from meshtf.lowering.emit.early_compilation import updates_compiled_meanwhile
from meshtf.lowering.emit.emission import EmittedProgram
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
step(x=np.ones([8, 128], np.float32))
"""


def training(mesh_impl: mtf.MeshImpl, size: int = 128) -> mtf.Function:
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


def logged(program: str) -> tuple[str, str]:
    """What TensorFlow says of compilations, before the program's line and after it."""
    environment = {**os.environ, "TF_CPP_VMODULE": "device_compiler=4", "TF_CPP_MIN_LOG_LEVEL": "0"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    early, _, afterwards = done.stderr.partition("compiled early")
    return early, afterwards


def test_what_is_compiled_early_is_what_the_program_runs() -> None:
    early, by_the_program = logged(COMPILED_THEN_RUN)
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


LOOPS_COMPILED_THEN_RUN = """
import sys
import numpy as np
from meshtf.lowering.emit._compiled_unrun import compiled_meanwhile
from tests.lowering.emit.test_early_compilation import CPU, counting, functions_of

step = counting()
with compiled_meanwhile(functions_of(step), CPU):
    pass
print("compiled early", file=sys.stderr, flush=True)
step(x=np.ones([4, 8], np.float32))
"""


def counting(mesh_shape: str = "rows:2") -> mtf.Function:
    """With a collective in a loop that is compiled for all cores, and another behind it."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        below = lambda y: mtf.less(mtf.reduce_sum(y), 1e3)  # noqa: E731
        (y,) = mtf.while_loop(below, lambda y: mtf.tanh(y) + y, x, maximum_iterations=40, compiled=True)
        return [y, mtf.reduce_sum(y)]

    mtf.virtual_cpus(2)
    mesh_impl = mtf.SpmdMeshImpl(mesh_shape, "batch:rows")
    return mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec("batch:4 d:8")})


def functions_of(step: mtf.Function) -> list[tf.types.experimental.ConcreteFunction]:
    return program_of(step)._joint_functions()


def program_of(step: mtf.Function) -> EmittedProgram:
    step.initialize()
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    return program


def test_a_loop_that_is_compiled_early_is_what_the_program_runs() -> None:
    early, by_the_program = logged(LOOPS_COMPILED_THEN_RUN)
    assert (early.count("Instantly compiling"), by_the_program.count("Instantly compiling")) == (1, 0)
    assert "Already Compiled for signature: __inference_joint_loop" in by_the_program


ONE_CORE = """
import sys
import numpy as np
from tests.lowering.emit.test_early_compilation import counting

step = counting("rows:1")
step.initialize()
print("compiled early", file=sys.stderr, flush=True)
step(x=np.ones([4, 8], np.float32))
"""


def test_a_loop_of_one_core_is_compiled_as_soon_as_it_is_traced() -> None:
    """Once: the program, which comes to it later, finds it compiled, or waits for it."""
    _, by_the_program = logged(ONE_CORE)
    assert by_the_program.count("Instantly compiling") == 1
    assert "Already Compiled for signature: __inference_run" in by_the_program


def test_a_function_that_comes_too_late_is_left_to_the_program() -> None:
    function = traced_function(lambda x: [x + 1.0], [tf.TensorSpec([3])], "late", {"_XlaMustCompile": True})
    with compiled_meanwhile([], CPU) as compile_too:
        pass
    compile_too(function)
    assert "compiled_meanwhile" not in {thread.name for thread in threading.enumerate()}


def test_no_loop_is_run_and_the_thread_is_gone() -> None:
    """A function that would never end."""

    def endless(x: tf.Tensor) -> list[tf.Tensor]:
        return tf.while_loop(lambda _: True, lambda y: [y + 1.0], [x])

    function = traced_function(endless, [tf.TensorSpec([3])], "endless", {"_XlaMustCompile": True})
    with compiled_meanwhile([function], CPU):
        pass
    assert "compiled_meanwhile" not in {thread.name for thread in threading.enumerate()}


def test_what_cannot_be_compiled_is_left_to_the_program() -> None:
    def printed(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.numpy_function(lambda a: a, [x], tf.float32)]

    function = traced_function(printed, [tf.TensorSpec([3])], "printed", {"_XlaMustCompile": True})
    with compiled_meanwhile([function], CPU):
        pass
    with pytest.raises(tf.errors.InvalidArgumentError, match="PyFunc"):
        function(tf.zeros([3]))  # type: ignore[operator]


def test_the_first_call_compiles_its_loops_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is traced once, before all else is."""
    given: list[Sequence[str]] = []

    def noted(functions: Sequence[tf.types.experimental.ConcreteFunction], device: str) -> object:
        given.append([function.name.decode() for function in functions])  # type: ignore[attr-defined]
        assert device == "/device:CPU:0"
        assert not program.traces
        return compiled_meanwhile(functions, device)

    monkeypatch.setattr("meshtf.lowering.emit.emission.compiled_meanwhile", noted)
    step = counting()
    program = program_of(step)
    step(x=tf.ones([4, 8]))
    graph = program._on_all_cores[False].function.graph  # type: ignore[attr-defined]
    (call,) = [o for o in graph.get_operations() if "_XlaMustCompile" in o.node_def.attr]
    assert given == [[call.get_attr("f").name]]
