"""Checks a piece of HTML: each element that begins ends, nothing runs, and nothing is loaded."""

from __future__ import annotations

from html.parser import HTMLParser


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"<{tag} {name}> runs something"
            assert name not in ("src", "href"), f"<{tag} {name}={value}> loads something"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> ends another element"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)


def checked_html(html: str) -> tuple[list[str], str]:
    """The names of the elements and the text of a piece of HTML that is well-formed."""
    elements = _Elements()
    elements.feed(html)
    elements.close()
    assert not elements.open, f"{elements.open} never end"
    assert "script" not in elements.seen
    assert "url(" not in html
    assert "@import" not in html
    return elements.seen, "\n".join(elements.texts)
