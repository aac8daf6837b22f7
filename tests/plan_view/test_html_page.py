"""The page is one file that loads nothing, and names of tensors cannot become markup in it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re

from meshtf.plan_view.html_page import html_page
from meshtf.plan_view.page_data import page_data
from meshtf.plan_view.planned_layout import PlannedLayout

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028<!--"
NOT_UTF8 = os.fsdecode(b"b\xff")
"""As an argument of a program has it, whose bytes are no text."""


def test_the_page_loads_nothing_and_runs_its_own_script_alone(layouts: list[PlannedLayout]) -> None:
    page = html_page(page_data(layouts[0].headline, layouts))
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", page.partition('id="plan"')[0])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "connect-src 'none'" in policy[1]
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    for text in (script, style):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy[1]
    assert "innerHTML" not in script
    assert "connect-src 'self'" in html_page(page_data(layouts[0].headline, layouts, plan_again="/x/plan"))


def test_names_are_text(layouts: list[PlannedLayout]) -> None:
    data = page_data(f"{HOSTILE}: of 3 parameters", layouts)
    data["layouts"][0]["tensors"][0]["name"] = HOSTILE
    data["layouts"][1]["label"] = NOT_UTF8
    page = html_page(data)
    page.encode()
    assert "<img" not in page
    (embedded,) = re.findall(r'id="plan">(.*?)</script>', page, re.DOTALL)
    assert json.loads(embedded) == json.loads(json.dumps(data))
    assert "&lt;/script&gt;" in page.partition("</title>")[0]
