"""Steps called where they cannot be: under a tape, inside jit_compile, from two threads; and steps with a NaN."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ExecutionError, NonFiniteError, UsageError

X = np.arange(8, dtype=np.float32)
SPECS = {"x": mtf.TensorSpec("batch:8")}


def train_step(x: mtf.Tensor) -> mtf.Tensor:
    total = mtf.get_variable(x.mesh, "total", [], initializer=np.zeros([]))
    return mtf.assign_add(total, mtf.reduce_sum(mtf.square(x)))


@pytest.fixture
def step() -> mtf.Function:
    return mtf.function(train_step, mtf.SpmdMeshImpl("rows:4", "batch:rows"), SPECS)


def test_under_a_tape(read: Callable[..., str], step: mtf.Function) -> None:
    def call() -> None:
        with tf.GradientTape():
            step(X)  # here

    text = read(UsageError, call)
    assert (
        'program "train_step" was called while a tf.GradientTape is recording. The tape cannot see into the program'
        in text
    )
    assert "Take gradients inside the program, with mtf.gradients, and call it outside the tape" in text
    assert "total" not in step.variables
    with tf.GradientTape() as tape, tape.stop_recording():
        assert step(X) == 140


def test_under_a_tape_that_came_after_the_trace(step: mtf.Function) -> None:
    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        return 2.0 * step(x)

    def differentiated(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = outer(x)
        return tape.gradient(y, x)

    assert outer(tf.constant(X)) == 280
    with pytest.raises(UsageError) as caught:
        differentiated(tf.constant(X))
    assert 'program "train_step" was called while a tf.GradientTape is recording' in str(caught.value)
    assert f"at {__file__}:{outer.python_function.__code__.co_firstlineno + 2} in outer" in str(caught.value)


def test_inside_jit_compile(read: Callable[..., str], step: mtf.Function) -> None:
    def call(x: tf.Tensor) -> tf.Tensor:
        return step(x)

    for wrong in (tf.function(call, jit_compile=True), tf.function(lambda x: tf.function(call)(x), jit_compile=True)):
        with pytest.raises(UsageError) as caught:
            wrong(tf.constant(X))
        text = str(caught.value)
        assert 'program "train_step" was called inside a tf.function(jit_compile=True)' in text
        assert "Call it eagerly, or from a tf.function without jit_compile" in text
        assert f"at {__file__}:{call.__code__.co_firstlineno + 1} in call" in text
    assert step(X) == 140


def test_from_two_threads(step: mtf.Function) -> None:
    started, ended = threading.Event(), threading.Event()

    def wait(x: np.ndarray) -> np.ndarray:
        started.set()
        ended.wait(500)
        return x

    def slow(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.cwise(lambda x: tf.numpy_function(wait, [x], tf.float32), x)

    waiting = mtf.function(slow, mtf.SpmdMeshImpl("rows:4", "batch:rows"), SPECS)
    results: list[tf.Tensor] = []
    thread = threading.Thread(target=lambda: results.append(waiting(X)), name="first_thread")
    thread.start()
    try:
        assert started.wait(500)
        with pytest.raises(UsageError) as caught:
            step(X)
    finally:
        ended.set()
        thread.join(500)
    text = str(caught.value)
    assert (
        'program "slow" is running in thread "first_thread", and program "train_step" was called from thread "Main'
        in text
    )
    assert "Call every step from one thread, or one after the other" in text
    np.testing.assert_array_equal(results[0], X)
    assert step(X) == 140


def test_graphs_may_be_built_in_several_threads() -> None:
    """Each thread has a current graph, a scope and a user's line of its own."""
    met = threading.Barrier(3, timeout=500)
    reports: dict[int, str] = {}

    def build(size: int) -> None:
        graph = mtf.Graph("program")
        mesh = mtf.Mesh(graph)
        with graph, mtf.variable_scope(f"of_{size}"):
            met.wait()
            x = mtf.placeholder(mesh, f"batch:{size}", name="x")
            met.wait()
            w = mtf.get_variable(mesh, "w", f"batch:{size}")
            met.wait()
            (gradient,) = mtf.gradients([mtf.reduce_sum(x * w)], [w])
        assert list(graph.variables) == [f"of_{size}/w"]
        reports[size] = str(mtf.Lowering(graph, {mesh: mtf.PlanMeshImpl("rows:2", "batch:rows")}).report([gradient]))

    threads = [threading.Thread(target=build, args=(size,)) for size in (2, 4, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(500)
    assert sorted(reports) == [2, 4, 6]
    assert all(f"batch:{size}" in report for size, report in reports.items())


def test_a_nan_where_a_check_was_asked_for(read: Callable[..., str]) -> None:
    def sgd(x: mtf.Tensor) -> mtf.Tensor:
        v = mtf.get_variable(x.mesh, "v", "batch:8", initializer=np.ones(8))
        steps = mtf.get_variable(x.mesh, "steps", [], tf.int32, initializer=np.int32(0))
        mtf.assign_add(steps, mtf.ones(x.mesh, [], tf.int32))
        loss = mtf.check_finite(mtf.reduce_sum(mtf.log(x * v)), "the loss", name="check_loss")
        mtf.assign_sub(v, mtf.gradients([loss], [v])[0])  # type: ignore[arg-type]
        return loss

    step = mtf.function(sgd, mtf.SpmdMeshImpl("rows:4;cols:2", "batch:rows"), SPECS)
    step(X + 1)
    before = {name: step.variables[name] for name in step.variables}
    with pytest.raises(NonFiniteError) as caught:
        step(-X)
    text = str(caught.value)
    assert "the loss: a NaN or an infinity in reduce_sum [] float32" in text
    assert "in operation check_loss" in text
    assert f"at {__file__}:{sgd.__code__.co_firstlineno + 4} in sgd" in text
    assert "nothing was assigned in this step" in text
    for name, value in before.items():
        np.testing.assert_array_equal(step.variables[name], value)
    assert step.variables["steps"] == 1


def test_an_error_in_python_work_names_operation_and_line() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise RuntimeError("no such file: images.bin")

    def body(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.cwise(lambda x: tf.numpy_function(fail, [x], tf.float32), x, name="load")

    step = mtf.function(body, mtf.SpmdMeshImpl("rows:4", "batch:rows"), SPECS)
    with pytest.raises(ExecutionError) as caught:
        step(X)
    text = str(caught.value)
    assert text.startswith("load: tf_fn failed on core 0 (rows:0): RuntimeError: no such file: images.bin\n")
    assert f"at {__file__}:{body.__code__.co_firstlineno + 1} in body" in text
    assert "{{node" not in text


def test_built_inside_a_tf_function() -> None:
    """Each trace would build it again, with other variables; those of a store from outside are found again."""
    mesh, store = mtf.SpmdMeshImpl("rows:4", "batch:rows"), mtf.VariableStore()

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        return mtf.function(train_step, mesh, SPECS)(x=x)

    with pytest.raises(UsageError) as caught:
        outer(X)
    text = str(caught.value)
    assert 'program "train_step" has variables and was built inside a tf.function' in text
    assert "build it outside and call it inside, or give it variables=mtf.VariableStore() from outside" in text
    assert f"at {__file__}:{outer.python_function.__code__.co_firstlineno + 2} in outer" in text

    @tf.function
    def with_a_store(x: tf.Tensor) -> tf.Tensor:
        return mtf.function(train_step, mesh, SPECS, variables=store)(x=x)

    assert [float(with_a_store(X)) for _ in range(2)] == [140.0, 280.0]
