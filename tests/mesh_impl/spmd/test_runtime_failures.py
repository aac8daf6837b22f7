"""What breaks TensorFlow's collectives, each in a process of its own."""

from __future__ import annotations

import textwrap

import pytest

from tests.fresh_process import run_fresh

_SET_UP = """
import sys, tensorflow as tf
from meshtf.errors import CollectiveError, DeviceError
from meshtf.dimension import Shape
from meshtf.mesh_impl.virtual_cpus import virtual_cpus
from meshtf.mesh_impl.spmd.collective_runtime import step_in_progress
from meshtf.mesh_impl.spmd.spmd_collectives import DeviceMesh, SpmdCollectives
from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.mesh_impl.spmd.step_errors import collective_scope, translate

ORIGINS = {"collective_1": 'einsum "logits" (model.py:12)', "op_2": 'check "mine" (model.py:13)'}

def build(body, timeout=4.0):
    mesh = DeviceMesh(Shape([("rows", 2), ("cols", 2)]), SpmdMeshImpl("rows:2;cols:2", "").devices, timeout)
    collectives = SpmdCollectives(mesh, [("rows", "cols")])
    signature = [tf.TensorSpec([], tf.int32), *collectives.signature()]
    per_core = tf.function(lambda core, *a: body(core, collectives.bind(a)), autograph=False,
                           input_signature=signature, experimental_attributes={"_noinline": True})
    def on_every_core():
        results = []
        for core, device in enumerate(mesh.devices):
            with tf.device(device):
                results.append(per_core(tf.constant(core), *collectives.arguments(core)))
        return results[0]
    return tf.function(on_every_core, autograph=False)

def total(c, x):
    with tf.name_scope(collective_scope(1, "all_reduce", ("rows", "cols"))):
        return c.all_reduce(x, ("rows", "cols"), "add")

def run(name, step):
    try:
        with step_in_progress(name):
            print(name, "gives", step().numpy())
    except tf.errors.OpError as error:
        print(type(translate(error, ORIGINS)).__name__, translate(error, ORIGINS))
    except CollectiveError as error:
        print("refused:", error)
"""


def in_a_process(code: str) -> str:
    done = run_fresh(["-c", _SET_UP + textwrap.dedent(code)])
    assert done.status == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def failing_process() -> str:
    """Steps of one process: a long one, one with an error on one core, one that a core stays away from."""
    return in_a_process(
        """
        import time
        virtual_cpus(4)

        def slow(x):
            time.sleep(0.25)
            return x

        def long(core, c):
            def once(i, x):
                x = tf.cond(core == 0, lambda: tf.ensure_shape(tf.numpy_function(slow, [x], tf.float32), []), lambda: x)
                return i + 1, total(c, x) / 4
            return tf.while_loop(lambda i, x: i < 20, once, (0, 1.0))[1]

        def bad(core, c):
            with tf.name_scope("op_2"):
                x = tf.debugging.check_numerics(tf.where(core == 2, float("nan"), total(c, tf.ones([]))), "a NaN")
            return total(c, x)

        complete = build(lambda core, c: total(c, tf.ones([])))
        started = time.monotonic()
        run("long step", build(long))
        assert time.monotonic() - started > 4
        run("bad step", build(bad))
        time.sleep(6)  # some tokens say that their device is in a collective, and nobody waits
        run("step after a local error", complete)
        run("train step", build(lambda core, c: tf.cond(core == 3, lambda: 0.0, lambda: total(c, tf.ones([])))))
        run("next step", complete)
        """
    )


def test_a_long_step_is_not_ended(failing_process: str) -> None:
    assert "long step gives 1.0" in failing_process


def test_an_error_on_one_core_does_not_spoil_the_process(failing_process: str) -> None:
    told, lost = 'ExecutionError check "mine" (model.py:13)', "ExecutionError an operation failed on one of the cores"
    assert told in failing_process or lost in failing_process  # TensorFlow reports whichever core it hears first
    assert "step after a local error gives 4.0" in failing_process


def test_a_core_that_stays_away(failing_process: str) -> None:
    for text in (
        'CollectiveError all_reduce over mesh axes rows+cols, for einsum "logits" (model.py:12)',
        "no progress for 4 seconds; waiting: CPU:0, CPU:1, CPU:2; in no collective: CPU:3",
        "refused: next step cannot run: a collective failed earlier",
        "The first failure: train step: no progress for 4 seconds",
    ):
        assert text in failing_process
    assert "Traceback" not in failing_process


def test_virtual_cpus_share_the_threads_of_the_processor() -> None:
    shared = """
        import os
        processors = len(os.sched_getaffinity(0))
        for n in (2, 4):
            virtual_cpus(n)
            print(tf.config.threading.get_intra_op_parallelism_threads() == max(1, processors // n))
        """
    assert in_a_process(shared).splitlines() == ["True", "True"]
    chosen = """
        tf.config.threading.set_intra_op_parallelism_threads(5)
        virtual_cpus(2)
        print(tf.config.threading.get_intra_op_parallelism_threads())
        """
    assert in_a_process(chosen).strip() == "5"


def test_virtual_cpus() -> None:
    output = in_a_process(
        """
        print(virtual_cpus(2), virtual_cpus(4)[3:], virtual_cpus(3)[2:])
        print(len(tf.config.list_logical_devices("CPU")), virtual_cpus(4)[3:], virtual_cpus(1))
        for n in (8, 0):
            try:
                virtual_cpus(n)
            except DeviceError as error:
                print(error)
        """
    )
    assert output.startswith(
        "('/device:CPU:0', '/device:CPU:1') ('/device:CPU:3',) ('/device:CPU:2',)\n"
        "4 ('/device:CPU:3',) ('/device:CPU:0',)\n"
    )
    assert "mtf.virtual_cpus(8) came too late: TensorFlow has already started, with 4 logical CPUs." in output
    assert "before the first TensorFlow op and the first mesh" in output
    assert "a mesh has at least one core" in output
