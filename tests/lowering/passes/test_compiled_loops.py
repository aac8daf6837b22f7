"""Loops that ask to be compiled: what they compute, how many functions that makes, and why some are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import NonFiniteError
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.lowering.emitted import LOOPS, compiled_calls, core_functions, cores_in_memory, nodes_in

BATCH, D, LAYERS = mtf.Dimension("batch", 4), mtf.Dimension("d", 8), mtf.Dimension("layers", 3)
TURNS = mtf.Dimension("turns", 40)

Body = Callable[[mtf.Tensor], mtf.Tensor]


def looped(
    body: Body, *, cond: Body | None = None, most: int | None = TURNS.size
) -> Callable[[mtf.Tensor], mtf.Tensor]:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        going = cond or (lambda x: mtf.less(mtf.constant(x.mesh, 0), 1))
        return mtf.while_loop(going, body, x, maximum_iterations=most, compiled=True, name="many_turns")[0]

    return program


def doubled(x: mtf.Tensor) -> mtf.Tensor:
    return x + x


def is_small(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.less(mtf.reduce_max(x), 1.0)


def with_gradient(x: mtf.Tensor) -> mtf.Tensor:
    y = looped(mtf.sin)(x)
    return mtf.gradients([mtf.reduce_sum(y)], [x])[0]


REFUSED: dict[str, tuple[Callable[[mtf.Tensor], mtf.Tensor], str, dict[str, Any], str]] = {
    "collectives": (
        looped(doubled, cond=is_small),
        "rows:2",
        {"num_processes": 2},
        "it has the all_reduce of reduce_max",
    ),
    "collectives inside another": (
        lambda x: mtf.while_loop(is_small, looped(doubled, cond=is_small), x)[0],
        "rows:2",
        {},
        "it has the all_reduce of reduce_max_1",
    ),
    "switched off": (looped(doubled), "rows:1", {"compile_loops": False}, "compile_loops=False"),
    "collectives of TensorFlow's": (
        looped(doubled),
        "rows:2",
        {"share_memory": False},
        "its cores are not virtual CPUs that share their memory",
    ),
    "a print": (looped(lambda x: mtf.print_tensor(x, x, "x")), "rows:1", {}, "print_tensor prints"),
    "random bits": (
        looped(lambda x: mtf.dropout(x, True, rate=0.5)),
        "rows:1",
        {},
        "dropout draws random bits, which are compiled by themselves",
    ),
    "a function of the user's": (
        looped(lambda x: mtf.slicewise(tf.sin, [x], x.shape, x.dtype, [BATCH, D])),
        "rows:1",
        {},
        "sin has a function of yours, which may do what XLA cannot",
    ),
    "a gradient": (with_gradient, "rows:1", {}, "a gradient reads what its iterations make"),
    "nobody knows": (looped(doubled, most=None), "rows:1", {}, "it has no known limit to its iterations"),
    "few iterations": (
        looped(doubled, most=31),
        "rows:1",
        {},
        "it has at most 31 iterations, and compiling pays only from 32 on",
    ),
}


def planned(program: Callable[..., Any], mesh: str, **options: Any) -> mtf.Function:
    mesh_impl = mtf.PlanMeshImpl(mesh, "batch:rows", **options)
    return mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, D])})


@pytest.mark.parametrize("case", REFUSED)
def test_a_loop_that_is_not_compiled_says_why(case: str) -> None:
    program, mesh, options, reason = REFUSED[case]
    report = planned(program, mesh, **options).report()
    assert [(loop.operation, loop.refusal) for loop in report.loops] == [("many_turns", reason)]
    assert "loops that ask to be compiled by XLA" in str(report)
    assert f"no: {reason}" in report.text(width=200)


def test_a_loop_that_is_compiled_is_reported() -> None:
    report = planned(looped(doubled), "rows:1").report()
    assert [loop.refusal for loop in report.loops] == [""]
    assert "as one function" in str(report)
    for program, mesh, processes in ((looped(doubled, cond=is_small), "rows:4", 1), (looped(doubled), "rows:4", 2)):
        report = planned(program, mesh, num_processes=processes).report()
        assert [loop.refusal for loop in report.loops] == [""]
        assert ("as one function for all cores" in str(report)) == (processes == 1)
    assert planned(lambda x: mtf.while_loop(is_small, doubled, x)[0], "rows:1").report().loops == ()


def test_cores_that_stand_for_processes_compile_what_these_would() -> None:
    program, spec = looped(doubled, cond=is_small), {"x": mtf.TensorSpec([BATCH, D])}
    on_paper = planned(program, "rows:4", num_processes=2).report().loops
    here = mtf.function(program, mtf.SpmdMeshImpl("rows:4", "batch:rows", num_processes=2), inputs=spec).report().loops
    assert [loop.refusal for loop in here] == [loop.refusal for loop in on_paper]
    assert here[0].refusal


def test_where_the_whole_program_is_compiled_so_are_its_loops() -> None:
    """With their collectives, which are XLA's there."""
    mesh_impl = mtf.TpuMeshImpl("rows:2", "batch:rows")
    step = mtf.function(looped(doubled, cond=is_small), mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, D])})
    assert [loop.refusal for loop in step.report().loops] == [""]


