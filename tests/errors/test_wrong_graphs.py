"""Variables, scopes, gradients and control flow that are asked for wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, LayoutError, ShapeError, UsageError

MESH = mtf.Mesh(mtf.Graph())
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
IDS = mtf.placeholder(MESH, "batch:4", tf.int32, name="ids")
ARRAY = np.ones([4, 8], np.float32)
BATCH, HIDDEN = mtf.Dimension("batch", 4), mtf.Dimension("hidden", 8)

# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("variable no graph name", lambda: mtf.get_variable(MESH, "", "hidden:8"),
     GraphError, 'the name of a variable is text, such as "decoder" or "decoder/layer", and'),
    ("variable name number", lambda: mtf.get_variable(MESH, 3, "hidden:8"),
     GraphError, 'the name of a variable is text, such as "decoder" or "decoder/layer", and'),
    ("variable slash", lambda: mtf.get_variable(MESH, "a//b", "hidden:8"),
     GraphError, 'the name of a variable is text, such as "decoder" or "decoder/layer", and'),
    ("variable dtype", lambda: mtf.get_variable(MESH, "wdt", "hidden:8", tf.string),
     DtypeError, "tensors are of numbers or of bool, not of string"),
    ("variable int dtype", lambda: mtf.get_variable(MESH, "wint", "hidden:8", tf.int32),
     DtypeError, 'variable "wint" of int32 needs an initializer, such as mtf.zeros: the'),
    ("variable initializer number", lambda: mtf.get_variable(MESH, "wi", "hidden:8", initializer=0.0),
     ShapeError, 'the initial value of variable "wi" [hidden:8] is an array of shape []; for'),
    ("variable initializer class", lambda: mtf.get_variable(MESH, "wi2", "hidden:8", initializer=mtf.RandomNormal),
     GraphError, 'the initial value of variable "wi2" must be a function (mesh, shape,'),
    ("variable dims text", lambda: mtf.get_variable(MESH, "wd", ["hidden"]),
     ShapeError, "not a dimension: 'hidden'; write mtf.Dimension(name, size), or a pair"),
    ("variable no mesh", lambda: mtf.get_variable("w", "hidden:8"),
     GraphError, "mtf.get_variable: the mesh was left out, and no graph is being built here"),
    ("assign not variable", lambda: mtf.assign(X, X),
     GraphError, "x [batch:4 hidden:8] float32 is not a variable; give the result of mtf.get_variable"),
    ("assign text", lambda: mtf.assign("w", X),
     GraphError, "'w' is not a variable; give the result of mtf.get_variable"),
    ("assign number", lambda: mtf.assign(mtf.get_variable(MESH, "v", []), 1.0),
     GraphError, "the operand must be an mtf.Tensor, not float; bring values in as inputs of"),
    ("read_variable", lambda: mtf.read_variable("w"),
     GraphError, "'w' is not a variable; give the result of mtf.get_variable"),
    ("gradients int", lambda: mtf.gradients([IDS], [X]),
     DtypeError, "ids [batch:4] int32 is not floating: it has no gradient"),
    ("gradients of numpy", lambda: mtf.gradients([X], [ARRAY]),
     GraphError, "the operand must be an mtf.Tensor, not ndarray; bring values in as inputs"),
    ("gradients grad_ys", lambda: mtf.gradients([X], [X], grad_ys=[IDS]),
     ShapeError, "the gradient of x [batch:4 hidden:8] float32 must have its shape and"),
    ("gradients grad_ys count", lambda: mtf.gradients([X], [X], grad_ys=[]),
     ShapeError, "1 ys but 0 grad_ys"),
    ("stop_gradient np", lambda: mtf.stop_gradient(ARRAY),
     GraphError, "the operand must be an mtf.Tensor, not ndarray; bring values in as inputs"),
    ("custom_gradient", lambda: mtf.custom_gradient(3, [X], X),
     GraphError, "the function of mtf.custom_gradient must be a function of mtf.Tensors, and"),
    ("export name", lambda: mtf.export(X, 3),
     GraphError, 'the name of an export is text, such as "decoder" or "decoder/layer", and'),
    ("summary not scalar", lambda: mtf.scalar_summary("a", X),
     ShapeError, "a scalar is needed, not [batch:4 hidden:8]; reduce it, or use"),
    ("summary number", lambda: mtf.scalar_summary("a", 1.0),
     GraphError, "the operand must be an mtf.Tensor, not float; bring values in as inputs of"),
    ("print", lambda: mtf.Print(X, "x", "msg"),
     GraphError, "the printed value must be an mtf.Tensor, not str; bring values in as"),
    ("depend", lambda: mtf.depend(X, [3]),
     GraphError, "the dependency must be an mtf.Tensor, not int; bring values in as inputs"),
    ("with_layout axis", lambda: mtf.with_layout(X, "bach:rows"),
     LayoutError, 'no dimension "bach" in [batch:4 hidden:8]; did you mean "batch"?'),
    ("replicate dims", lambda: mtf.replicate(X, ["hiden"]),
     UsageError, "too many positional arguments; its parameters are x"),
    ("scan dim", lambda: mtf.scan(lambda c, x: (c, x), X, X, "nope"),
     ShapeError, 'no operand has dimension "nope", and a new dimension needs its size: "nope:size"'),
    ("scan fn", lambda: mtf.scan(3, X, X, "batch"),
     GraphError, "fn must be a function of the carried values and the parts of one element, not"),
    ("while cond", lambda: mtf.while_loop(lambda x: True, lambda x: [x], [X]),
     DtypeError, "cond_fn must return a bool scalar, and returned True"),
    ("while none", lambda: mtf.while_loop(lambda x: x, lambda x: [x], []),
     GraphError, "while_loop needs at least one value"),
    ("cond pred", lambda: mtf.cond(True, lambda x: x, lambda x: x, [X]),
     UsageError, "too many positional arguments; its parameters are predicate, true_fn,"),
    ("cond shapes", lambda: mtf.cond(mtf.less(mtf.reduce_sum(X), 1.0), lambda: X, lambda: mtf.reduce_sum(X)),
     ShapeError, "true_fn returned [batch:4 hidden:8] where false_fn returned []"),
    ("recompute", lambda: mtf.recompute_grad(X, [X]),
     GraphError, "the function of mtf.recompute_grad must be a function of mtf.Tensors, and"),
    ("serialize", lambda: mtf.serialize_training_step({"x": X}, lambda f: {}, "bach", 3),
     ShapeError, 'no operand has dimension "bach" (did you mean "batch"?), and a new dimension'),
    ("serialize dims", lambda: mtf.serialize_training_step({"x": X}, lambda f: {}, BATCH, 3),
     ShapeError, '"batch:4" does not divide into 3 micro-batches; these fit: [1, 2, 4]'),
    ("serialize neg", lambda: mtf.serialize_training_step({"x": X}, lambda f: {}, BATCH, 0),
     ShapeError, '"batch:4" does not divide into 0 micro-batches; these fit: [1, 2, 4]'),
    ("serialize noloss", lambda: mtf.serialize_training_step({"x": X}, lambda f: {}, BATCH, 2),
     GraphError, 'model_fn must return a scalar "loss", and returned None'),
    ("slicewise dims", lambda: mtf.slicewise(tf.identity, [X], splittable_dims="bach"),
     ShapeError, 'splittable dimension "bach" is in no operand'),
    ("VariableDType", lambda: mtf.get_variable(MESH, "wvd", "hidden:8", mtf.VariableDType("flot32")),
     DtypeError, 'not a dtype: \'flot32\'; did you mean "float32"?'),
    ("graph in", lambda: mtf.Graph(3),
     GraphError, 'the name of a graph is text, such as "decoder" or "decoder/layer", and not'),
    ("TensorSpec", lambda: mtf.TensorSpec("batch:4", "flot"),
     DtypeError, 'not a dtype: \'flot\'; did you mean "float64"?'),
    ("TensorSpec number", lambda: mtf.TensorSpec("batch:4", 4),
     DtypeError, "not a dtype: 4; give one such as tf.float32"),
    ("TensorSpec none", lambda: mtf.TensorSpec(None),
     ShapeError, 'a shape is needed here, and None was given; for a scalar give [] or ""'),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_no_graph_can_have_is_named(
    refused: Callable[..., None], wrong: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    refused(wrong, kind, words)
