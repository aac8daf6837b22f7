"""Rules for activations and for places of a program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import LayoutError, LayoutWarning
from meshtf.layout import convert_to_layout_rules
from meshtf.planning.layouts.rules_by_place import RuleSet, unused_rules

pytestmark = pytest.mark.quick

BATCH, WIDTH, INNER = mtf.Dimension("batch", 4), mtf.Dimension("width", 8), mtf.Dimension("inner", 8)
INPUTS = {"x": mtf.TensorSpec([BATCH, WIDTH])}


def layer(x: mtf.Tensor, _: Any = None) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
    (x,) = [x] if isinstance(x, mtf.Tensor) else x
    w = mtf.get_variable(x.mesh, "w", [WIDTH, INNER])
    y = mtf.einsum([mtf.tanh(mtf.einsum([x, w], [BATCH, INNER])), w], [BATCH, WIDTH])
    return [x + y], []


def stacked(*, unroll: bool = False) -> Callable[..., mtf.Tensor]:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        with mtf.variable_scope("encoder"):
            (x,), _ = mtf.layer_stack(layer, [x], mtf.Dimension("layers", 2), unroll=unroll)
        with mtf.variable_scope("head"):
            (x,), _ = layer(x)
        loss = mtf.reduce_sum(mtf.square(x))
        mtf.optimize.AdamOptimizer(0.1).minimize(loss)
        return loss

    return step


def lowered(
    layout: mtf.LayoutRules | str | dict[str, Any], fn: Callable[..., Any] | None = None, **options: Any
) -> mtf.Function:
    mesh_impl = mtf.PlanMeshImpl("rows:2;cols:2", layout, shard_weight_update=False, **options)
    return mtf.function(fn or stacked(), mesh_impl, INPUTS)


def layouts(step: mtf.Function) -> dict[str, str]:
    return {tensor.name: tensor.layout for tensor in step.report().tensors}


def test_rules_of_activations_count_beside_what_the_layout_splits() -> None:
    rules = RuleSet(
        convert_to_layout_rules("batch:rows;width:rows;inner:cols"),
        convert_to_layout_rules("width:cols"),
        frozenset({"width", "inner"}),
    )
    nowhere = ((), ())

    def axes(shape: str) -> list[tuple[str, ...]]:
        return list(rules.axes(mtf.convert_to_shape(shape), nowhere).values())

    assert axes("batch:4 width:8") == [("rows",), ("cols",)]  # in place of the layout's
    assert axes("batch:4 width:8 inner:8") == [("rows",), (), ("cols",)]  # cols split another dimension
    assert axes("width:8 inner:8") == [("rows",), ("cols",)]  # a weight


def test_a_place_may_be_a_scope_a_pattern_or_a_name() -> None:
    base = layouts(lowered("batch:rows;inner:cols"))
    assert base["head/w"] == "width:8 inner:8/cols"
    scope = layouts(lowered("batch:rows;inner:cols;head{inner:rows}"))
    assert (scope["head/w"], scope["head/w/adam_m"]) == ("width:8 inner:8/rows",) * 2
    assert scope["head/tanh"] == "batch:4 inner:8/rows"  # the rows no longer split the batch
    assert scope["encoder/layer/w"] == base["encoder/layer/w"]
    name = layouts(lowered({"batch": "rows", "inner": "cols", "head/tanh": {"inner": ()}}))
    assert (name["head/tanh"], name["head/w"]) == ("batch:4/rows inner:8", "width:8 inner:8/cols")
    last = layouts(lowered("batch:rows;inner:cols;head/.*{inner:rows};head/w{inner:;width:cols}"))
    assert last["head/w"] == "width:8/cols inner:8"


def test_what_becomes_of_weights_in_an_update_stays_where_they_are() -> None:
    step = lowered("batch:rows;head{width:rows+cols}")
    (of_gradients,) = [c for c in step.report().collectives if "batch" not in c.shape]
    assert (of_gradients.kind, of_gradients.operation) == ("all_reduce", "gradients/loop")


@pytest.mark.parametrize("unroll", [False, True])
def test_all_layers_of_a_stack_have_the_same_names_in_a_scan_and_unrolled(unroll: bool) -> None:
    found = layouts(lowered(r"batch:rows;encoder/layer_\d+{inner:cols}", stacked(unroll=unroll)))
    name = "encoder/layer_001/w" if unroll else "encoder/layer/w"
    assert found[name].endswith("width:8 inner:8/cols")
    assert found["head/w"] == "width:8 inner:8"


def test_one_layer_is_laid_out_otherwise_where_layers_are_unrolled() -> None:
    one = "batch:rows;encoder/layer_001{inner:cols}"
    found = layouts(lowered(one, stacked(unroll=True)))
    assert (found["encoder/layer_000/w"], found["encoder/layer_001/w"]) == ("width:8 inner:8", "width:8 inner:8/cols")
    with pytest.raises(
        LayoutError, match=r"are for some layers of .encoder/layer. only.*one scan.*unroll=True"
    ) as caught:
        lowered(one)
    assert 'give the rules to "encoder/layer_.*"' in str(caught.value)


def test_parameters_and_activations_may_have_rules_by_place_too() -> None:
    step = lowered("batch:rows", parameter_layout="head{width:cols}", activation_layout="head{width:cols}")
    kept = {v.name: v.layout for v in step.report().variables}
    assert (kept["head/w"], kept["encoder/layer/w"]) == ("width:8/cols inner:8", "layers:2 width:8 inner:8")
    found = layouts(step)
    assert (found["head/w"], found["head/add"]) == ("width:8 inner:8", "batch:4/rows width:8/cols")


def test_rules_by_place_change_no_result() -> None:
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    for unroll in (False, True):
        one = mtf.testing.interpret(stacked(unroll=unroll), {"x": (INPUTS["x"].shape, x)}, "all:1")
        for layout, activations in [
            ("batch:rows;head{inner:rows+cols}", "width:cols"),
            (r"inner:cols;encoder/layer.*{inner:rows;width:cols};head/w{width:rows}", "batch:rows;head{batch:}"),
        ]:
            many = mtf.testing.interpret(
                stacked(unroll=unroll),
                {"x": (INPUTS["x"].shape, x)},
                "rows:2;cols:2",
                layout,
                activation_layout=activations,
            )
            mtf.testing.assert_close(many.results, one.results, terms=(6, 8, 8, 32), dtype="float32")
            for name, value in one.variables.items():
                # Adam's first step is of the rate's size wherever the gradient is not rounding alone.
                if not name.endswith("adam_v"):
                    np.testing.assert_allclose(many.variables[name], value, atol=2e-4, err_msg=name)


def test_rules_of_no_dimension_are_named_with_the_nearest() -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "batch:8")
    (message,) = unused_rules(convert_to_layout_rules("batsh:rows;batch:cols"), [x.operation])
    assert message.startswith('layout rule "batsh:rows" has no effect: the program has no dimension "batsh"')
    assert 'did you mean "batch"' in message


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (
            "hed{inner:rows}",
            '"hed{inner:rows}" has no effect: no scope and no name of the program matches "hed"; did you mean "head"?',
        ),
        ("q.*{inner:rows}", 'matches "q.*"; its outermost scopes are adam, encoder, '),
        (
            "head{iner:rows}",
            '"head{iner:rows}" has no effect: nothing there has a dimension "iner"; did you mean "inner"?',
        ),
    ],
)
def test_a_place_that_is_not_there_is_a_warning(layout: str, expected: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lowered(layout)
    (warning,) = caught
    assert issubclass(warning.category, LayoutWarning)
    assert expected in str(warning.message)


def test_an_override_of_one_tensor_has_no_place() -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "batch:8")
    with pytest.raises(LayoutError, match='with_layout is for one tensor; leave the place "head" out'):
        mtf.with_layout(x, "head{batch:rows}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch:rows;encoder{d=rows}", "    batch:rows;encoder{d=rows}\n                       ^^^^^^"),
        (
            "encoder{d:rows",
            'braces do not match in layout "encoder{d:rows"; the rules of a place are place{dimension:axis}',
        ),
        ("enc(:{d:rows}", 'the place "enc(:" of layout rules is no regular expression: missing )'),
        ("{d:rows}", '"" cannot be the place of layout rules: give the name of a scope, such as "encoder"'),
        ("a{d:rows};a{c:rows}", 'two groups of layout rules for "a"; write them as one'),
        ({"a": {"b": {"c": "rows"}}}, 'the layout rules of "a" have a place inside, "b"; write it by itself'),
    ],
)
def test_what_is_no_place_is_told(text: Any, expected: str) -> None:
    with pytest.raises(LayoutError) as caught:
        convert_to_layout_rules(text)
    assert expected in str(caught.value)


def test_rules_by_place_are_written_as_they_are_read() -> None:
    rules = convert_to_layout_rules("batch:rows;encoder/.*{d:rows+cols;heads:};a{b:c}")
    assert convert_to_layout_rules(str(rules)) == rules
    assert (
        convert_to_layout_rules({"batch": "rows", "encoder/.*": {"d": ("rows", "cols"), "heads": ""}, "a": {"b": "c"}})
        == rules
    )