def many_things(x: mtf.Tensor) -> list[mtf.Tensor]:
    """What loops of decoding have: layers that stack, writes to places, the best of several, checks, bfloat16."""
    mesh, w = x.mesh, mtf.get_variable(x.mesh, "w", [LAYERS, D])
    count = mtf.get_variable(x.mesh, "count", [], tf.int32, initializer=mtf.zeros, trainable=False)
    cache = mtf.zeros(mesh, [BATCH, TURNS, D])

    def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        y = mtf.tanh(carried[0] * parts[0])
        return [y], [mtf.reduce_max(y, output_shape=[])]

    def body(*values: mtf.Tensor) -> list[mtf.Tensor]:
        place, x, cache, ids, largest_of_all = values
        y, largest = (outputs[0] for outputs in mtf.scan(layer, [x], [w], LAYERS))
        narrow = mtf.einsum([mtf.cast(y, tf.bfloat16), mtf.cast(y, tf.bfloat16)], [BATCH])
        is_here = mtf.equal(mtf.range(mesh, TURNS), place)
        mtf.assign(count, mtf.read_variable(count) + 1)
        mtf.check_finite(y)
        best, places = mtf.top_k(y + mtf.cast(narrow, tf.float32), D, mtf.Dimension("best", 2))
        return [
            place + 1,
            y + 0.1 * mtf.reduce_sum(largest),
            mtf.where(is_here, y, cache, output_shape=cache.shape),
            ids + mtf.reduce_sum(places, output_shape=[BATCH]) + mtf.argmax(y, D),
            largest_of_all + mtf.reduce_max(best, output_shape=[]),
        ]

    start = [mtf.constant(mesh, 0, dtype=tf.int32), x, cache, mtf.zeros(mesh, [BATCH], tf.int32), mtf.zeros(mesh, [])]
    going = lambda place, *_: mtf.less(place, 37)  # noqa: E731
    return mtf.while_loop(going, body, start, maximum_iterations=TURNS.size, compiled=True)


def test_it_computes_the_same_and_is_one_function() -> None:
    x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
    found, again = {}, []
    for compile_loops in (False, True):
        mesh_impl = mtf.SpmdMeshImpl("rows:1", "", compile_loops=compile_loops)
        step = mtf.function(many_things, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, D])}, seed=3)
        found[compile_loops] = [y.numpy() for y in step(x=x)]
        assert step.variables["count"] == 37
        assert set(cores_in_memory(step).traces.values()) == {1}
        (core_function,) = core_functions(step)
        assert len(compiled_calls(core_function.graph)) == compile_loops
        assert any(o.type in LOOPS for o in core_function.graph.get_operations()) != compile_loops
        anew = mtf.function(many_things, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, D])}, seed=3)
        again.append([y.numpy() for y in anew(x=x)])
    for one, other in zip(again, (found[False], found[True]), strict=True):
        for y, z in zip(one, other, strict=True):
            np.testing.assert_array_equal(y, z)  # from run to run
    place, y, cache, ids, _ = found[True]
    assert place == 37
    np.testing.assert_array_equal(ids, found[False][3])
    terms = 37 * 3 * (FUNCTION_TERMS + 2)
    assert_close(y, found[False][1], terms=terms, what="the values carried")
    assert_close(cache, found[False][2], terms=terms, what="the cache")
    assert not cache[:, 37:].any()


