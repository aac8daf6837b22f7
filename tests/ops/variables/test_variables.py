"""Variables: program order, and stores that programs share."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from tests.house.sharpest import sharpest

X = np.arange(8, dtype=np.float32).reshape(4, 2)
SPECS = {"x": mtf.TensorSpec("batch:4 d:2")}


def mesh_of_four(layout: str = "batch:rows;d:cols", parameter_layout: str | None = None) -> mtf.SpmdMeshImpl:
    return mtf.SpmdMeshImpl("rows:2;cols:2", layout, parameter_layout=parameter_layout)


def weights(mesh: mtf.Mesh, **options: object) -> mtf.Tensor:
    return mtf.get_variable(mesh, "weights", "batch:4 d:2", initializer=np.zeros([4, 2]), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["", "batch:rows;d:cols", "batch:rows+cols"])
def test_program_order(layout: str) -> None:
    def body(x: mtf.Tensor) -> list[mtf.Tensor]:
        v = weights(x.mesh)
        before = mtf.read_variable(v)
        assigned = mtf.assign(v, x)
        between = mtf.read_variable(v)
        added = mtf.assign_add(v, x)
        less = mtf.assign_sub(v, mtf.ones_like(x))
        return [v, before, assigned, between, added, less, mtf.read_variable(v)]

    step = mtf.function(body, mesh_of_four(layout), inputs=SPECS)
    for value, expected in zip(step(X), [0 * X, 0 * X, X, X, 2 * X, 2 * X - 1, 2 * X - 1], strict=True):
        np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(step.variables["weights"], 2 * X - 1)
    np.testing.assert_array_equal(step(X + 1)[0], 2 * X - 1)


def test_two_variables_are_exchanged() -> None:
    def body(mesh: mtf.Mesh) -> None:
        a = mtf.get_variable(mesh, "a", "batch:4", initializer=np.arange(4))
        b = mtf.get_variable(mesh, "b", "batch:4", initializer=-np.arange(4))
        mtf.assign(a, b)
        mtf.assign(b, a)

    step = mtf.function(body, mesh_of_four("batch:rows"))
    for sign in (-1, 1, -1):
        step()
        np.testing.assert_array_equal(step.variables["a"], sign * np.arange(4))
        np.testing.assert_array_equal(step.variables["b"], -sign * np.arange(4))


def test_names_stand_under_scopes_and_are_shared() -> None:
    def body(mesh: mtf.Mesh) -> mtf.Tensor:
        with mtf.variable_scope("layer"):
            first = weights(mesh)
        with mtf.variable_scope("layer"):
            assert weights(mesh) is first
        return first

    step = mtf.function(body, mesh_of_four())
    step.initialize()
    assert list(step.variables) == ["layer/weights"]
    assert step.variables.slices("layer/weights").slices[3].shape == [2, 1]


def test_default_names_of_scopes_may_have_parts() -> None:
    paths = []
    with mtf.Graph():
        for name in ("encoder/layer", "decoder/layer", "encoder/layer", "layer"):
            with mtf.variable_scope(default_name=name), mtf.variable_scope(default_name="a/b") as path:
                paths.append(path)
    assert paths == ["encoder/layer/a/b", "decoder/layer/a/b", "encoder/layer_1/a/b", "layer/a/b"]


def train(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.assign_add(weights(x.mesh), x)


def evaluate(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.einsum([x, weights(x.mesh)], output_shape="batch:4")


@pytest.mark.parametrize(
    ("layout", "is_planned_before"),
    sharpest(
        itertools.product(["", "batch:cols", "d:rows", "batch:cols;d:rows", "batch:cols+rows"], [True, False]),
        [("", True), ("batch:cols;d:rows", False), ("batch:cols+rows", True)],
    ),
)
def test_programs_with_different_layouts_share_a_store(layout: str, is_planned_before: bool) -> None:
    store = mtf.VariableStore()
    made = [mtf.function(evaluate, mesh_of_four(layout), SPECS, store)] if is_planned_before else []
    step = mtf.function(train, mesh_of_four(), SPECS, store)
    step(X)
    step(X)
    (evaluation,) = made or [mtf.function(evaluate, mesh_of_four(layout), SPECS, store)]
    for _ in range(2):
        np.testing.assert_array_equal(evaluation(X), (2 * X * X).sum(1))
    again = mtf.function(train, mesh_of_four(layout), SPECS, store)
    np.testing.assert_array_equal(again(X), 3 * X)
    np.testing.assert_array_equal(step(X), 4 * X)
    assert store.slices("weights").layout.axes == (("rows",), ("cols",))
    assert "weights" in str(evaluation.report())


def test_parameters_in_a_layout_of_their_own() -> None:
    step = mtf.function(train, mesh_of_four("batch:rows", parameter_layout="batch:rows+cols"), SPECS)
    step(X)
    assert step.variables.slices("weights").slices[0].shape == [1, 2]
    np.testing.assert_array_equal(step.variables["weights"], X)


def test_a_store_reads_assigns_and_lists() -> None:
    step = mtf.function(train, mesh_of_four(), SPECS)
    store = step.variables
    with pytest.raises(mtf.errors.GraphError, match='no variable "weights" in the store; the store is empty until'):
        _ = store["weights"]
    with pytest.raises(mtf.errors.GraphError, match=r"has run, or its initialize\(\) has been called"):
        store["weights"] = X
    step.initialize()
    assert ("weights" in store, len(store), list(store)) == (True, 1, ["weights"])
    store["weights"] = X
    np.testing.assert_array_equal(store["weights"], X)
    np.testing.assert_array_equal(step(X), 2 * X)
    with pytest.raises(mtf.errors.GraphError, match='no variable "weight" in the store; did you mean "weights"'):
        store["weight"] = X
    with pytest.raises(mtf.errors.ShapeError, match=r'variable "weights" is \[batch:4 d:2\]; .* \(2, 4\) does not fit'):
        store["weights"] = X.T.reshape(2, 4)


def test_a_store_refuses_numbers_that_a_variable_cannot_hold() -> None:
    def counts(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "n", "d:2", tf.int32, initializer=mtf.zeros)

    step = mtf.function(counts, mesh_of_four("d:cols"))
    step.initialize()
    step.variables["n"] = [2.0, -3.0]
    for wrong in ([1.5, 2], [2**40, 0], [np.nan, 0], [1j, 0], ["a", "b"]):
        with pytest.raises(mtf.errors.DtypeError, match='variable "n" is int32: '):
            step.variables["n"] = wrong
    np.testing.assert_array_equal(step.variables["n"], [2, -3])


def test_stored_dtype_and_dtype_in_the_program() -> None:
    policy = mtf.VariableDType(tf.float32, tf.float32, tf.bfloat16)

    def body(mesh: mtf.Mesh) -> mtf.Tensor:
        v = weights(mesh)
        assert v.dtype == tf.bfloat16
        return mtf.assign_add(v, mtf.ones_like(v) * 0.5)

    step = mtf.function(body, mesh_of_four(), variable_dtype=policy)
    assert step().dtype == tf.bfloat16
    assert step.variables["weights"].dtype == np.float32
    np.testing.assert_array_equal(step.variables["weights"], 0.5)


def test_programs_that_do_not_fit_a_store() -> None:
    store = mtf.VariableStore()
    mtf.function(train, mesh_of_four(), SPECS, store)(X)

    def other_shape(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "weights", "batch:4")

    with pytest.raises(mtf.errors.GraphError) as shape:
        mtf.function(other_shape, mesh_of_four("batch:rows"), variables=store)()
    assert 'the store holds variable "weights" as [batch:4 d:2] float32' in str(shape.value)
    assert "the program has [batch:4] float32" in str(shape.value)
    assert __file__ in str(shape.value)
    mesh_impl = mtf.SpmdMeshImpl("rows:4", "batch:rows")
    with pytest.raises(mtf.errors.LayoutError) as mesh:
        mtf.function(train, mesh_impl, SPECS, store)(X)
    assert 'variable "weights" lives on mesh [rows:2 cols:2]' in str(mesh.value)
    assert "[rows:4]" in str(mesh.value)
    permuted = mtf.SpmdMeshImpl("rows:2;cols:2", "", devices=["CPU:1", "CPU:0", "CPU:2", "CPU:3"])
    with pytest.raises(mtf.errors.LayoutError, match="devices"):
        mtf.function(train, permuted, SPECS, store)(X)


def test_an_initial_value_that_does_not_fit_is_found_when_written() -> None:
    with pytest.raises(mtf.errors.ShapeError) as caught:
        mtf.get_variable(mtf.Mesh(mtf.Graph()), "v", "batch:4", initializer=np.zeros(3))
    assert 'the initial value of variable "v" [batch:4] is an array of shape [3]' in str(caught.value)
    assert f"at {__file__}" in str(caught.value)


def test_a_failing_initializer_leaves_no_variable_behind() -> None:
    def body(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "v", "batch:4", initializer=lambda mesh, shape, dtype: mtf.zeros(mesh, "a:3"))

    step = mtf.function(body, mesh_of_four("batch:rows"))
    for _ in range(2):
        with pytest.raises(mtf.errors.ShapeError) as caught:
            step()
        assert "v" not in step.variables
    text = str(caught.value)
    assert "it must have the variable's shape, [batch:4], and is v/constant [a:3] float32" in text
    assert f'in the initializer of variable "v" [batch:4]\n  at {__file__}:{body.__code__.co_firstlineno + 1}' in text


def test_sums_in_the_stored_precision() -> None:
    """A bfloat16 has 8 bits: 256 + 1 would be 256."""

    def body(mesh: mtf.Mesh) -> mtf.Tensor:
        policy = mtf.VariableDType(tf.float32, tf.float32, tf.bfloat16)
        v = mtf.get_variable(mesh, "v", "batch:4", policy, initializer=np.full(4, 256))
        mtf.assign_add(v, mtf.ones(mesh, "batch:4"))
        return mtf.assign_sub(v, mtf.constant(mesh, -1, "batch:4", tf.bfloat16))

    step = mtf.function(body, mesh_of_four("batch:rows"))
    assert step().dtype == tf.bfloat16
    np.testing.assert_array_equal(step.variables["v"], 258)


def test_a_tape_of_the_users_does_not_watch_the_variables() -> None:
    step = mtf.function(train, mesh_of_four(), SPECS)
    step(X)
    assert not any(v.trainable for v in step.variables.slices("weights").slices.values())
