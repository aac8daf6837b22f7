"""Programs whose annotations are their inputs: the same programs, and mistakes in annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ContractError, FeedError, GraphError, MeshtfError, ShapeError, UsageError

pytestmark = pytest.mark.quick

PAPER = mtf.PlanMeshImpl("rows:2;cols:2", "batch:rows;hidden:cols")
SPECS = {"images": mtf.TensorSpec("batch:4 pixels:8"), "labels": mtf.TensorSpec("batch:4", tf.int32)}


def step(images: mtf.f32["batch:4 pixels:8"], labels: mtf.i32["batch"]) -> mtf.f32[""]:
    classes = mtf.Dimension("classes", 3)
    h = mtf.layers.dense(images, [mtf.Dimension("hidden", 16)], activation=mtf.relu, name="hidden")
    logits = mtf.layers.dense(h, [classes], name="logits")
    loss = mtf.reduce_mean(mtf.layers.softmax_cross_entropy_with_logits(logits, mtf.one_hot(labels, classes), classes))
    mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
    return loss


def operations(program: mtf.Function) -> list[tuple[object, ...]]:
    return [
        (type(o), o.name, str(o.scoped_name), [x.name for x in o.inputs], list(map(str, o.outputs)))
        for o in program.graph.every_operation()
    ]


def test_the_decorator_makes_the_program_that_the_function_makes() -> None:
    plain = mtf.function(step, PAPER, SPECS)
    assert len(operations(plain)) > 50
    for other in (mtf.function(PAPER)(step), mtf.function(step, PAPER), mtf.function(mesh_impl=PAPER)(step)):
        assert operations(other) == operations(plain)
        assert str(other.report()) == str(plain.report())


def test_options_of_the_decorator() -> None:
    store = mtf.VariableStore()

    @mtf.function(mtf.PlanMeshImpl("rows:2", "batch:rows"), variables=store, seed=7, name="named")
    def program(x: mtf.f32["batch:4"]) -> mtf.f32["batch"]:
        """Doubles."""
        return 2.0 * x

    assert (program.name, program.lowering.seed, program.variables is store) == ("named", 7, True)
    assert program.__doc__ == "Doubles."


def test_a_mesh_and_defaults_are_no_inputs() -> None:
    @mtf.function(mtf.PlanMeshImpl("rows:2", "batch:rows"))
    def program(x: mtf.f32["batch:4"], mesh: mtf.Mesh, scale: float = 2.0) -> mtf.Tensor:
        return scale * x + mtf.ones(mesh, "batch:4")

    assert str(program.results.shape) == "batch:4"


def test_annotations_beside_inputs_are_a_contract() -> None:
    with pytest.raises(ContractError, match=r'labels .batch:2. has "batch:2", and batch is 4: images .* fixed it'):
        mtf.function(step, PAPER, {**SPECS, "labels": mtf.TensorSpec("batch:2", tf.int32)})
    assert operations(mtf.function(step, PAPER, {"images": mtf.f32["batch:4 pixels:8"], "labels": mtf.i32["batch"]}))


def test_a_parameter_that_is_a_function_is_no_input() -> None:
    def program(
        x: mtf.f32["batch:4 hidden:2"], activation: Callable[[mtf.Tensor], mtf.f32["batch hidden"]] = mtf.relu
    ) -> mtf.f32["batch hidden"]:
        return activation(x)

    assert str(mtf.function(program, PAPER).results.shape) == "batch:4 hidden:2"


def result_of(hint: Any, body: Callable[[mtf.Tensor], Any]) -> mtf.Function:
    def program(x: mtf.f32["batch:4 hidden:2"]) -> Any:
        return body(x)

    program.__annotations__["return"] = hint
    return mtf.function(program, PAPER)


def annotated(**hints: Any) -> mtf.Function:
    def program(x: Any, y: Any = None) -> Any:
        return x

    program.__annotations__ = hints
    return mtf.function(program, PAPER)


class Model:
    def predict(self, x: mtf.f32["n:2"]) -> mtf.Tensor:
        return x


# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[MeshtfError], str]] = [
    ("result dtype", lambda: result_of(mtf.i32["batch hidden"], lambda x: x),
     ContractError, "the result [batch:4 hidden:2] is float32, and not int32; convert it with mtf.cast"),
    ("result size", lambda: result_of(mtf.f32["batch hidden:3"], lambda x: x),
     ContractError, 'the result [batch:4 hidden:2] has "hidden:2", and the annotation says 3'),
    ("result order", lambda: result_of(mtf.f32["hidden batch"], lambda x: x),
     ContractError, 'does not fit "hidden batch": the order is another; write mtf.transpose(x, "hidden batch")'),
    ("result count", lambda: result_of(tuple[mtf.f32[""], mtf.f32[""]], lambda x: x),
     ContractError, "the result is a meshtf.graph.tensor.Tensor, and not a list or a tuple of tensors"),
    ("result none", lambda: result_of(mtf.f32[""], lambda x: None),
     ContractError, "the result is None, and not an mtf.Tensor, mtf.f32[\"\"]"),
    ("not annotated", lambda: mtf.function(lambda x, y: x, PAPER, {"x": mtf.f32["n:2"]}),
     GraphError, 'lambda> takes "y", which inputs does not name; name it there, or annotate it: y: mtf.f32["batch:64'),
    ("one not annotated", lambda: mtf.function(PAPER)(lambda x: x),
     GraphError, 'takes "x", which inputs does not name; name it there, or annotate it: x: mtf.f32["batch:64'),
    ("a method", lambda: mtf.function(PAPER)(Model.predict),
     GraphError, "predict is a method; give that of an object: mtf.function(x.predict, mesh_impl)"),
    ("two sizes", lambda: annotated(x=mtf.f32["n:2"], y=mtf.f32["n:3"]),
     ShapeError, '"n" has size 2 in input "x" and 3 in "y"'),
    ("no shape", lambda: annotated(x=mtf.f32),
     GraphError, 'input "x", mtf.f32, has no shape of its own, which an input needs: mtf.f32["batch:64 hidden:8"]'),
    ("dots", lambda: annotated(x=mtf.f32["... n"]),
     GraphError, 'input "x", mtf.f32["... n"], has no shape of its own'),
    ("no dtype", lambda: annotated(x=mtf.Tensor["n:2"]),
     GraphError, 'input "x", mtf.Tensor["n:2"], has no element type of its own'),
    ("a list", lambda: annotated(x=list[mtf.f32["n:2"]]),
     GraphError, 'is annotated with list[mtf.f32["n:2"]], but an input must be one tensor'),
    ("text", lambda: annotated(x='mtf.f32["n:2 n"]'),
     GraphError, 'the annotation of "x" of program, mtf.f32["n:2 n"], cannot be evaluated: dimension "n" stands twice'),
    ("no such name", lambda: annotated(x='mtf.float32["n:2"]'),
     GraphError, "cannot be evaluated: AttributeError: module 'meshtf' has no attribute 'float32'"),
    ("twice", lambda: mtf.f32["n"]["m"],
     ShapeError, "mtf.f32[\"n\"] already has a shape, and takes no second one, 'm'"),
    ("a number", lambda: mtf.Tensor[3],
     ShapeError, 'an annotation takes text or dimensions in its brackets, as in mtf.f32["batch:64 hidden"], not'),
    ("swapped", lambda: mtf.function(PAPER, step),
     GraphError, "the function comes first: mtf.function(fn, mesh_impl); @mtf.function(mesh_impl) decorates one"),
    ("no parentheses", lambda: mtf.function(step),
     GraphError, "step needs a mesh: write mtf.function(step, mesh_impl), or decorate it with"),
    ("decorates no function", lambda: mtf.function(PAPER)(3),
     GraphError, "the first argument must be a function over mtf.Tensors, not int"),
    ("nothing", lambda: mtf.function(),
     GraphError, "the first argument must be a function over mtf.Tensors, not NoneType"),
    ("max plans", lambda: mtf.function(PAPER, max_plans=0)(step),
     UsageError, "max_plans must be a whole number of at least 1, and is 0"),
    ("inputs", lambda: mtf.function(step, PAPER, {"images": "batch:4"}),
     GraphError, 'input "images" must be an mtf.TensorSpec, not builtins.str'),
    ("graph of a mesh", lambda: mtf.Mesh(PAPER),
     GraphError, "the graph of a mesh must be an mtf.Graph, not PlanMeshImpl"),
    ("fed a fixed size", lambda: mtf.function(step, PAPER)(images=np.ones([2, 8], np.float32), labels=np.ones([2])),
     FeedError, 'input "images" must be [batch:4 pixels:8] float32, and has shape [2, 8]'),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_mistakes_are_named(wrong: Callable[[], Any], kind: type[MeshtfError], words: str) -> None:
    with pytest.raises(MeshtfError) as caught:
        wrong()
    text = str(caught.value)
    assert type(caught.value) is kind, text
    assert words in text, text
    assert text.count("\n  at ") == 1, text
    assert f"at {__file__}:" in text, text
