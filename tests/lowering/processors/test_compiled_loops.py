"""Loops that XLA compiles for all virtual CPUs of a process at once, and what a compiled loop is given."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import NonFiniteError
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.house.sharpest import sharpest
from tests.lowering.emitted import compiled_calls, core_functions, cores_in_memory, graph_of

B, D, TURNS = mtf.Dimension("batch", 4), mtf.Dimension("d", 8), mtf.Dimension("turns", 40)
LAYERS, VOCAB = mtf.Dimension("layers", 3), mtf.Dimension("vocab", 12)


def decoding(x: mtf.Tensor) -> list[mtf.Tensor]:
    """As a small model decodes: layers with caches, split tables, the best of a split vocabulary, an end that is found
    out on the way."""
    mesh, next_d = x.mesh, mtf.Dimension("next_d", D.size)
    table = mtf.get_variable(mesh, "table", [VOCAB, D])
    weights = mtf.get_variable(mesh, "weights", [LAYERS, D, next_d])

    def body(turn: mtf.Tensor, ids: mtf.Tensor, score: mtf.Tensor, caches: mtf.Tensor) -> list[mtf.Tensor]:
        def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            y, own, cache = carried[0], parts[0], mtf.scatter_update(parts[1], turn, carried[0], TURNS)
            y = mtf.rename_dimension(mtf.tanh(mtf.einsum([y, own], [B, next_d])), "next_d", "d")
            return [y + mtf.reduce_mean(cache, reduced_dim=TURNS)], [cache]

        (y,), (caches,) = mtf.scan(layer, [mtf.gather(table, ids, VOCAB)], [weights, caches], LAYERS)
        logits = mtf.einsum([y + x, table], [B, VOCAB])
        best = mtf.argmax(logits, VOCAB)
        score = score + mtf.gather(mtf.log_softmax(logits, VOCAB), best, VOCAB)
        return [turn + 1, mtf.mod(best + turn, VOCAB.size), score, caches]

    start = [
        mtf.constant(mesh, 0, dtype=tf.int32),
        mtf.zeros(mesh, [B], tf.int32),
        mtf.zeros(mesh, [B]),
        mtf.zeros(mesh, [LAYERS, B, TURNS, D]),
    ]
    going = lambda turn, ids, *_: mtf.logical_and(mtf.less(turn, 37), mtf.less(mtf.reduce_min(ids), VOCAB.size))  # noqa: E731
    return mtf.while_loop(going, body, start, maximum_iterations=TURNS.size, compiled=True)


LAYOUTS = ["batch:rows;vocab:cols;next_d:cols", "batch:cols;d:rows", "turns:rows;vocab:cols"]


@pytest.mark.parametrize("layout", sharpest(LAYOUTS, LAYOUTS[:1]))
def test_a_loop_with_collectives_is_one_function_for_all_cores(layout: str) -> None:
    """It computes what the cores do by themselves, also with TensorFlow's collectives, and what one core does."""
    x, found = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8), []
    devices = [f"CPU:{n}" for n in (3, 1, 0, 2)]
    meshes: list[tuple[str, str, list[str], dict[str, bool]]] = [
        ("one:1", "", ["CPU:0"], {"compile_loops": False}),
        ("rows:2;cols:2", layout, devices, {"compile_loops": False}),
        ("rows:2;cols:2", layout, devices, {"share_memory": False}),
        ("rows:2;cols:2", layout, devices, {}),
    ]
    for mesh, rules, own_devices, options in meshes:
        mesh_impl = mtf.SpmdMeshImpl(mesh, rules, own_devices, **options)
        step = mtf.function(decoding, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])}, seed=3)
        found.append([y.numpy() for y in step(x=x)])
    for y, again in zip(found[-1], step(x=x), strict=True):
        np.testing.assert_array_equal(y, again)  # from run to run
    assert [loop.refusal for loop in step.report().loops] == [""]
    assert set(cores_in_memory(step).traces.values()) == {1}  # what each core runs before it, and behind it
    assert len(compiled_calls(graph_of(step))) == 1
    terms = 37 * LAYERS.size * (2 * FUNCTION_TERMS + TURNS.size + VOCAB.size + 2 * D.size)
    for others in found[:-1]:
        np.testing.assert_array_equal(found[-1][1], others[1])
        for y, z in zip(found[-1][2:], others[2:], strict=True):
            assert_close(y, z, terms=terms)


def test_a_compiled_loop_is_given_what_layers_use_layer_by_layer_and_gives_what_is_read() -> None:
    """XLA compiles one copy for each part that it cuts out, and another for what it puts together of parts."""
    inputs, seen = {"x": mtf.TensorSpec([B, D])}, lambda x: decoding(x)[1:3]
    step = mtf.function(seen, mtf.SpmdMeshImpl("one:1", ""), inputs=inputs)
    operations = [o for function in core_functions(step) for o in function.graph.get_operations()]
    (call,) = [o for o in operations if "_XlaMustCompile" in o.node_def.attr]
    assert len(call.outputs) == 2  # ids and score
    sizes = [x.shape.num_elements() for x in call.inputs]
    caches, weights = B.size * TURNS.size * D.size, D.size**2
    assert [sizes.count(n) for n in (caches, weights)] == [LAYERS.size] * 2
    assert max(sizes) <= caches


def test_a_check_inside_ends_the_step_and_nothing_is_assigned() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        count = mtf.get_variable(x.mesh, "count", [], tf.int32, initializer=mtf.zeros, trainable=False)
        mtf.assign(count, count + 1)

        def body(y: mtf.Tensor) -> mtf.Tensor:
            mtf.check_finite(y)
            return mtf.sqrt(y - 1.0)

        going = lambda y: mtf.logical_not(mtf.greater(mtf.reduce_max(y), 1e6))  # noqa: E731
        return mtf.while_loop(going, body, x, maximum_iterations=40, compiled=True)[0]

    mesh_impl = mtf.SpmdMeshImpl("rows:2", "batch:rows")
    step = mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
    with pytest.raises(NonFiniteError, match="check_finite"):
        step(x=np.ones([4, 8], np.float32))
    assert step.variables["count"] == 0


@pytest.mark.parametrize(
    "layout",
    sharpest(
        ["batch:rows;d:cols", "batch:rows+cols", "turns:rows;d:cols", "d:rows"],
        ["turns:rows;d:cols"],
    ),
)
def test_rows_are_read_and_written_for_all_cores_at_once_and_those_outside_nowhere(layout: str) -> None:
    """As a cache of decoding is, whose sequences may have ended, each by itself."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def body(turn: mtf.Tensor, cache: mtf.Tensor) -> list[mtf.Tensor]:
            place = mtf.range(x.mesh, B, tf.int32) * 13 - 20 + turn  # from -20 to 58
            row = x + mtf.reduce_max(cache) + mtf.gather(cache, place + 1, TURNS)
            return [turn + 1, mtf.scatter_update(cache, place, row, TURNS)]

        start = [mtf.constant(x.mesh, 0, dtype=tf.int32), mtf.ones(x.mesh, [B, TURNS, D])]
        going = lambda turn, _: mtf.less(turn, 39)  # noqa: E731
        return mtf.while_loop(going, body, start, maximum_iterations=TURNS.size, compiled=True)

    x, found = np.linspace(-2, 1, 32, dtype=np.float32).reshape(4, 8), []
    for compile_loops in (False, True):
        mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", layout, compile_loops=compile_loops)
        step = mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])})
        found.append(step(x=x)[1].numpy())
    assert [loop.refusal for loop in step.report().loops] == [""]
    np.testing.assert_array_equal(*found)
