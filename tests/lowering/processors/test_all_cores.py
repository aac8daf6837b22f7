"""Cores of one process that hand one another their slices in memory."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.emission import EmittedProgram
from meshtf.mesh_impl.virtual_cpus import num_processors
from meshtf.testing import FUNCTION_TERMS, assert_close

B, D, LAYERS = mtf.Dimension("batch", 8), mtf.Dimension("d", 8), mtf.Dimension("layers", 3)
X = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 8, 8)).astype(np.float32)
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
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


def run(mesh_impl: mtf.SpmdMeshImpl, steps: int = 3) -> tuple[mtf.Function, list[list[np.ndarray]]]:
    step = mtf.function(trained, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
    return step, [[y.numpy() for y in step(x=X)] for _ in range(steps)]


def nodes(step: mtf.Function) -> list[Any]:
    """Of all functions of the program, as it is started."""
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    definition = program._traced(asserted=False).function.graph.as_graph_def()  # type: ignore[attr-defined]
    return [*definition.node, *(node for f in definition.library.function for node in f.node_def)]


def test_loops_branches_and_updates() -> None:
    """As on one core, and as by TensorFlow's collectives; each stretch is traced once, and nothing waits for a core."""
    one, expected = run(mtf.SpmdMeshImpl("all:1", ""))
    shared, found = run(SHARED)
    by_runtime, others = run(mtf.SpmdMeshImpl("rows:2;cols:4", "batch:rows;d:cols", share_memory=False))
    terms = 3 * LAYERS.size * (D.size + FUNCTION_TERMS) * B.size
    for step in range(3):
        for own in (found[step], others[step]):
            assert own[2] == expected[step][2] > 2
            assert_close(own[0], expected[step][0], terms=terms)
            assert_close(own[1], expected[step][1], terms=terms * 2 ** int(own[2]), magnitude=40.0)
    assert_close(shared.variables["w"], one.variables["w"], terms=terms, magnitude=4.0)
    assert_close(by_runtime.variables["w"], one.variables["w"], terms=terms, magnitude=4.0)
    program = shared._execution.program
    assert isinstance(program, EmittedProgram)
    assert set(program.traces.values()) == {1}
    assert not [n.op for n in nodes(shared) if n.op.startswith("Collective")]
    assert [n.op for n in nodes(by_runtime) if n.op.startswith("Collective")]


def test_the_same_bits_again() -> None:
    (_, first), (_, second) = run(SHARED), run(SHARED)
    for one, other in zip(first, second, strict=True):
        for y, z in zip(one, other, strict=True):
            np.testing.assert_array_equal(y, z)


