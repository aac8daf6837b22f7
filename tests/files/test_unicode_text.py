from __future__ import annotations

import pytest

from meshtf.files.unicode_text import is_unicode


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b"", True),
        ("caf\u00e9 \U0001f600".encode(), True),
        (b"\xee\x80\x80", True),
        (b"caf\xe9", False),
        (b"\xff", False),
    ],
)
def test_bytes_that_are_not_utf_8_are_noticed(given: bytes, expected: bool) -> None:
    assert is_unicode(given.decode(errors="surrogateescape")) is expected
