"""The page in a real browser, headless Chromium, where one is installed: drawn, reached by keys, read aloud, printed.

Everything is in one test and one browser, since starting it takes longest.
"""

from __future__ import annotations

import base64
import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

import meshtf as mtf
from meshtf.bin.layouts.plan_layouts import LayoutPlanner
from meshtf.plan_view.html_page import html_page
from meshtf.plan_view.page_data import page_data
from meshtf.plan_view.plan_server import PlanServer
from meshtf.plan_view.planned_layout import PlannedLayout
from meshtf.train.training import Training
from tests.plan_view.browser import Page

HOSTILE = "</script><img src=x onerror='window.hacked=1'>"
HOSTILE_WORD = "<img/src=x/onerror=window.hacked=1>"


@pytest.mark.timeout(600)
def test_the_page_in_a_browser(
    browser: Any,
    planner: LayoutPlanner,
    training: Training,
    layouts: list[PlannedLayout],
    tmp_path: Path,
) -> None:
    data = page_data(layouts[0].headline, layouts)
    first = data["layouts"][0]["tensors"][0]
    first |= {"name": HOSTILE, "dims": [(f"Capital_{name}", size, axes) for name, size, axes in first["dims"]]}
    data["layouts"][3]["label"] = "a_dimension_of_a_long_name:rows+cols;" * 8 + "x" * 90
    file = tmp_path / "plan.html"
    file.write_text(html_page(data), encoding="utf-8")
    browser.get(file.as_uri())
    page = Page(browser)
    _is_whole(page)
    _is_reached_by_keys(page)
    _is_named_for_those_who_listen(page)
    _compares_and_shows_other_layouts(page)
    _sorts_and_filters(page)
    _fits_a_phone_the_dark_and_paper(page)
    without_machine = dataclasses.replace(layouts[0], machine=None, prediction=None)
    file.write_text(html_page(page_data(layouts[0].headline, [without_machine])), encoding="utf-8")
    browser.get(file.as_uri())
    _counts_what_is_not_predicted(page)
    assert not page.complaints()
    _plans_again(page, planner, training, layouts)
    assert [entry for entry in page.complaints() if "422" not in entry["message"]] == []


def _is_whole(page: Page) -> None:
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    assert page.run("return window.hacked") is None
    assert not page.all("img")
    assert HOSTILE in page.text("#mesh")
    assert len(page.all("#mesh .core")) == 8
    assert len(page.all("#memory path.area")) == 6
    assert len(page.all("#work .node")) > 10
    assert len(page.all("#traffic .meter")) > 1
    assert page.all("#operations tbody tr")
    assert "tokens" in page.text("#summary") or "predicted, on v5e" in page.text("#summary")


def _is_reached_by_keys(page: Page) -> None:
    """In each group one element is reached by Tab, and arrow keys go on from there."""
    assert len(page.all("#mesh .core[tabindex='0']")) == 1
    page.run("document.querySelector('#mesh .core').focus()")
    page.press("ARROW_DOWN")
    page.press("ARROW_RIGHT")
    assert page.browser.switch_to.active_element.get_attribute("data-core") == "3"
    assert page.text("#core-detail").startswith("Core 3 (rows 1, cols 1) holds")
    page.run("document.querySelector('#memory svg').focus()")
    page.press("HOME")
    assert page.one("#memory svg").get_attribute("aria-valuenow") == "0"
    page.press("ARROW_RIGHT")
    assert page.one("#memory svg").get_attribute("aria-valuetext") == page.text("#memory .detail")
    page.run("document.querySelector('#work .node').focus()")
    page.press("ARROW_DOWN")
    widest = page.browser.switch_to.active_element.text
    page.press("ENTER")
    assert page.browser.switch_to.active_element.text == widest
    assert "100%" in page.browser.switch_to.active_element.get_attribute("style")
    page.press("ESCAPE")
    assert page.browser.switch_to.active_element.text == "the step"


_ONE_OF_EACH = """
  const kind = (e) => [e.closest("section")?.id, e.tagName, e.getAttribute("class"), e.getAttribute("name"), e.type];
  const found = [...document.querySelectorAll("button, input, select, a, [tabindex='0'], [role='img']")];
  return [...new Map(found.map((e) => [kind(e).join(), e])).values()];
"""
"""Elements that take the focus, and images; of those in one part that are alike the last one."""