def test_a_gathered_weight_is_there_once() -> None:
    """Kept in eight parts, gathered by one operation, and handed to each core's product."""

    def product(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", "d:8 wide:16")
        return mtf.reduce_sum(mtf.einsum([x, w], "batch:8 wide:16"))

    mesh_impl = mtf.SpmdMeshImpl("all:8", "batch:all", parameter_layout="wide:all")
    step = mtf.function(product, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
    assert [c.kind for c in step.report().collectives] == ["all_gather", "all_reduce"]
    step(x=X)
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    graph = program._traced(asserted=False).function.graph  # type: ignore[attr-defined]
    calls = [o for o in graph.get_operations() if o.type in CALLS]
    (gather,) = [o for o in graph.get_operations() if o.type == "ConcatV2"]
    assert sum(any(x is gather.outputs[0] for x in call.inputs) for call in calls) == 8


def test_a_training_has_few_stretches() -> None:
    """An update waits for its gradient's sum alone: weights are gathered and sums are made between the same calls."""

    def deep(x: mtf.Tensor) -> mtf.Tensor:
        for n in range(12):
            w = mtf.get_variable(x.mesh, f"w_{n}", [D, mtf.Dimension("next_d", 2048)])
            v = mtf.get_variable(x.mesh, f"v_{n}", [mtf.Dimension("next_d", 2048), D])
            x += mtf.einsum([mtf.relu(mtf.einsum([x, w], "batch:8 next_d:2048")), v], [B, D])
        loss = mtf.reduce_mean(mtf.square(x))
        mtf.optimize.AdamOptimizer(0.01).minimize(loss)
        return loss

    mesh_impl = mtf.SpmdMeshImpl("all:8", "batch:all", bucket_bytes=0)
    step = mtf.function(deep, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
    step.initialize()
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    kinds = [c.kind for c in step.report().collectives]
    assert (kinds.count("reduce_scatter"), kinds.count("all_gather")) == (24, 24)
    assert len(program.core_functions) <= 24 + 3


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_bad_options(value: Any) -> None:
    with pytest.raises(mtf.errors.UsageError, match=r"share_memory must be True or False, and is"):
        mtf.SpmdMeshImpl("all:2", "", share_memory=value)


def calls_of(mesh_impl: mtf.SpmdMeshImpl, fn: Any) -> list[tf.Operation]:
    step = mtf.function(fn, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
    step(x=X)
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    operations = program._traced(asserted=False).function.graph.get_operations()  # type: ignore[attr-defined]
    return [o for o in operations if o.type in CALLS]


def test_cores_do_not_wait_for_one_another() -> None:
    """TensorFlow orders stateful calls without variables: none is ordered behind another core's."""

    def noted(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(lambda a: a, [x], tf.float32), x.shape)

    for fn in (
        lambda x: mtf.reduce_sum(mtf.exp(mtf.softmax(x, D))),
        lambda x: mtf.reduce_sum(mtf.exp(mtf.cwise(noted, mtf.softmax(x, D)))),
    ):
        calls = calls_of(SHARED, fn)
        assert len(calls) >= 16
        assert not any(before in calls for call in calls for before in call.control_inputs)


def test_a_core_s_operations_run_in_one_thread_where_nothing_inside_would_be_waited_for() -> None:
    def plain(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_sum(mtf.exp(x))

    def looped(x: mtf.Tensor) -> mtf.Tensor:
        (y,), _ = mtf.scan(lambda c, _: ([mtf.tanh(c[0])], []), [x], [], LAYERS)
        return mtf.reduce_sum(y)

    one_thread = b"SINGLE_THREADED_EXECUTOR" if SHARED.size >= num_processors() else b""
    assert {call.get_attr("executor_type") for call in calls_of(SHARED, plain)} == {one_thread}
    assert {call.get_attr("executor_type") for call in calls_of(SHARED, looped)} == {b"", one_thread}
    # With processors left, one core's operations are the program's own, which several threads take.
    assert bool(calls_of(mtf.SpmdMeshImpl("all:1", ""), plain)) == (num_processors() == 1)


def test_one_core_is_not_optimized_with_what_stands_around_it() -> None:
    """TensorFlow would inline it into the user's function, and compute what it likes."""
    step = mtf.function(
        lambda x: mtf.reduce_sum(mtf.exp(x)), mtf.SpmdMeshImpl("all:1", ""), inputs={"x": mtf.TensorSpec([B, D])}
    )
    around = tf.function(lambda x: 2.0 * step(x=x), autograph=False).get_concrete_function(tf.TensorSpec(X.shape))
    (own,) = [f for f in around.graph.as_graph_def().library.function if "on_every_core" in f.signature.name]
    assert own.attr["_noinline"].b


@pytest.mark.parametrize(("layers", "loops"), [(8, 2), (9, 4)])
def test_short_loops_inside_others_are_unrolled(layers: int, loops: int) -> None:
    """A loop of five turns, with a collective and a loop over layers in each, and its gradient."""
    stacked, turns = mtf.Dimension("layers", layers), mtf.Dimension("turns", 5)

    def layer(carried: list[mtf.Tensor], weights: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [mtf.tanh(carried[0] * weights[0])], []

    def nested(x: mtf.Tensor) -> list[mtf.Tensor]:
        w = mtf.get_variable(x.mesh, "w", [stacked, D], initializer=mtf.ones)

        def turn(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return mtf.scan(layer, [mtf.softmax(carried[0], D)], [w], stacked)[0], []

        (y,), _ = mtf.scan(turn, [x], [], turns)
        loss = mtf.reduce_sum(mtf.square(y))
        return [loss, y, *mtf.gradients([loss], [w])]

    def results(mesh_impl: mtf.SpmdMeshImpl) -> tuple[mtf.Function, list[tf.Tensor]]:
        step = mtf.function(nested, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
        return step, step(x=X)

    (split, found), (_, expected) = results(SHARED), results(mtf.SpmdMeshImpl("all:1", ""))
    for own, other in zip(found, expected, strict=True):
        assert_close(own, other, terms=2 * turns.size * (layers + 2) * FUNCTION_TERMS * D.size)
    assert len([n for n in nodes(split) if n.op in ("While", "StatelessWhile")]) == loops


def test_constants_in_a_loop_are_there_once_for_all_cores() -> None:
    def constants(cores: int) -> list[int]:
        """Of the bodies of loops."""

        def looped(x: mtf.Tensor) -> list[mtf.Tensor]:
            w = mtf.get_variable(x.mesh, "w", [LAYERS, D], initializer=mtf.ones)
            body = lambda c, parts: ([mtf.softmax(c[0] * parts[0], B)], [c[0]])  # noqa: E731
            (y,), (parts,) = mtf.scan(body, [x], [w], LAYERS)
            return [y, parts]

        step = mtf.function(looped, mtf.SpmdMeshImpl(f"all:{cores}", "batch:all"), inputs={"x": mtf.TensorSpec([B, D])})
        step(x=X)
        program = step._execution.program
        assert isinstance(program, EmittedProgram)
        library = program._traced(asserted=False).function.graph.as_graph_def().library  # type: ignore[attr-defined]
        bodies = [f for f in library.function if "while_body" in f.signature.name]
        return [sum(n.op == "Const" for n in f.node_def) for f in bodies]

    assert len(constants(2)) == 1
    assert constants(8) == [n + 4 for n in constants(4)]  # a core's coordinates are its own


def test_devices_are_found_once_whatever_the_number_of_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    def entered(layers: int) -> tuple[int, int]:
        """How often a device is entered in a first call, and of how many stretches."""

        def deep(x: mtf.Tensor) -> mtf.Tensor:
            for _ in range(layers):
                x = mtf.softmax(x, B)
            return x

        step = mtf.function(deep, mtf.SpmdMeshImpl("all:8", "batch:all"), inputs={"x": mtf.TensorSpec([B, D])})
        program = step._execution.program
        assert isinstance(program, EmittedProgram)
        enter, own = tf.device, threading.get_ident()
        names: list[str] = []

        def noted(name: str) -> Any:
            if threading.get_ident() == own:  # the thread that watches a slow step enters them to read its counters
                names.append(name)
            return enter(name)

        monkeypatch.setattr(tf, "device", noted)
        step(x=X)
        monkeypatch.undo()
        return len(names), len(program._stretches)

    (few, stretches), (many, more_stretches) = entered(1), entered(4)
    assert more_stretches > stretches > 1
    assert many == few


def test_an_operation_that_fails_is_named_with_its_line() -> None:
    def quotient(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_sum(7 // mtf.cast(x, tf.int32))

    step = mtf.function(quotient, SHARED, inputs={"x": mtf.TensorSpec([B, D])})
    with pytest.raises(mtf.errors.ExecutionError) as caught:
        step(x=np.zeros([8, 8], np.float32))
    text = str(caught.value)
    assert f"at {__file__}:{quotient.__code__.co_firstlineno + 1} in quotient" in text
    assert "division by zero" in text.lower()
