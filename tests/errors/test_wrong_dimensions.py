"""Dimensions and shapes that there cannot be, and reductions over what is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError, UsageError

MESH = mtf.Mesh(mtf.Graph())
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
IDS = mtf.placeholder(MESH, "batch:4", tf.int32, name="ids")
FLAGS = mtf.placeholder(MESH, "batch:4 hidden:8", tf.bool, name="flags")
COMPLEX = mtf.placeholder(MESH, "batch:4 hidden:8", tf.complex64, name="z")
EMPTY = mtf.placeholder(MESH, "batch:4 none:0", name="empty")
BATCH, HIDDEN = mtf.Dimension("batch", 4), mtf.Dimension("hidden", 8)

# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("name is a number", lambda: mtf.Dimension(3, 4),
     ShapeError, "a dimension's name is a word without spaces or any of : ; , and not 3"),
    ("name is empty", lambda: mtf.Dimension("", 4),
     ShapeError, "a dimension's name is a word without spaces or any of : ; , and not ''"),
    ("name with a tab", lambda: mtf.Dimension("a\tb", 4),
     ShapeError, "a dimension's name is a word without spaces or any of : ; , and not 'a\\tb'"),
    ("size float", lambda: mtf.Dimension("a", 4.0),
     ShapeError, "the size of dimension 'a' must be an integer, not 4.0"),
    ("size bool", lambda: mtf.Dimension("a", True),
     ShapeError, "the size of dimension 'a' must be an integer, not True"),
    ("size text", lambda: mtf.Dimension("a", "4"),
     ShapeError, "the size of dimension 'a' must be an integer, not '4'"),
    ("size None", lambda: mtf.Dimension("a", None),
     ShapeError, "the size of dimension 'a' must be an integer, not None"),
    ("size array", lambda: mtf.Dimension("a", np.array([4])),
     ShapeError, "the size of dimension 'a' must be an integer, not array([4])"),
    ("shape of numbers", lambda: mtf.Shape([4, 8]),
     ShapeError, "not a dimension: 4; write mtf.Dimension(name, size), or a pair (name, size)"),
    ("shape dict", lambda: mtf.Shape({"batch": 4}),
     ShapeError, "not a dimension: 'batch'; write mtf.Dimension(name, size), or a pair"),
    ("shape of text list", lambda: mtf.Shape(["batch", "hidden"]),
     ShapeError, "not a dimension: 'batch'; write mtf.Dimension(name, size), or a pair"),
    ("shape text negative", lambda: mtf.convert_to_shape("batch:-4"),
     ShapeError, "not of the form name:size"),
    ("shape text no size", lambda: mtf.convert_to_shape("batch hidden:4"),
     ShapeError, "not of the form name:size"),
    ("shape int", lambda: mtf.convert_to_shape(5),
     ShapeError, "not a shape: 5; give an mtf.Shape, a list of dimensions, or text such as"),
    ("shape float sizes", lambda: mtf.convert_to_shape([("batch", 4.5)]),
     ShapeError, "the size of dimension 'batch' must be an integer, not 4.5"),
    ("shape twice", lambda: mtf.Shape([BATCH, BATCH]),
     ShapeError, 'dimension "batch" stands twice in [batch:4 batch:4]; rename one of them'),
    ("shape minus absent", lambda: X.shape - "length:3",
     ShapeError, 'no dimension "length" in [batch:4 hidden:8]'),
    ("shape plus twice", lambda: X.shape + [BATCH],
     ShapeError, 'dimension "batch" stands twice in [batch:4 hidden:8 batch:4]; rename one'),
    ("shape plus int", lambda: X.shape + 3,
     ShapeError, "not a shape: 3; give an mtf.Shape, a list of dimensions, or text such as"),
    ("axis None", lambda: X.shape.axis(None),
     ShapeError, "a dimension or its name is needed, not None"),
    ("axis int", lambda: X.shape.axis(0),
     ShapeError, "a dimension or its name is needed, not 0"),
    ("has None", lambda: X.shape.has(None),
     ShapeError, "a dimension or its name is needed, not None"),
    ("index str", lambda: X.shape["batch"],
     ShapeError, "a position is needed, not 'batch'; by name it is get_dim_by_name(name) of"),
    ("index far", lambda: X.shape[7],
     IndexError, "[batch:4 hidden:8] has 2 dimensions, and none at position 7"),
    ("combined none", lambda: mtf.combined_dimension([]),
     ShapeError, "combined_dimension of no dimensions needs a name"),
    ("combined of tensor", lambda: mtf.combined_dimension(X),
     UsageError, "x [batch:4 hidden:8] float32 cannot be iterated; use mtf.unstack(x, dim)"),
    ("convert dim text", lambda: mtf.convert_to_dimension("hidden"),
     ShapeError, "not a dimension: 'hidden'; write mtf.Dimension(name, size), or a pair"),
    ("convert dim triple", lambda: mtf.convert_to_dimension(("hidden", 8, 9)),
     ShapeError, "not a dimension: ('hidden', 8, 9); write mtf.Dimension(name, size), or a"),
    ("rename_dimension absent", lambda: mtf.rename_dimension(X, "hiden", "h"),
     ShapeError, 'no dimension "hiden" in [batch:4 hidden:8]; did you mean "hidden"?'),
    ("rename_dimension to existing", lambda: mtf.rename_dimension(X, "hidden", "batch"),
     ShapeError, '[batch:4 hidden:8] has a dimension "batch" already; choose another name'),
    ("rename to number", lambda: mtf.rename_dimension(X, "hidden", 3),
     ShapeError, "a dimension or its name is needed, not 3"),
    ("replace dims size", lambda: mtf.replace_dimensions(X, [HIDDEN], [("a", 3)]),
     ShapeError, "[hidden:8] has 8 elements and [a:3] has 3"),
    ("reshape size", lambda: mtf.reshape(X, "batch:4 hidden:9"),
     ShapeError, "[batch:4 hidden:8] has 32 elements and [batch:4 hidden:9] has 36; a"),
    ("reshape text", lambda: mtf.reshape(X, "batch"),
     ShapeError, "not of the form name:size"),
    ("reshape none", lambda: mtf.reshape(X, None),
     ShapeError, 'a shape is needed here, and None was given; for a scalar give [] or ""'),
    ("transpose other", lambda: mtf.transpose(X, "batch:4 width:8"),
     ShapeError, "[batch:4 hidden:8] and [batch:4 width:8] do not have the same dimensions;"),
    ("broadcast loses", lambda: mtf.broadcast(X, "batch:4"),
     ShapeError, 'new_shape [batch:4] lacks dimension "hidden" of [batch:4 hidden:8]'),
    ("mean of none", lambda: mtf.reduce_mean(EMPTY, reduced_dim="none"),
     ShapeError, '[batch:4 none:0] has no elements along "none", so they have no mean'),
    ("max of none", lambda: mtf.reduce_max(EMPTY, reduced_dim="none"),
     ShapeError, '[batch:4 none:0] has no elements along "none", so they have no maximum'),
    ("min of none", lambda: mtf.reduce_min(EMPTY),
     ShapeError, '[batch:4 none:0] has no elements along "none", so they have no minimum'),
    ("argmax none", lambda: mtf.argmax(EMPTY, "none"),
     ShapeError, 'dimension "none" has size 0 and no largest element'),
    ("top_k none", lambda: mtf.top_k(EMPTY, "none", ("k", 1)),
     ShapeError, 'k_dim "k" has size 1, and "none" only 0 elements'),
    ("sum positional", lambda: mtf.reduce_sum(X, "hidden"),
     UsageError, "name the second argument: output_shape=... or reduced_dim=..."),
    ("sum both", lambda: mtf.reduce_sum(X, output_shape="batch:4", reduced_dim="hidden"),
     ShapeError, "give output_shape or reduced_dim, not both"),
    ("sum misspelt", lambda: mtf.reduce_sum(X, reduced_dim="hiden"),
     ShapeError, 'no dimension "hiden" in [batch:4 hidden:8]; did you mean "hidden"?'),
    ("sum list", lambda: mtf.reduce_sum(X, reduced_dim=["hidden"]),
     ShapeError, "not a dimension: ['hidden']; write mtf.Dimension(name, size), or a pair"),
    ("sum int dim", lambda: mtf.reduce_sum(X, reduced_dim=1),
     ShapeError, "not a dimension: 1; write mtf.Dimension(name, size), or a pair (name, size)"),
    ("sum bool", lambda: mtf.reduce_sum(FLAGS),
     DtypeError, "a number is needed, not bool; convert with mtf.cast, or use mtf.reduce_any"),
    ("sum axis kw", lambda: mtf.reduce_sum(X, axis=1),
     UsageError, "got an unexpected keyword argument 'axis'; its parameters are x,"),
    ("mean int", lambda: mtf.reduce_mean(IDS),
     DtypeError, "the mean of int32 is not a int32; use mtf.cast first"),
    ("any float", lambda: mtf.reduce_any(X),
     DtypeError, "a bool tensor is needed, not float32; compare first, as in"),
    ("max complex", lambda: mtf.reduce_max(COMPLEX),
     DtypeError, "complex64 has no order; take mtf.real, mtf.imag or mtf.abs"),
    ("softmax int", lambda: mtf.softmax(IDS, "batch"),
     DtypeError, "a floating tensor is needed, not int32; convert with mtf.cast"),
    ("softmax None", lambda: mtf.softmax(X, None),
     ShapeError, "a dimension is needed here"),
    ("softmax size", lambda: mtf.softmax(X, ("hidden", 9)),
     ShapeError, 'dimension "hidden" has size 8 in [batch:4 hidden:8], not 9'),
    ("top_k too many", lambda: mtf.top_k(X, "hidden", ("k", 9)),
     ShapeError, 'k_dim "k" has size 9, and "hidden" only 8 elements'),
    ("top_k existing", lambda: mtf.top_k(X, "hidden", ("batch", 4)),
     ShapeError, '[batch:4 hidden:8] has a dimension "batch" already; choose another name'),
    ("nth", lambda: mtf.nth_largest_element(X, 8, "hidden"),
     ShapeError, 'dimension "hidden" of size 8 has no element number 8'),
    ("nth neg", lambda: mtf.nth_largest_element(X, -1, "hidden"),
     ShapeError, 'dimension "hidden" of size 8 has no element number -1'),
    ("sort direction", lambda: mtf.sort(X, "hidden", "UP"),
     UsageError, "the direction is 'ASCENDING' or 'DESCENDING', not 'UP'"),
    ("cumsum dim", lambda: mtf.cumsum(X, "h"),
     ShapeError, 'no dimension "h" in [batch:4 hidden:8]'),
    ("sort complex", lambda: mtf.sort(COMPLEX, "hidden"),
     DtypeError, "complex64 has no order; convert with mtf.cast"),
    ("pool size", lambda: mtf.pool_tensor_1d(X, "hidden", pool_size=3),
     ShapeError, 'pool_size 3 does not divide dimension "hidden" of size 8'),
    ("stride zero", lambda: mtf.stride_tensor_1d(X, "hidden", 0),
     ShapeError, 'pool_size 0 does not divide dimension "hidden" of size 8'),
    ("cholesky not square", lambda: mtf.cholesky(X, "batch", "hidden"),
     ShapeError, "[batch:4] by [hidden:8] is not square"),
    ("cholesky same", lambda: mtf.cholesky(X, "batch", "batch"),
     ShapeError, 'rows and columns of a matrix are two dimensions, and "batch" is given for'),
    ("fft size", lambda: mtf.fft(X, "hiden"),
     ShapeError, 'no dimension "hiden" in [batch:4 hidden:8]; did you mean "hidden"?'),
    ("fft bool", lambda: mtf.fft(FLAGS, "hidden"),
     DtypeError, "a complex tensor is needed, not bool; use mtf.complex, mtf.cast or mtf.rfft"),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_is_no_dimension_or_shape_is_named(
    refused: Callable[..., None], wrong: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    refused(wrong, kind, words)
