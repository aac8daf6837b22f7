"""Calling programs: from everywhere a TensorFlow function can be called, with everything that can be fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.lowering.emitted import times_traced

X = np.arange(8, dtype=np.float32).reshape(4, 2)
SPECS = {"x": mtf.TensorSpec("batch:4 d:2")}


def mesh_of_four(layout: str = "batch:rows;d:cols") -> mtf.SpmdMeshImpl:
    return mtf.SpmdMeshImpl("rows:2;cols:2", layout)


def accumulate(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
    """Adds the sum of x to a variable; returns the new value."""
    total = mtf.get_variable(mesh, "total", [], initializer=np.zeros([]))
    return mtf.assign_add(total, mtf.reduce_sum(x))


@pytest.fixture
def step() -> mtf.Function:
    return mtf.function(accumulate, mesh_of_four(), inputs=SPECS)


def test_called_eagerly(step: mtf.Function) -> None:
    assert [float(step(x=X)) for _ in range(3)] == [28, 56, 84]
    assert float(step(X)) == 112
    assert step.variables["total"] == 112
    assert times_traced(step._execution.program) == {1}


def test_called_in_a_tf_function_twice(step: mtf.Function) -> None:
    @tf.function
    def twice(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return step(x), step(2 * x)

    for start in (0, 84):  # the first call makes the variables
        first, second = twice(X)
        assert (float(first), float(second)) == (start + 28, start + 84)
    assert float(step(X)) == 196
    assert times_traced(step._execution.program) == {1}


def test_called_in_a_loop(step: mtf.Function) -> None:
    @tf.function
    def train(n: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([])
        for i in tf.range(n):
            total = step(tf.cast(i, tf.float32) * tf.ones([4, 2]))
        return total

    assert float(train(tf.constant(5))) == 8 * (0 + 1 + 2 + 3 + 4)
    assert step.variables["total"] == 80


def test_called_under_a_condition(step: mtf.Function) -> None:
    @tf.function
    def perhaps(x: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        if wanted:
            total = step(x)
        else:
            total = -tf.reduce_sum(x)
        return total

    assert [float(perhaps(X, tf.constant(w))) for w in (True, False, True)] == [28, -28, 56]
    assert step.variables["total"] == 56


def test_called_in_a_dataset(step: mtf.Function) -> None:
    batches = tf.data.Dataset.from_tensor_slices(np.stack([X, X + 1, X + 2]))
    assert [float(total) for total in batches.map(step)] == [28, 64, 108]
    assert [float(total) for total in batches.map(lambda x: step(x=x))] == [136, 172, 216]


def test_sizes_that_become_known_when_it_runs(step: mtf.Function) -> None:
    pairs = tf.data.Dataset.from_tensor_slices(np.concatenate([X, X, X[:2]])).batch(4)  # [None, 2]
    totals = iter(pairs.map(step))
    assert [float(next(totals)), float(next(totals))] == [28, 56]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2,2\] is not compatible with expected shape \[4,2\]"):
        next(totals)


def test_two_programs_in_one_tf_function_share_a_store(step: mtf.Function) -> None:
    read = mtf.function(
        lambda mesh: mtf.get_variable(mesh, "total", []) * 1.0, mesh_of_four(""), variables=step.variables
    )

    @tf.function
    def both(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        before = read()
        step(x)
        return before, read(), step(x)

    step.initialize()
    assert [float(y) for y in both(X)] == [0, 28, 56]


@pytest.mark.parametrize("mesh", ["all:1", "all:4"])
def test_of_two_programs_in_one_tf_function_the_second_waits_for_the_first(mesh: str) -> None:
    """By TensorFlow's automatic control dependencies, which go by the handles of the variables that both have."""
    store = mtf.VariableStore()

    def add(mesh: mtf.Mesh) -> None:
        total = mtf.get_variable(mesh, "total", [])
        mtf.assign(total, total + 1.0)

    def read(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "total", []) * 1.0

    first, second = (mtf.function(f, mtf.SpmdMeshImpl(mesh, ""), inputs={}, variables=store) for f in (add, read))
    for program in (first, second):
        program.initialize()

    @tf.function(autograph=False)
    def both() -> tf.Tensor:
        first()
        return second()

    calls = [o for o in both.get_concrete_function().graph.get_operations() if o.type == "StatefulPartitionedCall"]
    assert len(calls) == 2
    assert calls[0] in calls[1].control_inputs


