"""HTML for notebooks: text is escaped, parts fold, both themes have colours."""

from __future__ import annotations

import pytest

from meshtf.markup import block, element, folded, grid
from tests.debug.html_checks import checked_html

pytestmark = pytest.mark.quick


def test_text_is_escaped_once_and_elements_are_not() -> None:
    inner = element("b", "a < b & c", title='"x"')
    assert inner == '<b title="&quot;x&quot;">a &lt; b &amp; c</b>'
    assert element("p", inner, "<i>") == f"<p>{inner}&lt;i&gt;</p>"


def test_a_view_has_tables_that_fold_and_the_colours_of_both_themes() -> None:
    table = grid(
        ("name", "size"), [("<b>", "1"), "a heading", (element("td", "own", class_="core"), "2")], (False, True)
    )
    html = block(folded("more", table), folded("now", table, is_open=True))
    tags, text = checked_html(html)
    assert "<b>" in text
    assert "b" not in tags
    assert tags.count("details") == tags.count("summary") == 2
    assert html.count("<details open") == 1
    assert table.count('<td class="core">own</td>') == 1
    assert table.count('class="number"') == 3
    assert '<th colspan="2">a heading</th>' in table
    for theme in ("prefers-color-scheme:dark", "data-jp-theme-light=true", "data-jp-theme-light=false"):
        assert theme in html
