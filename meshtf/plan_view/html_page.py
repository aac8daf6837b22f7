"""The page: one HTML file that contains its style, script and data. It loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
from collections.abc import Mapping
from typing import Any

from meshtf_programs.strict_json import json_text

_SCRIPTS = (
    "core.js",
    "choice.js",
    "summary.js",
    "comparison.js",
    "mesh.js",
    "memory.js",
    "flame.js",
    "traffic.js",
    "operations.js",
    "controls.js",
    "main.js",
)
_IN_TEXT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""Characters that could end the HTML element with the data, with their JSON escapes."""


def html_page(data: Mapping[str, Any]) -> str:
    """Returns the page for the data of `page_data`.

    Its content security policy allows only its own script and, if it is served, requests to its own server.
    """
    style = _asset("page.css")
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    asks = "connect-src 'self'" if data["plan_again"] else "connect-src 'none'"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; {asks}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(f"{data['title']} - plan"),
        "style": style,
        "data": _json_in_html(data),
        "script": script,
    }
    page = _asset("page.html")
    before, *rest = page.split("{{")
    named = (part.partition("}}") for part in rest)
    return before + "".join(parts[name] + text for name, _, text in named)


def _json_in_html(data: Mapping[str, Any]) -> str:
    # All of it is ASCII, since a label from the command line may have bytes that are no text.
    text = json_text(data, separators=(",", ":"))
    for character, written in _IN_TEXT.items():
        text = text.replace(character, written)
    return text


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _asset(name: str) -> str:
    folder = importlib.resources.files("meshtf.plan_view") / "assets"
    return (folder / name).read_text(encoding="utf-8")