@pytest.mark.parametrize(
    "value", [X, X.tolist(), tuple(map(tuple, X.tolist())), tf.constant(X), tf.Variable(X), X.astype(int).tolist()]
)
def test_what_can_be_fed(value: Any) -> None:
    double = mtf.function(lambda x: x * 2.0, mesh_of_four(), inputs=SPECS)
    np.testing.assert_array_equal(double(value), 2 * X)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (tf.int32, [1, -2, 3, 4]),
        (tf.int64, [1 << 40, 2, 3, 4]),
        (tf.bool, [True, False, True, True]),
        (tf.bfloat16, [1, 2.5, 3, 4]),
        (tf.bfloat16, [*np.array([1, 2.5, 3, 4], tf.bfloat16.as_numpy_dtype)]),
        (tf.float16, [1, 2.5, 3, 4]),
        (tf.float64, [1, 2.5, 3, 4]),
        (tf.complex64, [1, 2.5j, 3, 4]),
        (tf.uint8, [0, 255, 3, 4]),
    ],
)
def test_an_input_comes_back_as_it_was(dtype: tf.DType, value: list[Any]) -> None:
    specs = {"x": mtf.TensorSpec("batch:4", dtype)}
    for layout in ("", "batch:rows", "batch:cols+rows"):
        step = mtf.function(lambda x: x, mesh_of_four(layout), inputs=specs)
        for same in (step(value), step(**step.local_inputs(x=value))):
            assert same.dtype == dtype
            np.testing.assert_array_equal(same, np.array(value, dtype.as_numpy_dtype))


def test_inputs_that_are_not_used_are_still_checked() -> None:
    specs = {**SPECS, "labels": mtf.TensorSpec("batch:4", tf.int32), "other": mtf.TensorSpec("", tf.bool)}
    step = mtf.function(lambda x, labels, other: mtf.reduce_sum(x), mesh_of_four(), inputs=specs)
    assert float(step(X, other=True, labels=[0, 1, 2, 3])) == 28
    with pytest.raises(mtf.errors.FeedError, match=r'input "labels" \[batch:4\] int32 is missing'):
        step(X, other=True)


class Pair(NamedTuple):
    first: mtf.Tensor
    second: Any


def test_results_in_any_structure() -> None:
    def body(x: mtf.Tensor) -> dict[str, Any]:
        y = mtf.reduce_sum(x)
        return {"pair": Pair(x, [y, y, (x,)]), "none": None, "number": 3, "empty": [], "is_big": mtf.greater(x, 3.0)}

    found = mtf.function(body, mesh_of_four(), inputs=SPECS)(X)
    assert isinstance(found["pair"], Pair)
    np.testing.assert_array_equal(found["pair"].first, X)
    assert [float(v) for v in found["pair"].second[:2]] == [28, 28]
    np.testing.assert_array_equal(found["pair"].second[2][0], X)
    assert (found["none"], found["number"], found["empty"]) == (None, 3, [])
    np.testing.assert_array_equal(found["is_big"], X > 3)


def test_no_result_and_no_input() -> None:
    def count(mesh: mtf.Mesh) -> None:
        mtf.assign_add(mtf.get_variable(mesh, "n", [], tf.int32, np.int32(5)), mtf.ones(mesh, [], tf.int32))

    step = mtf.function(count, mesh_of_four(""))
    assert step() is None
    assert step() is None
    assert step.variables["n"] == 7
    assert mtf.function(lambda: None, mesh_of_four(""))() is None


def test_a_body_is_given_the_mesh_only_if_it_names_it() -> None:
    def body(x: mtf.Tensor, scale: float = 3.0, mesh: mtf.Mesh | None = None) -> mtf.Tensor:
        assert mesh is x.mesh
        return x * scale

    np.testing.assert_array_equal(mtf.function(body, mesh_of_four(), inputs=SPECS)(X), 3 * X)
    named = mtf.function(lambda mesh: mesh + 1.0, mesh_of_four(), inputs={"mesh": mtf.TensorSpec("batch:4 d:2")})
    np.testing.assert_array_equal(named(X), X + 1)
    several = mtf.function(lambda **inputs: inputs["x"] + 1.0, mesh_of_four(), inputs=SPECS)
    np.testing.assert_array_equal(several(x=X), X + 1)


def noise(mesh: mtf.Mesh) -> tuple[mtf.Tensor, mtf.Tensor]:
    return mtf.get_variable(mesh, "v", "batch:4"), mtf.random_uniform(mesh, "batch:4")


def test_seeds() -> None:
    programs = [mtf.function(noise, mesh_of_four("batch:rows"), seed=seed) for seed in (0, 0, 1)]
    (v, r), (same_v, same_r), (other_v, other_r) = [p() for p in programs]
    np.testing.assert_array_equal(v, same_v)
    np.testing.assert_array_equal(r, same_r)
    assert not np.any(v == other_v)
    assert not np.any(r == other_r)
    again_v, again_r = programs[0]()
    np.testing.assert_array_equal(v, again_v)
    assert not np.any(r == again_r)


