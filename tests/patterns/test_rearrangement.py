"""The plans of patterns: which shapes a tensor passes through. Mistakes are in test_wrong_patterns.py."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.dimension import convert_to_shape
from meshtf.patterns.contraction import einsum_shape
from meshtf.patterns.rearrangement import Rearrangement, rearrangement
from meshtf.patterns.terms import Factor, Group, Rest, parse
from meshtf.patterns.tokens import tokens_of

pytestmark = pytest.mark.quick

IMAGE = convert_to_shape("batch:8 h:6 w:4 c:3")


def plan(text: str, shape: mtf.Shape = IMAGE, **sizes: int) -> Rearrangement:
    return rearrangement(text, shape, sizes, reduces=True)


def test_the_plan_in_the_docstring() -> None:
    assert plan("batch (h 2) (w 2) c -> batch (image: h w) c") == Rearrangement(
        before=convert_to_shape("batch:8 h:3 h_2:2 w:2 w_2:2 c:3"),
        kept=convert_to_shape("batch:8 h:3 w:2 c:3"),
        repeated=convert_to_shape("batch:8 h:3 w:2 c:3"),
        after=convert_to_shape("batch:8 image:6 c:3"),
    )


@pytest.mark.parametrize(
    ("text", "sizes", "after"),
    [
        ("batch h w c -> c w h batch", {}, "c:3 w:4 h:6 batch:8"),
        ("... c -> c ...", {}, "c:3 batch:8 h:6 w:4"),
        ("batch ... -> (all: ...) batch", {}, "all:72 batch:8"),
        ("(two four) ... -> four ... two", {"two": 2}, "four:4 h:6 w:4 c:3 two:2"),
        ("(batch: two:2 four) ... -> (batch: four two) ...", {}, "batch:8 h:6 w:4 c:3"),
        ("batch (rows: h) w c -> batch h w c", {}, None),
        ("batch h w c -> batch (h: h 2) w c copies", {"copies": 5}, "batch:8 h:12 w:4 c:3 copies:5"),
        ("batch (h: rows) w c -> batch (height: rows) w c", {}, "batch:8 height:6 w:4 c:3"),
        ("batch h w 3 -> batch h w", {}, "batch:8 h:6 w:4"),
        ("batch h w c->", {}, ""),
        ("batch ...->batch", {}, "batch:8"),
    ],
)
def test_what_a_pattern_leaves(text: str, sizes: dict[str, int], after: str | None) -> None:
    if after is None:
        with pytest.raises(mtf.errors.ShapeError, match='is "h", not "rows"'):
            plan(text, **sizes)
    else:
        assert plan(text, **sizes).after == convert_to_shape(after)


def test_a_dimension_of_size_1_without_a_name_is_dropped() -> None:
    found = rearrangement("batch 1 (1 c) -> c batch", convert_to_shape("batch:8 one:1 c:3"), {}, reduces=False)
    assert found.before == convert_to_shape("batch:8 c:3")


def test_a_scalar() -> None:
    found = rearrangement("-> copies:2", mtf.Shape([]), {}, reduces=False)
    assert (found.before, found.after) == (mtf.Shape([]), mtf.Shape([("copies", 2)]))


def test_names_of_anonymous_factors_are_nobody_s() -> None:
    found = plan("batch (h 2) (h_2 2) c -> batch h h_2 c")
    assert found.before == convert_to_shape("batch:8 h:3 h_2_:2 h_2:2 w_2:2 c:3")


def test_a_plan_is_made_once() -> None:
    assert plan("batch h w c -> batch h (d: w c)") is plan("batch h w c -> batch h (d: w c)")


def test_tokens_need_no_spaces_around_marks() -> None:
    plain, tight = (parse(text) for text in ("a (b: c 2) , ... -> a b", "a(b: c 2),...->a b"))
    names = [[type(item) for item in term.items] for term in (*plain.operands, plain.result) if term]
    assert names == [[type(item) for item in term.items] for term in (*tight.operands, tight.result) if term]
    assert names == [[Factor, Group], [Rest], [Factor, Factor]]


def test_a_size_follows_its_name_without_a_space() -> None:
    assert [(t.kind, t.name, t.size) for t in tokens_of("a:2 (b: 2 c)")] == [
        ("name", "a", 2), ("(", "", None), ("label", "b", None), ("number", "", 2), ("name", "c", None),
        (")", "", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a b, c b -> a c", "a:2 c:4"),
        ("b a, b c -> c b a", "c:4 b:3 a:2"),
        ("..., ... -> ...", "a:2 b:3 c:4"),
        ("... b, b ... -> ... b", "a:2 c:4 b:3"),
        ("a:2 b, ... -> ... a n:5", "b:3 c:4 a:2 n:5"),
        ("a b, b c ->", ""),
        ("a b, b c", None),
    ],
)
def test_the_result_of_a_product(text: str, result: str | None) -> None:
    found = einsum_shape(text, (convert_to_shape("a:2 b:3"), convert_to_shape("b:3 c:4")))
    assert found == (None if result is None else convert_to_shape(result))
