from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.errors import CollectiveError, UsageError
from meshtf.mesh_impl.spmd.collective_runtime import CollectiveRuntime, collective_runtime


def test_keys_belong_to_one_list_of_devices() -> None:
    runtime = CollectiveRuntime()
    first, second = runtime.group_key(["a", "b"]), runtime.group_key(["b", "a"])
    pairs, others = runtime.pair_keys(["a", "b"]), runtime.pair_keys(["b", "a"])
    assert (runtime.group_key(["a", "b"]), runtime.pair_keys(["a", "b"])) == (first, pairs)
    given = {first, second, *range(pairs, pairs + 6), *range(others, others + 6), runtime.group_key(["c"])}
    assert len(given) == 15


def test_instance_keys_are_never_given_twice() -> None:
    runtime = CollectiveRuntime()
    keys: list[int] = []
    threads = [
        threading.Thread(target=lambda: keys.extend(runtime.new_instance_key() for _ in range(500))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 2000


def in_another_thread(call: Any) -> BaseException | None:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=run, name="other")
    thread.start()
    thread.join()
    return caught[0] if caught else None


def test_two_threads_in_one_step() -> None:
    runtime = CollectiveRuntime()

    def enter() -> None:
        with runtime.step_in_progress("eval_step"):
            pass

    with runtime.step_in_progress("train_step"):
        with runtime.step_in_progress("the same thread again"):
            pass
        error = in_another_thread(enter)
        assert isinstance(error, UsageError)
        for word in ("train_step", "MainThread", "eval_step", '"other"', "one step at a time", "from one thread"):
            assert word in str(error)
    assert in_another_thread(enter) is None


def test_the_step_is_over_after_an_error() -> None:
    runtime = CollectiveRuntime()
    with pytest.raises(ZeroDivisionError), runtime.step_in_progress("train_step"):
        raise ZeroDivisionError
    with pytest.raises(tf.errors.InvalidArgumentError), runtime.step_in_progress("train_step"):
        raise tf.errors.InvalidArgumentError(None, None, "a local error")
    assert runtime.failed is None
    with runtime.step_in_progress("train_step"):
        pass


@pytest.mark.parametrize(
    "error",
    [tf.errors.DeadlineExceededError(None, None, "Collective has timed out"), CollectiveError("Collective has")],
)
def test_nothing_runs_after_a_collective_failed(error: Exception) -> None:
    runtime = CollectiveRuntime()
    with pytest.raises(type(error)), runtime.step_in_progress("train_step"):
        raise error
    runtime.fail("a later failure")
    with pytest.raises(CollectiveError) as caught, runtime.step_in_progress("eval_step"):
        pass
    for text in ("eval_step cannot run", "first failure: train_step: Collective has", "Restart the process"):
        assert text in str(caught.value)


def test_programs_of_one_process_and_of_several_never_share_a_key() -> None:
    """They have collectives in the same groups: of the cores of one process."""
    runtime = CollectiveRuntime()
    own, together = ({runtime.new_instance_key(spans_processes=spans) for _ in range(50)} for spans in (False, True))
    assert len(own | together) == 100


def test_one_object_owns_tokens_and_counters() -> None:
    runtime = collective_runtime()
    tokens, counters = runtime.tokens("/device:CPU:5"), runtime.counters("/device:CPU:5", 60)
    assert runtime.tokens("/device:CPU:5") is tokens
    assert runtime.counters("/device:CPU:5", 60) is counters
    assert [token.device[-5:] for token in tokens] == ["CPU:5"] * 3
    assert [counter.device[-5:] for counter in counters] == ["CPU:0"] * 3


def threads_for_collectives() -> int:
    return sum("collective" in path.read_text() for path in Path("/proc/self/task").glob("*/comm"))


def test_completed_collectives_leave_no_threads(program: Any) -> None:
    """TensorFlow's own timeouts would leave two a collective, for as long as the timeout."""
    mesh = SpmdMeshImpl("rows:4", "", collective_timeout_seconds=60)
    step = program(mesh, [("rows",)], lambda core, c, x: [c.all_reduce(x, ("rows",), "add")])
    x = np.ones([4, 2], np.float32)
    run = tf.function(lambda: step.emit(x), autograph=False)
    run()
    before = threads_for_collectives()
    for _ in range(50):
        run()
    assert threads_for_collectives() < before + 50


def test_tokens_are_no_reason_to_trace_a_function_again() -> None:
    runtime, traces = CollectiveRuntime(), []
    device = SpmdMeshImpl("all:1", "").devices[0]

    def body(x: tf.Tensor) -> tf.Tensor:
        traces.append((runtime.tokens(device), runtime.counters(device, 60)))
        return x

    function = tf.function(body, autograph=False).get_concrete_function(tf.TensorSpec([]))
    function(tf.constant(1.0))
    assert len(traces) == 1