def with_caches(x: mtf.Tensor) -> list[mtf.Tensor]:
    """Layers up and down, with a cache for each."""
    mesh, w = x.mesh, mtf.get_variable(x.mesh, "w", [LAYERS, D])

    def body(place: mtf.Tensor, x: mtf.Tensor, caches: mtf.Tensor) -> list[mtf.Tensor]:
        is_here = mtf.equal(mtf.range(mesh, TURNS), place)

        def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            own, cache = parts
            cache = mtf.where(is_here, carried[0] * own, cache, output_shape=cache.shape)
            return [mtf.tanh(carried[0] + mtf.reduce_sum(cache, reduced_dim=TURNS))], [cache]

        for reverse in (False, True):
            (x,), (caches,) = mtf.scan(layer, [x], [w, caches], LAYERS, reverse=reverse)
        return [place + 1, x, caches]

    start = [mtf.constant(mesh, 0, dtype=tf.int32), x, mtf.zeros(mesh, [LAYERS, BATCH, TURNS, D])]
    return mtf.while_loop(
        lambda place, *_: mtf.less(place, 37), body, start, maximum_iterations=TURNS.size, compiled=True
    )


def test_layers_inside_have_their_caches_one_by_one() -> None:
    """No array of the caches of all layers goes round the loop, of which XLA would copy all of it in each iteration."""
    x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
    found = []
    for compile_loops in (False, True):
        mesh_impl = mtf.SpmdMeshImpl("rows:1", "", compile_loops=compile_loops)
        step = mtf.function(with_caches, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, D])}, seed=3)
        found.append([y.numpy() for y in step(x=x)])
    (core_function,) = core_functions(step)
    (loop,) = [node for node in nodes_in(core_function.graph) if node.op in LOOPS]
    sizes = [[d.size for d in shape.dim] for shape in loop.attr["output_shapes"].list.shape]
    assert sizes.count([BATCH.size, TURNS.size, D.size]) == LAYERS.size
    assert [LAYERS.size, BATCH.size, TURNS.size, D.size] not in sizes
    terms = 37 * 2 * LAYERS.size * (FUNCTION_TERMS + TURNS.size + 2)
    for y, z in zip(*found, strict=True):
        assert_close(z, y, terms=terms)


def test_loops_in_loops_are_not_unrolled_beyond_measure() -> None:
    """Each of the two would do; together they are thirty times forty iterations."""

    def body(x: mtf.Tensor) -> mtf.Tensor:
        ones = [mtf.ones(x.mesh, [dim]) for dim in (mtf.Dimension("outer", 30), TURNS)]
        inner = lambda carried, parts: ([carried[0] + parts[0]], [])  # noqa: E731
        outer = lambda carried, parts: (mtf.scan(inner, carried, [ones[1]], TURNS)[0], [])  # noqa: E731
        return mtf.scan(outer, [x], [ones[0]], ones[0].shape[0])[0][0]

    mesh_impl = mtf.SpmdMeshImpl("rows:1", "")
    step = mtf.function(
        lambda x: mtf.while_loop(
            lambda x: mtf.less(mtf.reduce_max(x), 1e6), body, x, maximum_iterations=40, compiled=True
        ),
        mesh_impl,
        inputs={"x": mtf.TensorSpec([BATCH, D])},
    )
    np.testing.assert_array_equal(step(x=np.zeros([4, 8], np.float32))[0].numpy(), np.full([4, 8], 40 * 30 * 40.0))
    (core_function,) = core_functions(step)
    assert len([node for node in nodes_in(core_function.graph) if node.op in LOOPS]) == 2


def test_a_check_inside_ends_the_step() -> None:
    step = mtf.function(
        lambda x: looped(lambda x: mtf.sqrt(_checked(x) - 1.0))(x),
        mtf.SpmdMeshImpl("rows:1", ""),
        inputs={"x": mtf.TensorSpec([BATCH, D])},
    )
    with pytest.raises(NonFiniteError, match="check_finite"):
        step(x=np.ones([4, 8], np.float32))


def _checked(x: mtf.Tensor) -> mtf.Tensor:
    mtf.check_finite(x)
    return x
