"""Operations made by calling the original's classes are its functions', and say which dimensions could be split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf
import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import GraphError, UsageError
from tests.compat.mesh_tensorflow.sessions import evaluated, graph_mode, initial

A, B, C = (mtf.Dimension(name, size) for name, size in (("batch", 4), ("hidden", 6), ("c", 3)))
X, Y = initial("x", [4, 6]), initial("y", [6, 3])
IMAGE = [mtf.Dimension(n, s) for n, s in (("batch", 4), ("rows", 8), ("columns", 4), ("channels", 2))]
KERNEL = [mtf.Dimension(n, s) for n, s in (("fh", 3), ("fw", 3), ("channels", 2), ("out", 5))]
IDS = np.array([2, 0, 1, 2], np.int32)


def _operations(mesh: mtf.Mesh) -> dict[str, mtf.Operation]:
    x, y = mtf.import_tf_tensor(mesh, X, [A, B]), mtf.ImportOperation(mesh, Y, [B, C]).outputs[0]
    ids, image = mtf.import_tf_tensor(mesh, IDS, [A]), mtf.ones(mesh, IMAGE)
    return {
        "constant": mtf.Constant(mesh, 2, mtf.Shape([A]), tf.float32, "X"),
        "scaled": mtf.ScalarMultiplyOperation(x, 2.0),
        "moved": mtf.ScalarAddOperation(x, 1.0),
        "less": mtf.BinaryOpWithBroadcasting(tf.less, x, x * x, x.shape, tf.bool, name="less than"),
        "larger": mtf.MinMaxOperation(tf.maximum, x, x * x, x.shape),
        "sum": mtf.AddOperation(x, x, x.shape),
        "broadcast": mtf.BroadcastOperation(x, mtf.Shape([C, A, B])),
        "largest": mtf.ReduceOperation(x, mtf.Shape([B]), "max"),
        "means": mtf.PoolOperation(image, [2, 2], [2, 2], "AVG_2D"),
        "joined": mtf.ConcatOperation([x, x * 2.0], "hidden"),
        "parts": mtf.SplitOperation(x, B, [2, 4]),
        "stacked": mtf.StackOperation([x, x], "two", axis=0),
        "rows": mtf.UnstackOperation(x, B),
        "product": mtf.EinsumOperation([x, y], mtf.Shape([A, C]), name="Z"),
        "conv": mtf.Conv2dOperation(image, mtf.ones(mesh, KERNEL), [1, 1, 1, 1], "SAME"),
        "shifted": mtf.ShiftOperation(x, -1, B, wrap=True),
        "slice": mtf.SliceOperation(x, begin=1, size=4, slice_dim_name="hidden"),
        "padded": mtf.PadOperation(x, [1, 2], "batch"),
        "one_hot": mtf.OneHotOperation(ids, C, 1, 0, dtype=tf.float32),
        "stopped": mtf.StopGradient(x),
        "reshaped": mtf.ReshapeOperation(x, mtf.Shape([("p", 8), ("q", 3)])),
        "random": mtf.RandomOperation(mesh, x.shape, tf.compat.v1.random_uniform, minval=2.0, maxval=3.0),
        "own": mtf.SlicewiseOperation(tf.exp, [x], [x.shape], [x.dtype], splittable_dims=[A], name="an exp"),
        "loop": mtf.WhileLoopOperation(
            lambda i, x: mtf.less(i, 3), lambda i, x: [i + 1, x * 2.0], [mtf.constant(mesh, 0, dtype=tf.int32), x]
        ),
    }


WHOLE = {
    "joined": "hidden",
    "parts": "hidden",
    "stacked": "two",
    "rows": "hidden",
    "slice": "hidden",
    "padded": "batch",
    "own": "hidden",
    "means": "rows columns",
    "conv": "rows columns fh fw",
}


def test_numbers() -> None:
    found = evaluated(lambda mesh: {name: o.outputs[-1] for name, o in _operations(mesh).items()})
    expected = {
        "constant": np.full([4], 2.0),
        "scaled": X * 2,
        "moved": X + 1,
        "less": X < X * X,
        "larger": np.maximum(X, X * X),
        "sum": X + X,
        "broadcast": np.stack([X] * 3),
        "largest": X.max(0),
        "means": np.ones([4, 4, 2, 2]),
        "joined": np.concatenate([X, X * 2], 1),
        "parts": X[:, 2:],
        "stacked": np.stack([X, X]),
        "rows": X[:, 5],
        "product": X @ Y,
        "conv": tf.nn.conv2d(np.ones([4, 8, 4, 2], np.float32), np.ones([3, 3, 2, 5], np.float32), 1, "SAME"),
        "shifted": np.roll(X, -1, 1),
        "slice": X[:, 1:5],
        "padded": np.pad(X, [(1, 2), (0, 0)]),
        "one_hot": np.eye(3)[IDS],
        "stopped": X,
        "reshaped": X.reshape(8, 3),
        "own": np.exp(X),
        "loop": X * 8,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    assert 2.0 <= found["random"].min() < found["random"].max() <= 3.0


def test_dimensions_that_could_be_split_and_classes() -> None:
    graph = mtf.Graph()
    operations = _operations(mtf.Mesh(graph, "mesh"))
    for name, operation in operations.items():
        names = {d.name for t in (*getattr(operation, "inputs", ()), *operation.outputs) for d in t.shape}
        whole = set(WHOLE.get(name, "").split())
        assert (operation.splittable_dims, operation.unsplittable_dims) == (names - whole, whole), name
    assert [operations[n].name for n in ("constant", "product", "less")] == ["X", "Z", "less_than"]
    assert isinstance(operations["joined"], mtf.ConcatOperation)
    assert not isinstance(operations["joined"], mtf.SplitOperation)
    with pytest.raises(AttributeError, match="has no attribute 'colour'"):
        operations["joined"].colour  # noqa: B018


def test_variables() -> None:
    """A program may make one itself, give it a label, and read what Mesh TensorFlow's had."""
    with graph_mode():
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph, "mesh")
        dtype = mtf.VariableDType(tf.float32, tf.float32, tf.bfloat16)
        with tf.compat.v1.variable_scope("layer"):
            w = mtf.Variable(mesh, "w", mtf.Shape([A, B]), dtype, tf.compat.v1.zeros_initializer(), trainable=True)
        w.full_name = "a label"
        graph.name_to_variable["a label"] = w
        assert isinstance(w, mtf.Variable)
        assert (w.full_name, w.size, w.master_dtype, w.activation_dtype) == ("layer/w", 24, tf.float32, tf.bfloat16)
        assert graph.all_variables == graph._all_variables == graph.trainable_variables == [w]
        assert isinstance(mtf.ReadVariable(w), mtf.ReadVariable)
        both = mtf.Assign([w, w], [mtf.zeros(mesh, w.shape)] * 2)
        assert all(isinstance(o, mtf.Assign) for o in both.operations)
    w = meshtf.get_variable(meshtf.Mesh(meshtf.Graph()), "w", "a:4").operation
    with pytest.raises(GraphError, match="keeps its name"):
        w.full_name = "another"


