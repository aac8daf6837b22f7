"""The tables of docs/benchmarks.md: each has its place and its picture, and says what it was measured on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import TREE

from benchmarks.measuring.side_by_side import HEAD, Row, as_table, side_by_side
from benchmarks.measuring.tables import has_place, load, place_of, put, section
from benchmarks.workloads.workload import Workload

PAGE = TREE / "docs/benchmarks.md"
SOME = Workload("tests.docs.programs_to_measure", "Some", steps=3)
ROW = Row(1.0, 20.0, [1.0, 1.5, 1.25], 30.0, 4.0, 5.0, 6.0, 0.5)
PLACE = re.compile(r"<!-- (?!end of )(\w+) -->(.*?)<!-- end of (\w+) -->", re.DOTALL)
MEASURED = {begin: text for begin, text, _ in PLACE.findall(PAGE.read_text()) if begin != "floors"}


def test_places_of_the_page_end_where_they_begin() -> None:
    places = PLACE.findall(PAGE.read_text())
    assert [begin for begin, _, _ in places] == [end for _, _, end in places]


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_table_has_its_picture(name: str) -> None:
    text = MEASURED[name].strip()
    assert not text or HEAD in text
    assert not text or (PAGE.parent / f"benchmarks/{name}.svg").exists()
    assert (f"benchmarks/{name}.svg" in text) == bool(text)


def test_the_small_transformer_has_a_table_for_each_kind_of_cpu() -> None:
    for is_plain in (False, True):
        assert has_place(PAGE, place_of("transformer", is_plain=is_plain))
    assert "AVX-512" not in MEASURED["transformer"]
    plain = [text for name, text in MEASURED.items() if name.startswith("plain") and text.strip()]
    assert all("as on a CPU without AVX-512" in text for text in plain)


def test_a_table_is_put_into_its_own_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- plain_cpu_some -->\nb\n<!-- end of plain_cpu_some -->\n<!-- some --><!-- end of some -->\n"
    )
    put(page, place_of("some", is_plain=False), "new\n")
    put(page, place_of("some", is_plain=True), "\\1 plain\n")
    assert page.read_text() == (
        "a\n<!-- plain_cpu_some -->\n\n\\1 plain\n\n<!-- end of plain_cpu_some -->\n"
        "<!-- some -->\n\nnew\n\n<!-- end of some -->\n"
    )
    assert not has_place(page, "other")
    with pytest.raises(SystemExit, match=r"has 0 places .*other"):
        put(page, "other", "text")


def test_a_section_says_how_it_was_measured() -> None:
    text = section("CPU, as on another", SOME, {"one": ROW}, 0.2, "benchmarks/some.svg")
    assert text.startswith("CPU, as on another. 3 rounds of 3 steps. **Contended**: other programs had 20% of")
    assert "| one | 1.0 | 20.0 | 1.25 | 1.00 to 1.50 | 30+4 | 5 | 6 | 0.50000 |" in text
    assert load(0.01) == "Other programs had 1% of the processors."


def test_a_loss_that_cannot_be_compared_is_a_dash() -> None:
    assert as_table({"one": Row(1.0, 20.0, [1.0], 30.0, 4.0, 5.0, 6.0, None)}).endswith("| 6 | - |")


def test_programs_are_measured_in_processes_of_their_own() -> None:
    """Of a first call, two steps to warm up and two rounds of three, the last loss is that of the ninth step."""
    rows = side_by_side(SOME.module, ["counting", "without loss", "in two processes"], SOME.steps, 2, warm_up=2)
    assert [row.loss for row in rows.values()] == [9.0, None, 16.0]
    assert [len(row.ratios) for row in rows.values()] == [2, 2, 2]
