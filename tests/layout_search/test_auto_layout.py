"""The search for a layout: the best there is where that is known, what it says, and how it refuses."""

from __future__ import annotations

import ast
import dataclasses
import functools
import math

import pytest

import meshtf as mtf
from meshtf.errors import LayoutError, MachineError, UsageError
from meshtf.layout_search import LayoutChoice, MeshLayout, _overrides, _search, auto_layout
from meshtf.layout_search._pricing import Pricing
from meshtf.layout_search.candidate_meshes import candidate_meshes
from meshtf.lowering.report.text_table import bytes_text, seconds_text
from meshtf.testing.legal_layouts import shapes_of
from tests.layout_search.programs import PAPER, perceptron, random_program, two_towers

MESH = "rows:2;cols:2"
V3 = mtf.costs.load_machine("v3")


def enumerated(program: mtf.Function, mesh: mtf.Shape) -> float:
    """Seconds of the best of all rules for all tensors."""
    pricing = Pricing(program.lowering, [program.results], V3, mtf.MeshOptions())
    for rules in mtf.testing.legal_layouts(shapes_of(program.graph), mesh):
        pricing.price(MeshLayout(mesh, rules))
    return pricing.priced[0].seconds


def searched(program: mtf.Function, mesh: mtf.Shape) -> float:
    """The same of what a search finds, were there more layouts than can be priced, and no overrides."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_overrides, "_MOST_PLANS", 0)
        patch.setattr(_search, "MOST_LAYOUTS", 0)
        found = auto_layout(program, mesh, V3)
    assert not found.is_proven
    return found.best.seconds


def check_searches(count: int) -> None:
    """In 95 of 100 programs it is the best, and never by a twentieth slower."""
    meshes = [mtf.convert_to_shape(mesh) for mesh in (MESH, "rows:4")]
    pairs = [(random_program(seed), meshes[seed % 2]) for seed in range(count)]
    ratios = [searched(*pair) / enumerated(*pair) for pair in pairs]
    assert sum(ratio <= 1.000001 for ratio in ratios) >= 0.95 * count, sorted(ratios)[-10:]
    assert max(ratios) <= 1.05


@functools.cache
def found_for_perceptron() -> LayoutChoice:
    return mtf.auto_layout(perceptron(), MESH, "v5e")


def test_of_few_layouts_all_are_priced() -> None:
    found = auto_layout(random_program(0), "rows:4", V3)
    assert found.is_proven
    beside_one = auto_layout(random_program(0), "one:1;rows:4", V3)
    assert beside_one.layouts_priced == found.layouts_priced
    assert beside_one.is_proven
    assert found.best.seconds <= enumerated(random_program(0), mtf.convert_to_shape("rows:4"))
    assert "the best of all" in str(found)


def test_a_search_finds_the_best_of_random_programs() -> None:
    check_searches(5)


@pytest.mark.long
def test_a_search_finds_the_best_of_many_random_programs() -> None:
    check_searches(200)


def test_what_is_found_is_what_a_plan_takes() -> None:
    """It is no slower than any layout of one's own, and its report says what the choice says."""
    program, found = perceptron(), found_for_perceptron()
    machine = mtf.costs.load_machine("v5e")
    for rules in ("", "batch:rows", "batch:rows+cols", "batch:rows;d_ff:cols", "d_ff:rows+cols"):
        lowering = mtf.Lowering(program.graph, {program.lowering.mesh: mtf.PlanMeshImpl(MESH, rules)})
        assert found.best.seconds <= mtf.costs.predict(lowering.report([program.results]), machine).seconds
    assert found.least_seconds < found.best.seconds
    assert sum(seconds for _, seconds in found.best.parts) == pytest.approx(found.best.seconds)


def test_a_choice_says_what_it_chose_and_why() -> None:
    found = auto_layout(perceptron(), MESH, "v5e", keep="batch:rows")
    text = str(found)
    assert 'Training.mesh_shape = "rows:2;cols:2"' in text
    assert f'Training.layout = "{found.layout.layout}"' in text
    assert found.layout.layout.axes("batch")[0] == "rows"
    assert f"{seconds_text(found.best.seconds)} a step as predicted: " in text
    assert f"{bytes_text(found.best.peak_bytes).strip()} a core of 16.0 GiB" in text
    products = dict(found.best.parts)["products"]
    assert f"no layout takes less than {seconds_text(found.least_seconds)}: all products at full speed" in text
    assert f"products take {seconds_text(products)} and all else {seconds_text(found.best.seconds - products)}" in text
    assert "% slower: mesh_shape = 'rows:2;cols:2'; layout = " in text
    assert " a core of inf B" in str(dataclasses.replace(found, memory_per_core=math.inf))
    assert found.gin_text("Other").startswith('Other.mesh_shape = "')


