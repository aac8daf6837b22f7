"""`nmap`: positional functions inside named code, on any mesh, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ExecutionError, GraphError, MeshtfError, ShapeError

pytestmark = pytest.mark.quick

RNG = np.random.default_rng(0)
X = RNG.normal(size=[4, 3, 2, 3]).astype(np.float32)
V = RNG.normal(size=[3, 2]).astype(np.float32)
INPUTS = {"x": ("batch:4 rows:3 heads:2 columns:3", X), "v": ("columns:3 heads:2", V)}


def solved(matrix: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    assert (matrix.shape, right.shape) == ([3, 3], [3]), "the function sees one element, in the order of dims"
    return tf.linalg.matvec(matrix, right) + tf.reduce_sum(matrix)


@pytest.mark.parametrize(
    "layout", ["batch:b;rows:a;columns:c", pytest.param("batch:a;heads:b", marks=pytest.mark.long)]
)
def test_each_element_is_seen_alone(layout: str) -> None:
    def program(x: mtf.Tensor, v: mtf.Tensor) -> Any:
        y = mtf.nmap(solved, [x, v], ["columns", "rows"], "rows")
        once = mtf.nmap(tf.nn.softmax, v, "columns heads")
        best = mtf.nmap(lambda row: tf.math.top_k(row, 2).indices, x, "rows", "best:2", tf.int32)
        return y, once, best, mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x, v])

    y, once, best, grads = mtf.testing.interpret(program, INPUTS, "a:2;b:2;c:3", layout).results
    x, v = tf.Variable(X.astype(np.float64)), tf.Variable(V.astype(np.float64))
    with tf.GradientTape() as tape:
        expected = tf.einsum("brhc,rh->bhc", x, v) + tf.einsum("brhc->bh", x)[..., None]
        total = tf.reduce_sum(expected**2)
    # Sums of nine products of a few units.
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(once, tf.nn.softmax(V), rtol=1e-6)
    np.testing.assert_array_equal(best, np.argsort(-X, axis=1)[:, :2].transpose(0, 2, 3, 1))
    for own, wanted in zip(grads, tape.gradient(total, [x, v]), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-4, atol=1e-4)


def test_mapped_dimensions_stay_split() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.nmap(tf.linalg.det, mtf.tanh(x), "rows columns", "")

    spec = {"x": mtf.TensorSpec("batch:4 heads:2 rows:3 columns:3")}
    assert not mtf.function(program, mtf.PlanMeshImpl("a:2;b:2", "batch:a;heads:b"), spec).report().collectives
    gathered = mtf.function(program, mtf.PlanMeshImpl("a:3", "rows:a"), spec).report().collectives
    assert [c.kind for c in gathered] == ["all_gather"]


def planned(fn: Callable[..., Any], *args: Any) -> Any:
    spec = {"x": mtf.TensorSpec("batch:4 hidden:8")}
    return mtf.function(lambda x: mtf.nmap(fn, x, *args), mtf.PlanMeshImpl("a:2", "batch:a"), spec)


# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[MeshtfError], str]] = [
    ("no such dimension", lambda: planned(tf.nn.softmax, "hiden"),
     ShapeError, 'no dimension "hiden" in [batch:4 hidden:8]; did you mean "hidden"?'),
    ("a mapped one", lambda: planned(tf.nn.softmax, "hidden", "batch"),
     ShapeError, 'dimension "batch" is mapped, since dims does not name it; the result has it anyway'),
    ("a new one without a size", lambda: planned(tf.nn.softmax, "hidden", "k"),
     ShapeError, 'output dimension "k" is in no operand; give its size, as in "k:3"'),
    ("another shape", lambda: planned(tf.reduce_sum, "hidden"),
     ShapeError, "tf_fn returned a tensor of shape (2,), but the slice of output"),
    ("another dtype", lambda: planned(tf.argmax, "hidden", ""),
     DtypeError, "tf_fn returned int64 for the slice of output"),
    ("an error of its own", lambda: planned(lambda x: tf.reshape(x, [3]), "hidden"),
     ExecutionError, "tf_fn raised ValueError"),
    ("no function", lambda: planned(3, "hidden"),
     GraphError, "tf_fn must be a function of tf.Tensors, not int"),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_mistakes_are_named(wrong: Callable[[], Any], kind: type[MeshtfError], words: str) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    assert words in str(caught.value), caught.value
    assert f"\n  at {__file__}:" in str(caught.value), caught.value