def test_initialize_makes_variables_and_runs_nothing(step: mtf.Function) -> None:
    assert list(step.variables) == []
    step.initialize()
    assert step.variables["total"] == 0
    step.variables["total"] = 100
    assert float(step(X)) == 128


def test_initialize_with_values_computes_no_initial_ones_for_these() -> None:
    def refused(*_: object) -> mtf.Tensor:
        raise AssertionError

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        row = mtf.Dimension("d", 8)
        return [mtf.get_variable(mesh, n, [row], initializer=f) for n, f in (("given", refused), ("own", mtf.ones))]

    step = mtf.function(program, mesh_of_four("d:rows"))
    with pytest.raises(ShapeError, match="given"):
        step.initialize({"given": np.ones([3])})
    with pytest.raises(GraphError, match='program "program" has no variable "giver"; did you mean "given"'):
        step.initialize({"given": np.arange(8), "giver": 1.0})
    assert list(step.variables) == []
    step.initialize({"given": np.arange(8)})
    given, own = step()
    np.testing.assert_array_equal(given, np.arange(8))
    np.testing.assert_array_equal(own, np.ones(8))
    step.initialize({"own": np.zeros(8)})
    np.testing.assert_array_equal(step()[1], np.zeros(8))


def test_under_a_paused_tape(step: mtf.Function) -> None:
    """The program is traced there, too, without any tape of its own."""

    def body(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        return mtf.gradients([mtf.slicewise(tf.sin, [x])], [x])

    program = mtf.function(body, mesh_of_four(), inputs=SPECS)
    with tf.GradientTape() as tape, tape.stop_recording():
        assert_close(program(X)[0], np.cos(X), terms=FUNCTION_TERMS)


def lowered(build: Callable[[mtf.Mesh], Any], layout: str = "batch:rows;d:cols") -> tuple[mtf.Lowering, Any]:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph:
        built = build(mesh)
    return mtf.Lowering(graph, {mesh: mesh_of_four(layout)}), built


def test_on_another_mesh_and_under_another_layout_without_being_built_again() -> None:
    built = []

    def body(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
        built.append(x)
        return accumulate(x, mesh)

    step = mtf.function(body, mesh_of_four(), inputs=SPECS, seed=3)
    again, shared = step.on(mtf.SpmdMeshImpl("all:2", "d:all")), step.on(mesh_of_four("batch:rows"), step.variables)
    assert [float(step(x=X)), float(again(x=X)), float(shared(x=X))] == [28, 28, 56]
    assert len(built) == 1
    assert str(again.report()) == str(mtf.function(body, again.lowering.mesh_impl, inputs=SPECS, seed=3).report())


def test_a_lowering_by_hand() -> None:
    def build(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        x = mtf.placeholder(mesh, "batch:4 d:2", name="x")
        total = mtf.get_variable(mesh, "total", [], initializer=np.ones([]))
        new = mtf.assign_add(total, mtf.reduce_sum(x))
        return [x, total, new, mtf.read_variable(total), mtf.constant(mesh, [1.0, 2.0], "d:2")]

    lowering, (x, total, new, read, constant) = lowered(build)
    assert [float(v) for v in lowering.run([total, new, new, read], {x: X})] == [1, 29, 29, 29]
    assert float(lowering.run(new, {"x": X})) == 57
    assert lowering.run([], {x: X}) == []
    assert lowering.variables["total"] == 85
    np.testing.assert_array_equal(lowering.run(x, {x: X}), X)
    assert float(lowering.export_to_tf_tensor(total)) == 113
    assert float(lowering.export_to_tf_tensor(read)) == 113
    assert float(lowering.export_to_tf_tensor(new, {x: X})) == 141
    np.testing.assert_array_equal(lowering.export_to_tf_tensor(constant), [1, 2])
    assert lowering.variables["total"] == 113
    lowering.variables["total"] = 5
    assert float(tf.function(lambda: lowering.export_to_tf_tensor(total))()) == 5


def test_a_lowering_has_the_one_mesh_of_its_graph() -> None:
    graph = mtf.Graph()
    mesh, other = mtf.Mesh(graph), mtf.Mesh(graph, "other")
    with pytest.raises(mtf.errors.LayoutError, match="a lowering has one mesh, not 2"):
        mtf.Lowering(graph, {mesh: mesh_of_four(""), other: mesh_of_four("")})
    with pytest.raises(mtf.errors.GraphError, match='mesh "mesh" belongs to another graph'):
        mtf.Lowering(mtf.Graph(), {mesh: mesh_of_four("")})
