"""Columns that fit a width, and numbers with units."""

from __future__ import annotations

import math

import pytest

from meshtf.lowering.report.text_table import Column, bytes_text, flops_text, seconds_text, shorten, table, wrapped

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (2**40, "1.0 TiB"),
        (2.6, "3 B"),
        (math.inf, "inf B"),
    ],
)
def test_bytes_text(n: float, text: str) -> None:
    assert bytes_text(n).rstrip() == text


@pytest.mark.parametrize(("n", "text"), [(7, "7 FLOP"), (51_400_000, "51.4 MFLOP"), (999_990, "1.0 MFLOP")])
def test_flops_text(n: int, text: str) -> None:
    assert flops_text(n).rstrip() == text


def test_shorten_keeps_one_end() -> None:
    assert shorten("abcdef", 4, "start") == "abc…"
    assert shorten("abcdef", 4, "end") == "…def"
    assert shorten("abcdef", 6, "start") == "abcdef"


def test_shorten_keeps_the_word_gradient() -> None:
    assert shorten("gradient of decoder/einsum", 20, "end") == "gradient of …/einsum"
    assert shorten("gradient of decoder/einsum", 10, "end") == "…er/einsum"


def test_table_shortens_the_widest_column_only() -> None:
    lines = table(
        [Column("n", True), Column("name", keeps="end"), Column("other", keeps="start")],
        [("1", "x" * 60, "y" * 20)],
        60,
    )
    assert all(len(line) <= 60 for line in lines)
    assert "y" * 20 in lines[1]
    assert "…xxx" in lines[1]


def test_columns_are_aligned_and_headings_stand_over_all_of_them() -> None:
    lines = table([Column("size", is_number=True), Column("name")], ["all of them", ("7", "a"), ("12345", "b")], 40)
    assert lines == ["   size  name", "  all of them", "      7  a", "  12345  b"]


def test_columns_that_keep_all_are_never_shortened() -> None:
    lines = table([Column("n"), Column("name", keeps="start")], [("x" * 50, "y" * 30)], 40)
    assert lines[1] == "  " + "x" * 50 + "  " + "y" * 15 + "…"


def test_seconds_have_three_digits_and_the_unit_of_the_rounded_number() -> None:
    """Also next to a unit's end, and beyond a thousand seconds."""
    texts = {
        0.0: "0 us",
        2.383e-4: "238 us",
        9.996e-4: "1 ms",
        2.8349e-3: "2.83 ms",
        0.99951: "1 s",
        61.25: "61.2 s",
        999.6: "1,000 s",
        4528.0: "4,530 s",
    }
    assert {seconds: seconds_text(seconds) for seconds in texts} == texts


def test_text_is_divided_at_its_joints() -> None:
    assert wrapped("AdamWOptimizer.learning_rate", 23) == "AdamWOptimizer.\nlearning_rate"
    assert wrapped("AdamWOptimizer.learning_rate", 28) == "AdamWOptimizer.learning_rate"
    assert wrapped("batch:rows;heads:cols;d_ff:cols", 21) == "batch:rows;\nheads:cols;d_ff:cols"
    # A part that fits is whole; one that does not is divided where its words join.
    assert wrapped("held out: translation_of_text/accuracy", 20) == "held out:\ntranslation_of_text/\naccuracy"
    assert wrapped("held out: translation_of_text/accuracy", 19) == "held out:\ntranslation_of_\ntext/accuracy"
    assert wrapped("abcdefgh", 3) == "abc\ndef\ngh"
    assert wrapped("", 3) == ""
    for text in ("a.b_c;d e/f,g:h=(i)@j", "_" * 9, "word " * 5, ". . ;;"):
        for width in range(1, 12):
            lines = wrapped(text, width).split("\n")
            assert max(map(len, lines)) <= width
            assert "".join(lines).replace(" ", "") == text.replace(" ", "")
