"""Texts with characters that UTF-8 lacks: lone surrogates, which Python makes of bytes that are not UTF-8."""

from __future__ import annotations


def is_unicode(text: str) -> bool:
    """Tells whether a text has no lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
