"""Indices, slices, constants, random numbers and windows that there cannot be."""

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
IMAGE = mtf.placeholder(MESH, "batch:2 height:8 width:8 channels:3", name="image")
ARRAY = np.ones([4, 8], np.float32)
BATCH, HIDDEN = mtf.Dimension("batch", 4), mtf.Dimension("hidden", 8)

# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("gather float", lambda: mtf.gather(X, mtf.zeros(MESH, "n:3"), "hidden"),
     DtypeError, "indices must be int32 or int64, not float32; convert with mtf.cast"),
    ("gather numpy idx", lambda: mtf.gather(X, np.array([1, 2]), "hidden"),
     DtypeError, "indices must be an mtf.Tensor or a whole number, not array([1, 2])"),
    ("gather list idx", lambda: mtf.gather(X, [1, 2], "hidden"),
     DtypeError, "indices must be an mtf.Tensor or a whole number, not [1, 2]"),
    ("gather dim in idx", lambda: mtf.gather(X, IDS, "batch"),
     ShapeError, 'the indices [batch:4] have dimension "batch", along which they point;'),
    ("gather bad dim", lambda: mtf.gather(X, IDS, "hiden"),
     ShapeError, 'no dimension "hiden" in [batch:4 hidden:8]; did you mean "hidden"?'),
    ("one_hot none", lambda: mtf.one_hot(IDS, None),
     ShapeError, "one_hot needs an output_dim"),
    ("one_hot str", lambda: mtf.one_hot(IDS, "vocab"),
     ShapeError, "not a dimension: 'vocab'; write mtf.Dimension(name, size), or a pair"),
    ("one_hot float", lambda: mtf.one_hot(X, ("vocab", 3)),
     DtypeError, "indices must be int32 or int64, not float32; convert with mtf.cast"),
    ("one_hot same", lambda: mtf.one_hot(IDS, BATCH),
     ShapeError, 'the indices [batch:4] have dimension "batch", along which they point;'),
    ("check_indices float", lambda: mtf.check_indices(X, 3),
     DtypeError, "indices must be int32 or int64, not float32; convert with mtf.cast"),
    ("check_indices size 0", lambda: mtf.check_indices(IDS, 0),
     ShapeError, "indices must point into a dimension of at least 1 element, not into 0"),
    ("check_indices size text", lambda: mtf.check_indices(IDS, "vocab"),
     ShapeError, "not a dimension: 'vocab'; write mtf.Dimension(name, size), or a pair (\"vocab\", size)"),
    ("check_indices weights", lambda: mtf.check_indices(IDS, 3, weights=X),
     ShapeError, 'the weights have dimension "hidden:8", which the indices [batch:4] lack'),
    ("check_indices numpy", lambda: mtf.check_indices(np.array([1]), 3),
     GraphError, "the index must be an mtf.Tensor, not ndarray; bring values in as inputs of"),
    ("check_finite int", lambda: mtf.check_finite(IDS),
     DtypeError, "int32 is always finite; check a floating tensor"),
    ("check_finite np", lambda: mtf.check_finite(ARRAY),
     GraphError, "the operand must be an mtf.Tensor, not ndarray; bring values in as inputs"),
    ("slice beyond", lambda: mtf.slice(X, 5, 4, "hidden"),
     ShapeError, 'begin 5 and size 4 lead out of dimension "hidden" of size 8'),
    ("slice neg", lambda: mtf.slice(X, -1, 2, "hidden"),
     ShapeError, 'begin -1 and size 2 lead out of dimension "hidden" of size 8'),
    ("slice float", lambda: mtf.slice(X, 0.5, 2, "hidden"),
     ShapeError, "begin must be a whole number known now, not 0.5"),
    ("slice tensor begin", lambda: mtf.slice(X, IDS, 2, "hidden"),
     ShapeError, "begin must be a whole number known now, not ids [batch:4] int32"),
    ("concat empty", lambda: mtf.concat([], "batch"),
     ShapeError, "concat of no tensors; give at least one"),
    ("concat one not list", lambda: mtf.concat(X, "batch"),
     UsageError, "x [batch:4 hidden:8] float32 cannot be iterated; use mtf.unstack(x, dim)"),
    ("concat bad", lambda: mtf.concat([X, X], "bach"),
     ShapeError, 'no dimension "bach" in [batch:4 hidden:8]; did you mean "batch"?'),
    ("split uneven", lambda: mtf.split(X, "hidden", 3),
     ShapeError, 'dimension "hidden" of size 8 does not divide into 3 equal pieces'),
    ("split zero", lambda: mtf.split(X, "hidden", 0),
     ShapeError, 'dimension "hidden" of size 8 does not divide into 0 equal pieces'),
    ("split float", lambda: mtf.split(X, "hidden", 2.0),
     ShapeError, "the number of pieces must be a whole number known now, not 2.0"),
    ("split sizes", lambda: mtf.split(X, "hidden", [3, 4]),
     ShapeError, 'sizes [3, 4] do not add up to dimension "hidden" of size 8'),
    ("stack empty", lambda: mtf.stack([], "n"),
     ShapeError, "stack of no tensors; give at least one"),
    ("stack existing", lambda: mtf.stack([X, X], "batch"),
     ShapeError, '[batch:4 hidden:8] has dimension "batch" already; use mtf.concat, or'),
    ("stack int", lambda: mtf.stack([X, X], 3),
     ShapeError, "a dimension or its name is needed, not 3"),
    ("unstack bad", lambda: mtf.unstack(X, "b"),
     ShapeError, 'no dimension "b" in [batch:4 hidden:8]'),
    ("pad negative", lambda: mtf.pad(X, [-1, 0], "hidden"),
     ShapeError, "paddings must be [before, after], two numbers of at least 0, not [-1, 0]"),
    ("pad one", lambda: mtf.pad(X, [1], "hidden"),
     ShapeError, "paddings must be [before, after], two numbers of at least 0, not [1]"),
    ("pad int", lambda: mtf.pad(X, 1, "hidden"),
     ShapeError, "paddings must be [before, after], two numbers of at least 0, not 1"),
    ("shift float", lambda: mtf.shift(X, 0.5, "hidden", wrap=True),
     ShapeError, "offset must be a whole number known now, not 0.5"),
    ("shift nowrap missing", lambda: mtf.shift(X, 1, "hidden"),
     UsageError, "missing a required argument: 'wrap'; its parameters are x, offset, dim,"),
    ("roll", lambda: mtf.roll(X, None, "hidden"),
     ShapeError, "offset must be a whole number known now, not None"),
    ("scatter", lambda: mtf.scatter_add(X, X, X, "hidden"),
     DtypeError, "indices must be int32 or int64, not float32; convert with mtf.cast"),
    ("dynamic_slice", lambda: mtf.dynamic_slice(X, 0.5, "hidden", 2),
     ShapeError, "a dimension or its name is needed, not 2"),
    ("halo", lambda: mtf.halo_exchange(X, [], HIDDEN, 1),
     ShapeError, "a dimension or its name is needed, not []"),
    ("reverse", lambda: mtf.reverse(X, "h"),
     ShapeError, 'no dimension "h" in [batch:4 hidden:8]'),
    ("range float dtype", lambda: mtf.range(MESH, ("n", 3), tf.string),
     DtypeError, "tensors are of numbers or of bool, not of string"),
    ("range dim text", lambda: mtf.range(MESH, "n"),
     ShapeError, 'not a dimension: \'n\'; write mtf.Dimension(name, size), or a pair ("n",'),
    ("constant str", lambda: mtf.constant(MESH, "a"),
     DtypeError, "an array of numbers is needed, not of <U1"),
    ("constant none", lambda: mtf.constant(MESH, None),
     DtypeError, "an array of numbers is needed, not of object"),
    ("constant shape", lambda: mtf.constant(MESH, [1.0, 2.0], "n:3"),
     ShapeError, "an array of shape [2] cannot be [n:3]; name each of its dimensions, with"),
    ("constant ragged", lambda: mtf.constant(MESH, [[1.0], [1.0, 2.0]], "a:2 b:2"),
     ShapeError, "a list that is no array: its parts differ in length"),
    ("constant mesh", lambda: mtf.constant(X, 1.0),
     GraphError, "the first argument, the mesh or `value`, is the tensor x [batch:4 hidden:8]"),
    ("zeros no mesh", lambda: mtf.zeros("batch:4"),
     GraphError, "the mesh was left out, and no graph is being built here that would have one"),
    ("zeros meshimpl", lambda: mtf.zeros(mtf.PlanMeshImpl("r:2", ""), "batch:4"),
     GraphError, "is an mtf.PlanMeshImpl, on which programs run and not the tag of a graph's"),
    ("import ragged", lambda: mtf.import_tf_tensor(MESH, [[1], [1, 2]], "a:2 b:2"),
     ShapeError, "a list that is no array: its parts differ in length"),
    ("import shape", lambda: mtf.import_tf_tensor(MESH, ARRAY, "a:4"),
     ShapeError, "an array of shape [4, 8] cannot be [a:4]; name each of its dimensions,"),
    ("import object", lambda: mtf.import_tf_tensor(MESH, np.array([object()]), "a:1"),
     DtypeError, "an array of numbers is needed, not of object"),
    ("import str", lambda: mtf.import_tf_tensor(MESH, np.array(["a"]), "a:1"),
     DtypeError, "an array of numbers is needed, not of <U1"),
    ("import ragged tensor", lambda: mtf.import_tf_tensor(MESH, tf.ragged.constant([[1], [1, 2]]), "a:2 b:2"),
     ShapeError, "a RaggedTensor is not an array; make it dense first"),
    ("placeholder name", lambda: mtf.placeholder(MESH, "a:1", name=3),
     GraphError, 'the name of an operation is text, such as "decoder" or "decoder/layer",'),
    ("random dtype", lambda: mtf.random_uniform(MESH, "a:3", dtype=tf.int32),
     DtypeError, "random_uniform of integers needs maxval"),
    ("random minmax", lambda: mtf.random_uniform(MESH, "a:3", minval=2.0, maxval=1.0),
     UsageError, "minval must be below maxval, and they are 2.0 and 1.0"),
    ("normal stddev", lambda: mtf.random_normal(MESH, "a:3", stddev=-1.0),
     UsageError, "stddev must be a number of at least 0, and is -1.0"),
    ("sample temp", lambda: mtf.sample_with_temperature(X, "hidden", temperature=-1.0),
     UsageError, "the temperature must be a number of at least 0, known now, and is -1.0"),
    ("max_pool", lambda: mtf.max_pool(IMAGE, {"height": 9}, 1, "VALID"),
     ShapeError, 'a window of 9 along "height" is larger than its size 8; use'),
    ("max_pool pad", lambda: mtf.max_pool(IMAGE, {"height": 2}, 1, "SAM"),
     ShapeError, 'padding must be "SAME", "VALID" or "SYMMETRIC", not \'SAM\''),
    ("conv filter", lambda: mtf.conv2d(IMAGE, mtf.zeros(MESH, "kh:3 kw:3 c:3 o:4")),
     ShapeError, 'the filter\'s last but one dimension must be the channels "channels", the'),
    ("conv stride", lambda: mtf.conv2d(IMAGE, mtf.zeros(MESH, "kh:3 kw:3 channels:3 o:4"), strides=0),
     ShapeError, "strides must be at least 1, and are [0, 0]"),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_cannot_be_sliced_or_made_is_named(
    refused: Callable[..., None], wrong: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    refused(wrong, kind, words)
