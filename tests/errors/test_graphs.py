"""Graphs built wrongly: other graphs' tensors, no graph, tensors taken for values, variables asked for twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError, GraphError, MeshtfError, ShapeError, UsageError
from tests.house.keras_module import keras

MESH = mtf.Mesh(mtf.Graph("first"))
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
OTHER = mtf.placeholder(mtf.Mesh(mtf.Graph("second")), "batch:4 hidden:8", name="other")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: X + OTHER,
        lambda: mtf.einsum([X, OTHER], output_shape="batch:4"),
        lambda: mtf.concat([X, OTHER], "batch"),
        lambda: mtf.cwise(tf.add, [X, OTHER]),
    ],
)
def test_tensors_of_two_graphs(read: Callable[..., str], wrong: Callable[[], Any]) -> None:
    text = read(GraphError, wrong)
    assert "x [batch:4 hidden:8] float32 and other [batch:4 hidden:8] float32 belong to different graphs" in text
    assert "as inputs, or in variables of a shared store" in text


def test_a_result_of_another_graph(read: Callable[..., str]) -> None:
    mesh = mtf.SpmdMeshImpl("rows:2", "")
    text = read(GraphError, lambda: mtf.function(lambda: X, mesh, name="train"))
    assert 'x [batch:4 hidden:8] float32 belongs to another graph than program "train"' in text


def test_a_result_made_after_the_lowering(read: Callable[..., str]) -> None:
    lowering = mtf.Lowering(X.graph, {X.mesh: mtf.SpmdMeshImpl("rows:2", "")})
    text = read(GraphError, lambda: lowering.export_to_tf_tensor(X + 1.0))
    assert "add [batch:4 hidden:8] float32 was made after the graph was lowered, at " in text
    assert "make all tensors, then call mtf.Lowering" in text


IMPL = mtf.PlanMeshImpl("rows:2", "")
LOWERING = mtf.Lowering(X.graph, {X.mesh: IMPL})


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (
            lambda: mtf.Lowering(None, {X.mesh: IMPL}),
            GraphError,
            "the first argument must be an mtf.Graph, not NoneType",
        ),
        (lambda: mtf.Lowering(X.graph, IMPL), GraphError, "mesh_to_impl must be a dict such as {mesh: "),
        (lambda: mtf.Lowering(X.graph, {X.mesh: 5}), GraphError, "mesh_impl must be an mtf.SpmdMeshImpl, "),
        (lambda: mtf.Lowering(X.graph, {"mesh": IMPL}), GraphError, "an mtf.Mesh is needed, not str"),
        (lambda: LOWERING.report(X), GraphError, "fetches must be a list of tensors, such as [y], not Tensor"),
        (lambda: LOWERING.execution(5), GraphError, "fetches must be a list of tensors, such as [y], not int"),
        (lambda: LOWERING.run(X, [X]), FeedError, "feeds must be a dict from inputs to arrays, such as {x: array}"),
        (lambda: mtf.function(mtf.exp, IMPL, {"x": mtf.TensorSpec("d:2")}).on(5), GraphError, "mesh_impl must be an "),
    ],
)
def test_what_is_no_lowering(
    read: Callable[..., str], wrong: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    assert words in read(kind, wrong)


def test_fetches_may_come_from_a_generator() -> None:
    fetched = [len(LOWERING.report(fetches).results) for fetches in ([X], (x for x in [X]))]
    assert fetched == [1, 1]
    assert len(LOWERING.execution(x for x in [X]).plan.fetches) == 1


def test_no_graph(read: Callable[..., str]) -> None:
    def scope() -> None:
        with mtf.variable_scope("layer"):  # here
            pass

    for wrong in (lambda: mtf.current_graph(), scope):
        text = read(GraphError, wrong)
        assert "no graph is being built here; call this inside the body of an mtf.function, or inside `with gra" in text


def test_a_tensor_is_no_value(read: Callable[..., str]) -> None:
    def branch() -> int:
        if X > 0.0:  # here
            return 1
        return 0

    assert "has no truth value while the graph is built; use mtf.where" in read(UsageError, branch)
    assert "greater" in read(UsageError, branch)
    assert "cannot be iterated; use mtf.unstack" in read(UsageError, lambda: list(X))
    assert "cannot be indexed by position; name the dimension" in read(UsageError, lambda: X[0])
    assert "has no value while the graph is built; to see it, return it" in read(UsageError, lambda: np.asarray(X))
    assert "use mtf's functions, or mtf.slicewise" in read(UsageError, lambda: tf.exp(X))
    assert "has no value while the graph is built; to see it" in read(UsageError, lambda: float(X))
    assert "has no value while the graph is built; to see it" in read(UsageError, lambda: int(X))
    assert "has no length: dimensions have names; use x.shape[name].size" in read(UsageError, lambda: len(X))
    assert "has no @: name what is kept, as in mtf.einsum([x, y], outp" in read(UsageError, lambda: X @ X)

    def change() -> None:
        X[0] = 1.0  # here

    assert "cannot be changed; make another, as in y = x.at[" in read(UsageError, change)


@pytest.mark.parametrize("name", ["numpy", "T", "fill_diagonal"])
def test_attributes_of_arrays(name: str) -> None:
    with pytest.raises(AttributeError, match=f"an mtf.Tensor has no attribute '{name}'"):
        getattr(X, name)
    assert not hasattr(X, name)


def test_arguments_of_other_languages(read: Callable[..., str]) -> None:
    text = read(UsageError, lambda: mtf.reduce_sum(X, axis=1))  # type: ignore[call-arg]
    assert "mtf.reduce_sum: got an unexpected keyword argument 'axis'; its parameters are x, " in text
    assert "reduced_dim, output_shape, name\n  operands:\n    x [batch:4 hidden:8] float32\n  at " in text
    text = read(UsageError, lambda: mtf.softmax(X))  # type: ignore[call-arg]
    assert "mtf.softmax: missing a required argument: 'reduced_dim'" in text
    text = read(UsageError, lambda: mtf.concat([X, X], "batch", "name", 3))  # type: ignore[call-arg]
    assert "mtf.concat: too many positional arguments" in text


def test_tensors_and_numbers_do_not_compare(read: Callable[..., str]) -> None:
    x, array = X, np.ones([4, 8], np.float32)
    assert "to compare elements, use mtf.equal or mtf.not_equal" in read(UsageError, lambda: x == 1)
    assert "to compare elements, use mtf.equal" in read(UsageError, lambda: x == array)
    assert "to compare elements, use mtf.equal" in read(UsageError, lambda: x != 0.5)
    assert "not numpy.equal" in read(UsageError, lambda: np.float32(1) == X)
    assert "use mtf's functions, or mtf.slicewise" in read(UsageError, lambda: tf.ones([4, 8]) == X)
    assert OTHER in [X, OTHER]
    assert X not in [OTHER, None, "x"]
    assert (X == X, X != OTHER, len({X, OTHER})) == (True, True, 2)


def test_a_number_of_numpy_on_the_left() -> None:
    made = [np.float32(2) + X, np.float64(2) - X, np.array(2.0) * X, np.int32(2) / X, np.float32(2) ** X]
    assert [t.operation.name.split("_")[0] for t in made] == ["add", "sub", "multiply", "divide", "pow"]
    assert (np.float32(2) < X).name.startswith("less")
    assert (np.float32(2) // X).name.startswith("floordiv")


def test_operators_of_logic() -> None:
    positive, small = X > 0.0, X < 1.0
    made = [positive & small, positive | small, positive ^ small, ~positive]
    assert [t.name.rsplit("_", 1)[0] if t.name[-1].isdigit() else t.name for t in made] == [
        "logical_and",
        "logical_or",
        "logical_xor",
        "logical_not",
    ]


def test_einsum_as_others_write_it(read: Callable[..., str]) -> None:
    text = read(GraphError, lambda: mtf.einsum(X, X))  # type: ignore[call-overload]
    assert "the tensors come in a list, or after a pattern: write mtf.einsum([x, y], output_shape=[...])" in text
    text = read(ShapeError, lambda: mtf.einsum("bh,bh->b", X, X))
    assert 'operand 0 [batch:4 hidden:8] has no dimension "bh"' in text


def test_minimize(read: Callable[..., str]) -> None:
    optimizer = mtf.optimize.SgdOptimizer(0.1)
    text = read(GraphError, lambda: optimizer.minimize(X))
    assert "minimize needs a scalar loss, not x [batch:4 hidden:8] float32; reduce it with mtf.reduce_mean" in text
    text = read(GraphError, lambda: optimizer.minimize(3.0))  # type: ignore[arg-type]
    assert "minimize needs the loss, a scalar mtf.Tensor, not float" in text


def test_the_line_of_a_layer_of_keras() -> None:
    with pytest.raises(UsageError) as caught:
        keras().layers.Dense(4)(X)
    assert f"; mtf.import_tf_tensor brings a tf.Tensor in\n  at {__file__}:" in str(caught.value)


@pytest.mark.parametrize(
    ("initializer", "kind", "part"),
    [
        ("zeros", GraphError, "must be a function (mesh, shape, dtype) -> mtf.Tensor, such as mtf.RandomNormal"),
        (lambda shape: np.zeros(shape), GraphError, "or mtf.zeros, or an array; <lambda> takes (shape)"),
        (tf.zeros_initializer(), GraphError, "Zeros takes (shape, dtype"),
        (tf.compat.v1.zeros_initializer(), GraphError, "Zeros takes (shape, dtype=None, partition_info=None)"),
        (lambda shape, dtype, partition_info: 0, GraphError, "<lambda> takes (shape, dtype, partition_info)"),
        (mtf.layers.VarianceScalingInitializer(), GraphError, "VarianceScalingInitializer takes (reduced_dims"),
        (0.5, ShapeError, "is an array of shape []; for one number everywhere give np.full([3], 0.5)"),
        (np.ones(4), ShapeError, 'the initial value of variable "w" [d:3] is an array of shape [4]'),
    ],
)
def test_initializers(read: Callable[..., str], initializer: Any, kind: type[MeshtfError], part: str) -> None:
    assert part in read(kind, lambda: mtf.get_variable(MESH, "w", "d:3", initializer=initializer))


def test_a_variable_scope_of_tensorflow(read: Callable[..., str]) -> None:
    """It names nothing here, so that the layers of a program of Mesh TensorFlow would share their variables."""

    def layer(name: str) -> None:
        with tf.compat.v1.variable_scope("model"), tf.compat.v1.variable_scope(name):
            mtf.get_variable(MESH, "scale", "d:3")  # here

    text = read(GraphError, layer, "layer_0")
    assert 'mtf.get_variable: tf.variable_scope("model/layer_0") is open, and does not name variables' in text
    assert 'open mtf.variable_scope("model/layer_0") in its place' in text
    assert "scale" not in MESH.graph.variables


def test_a_variable_scope_of_tensorflow_around_a_whole_graph() -> None:
    """One that was open when the graph began gives all of its variables nothing to share."""
    with tf.compat.v1.variable_scope("outside"):
        mesh = mtf.Mesh(mtf.Graph())
        assert mtf.get_variable(mesh, "scale", "d:3").name == "scale"
        with pytest.raises(GraphError) as caught, tf.compat.v1.variable_scope("inside"):
            mtf.get_variable(mesh, "bias", "d:3")
    assert 'open mtf.variable_scope("inside") in its place' in str(caught.value)


@pytest.mark.parametrize("value", [np.ones([4, 8], np.float32), tf.ones([4, 8]), "text", None, [1.0]])
def test_wrong_operands(read: Callable[..., str], value: Any) -> None:
    for wrong in (lambda: X + value, lambda: mtf.einsum([X, value], output_shape="batch:4")):
        text = read(GraphError, wrong)
        assert f"the operand must be an mtf.Tensor, not {type(value).__name__}" in text
        how = "name the dimensions of this array" if np.ndim(value) else "with mtf.constant or mtf.import_tf_tensor"
        assert f"bring values in as inputs of mtf.function, or {how}" in text
    assert "mtf.exp: the operand must be an mtf.Tensor" in read(GraphError, lambda: mtf.exp(value))


def test_operands_that_are_no_tensors(read: Callable[..., str]) -> None:
    numbers: Any = np.ones(3)
    calls: list[Callable[[], Any]] = [
        lambda: mtf.zeros_like(numbers),
        lambda: mtf.ones_like(numbers),
        lambda: mtf.replace_dimensions(numbers, "d", "e:3"),
        lambda: mtf.concat(numbers, "d"),
    ]
    for call in calls:
        assert "the operand must be an mtf.Tensor, not " in read(GraphError, call)
    assert "must be an mtf.Tensor, not int" in read(GraphError, lambda: mtf.stack(3, "d"))  # type: ignore[arg-type]
    assert "is not a variable; give the result of mtf.get_variable" in read(
        GraphError, lambda: mtf.like_variable(X, "state")
    )


def test_state_of_the_result_of_get_variable() -> None:
    with mtf.Graph() as graph:
        w = mtf.get_variable(mtf.Mesh(graph), "w", "d:3")
        state = mtf.like_variable(w, "state")
    assert (state.name, state.shape) == ("w/state", w.shape)


def test_operands_of_operations_on_many(read: Callable[..., str]) -> None:
    assert "must be an mtf.Tensor, not int" in read(GraphError, lambda: mtf.einsum(3))  # type: ignore[arg-type]
    assert "give at least one" in read(ShapeError, lambda: mtf.einsum([]))
    assert "must be an mtf.Tensor, not int" in read(GraphError, lambda: mtf.gradients([X], [3]))  # type: ignore[list-item]
    assert "is not a variable; give the result of mtf.get_variable" in read(GraphError, lambda: mtf.assign(X, X))


def test_a_variable_asked_for_twice(read: Callable[..., str]) -> None:
    def twice() -> None:
        mtf.get_variable(MESH, "weights", "d:3")
        mtf.get_variable(MESH, "weights", "d:4")  # here

    text = read(GraphError, twice)
    first = twice.__code__.co_firstlineno + 1
    assert f'variable "weights" already exists with [d:3] float32, made at {__file__}:{first} in twice' in text
    assert "is requested again with [d:4] float32; give one of them another name, or open a scope" in text
    again = read(GraphError, lambda: mtf.get_variable(MESH, "weights", "d:3", tf.bfloat16))
    assert "is requested again with [d:3] bfloat16" in again
    assert mtf.get_variable(MESH, "weights", "d:3").name == "weights"


def test_assigning_another_shape(read: Callable[..., str]) -> None:
    v = mtf.get_variable(MESH, "v", "d:3")
    text = read(ShapeError, lambda: mtf.assign(v, X))
    assert (
        'variable "v" is [d:3]; [batch:4 hidden:8] cannot be assigned to it; the dimensions must be the variable\'s'
        in text
    )


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = mtf.reduce_summ
    assert str(caught.value) == "module 'meshtf' has no attribute 'reduce_summ'; did you mean \"reduce_sum\"?"
    with pytest.raises(AttributeError, match=r"module 'meshtf' has no attribute 'zzz'$"):
        _ = mtf.zzz


def test_autograph_leaves_errors_as_they_are() -> None:
    """It would make a StagingError of those that it does not know."""
    for kind in MeshtfError.__subclasses__():

        @tf.function
        def wrong(x: tf.Tensor, kind: type[MeshtfError] = kind) -> tf.Tensor:
            if x > 0:
                x = -x
            raise kind("as it was")

        with pytest.raises(kind, match=r"^as it was$"):
            wrong(tf.constant(1))