def _is_named_for_those_who_listen(page: Page) -> None:
    """Whatever takes the focus has a role and a name, images have texts, and parts have headings."""
    found = page.run(_ONE_OF_EACH)
    assert len(found) > 10
    nameless = [e.get_attribute("outerHTML")[:120] for e in found if not e.accessible_name or not e.aria_role]
    assert not nameless
    assert page.one("#mesh [role='grid']").accessible_name.startswith("Cores of the mesh")
    assert page.one("#memory svg").aria_role == "slider"
    assert [h.accessible_name for h in page.all("main section[aria-labelledby] h2") if h.is_displayed()] == [
        "A step",
        "Layouts side by side",
        "The mesh, and which core holds what",
        "Memory of a core over the step",
        "Where the time goes",
        "What cores send",
        "Operations",
    ]


def _compares_and_shows_other_layouts(page: Page) -> None:
    heads = [cell.text for cell in page.all("#comparison thead th")]
    assert heads[1:3] == ["as configured", "data"]
    assert page.all("#comparison mark")
    page.run("document.querySelectorAll('#choice input')[2].click()")
    assert '"nowhere"' in page.text("#summary .error")
    assert page.text("#traffic div") == ""
    page.run("document.querySelectorAll('#choice input')[3].click()")
    assert len(page.all("#mesh .core")) == 2
    page.run("document.querySelectorAll('#choice input')[0].click()")


def _sorts_and_filters(page: Page) -> None:
    widths = page.run("return [...document.querySelectorAll('#traffic .meter')].map((e) => e.getAttribute('style'))")
    assert max(float(style.split(":")[1].rstrip("%; ")) for style in widths) == 100
    page.run("document.querySelectorAll('#operations thead button')[0].click()")
    assert page.one("#operations th[aria-sort='ascending']").text.startswith("operation")
    names = page.run("return [...document.querySelectorAll('#operations tbody th')].map((e) => e.innerText)")
    assert names == page.run("return arguments[0].slice().sort((a, b) => a.localeCompare(b))", names)
    page.one("#operations input").send_keys("reduce_scatter")
    rows = page.run("return [...document.querySelectorAll('#operations tbody tr')].map((e) => e.innerText)")
    assert rows
    assert all("communication" in row for row in rows)
    assert page.text("#operations [role='status']").startswith(f"{len(rows)} of ")
    page.one("#mesh input[type='search']").send_keys("Capital_")
    assert [HOSTILE in label.text for label in page.all("#mesh .tensors label")] == [True]


