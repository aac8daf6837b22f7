"""Programs done for all cores at once: random ones, and loops that are compiled so."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import NonFiniteError
from meshtf.lowering.emit.emission import EmittedProgram
from meshtf.lowering.emit.joint_loop import Holdings, JointProgram
from meshtf.lowering.emit.variable_slices import SlicesByValue
from meshtf.lowering.interpreter import joined, split
from meshtf.lowering.make_plan import make_plan
from meshtf.ops.variables.program_step import count_step
from meshtf.planning import core_positions
from meshtf.planning.plan import AssignVariable, Plan, Value, walk
from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf.testing.interpret import _effects, _fed, _initial_slices, _laid_out
from tests.properties.random_programs.builder import RejectedError
from tests.properties.random_programs.cases import EVERY_CASE
from tests.properties.random_programs.checking import check_values, describe
from tests.properties.random_programs.generate import draw_layouts
from tests.properties.random_programs.seeds import draw


def run_jointly(
    plan: Plan, feeds: dict[str, np.ndarray], variables: dict[str, list[np.ndarray]], *, unrolls_loops: bool
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """What a whole plan gives, and assigns, if all of it is done for all cores at once."""

    # An index outside ends a scatter that TensorFlow does, and is passed over by XLA, which compiles all joint loops.
    scatters = any(i.operation.name.startswith("replaced_element") for i, _ in walk(plan.instructions))

    @tf.function(autograph=False, jit_compile=scatters)
    def run(fed: dict[str, tf.Tensor], held: dict[str, tf.Tensor]) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        program = JointProgram(plan, SlicesByValue(held))
        program.unrolls_loops = unrolls_loops
        program.emit_stretch(plan.instructions, fed)
        new = {i.name: program.slices[i.input] for i in plan.instructions if isinstance(i, AssignVariable)}
        return [program.slice_of(v) for v in plan.fetches], new

    holdings = Holdings(plan)

    def given(value: Value, slices: Sequence[np.ndarray]) -> tf.Tensor:
        return tf.constant(np.stack([slices[core] for core in holdings.first_cores(holdings.axes(value))]))

    def whole(value: Value, x: tf.Tensor) -> np.ndarray:
        own = [x.numpy()[n] for n in core_positions.positions(holdings.axes(value), plan.mesh_shape)]
        return joined(own, value.layout, plan)[tuple(map(slice, value.shape.to_integer_list))]

    fed = {f.name: given(f.output, split(np.asarray(feeds[f.name]), f.output.layout, plan)) for f in plan.feeds}
    results, new = run(fed, {i.name: given(i.output, variables[i.name]) for i in plan.reads})
    assigned = {i.name: whole(i.input, new[i.name]) for i in plan.assignments}
    return [whole(v, x) for v, x in zip(plan.fetches, results, strict=True)], assigned


def failure_of(seed: int, mesh_shape: str) -> str | None:
    """What is wrong with a drawn program if all its cores run as one."""
    rng, mesh, shape = random.Random(seed), mtf.Mesh(mtf.Graph("program")), mtf.convert_to_shape(mesh_shape)
    with mesh.graph:
        try:
            program = draw(seed, rng, mesh, shape, longest=4)
        except RejectedError:
            return None
        count_step(mesh)
    rules, options = draw_layouts(rng, program, shape)
    table, storage, pass_options = _laid_out(program.graph, shape, rules, options)
    plan = make_plan(table, storage, _effects(program.graph), program.fetches, options=pass_options)
    held = _initial_slices(plan, program.graph, table, storage, 0)
    feeds = {f.name: _fed(f, program.feeds) for f in plan.feeds}
    try:
        results, new = run_jointly(plan, feeds, held, unrolls_loops=bool(seed % 2))
        check_values(program, results, new)
    except Exception as error:
        return f"seed {seed}: {type(error).__name__}: {error}\n{describe(program, shape, rules, f', {options}')}"
    return None


MESHES = ["rows:2;cols:2", "x:2;y:3", "all:4", "rows:2;one:1;cols:2"]


def failures_of(seeds: Iterable[int]) -> list[str]:
    found = (failure_of(seed, MESHES[seed % len(MESHES)]) for seed in seeds)
    return [message for message in found if message is not None]


def test_random_programs() -> None:
    """What loops of decoding do, among others: cases of a few families, each on a mesh."""
    names = re.compile("gather|replace|scatter|top_k|softmax|argmax|cumsum|while|cond|scan|einsum|convert|shift|reduce")
    seeds = [seed for seed, case in enumerate(EVERY_CASE) if names.search(case)]
    assert len(seeds) > 30
    # The last three are wrong where kernels are traced in a tf.Graph, in which == of tensors is Python's.
    # In 512776 there is nothing to scatter; in 168 a loop that is not unrolled takes parts of what is there for few.
    found = failures_of([*seeds[::4], 168, 512776, 444, 534, 738])
    assert not found, "\n\n".join(found[:3])


@pytest.mark.long
def test_many_random_programs() -> None:
    found = failures_of(range(4 * len(EVERY_CASE)))
    assert not found, f"{len(found)} failed\n\n" + "\n\n".join(found[:3])


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_loop_with_collectives_is_one_function_for_all_cores(layout: str) -> None:
    """It computes what the cores do by themselves, and what one core does."""
    x, found = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8), []
    meshes: list[tuple[str, str, list[str], bool]] = [
        ("one:1", "", ["CPU:0"], False),
        ("rows:2;cols:2", layout, [f"CPU:{n}" for n in (3, 1, 0, 2)], False),
        ("rows:2;cols:2", layout, [f"CPU:{n}" for n in (3, 1, 0, 2)], True),
    ]
    for mesh, rules, devices, compile_loops in meshes:
        mesh_impl = mtf.SpmdMeshImpl(mesh, rules, devices, compile_loops=compile_loops)
        step = mtf.function(decoding, mesh_impl, inputs={"x": mtf.TensorSpec([B, D])}, seed=3)
        found.append([y.numpy() for y in step(x=x)])
    for y, again in zip(found[-1], step(x=x), strict=True):
        np.testing.assert_array_equal(y, again)  # from run to run
    assert [loop.refusal for loop in step.report().loops] == [""]
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    assert list(program.traces.values()) == [1, 1]  # what each core runs before it, and behind it
    graph = program._on_all_cores[False].function.graph
    assert len([o for o in graph.get_operations() if "_XlaMustCompile" in o.node_def.attr]) == 1
    bodies = [f for f in graph.as_graph_def().library.function if "while_body" in f.signature.name]
    layers = [n.attr["f"].func.name for f in bodies for n in f.node_def if n.op.endswith("PartitionedCall")]
    assert layers == [layers[0]] * LAYERS.size  # one function for all
    (layer,) = [f for f in graph.as_graph_def().library.function if f.signature.name == layers[0]]
    assert layer.attr["_noinline"].b  # so that it becomes XLA's operations once
    terms = 37 * LAYERS.size * (2 * FUNCTION_TERMS + TURNS.size + VOCAB.size + 2 * D.size)
    for others in found[:2]:
        np.testing.assert_array_equal(found[-1][1], others[1])
        for y, z in zip(found[-1][2:], others[2:], strict=True):
            assert_close(y, z, terms=terms)


def compiled_call(graph: tf.Graph) -> tf.Operation:
    """Of the one function that XLA compiles, in a graph or in a function that it calls."""
    functions = (f.graph for f in graph._functions.values())  # type: ignore[attr-defined]
    operations = itertools.chain(*(g.get_operations() for g in (graph, *functions)))
    (call,) = [o for o in operations if "_XlaMustCompile" in o.node_def.attr]
    return call


@pytest.mark.parametrize("mesh", ["one:1", "rows:2;cols:2"])
def test_a_compiled_loop_is_given_what_layers_use_layer_by_layer_and_gives_what_is_read(mesh: str) -> None:
    """XLA compiles one copy for each part that it cuts out, and another for what it puts together of parts."""
    inputs, seen = {"x": mtf.TensorSpec([B, D])}, lambda x: decoding(x)[1:3]
    step = mtf.function(seen, mtf.SpmdMeshImpl(mesh, LAYOUTS[0] if mesh != "one:1" else ""), inputs=inputs)
    step(x=np.ones([4, 8], np.float32))
    program = step._execution.program
    assert isinstance(program, EmittedProgram)
    call = compiled_call(program._on_all_cores[False].function.graph)
    assert len(call.outputs) == 2  # ids and score
    sizes = [x.shape.num_elements() for x in call.inputs]
    cores = 1 if mesh == "one:1" else 4
    caches, weights = B.size * TURNS.size * D.size, D.size**2
    assert [sizes.count(n) for n in (caches, weights)] == [LAYERS.size] * 2
    assert max(sizes) <= caches * cores


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


@pytest.mark.parametrize("layout", ["batch:rows;d:cols", "batch:rows+cols", "turns:rows;d:cols", "d:rows"])
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
