"""Operands of the wrong kind: arrays, numbers that a dtype cannot hold, questions for values, other graphs' tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError, UsageError

MESH = mtf.Mesh(mtf.Graph())
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
IDS = mtf.placeholder(MESH, "batch:4", tf.int32, name="ids")
FLAGS = mtf.placeholder(MESH, "batch:4 hidden:8", tf.bool, name="flags")
COMPLEX = mtf.placeholder(MESH, "batch:4 hidden:8", tf.complex64, name="z")
OTHER = mtf.placeholder(mtf.Mesh(mtf.Graph()), "batch:4 hidden:8", name="other")
ARRAY = np.ones([4, 8], np.float32)
BATCH, HIDDEN = mtf.Dimension("batch", 4), mtf.Dimension("hidden", 8)

# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("add numpy", lambda: X + ARRAY,
     GraphError, "the operand must be an mtf.Tensor, not ndarray; bring values in as inputs"),
    ("add tf", lambda: X + tf.ones([4, 8]),
     GraphError, "the operand must be an mtf.Tensor, not EagerTensor; bring values in as"),
    ("tf add", lambda: tf.ones([4, 8]) + X,
     UsageError, "x [batch:4 hidden:8] float32 is a tensor of the language, which has no"),
    ("tf matmul", lambda: tf.matmul(X, X),
     UsageError, "x [batch:4 hidden:8] float32 is a tensor of the language, which has no"),
    ("gradient of a variable", lambda: mtf.gradients(X, mtf.get_variable(MESH, "w", "hidden:8").operation),
     GraphError, "w is a variable, and not a tensor; its tensor is variable.value"),
    ("add list", lambda: X + [1.0],
     GraphError, "the operand must be an mtf.Tensor, not list; bring values in as inputs of"),
    ("add None", lambda: X + None,
     GraphError, "the operand must be an mtf.Tensor, not NoneType; bring values in as inputs"),
    ("add text", lambda: X + "1",
     GraphError, "the operand must be an mtf.Tensor, not str; bring values in as inputs of"),
    ("add complex to float", lambda: X + 1j,
     DtypeError, "scalar 1j is no float32; convert the tensor with mtf.cast"),
    ("int plus float", lambda: IDS + 0.5,
     DtypeError, "scalar 0.5 is no int32; convert the tensor with mtf.cast"),
    ("int overflow", lambda: IDS + 2 ** 40,
     DtypeError, "scalar 1099511627776 is no int32; convert the tensor with mtf.cast"),
    ("bool plus", lambda: FLAGS + FLAGS,
     DtypeError, "a number is needed, not bool; convert with mtf.cast, or use"),
    ("bool neg", lambda: -FLAGS,
     DtypeError, "a number is needed, not bool; convert with mtf.cast, or use"),
    ("relu numpy", lambda: mtf.relu(ARRAY),
     GraphError, "the operand must be an mtf.Tensor, not ndarray; bring values in as inputs"),
    ("relu none", lambda: mtf.relu(),
     UsageError, "missing a required argument: 'x'; its parameters are x, name"),
    ("relu extra", lambda: mtf.relu(X, bogus=1),
     UsageError, "got an unexpected keyword argument 'bogus'; its parameters are x, name"),
    ("exp int", lambda: mtf.exp(IDS),
     DtypeError, "a floating tensor is needed, not int32; convert with mtf.cast"),
    ("exp bool", lambda: mtf.exp(FLAGS),
     DtypeError, "a floating tensor is needed, not bool; convert with mtf.cast"),
    ("max complex", lambda: mtf.maximum(COMPLEX, COMPLEX),
     DtypeError, "a real number is needed, not complex64; take mtf.real, mtf.imag or mtf.abs"),
    ("less complex", lambda: mtf.less(COMPLEX, COMPLEX),
     DtypeError, "a real number is needed, not complex64; take mtf.real, mtf.imag or mtf.abs"),
    ("equal other dtype", lambda: mtf.equal(X, IDS),
     DtypeError, "float32 and int32 meet; convert one with mtf.cast"),
    ("where not bool", lambda: mtf.where(X, X, X),
     DtypeError, "a bool tensor is needed, not float32; convert with mtf.cast"),
    ("where numpy", lambda: mtf.where(np.ones([4, 8], bool), X, X),
     GraphError, "the operand must be an mtf.Tensor, not ndarray; bring values in as inputs"),
    ("logical_and floats", lambda: mtf.logical_and(X, X),
     DtypeError, "a bool tensor is needed, not float32; convert with mtf.cast"),
    ("cast to text", lambda: mtf.cast(X, "flot32"),
     DtypeError, 'not a dtype: \'flot32\'; did you mean "float32"?'),
    ("cast to None", lambda: mtf.cast(X, None),
     DtypeError, "not a dtype: None; give one such as tf.float32"),
    ("cast to string dtype", lambda: mtf.cast(X, tf.string),
     DtypeError, "tensors are of numbers or of bool, not of string"),
    ("einsum empty", lambda: mtf.einsum([]),
     ShapeError, "einsum of no tensors; give at least one"),
    ("einsum numpy", lambda: mtf.einsum([X, ARRAY], output_shape="batch:4"),
     GraphError, "the operand must be an mtf.Tensor, not ndarray; bring values in as inputs"),
    ("einsum str", lambda: mtf.einsum("ij,jk", X, X),
     ShapeError, 'operand 0 [batch:4 hidden:8] has no dimension "ij"'),
    ("einsum list", lambda: mtf.einsum(X, X),
     GraphError, "the tensors come in a list, or after a pattern: write mtf.einsum([x, y],"),
    ("einsum sizes", lambda: mtf.einsum([X, mtf.zeros(MESH, "hidden:9")]),
     ShapeError, 'dimension "hidden" has size 8 in one operand and 9 in another; rename one'),
    ("add two graphs", lambda: X + OTHER,
     GraphError, "x [batch:4 hidden:8] float32 and other [batch:4 hidden:8] float32 belong"),
    ("pow text", lambda: mtf.pow(X, "2"),
     GraphError, "the operand must be an mtf.Tensor, not str; bring values in as inputs of"),
    ("mod zero", lambda: IDS % 0,
     UsageError, "int32 cannot be divided by 0"),
    ("floordiv zero", lambda: IDS // 0,
     UsageError, "int32 cannot be divided by 0"),
    ("divide int", lambda: IDS / 2,
     DtypeError, "int32 cannot be divided exactly; use mtf.floordiv, or mtf.cast to a float"),
    ("format", lambda: f"{X:.2f}",
     UsageError, "x [batch:4 hidden:8] float32 is a tensor of the language, which has no"),
    ("round python", lambda: round(X),
     UsageError, "x [batch:4 hidden:8] float32 is a tensor of the language, which has no"),
    ("reshape to a number", lambda: X.reshape(3),
     ShapeError, "x.reshape: not a shape: 3; give an mtf.Shape, a list of dimensions"),
    ("int times a large int", lambda: IDS * 2**70,
     DtypeError, "scalar 1.1805916207174113e+21 is no int32; convert the tensor with mtf.cast"),
    ("uniform fractions", lambda: mtf.random_uniform(MESH, "batch:4", tf.int32, 0.5, 3.5),
     UsageError, "random uniform: [0.5, 3.5) for int32; give bounds that are integers"),
    ("uniform too large", lambda: mtf.random_uniform(MESH, "batch:4", tf.int32, 0, 2**40),
     UsageError, "random uniform: [0, 1099511627776) is empty or not within int32"),
    ("uniform too wide", lambda: mtf.random_uniform(MESH, "batch:4", tf.float32, -3e38, 3e38),
     UsageError, "random uniform: a bound or the width of [-3e+38, 3e+38) is beyond float32"),
    ("clip swapped", lambda: mtf.clip_by_value(X, 1.0, -1.0),
     UsageError, "clip_value_min is 1.0, above clip_value_max, -1.0; swap them"),
    ("clip numpy", lambda: mtf.clip_by_value(X, ARRAY, 1.0),
     GraphError, "the operand must be an mtf.Tensor, not ndarray; bring values in as inputs"),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_is_no_operand_is_named(
    refused: Callable[..., None], wrong: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    refused(wrong, kind, words)
