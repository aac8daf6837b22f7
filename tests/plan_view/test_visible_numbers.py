"""Whoever adds up the numbers that a page shows gets the numbers that it shows: read in a browser, with their units."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from meshtf.plan_view.html_page import html_page
from meshtf.plan_view.page_data import page_data
from tests.house.sharpest import sharpest
from tests.plan_view.browser import Page
from tests.plan_view.small_plans import plans_of_one_machine
from tests.plan_view.visible_numbers import DASH, Shown, number, numbers, total

_ROWS = """
return [...document.querySelectorAll(arguments[0])].map((row) => [...row.children].map((cell) => cell.textContent))
"""
_LEGEND = "return [...document.querySelectorAll(`${arguments[0]} .legend li`)].map((li) => li.textContent)"
_CHOOSE = """
const select = document.querySelectorAll("#work select")[arguments[0]];
select.value = arguments[1];
select.dispatchEvent(new Event("change"));
"""


def test_texts_are_numbers() -> None:
    """With half a unit of the last digit; counts are exact."""
    assert numbers("1.22 ms, 43.1 %; 4,530 s") == [
        Shown(pytest.approx(1.22e-3), pytest.approx(5e-6)),
        Shown(pytest.approx(0.431), pytest.approx(5e-4)),
        Shown(4530, 5),
    ]
    assert number("in 1,234 collectives") == Shown(1234, 0)
    assert number("69.6 MiB") == Shown(pytest.approx(69.6 * 2**20), pytest.approx(0.05 * 2**20))
    assert not number("43.1 %").agrees(number("43.3 %"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("number", "places"),
    sharpest([(0, (0, 3)), (0, (1, 2)), (1, (0,)), (2, (0,))], [(0, (0, 3)), (2, (0,))]),
)
def test_numbers_of_a_page_add_up(browser: Any, tmp_path: Path, number: int, places: tuple[int, ...]) -> None:
    page, file = Page(browser), tmp_path / "plan.html"
    layouts = plans_of_one_machine()[number]
    file.write_text(html_page(page_data("a step: of several", layouts)), encoding="utf-8")
    browser.get(file.as_uri())
    columns = _columns(page)
    for place in places:
        if len(layouts) > 1:
            page.run("document.querySelectorAll('#choice input')[arguments[0]].click()", place)
        _adds_up(page, {row: cells[place] for row, cells in columns.items()})


def _adds_up(page: Page, compared: dict[str, str]) -> None:
    facts = {name: page.text(f"#summary .facts div:nth-child({i + 1}) dd") for i, name in enumerate(_facts(page))}
    texts = page.run("return [...document.querySelectorAll('#summary .facts dd')].map((dd) => dd.firstChild.data)")
    shown = dict(zip(facts, texts, strict=True))
    step = number(shown["a step takes"])
    parts = _legend(page, "#summary")
    _is_whole(step, parts)
    communication = parts.get("communication", (Shown(0.0, 1e-9), None))[0]
    hidden = total(numbers(page.text("#summary .soft"))) if "Besides" in page.text("#summary") else Shown(0.0, 1e-9)
    _flame_is(page, "seconds", step, parts)
    _sends(page, communication, hidden, number(shown["sent by a core"]), facts["sent by a core"])
    _operations_are(page, step, hidden)
    for measure, fact in (("flops", "work of a core"), ("sent", "sent by a core")):
        _flame_is(page, measure, number(shown[fact]), None)
    _memory_is(page, number(shown["peak memory"]))
    if compared:
        _compared_is(compared, shown, parts, hidden)


def _facts(page: Page) -> list[str]:
    return page.run("return [...document.querySelectorAll('#summary .facts dt')].map((dt) => dt.textContent)")


def _legend(page: Page, section: str) -> dict[str, tuple[Shown, Shown]]:
    """An amount and a share by name."""
    rows = [re.match(r"([a-z]+)(.*)", text) for text in page.run(_LEGEND, section)]
    return {row[1]: tuple(numbers(row[2])) for row in rows if row is not None}  # type: ignore[misc]


def _is_whole(whole: Shown, parts: dict[str, tuple[Shown, Shown]]) -> None:
    """Parts are the whole, their shares 100 %, and each share is the part's."""
    assert total([amount for amount, _ in parts.values()]).agrees(whole), (whole, parts)
    assert total([share for _, share in parts.values()]).agrees(Shown(1.0, 0.0)), parts
    for name, (amount, share) in parts.items():
        assert (amount / whole).agrees(share), (name, whole, amount, share)


