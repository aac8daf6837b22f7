"""Tokens become whole characters, and stop texts never show."""

from __future__ import annotations

import random

import pytest

from meshtf.serving.http.token_text import StopTexts, TokenText
from meshtf.train.data.vocabularies.byte_vocabulary import FIRST_BYTE, ByteVocabulary

BYTES = ByteVocabulary()


def pieces(prompt: str | bytes, added: bytes) -> list[str]:
    given = prompt.encode() if isinstance(prompt, str) else prompt
    text = TokenText(BYTES, [byte + FIRST_BYTE for byte in given])
    return [*(text.add(byte + FIRST_BYTE) for byte in added), text.rest()]


def test_characters_come_whole() -> None:
    assert pieces("é", "aé€😀z".encode()) == ["a", "", "é", "", "", "€", "", "", "", "😀", "z", ""]
    assert pieces("", b"a\xe2\x82") == ["a", "", "", "\ufffd"]  # Python has one replacement for a cut character
    assert pieces("x", b"\xffab") == ["", "\ufffda", "b", ""]


def test_a_replacement_in_the_prompt_is_not_told_again() -> None:
    assert pieces("a\ufffd", b"b") == ["b", ""]
    assert pieces("a\ufffd\ufffd", "€".encode()) == ["", "", "€", ""]
    assert pieces("a\ufffd", b"") == [""]
    assert pieces(b"a\xe2\x82", b"\xacb") == ["€", "b", ""], "the prompt's ids end within a character"
    assert pieces(b"a\xe2\x82", b"b") == ["b", ""]


def test_together_the_pieces_are_the_text_whatever_the_bytes() -> None:
    """Also beyond the window of tokens that are decoded anew."""
    draw = random.Random(5)
    for _ in range(50):
        added = bytes(draw.choice(b"ab\xc3\xa9\xe2\x82\xac\xff\xf0\x9f\x98\x80") for _ in range(80))
        found = pieces("prompt", added)
        assert "".join(found) == added.decode(errors="replace")
        assert max(map(len, found)) <= 5, "text is not held back for longer than a character needs"


@pytest.mark.parametrize(
    ("stops", "texts", "passed", "rest"),
    [
        (["end"], ["a", "e", "n", "x", "en"], ["a", "", "", "enx", ""], "en"),
        (["end"], ["ae", "nd", "more"], ["a", "", ""], ""),
        (["aab"], ["a", "a", "a", "b"], ["", "", "a", ""], ""),
        (["xy", "y"], ["axy"], ["a"], ""),
        (["bcd", "c"], ["a", "b", "c"], ["a", "", "b"], ""),
        ([], ["a", "b"], ["a", "b"], ""),
    ],
    ids=["held back, then passed", "over two texts", "begins anew inside itself", "the earlier", "the shorter", "none"],
)
def test_stop_texts(stops: list[str], texts: list[str], passed: list[str], rest: str) -> None:
    stop = StopTexts(stops)
    assert [stop.add(text) for text in texts] == passed
    assert stop.rest() == rest
