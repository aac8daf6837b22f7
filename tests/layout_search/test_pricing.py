"""A layout is planned and priced once, also when other rules say the same."""

from __future__ import annotations

import meshtf as mtf
from meshtf.layout_search._pricing import MeshLayout, Pricing
from tests.layout_search.programs import PAPER, perceptron


def layout(rules: str, parameters: str | None = None, activations: str | None = None) -> MeshLayout:
    convert = mtf.convert_to_layout_rules
    others = [None if text is None else convert(text) for text in (parameters, activations)]
    return MeshLayout(mtf.convert_to_shape("rows:2;cols:2"), convert(rules), *others)


def priced(program: mtf.Function, *layouts: MeshLayout) -> Pricing:
    machine = mtf.costs.load_machine("v5e")
    pricing = Pricing(program.lowering, [program.results], machine, mtf.MeshOptions())
    for each in layouts:
        assert pricing.price(each) is not None
    return pricing


def test_rules_that_split_every_tensor_in_the_same_way_are_planned_once() -> None:
    first = layout("batch:rows;d_ff:cols")
    same = [
        layout("d_ff:cols;batch:rows"),
        layout("batch:rows;d_ff:cols", activations="d_ff:cols"),
        layout("batch:rows;d_ff:cols", activations="d_model:rows"),  # the batch has the axis in all activations
    ]
    pricing = priced(perceptron(), first, *same)
    assert pricing.count == 1
    assert pricing.planned_operations == pricing.operations
    assert {pricing.price(each) for each in same} == {pricing.price(first)}


def test_each_table_of_rules_counts_where_it_changes_a_tensor() -> None:
    own = "batch:rows;d_ff:cols"
    layouts = [
        layout(own),
        layout(own, activations="d_model:cols"),
        layout(own, parameters="d_ff:cols"),  # kept as it is used, but gathered for each use
        layout(own, parameters="d_ff:rows+cols"),
        layout(f"{own};w{{d_ff:rows}}"),
    ]
    assert priced(perceptron(), *layouts).count == len(layouts)


def test_beside_an_override_rules_count_that_alone_change_nothing() -> None:
    """Where the batch is whole, the activation rule has the axis that the batch has elsewhere."""

    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", "d_model:32 d_ff:64")
        return mtf.einsum([mtf.replicate(x), w], "batch:64 d_ff:64")

    program = mtf.function(step, PAPER, {"x": mtf.TensorSpec("batch:64 d_model:32")})
    layouts = [layout("batch:rows"), layout("batch:rows", activations="d_ff:rows")]
    pricing = priced(program, *layouts)
    assert pricing.count == 2
    assert len({each.seconds for each in pricing.priced}) == 2