def _fits_a_phone_the_dark_and_paper(page: Page) -> None:
    def background() -> str:
        return page.run("return getComputedStyle(document.body).backgroundColor")

    devtools = page.browser.execute_cdp_cmd
    light = background()
    devtools("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    page.wait(lambda _: background() != light)
    devtools("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    page.wait(lambda _: background() == "rgb(255, 255, 255)")
    assert not page.one("#operations input").is_displayed()
    devtools("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert base64.b64decode(page.browser.print_page()).startswith(b"%PDF")
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    devtools("Emulation.setDeviceMetricsOverride", phone)
    page.wait(lambda _: page.run("return innerWidth") == 360)
    assert page.run("return document.documentElement.scrollWidth") <= 360
    assert _labels_of_the_axis_are_free(page)
    devtools("Emulation.clearDeviceMetricsOverride", {})


def _labels_of_the_axis_are_free(page: Page) -> bool:
    """Also where the machine has so little memory that its line is all but the axis."""
    script = """
      plan.layouts[0].totals.memory_bytes = 2000;
      redraw();
      const boxes = [...document.querySelectorAll("#memory text")].map((text) => text.getBoundingClientRect());
      const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
      return boxes.every((a, i) => boxes.every((b, j) => i === j || apart(a, b)));
    """
    return page.run(script)


def _counts_what_is_not_predicted(page: Page) -> None:
    """Without a machine widths are FLOPs, and memory goes from operation to operation."""
    assert "predicted" not in page.text("main")
    assert not page.one("#comparison").is_displayed()
    assert page.text("#work option") == "FLOPs"
    assert "FLOP" in page.text("#work .detail")
    assert "At operation" in page.text("#memory .detail")


def _plans_again(page: Page, planner: LayoutPlanner, training: Training, layouts: list[PlannedLayout]) -> None:
    server = PlanServer(0, lambda settings, tell: planner.again(training, settings, tell))
    server.page = html_page(page_data(layouts[0].headline, layouts[:1], plan_again=server.plan_path))
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        page.browser.get(server.address)
        assert [box.accessible_name for box in page.all("#controls input")][:1] == ["mesh, as rows:8;cols:4"]
        mesh = page.one("#controls input[name='mesh_shape']")
        mesh.clear()
        mesh.send_keys("rows:2;cols:2")
        page.press("ENTER")
        page.wait(lambda _: len(page.all("#choice input")) == 2)
        named = "batch:rows;hidden:cols, mesh rows:2;cols:2"
        assert [label.text for label in page.all("#choice label")] == ["as configured", named]
        assert page.text("#planned").startswith("planned in ")
        assert page.text("#planned").endswith(f": {named}")
        assert "Layouts side by side" in page.text("#contents")
        assert len(page.all("#mesh .core")) == 4
        assert not page.one("#comparison").get_attribute("hidden")
        mesh.clear()
        mesh.send_keys("lines:2")
        page.press("ENTER")
        page.wait(lambda _: page.text("#controls .error"))
        assert "Training.mesh_shape = 'lines:2'  is from the page" in page.text("#controls .error")
        assert page.text("#planned") == ""
        mesh.clear()
        mesh.send_keys("rows:4;cols:2")
        page.press("ENTER")
        page.wait(lambda _: page.text("#planned"))
        page.wait(lambda _: page.text("#planned").startswith("planned in "))
        assert page.text("#controls .error") == ""
        assert page.one("#choice input:checked").get_attribute("value") == "0", "it is the one that is configured"
        assert len(page.all("#choice input")) == 2
    finally:
        server.stop()
        thread.join()
        server.close()


_CONTRASTS = """
  const parts = (text) => text.match(/[0-9.]+/g).slice(0, 3).map((n) => n / 255);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = (text) => parts(text).map(linear).reduce((sum, c, i) => sum + [0.2126, 0.7152, 0.0722][i] * c, 0);
  const clear = (text) => text === "transparent" || text.endsWith(", 0)");
  return [...document.querySelectorAll(".mtf :is(p, th, td, summary)")].map((element) => {
    let behind = element;
    while (clear(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const own = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(luminance);
    return (Math.max(...own) + 0.05) / (Math.min(...own) + 0.05);
  });
"""
"""The contrast of each text with what is behind it, as WCAG 2 defines it."""


def test_views_of_notebooks_are_read_in_each_theme(browser: Any, tmp_path: Path) -> None:
    """Jupyter's theme counts before what the reader prefers elsewhere."""
    shape, page = mtf.Shape([mtf.Dimension(HOSTILE_WORD, 8), mtf.Dimension("b", 8)]), Page(browser)
    view = mtf.debug.show(shape, "rows:2;cols:4", {"b": "cols"})._repr_html_() + mtf.LayoutRules({})._repr_html_()
    devtools, backgrounds = browser.execute_cdp_cmd, {}
    jupyter = ("dark", "data-jp-theme-light=true"), ("light", "data-jp-theme-light=false")
    for preferred, theme in (("light", ""), ("dark", ""), *jupyter):
        devtools("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": preferred}]})
        file = tmp_path / "view.html"
        file.write_text(f"<!DOCTYPE html><meta charset=utf-8><body {theme}>{view}", encoding="utf-8")
        browser.get(file.as_uri())
        contrasts = page.run(_CONTRASTS)
        assert len(contrasts) > 8
        assert min(contrasts) > 4.5, (preferred, theme, contrasts)
        script = "return getComputedStyle(document.querySelector('.mtf')).backgroundColor"
        backgrounds[preferred, theme] = page.run(script)
    light, dark, light_again, dark_again = backgrounds.values()
    assert light == light_again != dark == dark_again
    assert page.run("return window.hacked") is None
    assert page.complaints() == []
    devtools("Emulation.setEmulatedMedia", {"media": "", "features": []})
