"""Texts of users in pictures of matplotlib's."""

from __future__ import annotations


def shown_text(text: str) -> str:
    """Returns a text that a picture shows as it is. A pair of `$` would make a formula, and a legend has no line for a
    text that begins with `_`.
    """
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if text.startswith("_") else escaped