def test_a_choice_is_written_as_gin_reads_it() -> None:
    found = found_for_perceptron()
    rules = mtf.LayoutRules({'"batch"': "rows", r"\bencoder": {"d_ff": "cols"}})
    best = dataclasses.replace(found.best, choice=MeshLayout(found.layout.mesh_shape, rules))
    layout = dataclasses.replace(found, best=best).gin_text().splitlines()[1]
    assert ast.literal_eval(layout.removeprefix("Training.layout = ")) == str(rules)


def test_a_mesh_of_so_many_cores_is_found() -> None:
    found = auto_layout(perceptron(), "auto:4", "v5e")
    assert found.layout.mesh_shape.size == 4
    assert found.best.seconds <= found_for_perceptron().best.seconds
    assert [[axis.size for axis in mesh] for mesh in candidate_meshes("auto:12")] == [[12], [4, 3], [6, 2], [3, 2, 2]]
    assert candidate_meshes("auto:12")[-1].dimension_names == ["rows", "cols", "planes"]
    assert [mesh.size for mesh in candidate_meshes("auto:1")] == [1]
    assert len(candidate_meshes("auto:720720")) == 61


def test_meshes_that_cannot_have_the_rules_to_keep_are_left_out() -> None:
    """Such as those of one axis, which have no `cols`. Where none can, it says why."""
    found = auto_layout(perceptron(), "auto:4", "v5e", keep="batch:cols")
    assert found.layout.mesh_shape == mtf.convert_to_shape("rows:2;cols:2")
    assert "cols" in found.layout.layout.axes("batch")
    with pytest.raises(LayoutError, match=r'names mesh axis "cols", which mesh \[rows:3\] does not have'):
        auto_layout(perceptron(), "auto:3", "v5e", keep="batch:cols")
    with pytest.raises(LayoutError, match=r'no layout on mesh \[rows:4\] that keeps "batch:rows;d_model:rows"'):
        auto_layout(perceptron(), "auto:4", "v5e", keep="batch:rows;d_model:rows")


