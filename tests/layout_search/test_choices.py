"""Which names an axis of a mesh can split, and what rules they become."""

from __future__ import annotations

import meshtf as mtf
from meshtf.layout_search._choices import Choice, Choices, NamesOfShapes
from tests.layout_search.programs import perceptron

MESH = mtf.convert_to_shape("rows:2;cols:3")


def names(*shapes: str, mesh: mtf.Shape = MESH) -> NamesOfShapes:
    return NamesOfShapes([mtf.convert_to_shape(s) for s in shapes], mesh)


def test_no_axis_splits_two_dimensions_of_a_tensor() -> None:
    found = names("a:6 b:6", "b:6 c:6")
    assert found.largest_sets(0) == [frozenset("ac"), frozenset("b")]
    assert sorted(map(sorted, found.all_sets(0))) == [[], ["a"], ["a", "c"], ["b"], ["c"]]
    assert found.with_name(frozenset("ac"), "b") == frozenset("b")
    assert found.fits((frozenset("ac"), frozenset("b")))
    assert not found.fits((frozenset("ab"), frozenset()))


def test_of_many_largest_sets_those_tried_do_not_depend_on_hashes() -> None:
    """Each process has hashes of its own, and all must find one layout. Other names have other hashes, too."""
    first, second = (names(*(f"{p}a{n}:6 {p}b{n}:6" for n in range(8))).largest_sets(0) for p in "xy")
    assert len(first) == 64  # of 256
    assert [{name.replace("x", "y") for name in own} for own in first] == second


def test_sizes_divide_or_nearly() -> None:
    assert names("a:4").names_for(1) == []  # a third would be padding
    assert names("a:100").names_for(1) == ["a"]
    assert names("a:6", mesh=mtf.convert_to_shape("rows:2;one:1")).names_for(1) == []
    assert not names("a:8").fits((frozenset("a"), frozenset("a")))
    assert names("a:6").fits((frozenset("a"), frozenset("a")))
    assert names("a:8", "b:6").thinned((frozenset("ab"), frozenset("ab"))) == (frozenset("ab"), frozenset("b"))


def test_sets_become_rules_with_those_that_are_kept() -> None:
    choices = Choices(
        perceptron().graph, mtf.convert_to_shape("rows:2;cols:4"), mtf.convert_to_layout_rules("batch:rows")
    )
    sets = choices.sets_of(choices.all, 0, largest=True)
    assert all("batch" in own for own in sets)
    assert all("batch" not in own for own in choices.sets_of(choices.all, 1, largest=True))
    assert str(choices.rules((frozenset({"batch"}), frozenset({"d_ff"})))) == "batch:rows;d_ff:cols"


def test_what_a_loop_goes_through_is_not_split() -> None:
    """Nor what its gradient keeps of all iterations."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        y = mtf.layer_stack(lambda carried, _: ([mtf.tanh(carried[0])], []), x, ("layers", 4))[0][0]
        return mtf.gradients(mtf.reduce_sum(y), [x])[0]

    step = mtf.function(program, mtf.PlanMeshImpl("rows:2", ""), {"x": mtf.TensorSpec("batch:8")})
    choices = Choices(step.graph, mtf.convert_to_shape("rows:2"), mtf.convert_to_layout_rules(""))
    assert choices.all.names == ["batch"]


def test_axes_are_exchanged_in_all_tables() -> None:
    def exchanged(choice: Choice, kept: str = "", mesh: str = "rows:2;cols:4") -> Choice | None:
        rules = mtf.convert_to_layout_rules(kept)
        return Choices(perceptron().graph, mtf.convert_to_shape(mesh), rules).exchanged(choice, 0, 1)

    nothing, batch, d_ff = frozenset[str](), frozenset({"batch"}), frozenset({"d_ff"})
    choice = Choice((batch, d_ff), (nothing, d_ff), (batch, nothing))
    assert exchanged(choice) == Choice((d_ff, batch), (d_ff, nothing), (nothing, batch))
    assert exchanged(Choice((batch, d_ff))) == Choice((d_ff, batch))
    assert exchanged(Choice((nothing, nothing))) is None  # the same
    assert exchanged(choice, kept="batch:rows") is None
    assert exchanged(choice, mesh="rows:2;cols:48") is None  # of the batch, a third would be padding