def _flame_is(page: Page, measure: str, whole: Shown, parts: dict[str, tuple[Shown, Shown]] | None) -> None:
    """Its root is the whole, whatever it is grouped by, and what stands on the root is as wide as that."""
    page.run(_CHOOSE, 0, measure)
    if not page.all("#work .node"):
        assert whole.value == 0
        return
    for grouping in ("line", "name"):
        page.run(_CHOOSE, 1, grouping)
        found = _legend(page, "#work")
        _is_whole(whole, found)
        assert parts is None or found == parts
        detail = page.text("#work .detail")
        amount, *kinds = numbers(detail.partition("Besides")[0].partition("step: ")[2])
        assert amount.agrees(whole)
        assert total(kinds).agrees(whole)
        labels = page.run(
            "return [...document.querySelectorAll('#work .node[data-level=\"1\"]')].map((n) => n.ariaLabel)"
        )
        shares = total([numbers(label)[-1] for label in labels])
        assert Shown(shares.value, shares.error + 0.002).agrees(Shown(1.0, 0.0)), labels  # the thinnest are left out
    page.run(_CHOOSE, 0, "seconds")


def _sends(page: Page, communication: Shown, hidden: Shown, sent: Shown, fact: str) -> None:
    """Groups of axes are their kinds; all together what the summary says."""
    rows = page.run(_ROWS, "#traffic tbody tr")
    sums, group = [Shown(0.0, 0.0)] * 4, [Shown(0.0, 0.0)] * 4
    own: list[Shown] = []
    for title, *cells in [*rows, *([["over", "0", "0 B", "0 s", "0 s", ""]] if rows else [])]:
        amounts = [number(cell) for cell in cells[:4]]
        if title.startswith("over"):
            assert not own or all(a.agrees(b) for a, b in zip(own, group, strict=True)), rows
            own, group = amounts, [Shown(0.0, 0.0)] * 4
            sums = [a + b for a, b in zip(sums, amounts, strict=True)]
        else:
            group = [a + b for a, b in zip(group, amounts, strict=True)]
    count, size, takes, exposed = sums
    assert size.agrees(sent)
    assert count.value == numbers(fact.partition("in ")[2])[0].value
    assert exposed.agrees(communication)
    assert takes.agrees(communication + hidden)


def _operations_are(page: Page, step: Shown, hidden: Shown) -> None:
    page.run("document.querySelectorAll('#operations tfoot button').forEach((button) => button.click())")
    names = page.run("return [...document.querySelectorAll('#operations thead th')].map((th) => th.textContent)")
    rows = page.run(_ROWS, "#operations tbody tr")
    assert rows
    seconds, behind = [], []
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        if cells["of the step"] != DASH:
            amount, share = numbers(cells["of the step"])
            assert (amount / step).agrees(share), cells
            seconds.append(amount)
        behind.append(number(cells.get("hidden", DASH)))
    assert total(seconds).agrees(step)
    assert total(behind).agrees(hidden)


def _memory_is(page: Page, peak: Shown) -> None:
    """At the highest moment kinds are the total, which the peak is not below."""
    amount, *kinds = [n for n in numbers(page.text("#memory .detail").rpartition("): ")[2]) if n.error or n.value]
    assert total(kinds).agrees(amount)
    assert amount.value - amount.error <= peak.value + peak.error
    if not amount.agrees(peak):
        stated = numbers(page.text("#memory").partition("where the plan has them")[2])
        assert [amount.value, peak.value] == [n.value for n in stated[:2]]


def _columns(page: Page) -> dict[str, list[str]]:
    return {name: cells for name, *cells in page.run(_ROWS, "#comparison tbody tr:not(.group)")}


def _compared_is(compared: dict[str, str], shown: dict[str, str], parts: dict[str, Any], hidden: Shown) -> None:
    """A column says what the layout's own summary says."""
    names = {"predicted step": "a step takes", "peak memory": "peak memory", "work of a core": "work of a core"}
    for row, fact in (names | {"sent by a core": "sent by a core"}).items():
        assert compared[row].startswith(shown[fact]) or (compared[row], shown[fact]) == (DASH, "0 B")
    for name, (seconds, _) in parts.items():
        assert numbers(compared[name])[0] == seconds
    behind = compared.get("communication behind other work", DASH)
    assert (numbers(behind) or [Shown(0.0, 1e-9)])[0].agrees(hidden)