def test_the_bound_has_one_side_of_a_branch() -> None:
    """The longer one, which the prediction takes."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", "d_model:4096 d_ff:4096")
        sides = [lambda x=x: mtf.einsum([x, w], "batch:4096 d_ff:4096") for x in (x, 2.0 * x)]
        return mtf.cond(mtf.less(mtf.reduce_sum(x), 1.0), *sides)[0]

    step = mtf.function(program, PAPER, {"x": mtf.TensorSpec("batch:4096 d_model:4096")})
    found = auto_layout(step, "rows:2", V3)
    products = dict(found.best.parts)["products"]
    assert 0.9 * products < found.least_seconds <= products


def test_what_fits_is_found_although_it_is_slower() -> None:
    quickest = found_for_perceptron()
    smallest = min([quickest.best, *quickest.runners_up], key=lambda priced: priced.peak_bytes).peak_bytes
    found = auto_layout(perceptron(), MESH, "v5e", memory_per_core=smallest)
    assert found.best.peak_bytes <= smallest
    assert found.seconds_in_any_memory == quickest.best.seconds


def test_where_nothing_fits_it_says_what_is_too_large_and_which_mesh_would_do() -> None:
    program = perceptron()
    pricing = Pricing(program.lowering, [program.results], V3, mtf.MeshOptions())
    rules = mtf.convert_to_layout_rules("d_ff:rows+cols")
    split = pricing.price(MeshLayout(mtf.convert_to_shape(MESH), rules))
    assert split is not None
    message = (
        r'(?s)no layout of program "step" that was tried on mesh \[rows:2 cols:2\] fits into [\d.]+ KiB per core: the '
        r'smallest takes [\d.]+ KiB, [\d.]+ KiB too much, with layout ".*"\.?.*\n'
        r"The largest parts of it on each core: \[.*\] float32 of .*, "
        r"[\d.]+ KiB; .*\nOn mesh \[rows:\d+ cols:\d+\] the same rules take [\d.]+ KiB"
    )
    with pytest.raises(LayoutError, match=message):
        auto_layout(program, MESH, "v5e", memory_per_core=0.6 * split.peak_bytes)
    with pytest.raises(LayoutError, match="No mesh up to 256 times as large would be enough"):
        auto_layout(perceptron(), MESH, "v5e", memory_per_core=1)
    virtual = dataclasses.replace(mtf.costs.load_machine("h100"), processors=2, memory_bytes=2e5)
    with pytest.raises(LayoutError, match="No mesh up to 256 times as large would be enough"):
        auto_layout(perceptron(), "rows:2", virtual)


def test_rules_that_contradict_one_another_are_refused() -> None:
    message = r'has no layout on mesh \[rows:2 cols:2\] that keeps "batch:rows;d_model:rows": .* both split over'
    with pytest.raises(LayoutError, match=message):
        auto_layout(perceptron(), MESH, "v5e", keep="batch:rows;d_model:rows")
    with pytest.raises(LayoutError, match='names mesh axis "colums"'):
        auto_layout(perceptron(), MESH, "v5e", keep="batch:colums")
    with pytest.raises(LayoutError, match=r'rule to keep "btach:rows" has no effect.*; did you mean "batch"'):
        auto_layout(perceptron(), MESH, "v5e", keep="btach:rows")


def test_what_a_program_says_of_a_tensor_stays() -> None:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", "d_model:32 d_ff:64")
        return mtf.with_layout(mtf.relu(mtf.einsum([x, w], "batch:64 d_ff:64")), "d_ff:y")

    paper = mtf.PlanMeshImpl("x:2;y:2", "")
    program = mtf.function(step, paper, {"x": mtf.TensorSpec("batch:64 d_model:32")})
    found = auto_layout(program, "x:2;y:2", "v5e")
    assert str(found.layout.layout) == "batch:x;d_ff:y"
    with pytest.raises(LayoutError, match=r'override names mesh axis "y", which mesh \[rows:2 cols:2\] does not have'):
        auto_layout(program, "auto:4", "v5e")


def test_places_have_rules_of_their_own_where_that_pays() -> None:
    """With the batch split, few rows would have all weights sent: these are split in place of the rows, there alone."""
    program = two_towers()
    found = auto_layout(program, "all:4", "v5e", keep="batch:all")
    assert str(found.layout.layout).startswith("batch:all;few_rows/w{")
    assert 'Training.layout = "batch:all;few_rows/w{' in found.gin_text()
    assert "with overrides by place where they pay" in str(found)
    pricing = Pricing(program.lowering, [program.results], mtf.costs.load_machine("v5e"), mtf.MeshOptions())
    written = mtf.convert_to_layout_rules(found.layout.bindings()["layout"] or "")
    by_place, without = (
        pricing.price(MeshLayout(found.layout.mesh_shape, rules)) for rules in (written, mtf.LayoutRules(written.rules))
    )
    assert by_place is not None
    assert without is not None
    assert by_place.seconds == found.best.seconds < 0.7 * without.seconds


def test_a_search_that_is_cut_short_says_so() -> None:
    found = auto_layout(perceptron(), MESH, "v5e", max_planned_operations=60)
    assert found.was_cut_short
    assert "as the search had to end before it finished" in str(found)
    assert "it reached its limit of 60 planned operations, " in str(found)
    assert "--search_operations=240 (max_planned_operations of auto_layout) lets it continue" in str(found)
    limit = r"60 planned operations \(--search_operations\)"
    with pytest.raises(LayoutError, match=rf"(?s)no layout .*\nThe search reached its limits, {limit}, before it"):
        auto_layout(perceptron(), MESH, "v5e", max_planned_operations=60, memory_per_core=1)
    with pytest.raises(UsageError, match=r"before it found one that .* than 250,000 planned .* and 1e-09 s"):
        auto_layout(perceptron(), MESH, "v5e", max_seconds=1e-9)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(MachineError, match='no machine "v33"'):
        auto_layout(perceptron(), MESH, "v33")
    with pytest.raises(MachineError, match='no machine "None"'):
        auto_layout(perceptron(), MESH, None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="memory_per_core must be positive, and is '16GB'"):
        auto_layout(perceptron(), MESH, "v5e", memory_per_core="16GB")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_planned_operations must be positive, and is 0"):
        auto_layout(perceptron(), MESH, "v5e", max_planned_operations=0)
    with pytest.raises(UsageError, match='mesh "auto:0" has no cores'):
        auto_layout(perceptron(), "auto:0", "v5e")