def _derived(mesh: mtf.Mesh) -> Any:
    return type("Own", (mtf.EinsumOperation,), {})


def _without_lower(mesh: mtf.Mesh) -> Any:
    operation = mtf.Operation([mtf.ones(mesh, [A])], name="operation")
    operation.lower(None)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (_derived, "derive from mtf.Operation"),
        (_without_lower, "has no `lower`"),
        (lambda mesh: mtf.ReduceOperation(mtf.ones(mesh, [A]), mtf.Shape([]), "MEAN"), 'a reduction is "SUM"'),
        (lambda mesh: mtf.PoolOperation(mtf.ones(mesh, IMAGE), [2, 2], [1, 1], "MAX_2D"), "do not overlap"),
        (lambda mesh: mtf.RandomOperation(mesh, mtf.Shape([A]), tf.random.gamma), "compose it of mtf.random_uniform"),
        (
            lambda mesh: mtf.MinMaxOperation(tf.add, *[mtf.ones(mesh, [A])] * 2, mtf.Shape([A])),
            "tf.minimum or tf.maximum",
        ),
    ],
)
def test_what_is_refused_says_what_to_write(call: Callable[[mtf.Mesh], Any], words: str) -> None:
    with pytest.raises((GraphError, UsageError), match=words):
        call(mtf.Mesh(mtf.Graph(), "mesh"))


def test_names_and_truth_of_tensors() -> None:
    graph = mtf.Graph()
    x = mtf.ones(mtf.Mesh(graph, "mesh"), [A])
    assert (x.name, bool(x), x == 1, x in [1, x]) == ("constant:0", True, False, True)
    assert [graph.unique_name(n) for n in ("a", "A", "a_1")] == ["a", "A_1", "a_1_1"]
