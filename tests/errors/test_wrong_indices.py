"""Indices, methods and functions of NumPy that do not fit a tensor: what each message says."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, IndexRangeError, ShapeError, UsageError

MESH = mtf.Mesh(mtf.Graph())
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
IDS = mtf.placeholder(MESH, "k:3", tf.int32, name="ids")
ONE = mtf.placeholder(MESH, "", tf.int32, name="one")
Y: Any = X  # what a type checker would refuse

# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("position", lambda: Y[0], UsageError, 'cannot be indexed by position; name the dimension, as in x["batch", 0]'),
    ("slice by position", lambda: Y[1:3], UsageError, 'name the dimension, as in x["batch", 1:3]'),
    ("two positions", lambda: Y[0, ::2], UsageError, 'name the dimension, as in x["batch", ::2]'),
    ("new axis", lambda: Y[None], UsageError, "cannot be indexed by position; name the dimension"),
    ("nothing", lambda: Y[()], UsageError, "cannot be indexed by position; name the dimension"),
    ("name alone", lambda: Y["hidden"], UsageError,
     'x[...]: "hidden" stands without an index; write x["hidden", 0], x["hidden", 1:3] or x["hidden", ids]'),
    ("name without index", lambda: Y["hidden", 0, "batch"], UsageError,
     '"batch" stands without an index; write x["bat'),
    ("misspelt", lambda: X["hiden", 0], ShapeError,
     'x[...]: no dimension "hiden" in [batch:4 hidden:8]; did you mean "h'),
    ("number for a name", lambda: Y[{0: 1}], ShapeError,
     "dimensions are given by name, not as 0; [batch:4 hidden:8] has"),
    ("other size", lambda: X[mtf.Dimension("batch", 5), 0], ShapeError,
     'dimension "batch" has size 4 in [batch:4 hidden:8]'),
    ("too large", lambda: X["hidden", 8], IndexRangeError,
     'index 8 leads out of dimension "hidden" of size 8; it goes from -8 to 7'),
    ("too small", lambda: X["hidden", -9], IndexRangeError, 'index -9 leads out of dimension "hidden" of size 8'),
    ("slice too long", lambda: X["hidden", 2:9], IndexRangeError,
     'the slice 2:9 leads out of dimension "hidden" of size 8; leave an end out to go as far as the dimension does'),
    ("step 0", lambda: X["hidden", ::0], ShapeError, 'the step of a slice along "hidden" is 0; leave it out'),
    ("slice of fractions", lambda: Y["hidden", 0.5:], ShapeError, 'a slice along "hidden" has whole numbers, not 0.5'),
    ("computed slice", lambda: Y["hidden", ONE:], UsageError,
     'x["hidden", one:] has an end that the program computes; use mtf.dynamic_slice(x, begin, size, "hidden")'),
    ("fraction", lambda: Y["hidden", 1.5], ShapeError,
     'an index along "hidden" is a whole number, a slice or a tensor, not 1.5'),
    ("truth", lambda: X["hidden", True], ShapeError,
     'an index along "hidden" is a whole number, a slice or a tensor, not True'),
    ("list", lambda: Y["batch", [0, 2]], UsageError,
     'its shape is [2]; write mtf.constant(mesh, array, "name_0:2", tf.int32), and x["batch", indices] looks'),
    ("array", lambda: Y["batch", np.array([0])], UsageError, "an index array has no dimension names; its shape is [1]"),
    ("tensor of TensorFlow", lambda: Y["batch", tf.constant([0])], UsageError,
     'write mtf.import_tf_tensor(mesh, value, "name_0:1")'),
    ("mask", lambda: Y[X > 0.0], UsageError, "keep the shape with mtf.where(mask, x, 0)"),
    ("mask along a dimension", lambda: X["batch", X > 0.0], UsageError, "keep the shape with mtf.where(mask, x, 0)"),
    ("indices that are floats", lambda: X["batch", mtf.zeros(MESH, "k:3")], DtypeError,
     "x[...]: indices must be int32 or int64, not float32; convert with mtf.cast"),
    ("twice", lambda: X["batch", 0, "batch", 1], ShapeError,
     'dimension "batch" is indexed twice in the same brackets; use x[...]['),
    ("indices over their dimension", lambda: X["batch", mtf.range(MESH, ("batch", 2))], ShapeError,
     'along "batch" has that dimension itself; give it another name, as in ids.rename(batch="batch_of_result")'),
    ("indices over an indexed one", lambda: X["batch", mtf.range(MESH, ("hidden", 8)), "hidden", 0], ShapeError,
     "which the same brackets index; index one after the other, as in x[...][...]"),
    ("assignment", lambda: Y.__setitem__(("batch", 0), 1.0), UsageError,
     'as in y = x.at["length", 0].set(v), or mtf.where'),
    ("assignment to places", lambda: Y.at.__setitem__(("batch", 0), 1.0), UsageError,
     'x.at[...] = v changes nothing, since tensors stay as they are; write y = x.at["batch", 0].set(v)'),
    ("addition to places", lambda: operator.iadd(Y.at["batch", 0], 1.0), UsageError, "write y = x.at[...].add(v)"),
    ("another change of places", lambda: Y.at["batch", 0].multiply(2.0), AttributeError,
     "places in a tensor have set and add, and no 'multiply'; write x.at[...].set(f(x[...]))"),
    ("places as a tensor", lambda: mtf.exp(Y.at["batch", 0]), GraphError, "must be an mtf.Tensor, not Places"),
    ("set misspelt", lambda: X.at["hiden", 0].set(1.0), ShapeError,
     'x.at[...]: no dimension "hiden" in [batch:4 hidden:8]'),
    ("set a value with another dimension", lambda: X.at["batch", 0].set(mtf.zeros(MESH, "hiden:8")), ShapeError,
     'x.at[...].set: the places [hidden:8] lack dimension "hiden" of the value [hiden:8]; did you mean "hidden"?'),
    ("set an array", lambda: Y.at["batch", 0].set(np.zeros(8)), GraphError,
     'write mtf.constant(x.mesh, array, "hidden:8")'),
    ("set a number that does not fit", lambda: IDS.at["k", 0].set(0.5), DtypeError, "scalar 0.5 is no int32"),
    ("set two that may repeat", lambda: X.at["batch", IDS, "hidden", IDS].set(1.0), ShapeError,
     'the indices along "batch" and "hidden" share dimension "k", which [batch:4 hidden:8] lacks; make one dimension'),
    ("add truth", lambda: (X > 0.0).at["batch", 0].add(True), DtypeError, "truth values cannot be added"),
    ("reduce a position", lambda: Y.sum(0), ShapeError,
     'x.sum: a dimension or its name is needed, or a list of them, and not 0; [batch:4 hidden:8] has "batch"'),
    ("reduce a list of positions", lambda: Y.sum([0, 1]), ShapeError, "x.sum: a dimension or its name is needed"),
    ("reduce an axis", lambda: Y.sum(axis="batch"), UsageError,
     "unexpected keyword argument 'axis'; its parameters are dims"),
    ("reduce twice", lambda: X.mean("batch", "batch"), ShapeError, 'x.mean: dimension "batch" is named twice'),
    ("reduce misspelt", lambda: X.max("bach"), ShapeError,
     'x.max: no dimension "bach" in [batch:4 hidden:8]; did you mean "ba'),
    ("any of numbers", lambda: X.any(), DtypeError, "x.any: a bool tensor is needed, not float32"),
    ("softmax without", lambda: Y.softmax(), UsageError,
     "x.softmax: missing a required argument: 'dim'; its parameters are"),
    ("softmax of a position", lambda: Y.softmax(-1), ShapeError,
     "x.softmax: a dimension or its name is needed, not -1"),
    ("rename to one that is there", lambda: X.rename(batch="hidden"), ShapeError,
     'x.rename: [batch:4 hidden:8] would have dimension "hidden" twice; choose another name'),
    ("rename misspelt", lambda: X.rename(bach="b"), ShapeError, 'x.rename: no dimension "bach" in [batch:4 hidden:8]'),
    ("rename to another size", lambda: X.rename(batch=mtf.Dimension("b", 5)), ShapeError,
     '"batch" has size 4, and "b" has size 5'),
    ("rename to a number", lambda: Y.rename(batch=3), ShapeError, 'the new name of "batch" must be a name, not 3'),
    ("rename by position", lambda: Y.rename("batch", "b"), UsageError, "x.rename: too many positional arguments"),
    ("rename a word", lambda: Y.rename("batch"), ShapeError, 'as x.rename(length="memory"), not \'batch\''),
    ("transpose some", lambda: X.transpose("hidden"), ShapeError,
     "do not have the same dimensions; give each of them once"),
    ("flatten in another order", lambda: X.flatten("hidden batch", "n"), ShapeError,
     "are not consecutive dimensions of"),
    ("unflatten to another size", lambda: X.unflatten("hidden", "a:2 b:3"), ShapeError,
     "[hidden:8] has 8 elements and [a:2 b:3] has 6"),
    ("astype", lambda: X.astype("flot32"), DtypeError, 'x.astype: not a dtype: \'flot32\'; did you mean "float32"?'),
    ("a function as a method", lambda: Y.exp(), AttributeError,
     "an mtf.Tensor has no attribute 'exp'; write mtf.exp(x)"),
    ("a method misspelt", lambda: Y.summ(), AttributeError, "no attribute 'summ'; did you mean \"sum\"?"),
    ("a function by another name", lambda: Y.logistic(), AttributeError, '; did you mean "mtf.sigmoid(x)"?'),
    ("a method by another name", lambda: Y.variance(), AttributeError, 'did you mean "mtf.reduce_variance(x)"?'),
    ("transposed", lambda: Y.T, AttributeError, "no attribute 'T'; write x.transpose("),
    ("value", lambda: Y.numpy(), AttributeError,
     "no attribute 'numpy', since it has no value while the graph is built"),
    ("numpy over a position", lambda: np.sum(Y, axis=0), UsageError,
     'axes of x [batch:4 hidden:8] float32 have names, and 0 is none; write numpy.sum(x, axis="batch")'),
    ("numpy without an axis", lambda: np.argmax(Y), UsageError,
     'needs the name of an axis; write numpy.argmax(x, axis="batch")'),
    ("numpy keepdims", lambda: np.sum(Y, axis="batch", keepdims=True), UsageError,
     "numpy.sum(a, axis) of tensors: got an unexpected"),
    ("numpy joins by position", lambda: np.concatenate([Y, Y]), UsageError, 'write numpy.concatenate(x, axis="batch")'),
    ("numpy product", lambda: np.dot(Y, Y), UsageError, "use mtf.einsum([x, y], output_shape=[...])"),
    ("numpy matmul", lambda: np.matmul(Y, Y), UsageError, "has no @: name what is kept, as in mtf.einsum"),
    ("numpy into an array", lambda: np.exp(Y, out=np.zeros([4, 8])), UsageError,
     "numpy.exp does not take out beside x [batch:4"),
    ("numpy reduce", lambda: np.add.reduce(Y), UsageError,
     'numpy.add.reduce does not take x [batch:4 hidden:8] float32; write x.sum("batch")'),
    ("numpy equal", lambda: np.equal(Y, Y), UsageError, "to compare elements, use mtf.equal, not numpy.equal"),
    ("numpy alone", lambda: np.arctan2(Y, Y), UsageError, "mtf has no function like numpy.arctan2; make it of others"),
    ("numpy indices of true", lambda: np.where(X > 0.0), UsageError, "use mtf.where(mask, x, 0)"),
    ("array on the right", lambda: Y + np.ones(8), GraphError,
     'its shape is [8], beside [batch:4 hidden:8]; write mtf.constant(x.mesh, array, "hidden:8")'),
    ("array on the left", lambda: np.ones(4) + Y, GraphError,
     'beside [batch:4 hidden:8]; write mtf.constant(x.mesh, array, "batch:4")'),
    ("list", lambda: Y * [1.0, 2.0], GraphError,
     'its shape is [2], beside [batch:4 hidden:8]; write mtf.constant(x.mesh, array, "name_0:2")'),
    ("array beside integers", lambda: mtf.maximum(IDS, np.ones(3)), GraphError,
     'mtf.constant(x.mesh, array, "k:3", tf.int32)'),
    ("tensor of TensorFlow beside", lambda: Y - tf.ones([4, 8]), GraphError,
     'mtf.import_tf_tensor(x.mesh, value, "batch:4 hidden:8")'),
    ("where an array", lambda: mtf.where(np.ones([4, 8], bool), X, X), GraphError,
     '"name_0:4 name_1:8", tf.bool)'),  # type: ignore[arg-type]
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_does_not_fit_is_named(
    refused: Callable[..., None], wrong: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    refused(wrong, kind, words)
