"""The pages of a cache: which are free, which are held, and which can be shared by texts with the same beginning."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence

ROOT = 0
"""The number of the empty text before a first page."""


class PagePool:
    """Counts the holders of each page. Full pages can be found by their own tokens and the tokens before them.

    A page that nobody holds keeps its content until the pool needs it. The page released first is reused first.

    Args:
      num_pages: the number of pages.
      page_size: the number of positions of a page.

    Examples:
      >>> pool = PagePool(num_pages=4, page_size=2)
      >>> pages = pool.take([], 2)
      >>> number = pool.register(pages[0], ROOT, (5, 6))
      >>> pool.found((5, 6, 7)) == pages[:1], pool.found((5, 7, 7))
      (True, [])
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages, self.page_size = num_pages, page_size
        self._free = list(range(num_pages))[::-1]
        self._holders = [0] * num_pages
        self._numbers = itertools.count(ROOT + 1)
        self._by_text: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
        self._text_of: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._idle: collections.OrderedDict[int, None] = collections.OrderedDict()

    @property
    def num_free(self) -> int:
        """The number of pages that nobody holds."""
        return len(self._free) + len(self._idle)

    def found(self, tokens: Sequence[int]) -> list[int]:
        """Returns the full pages that hold the first of these tokens, as many as the pool has."""
        pages, parent = [], ROOT
        for first in range(0, len(tokens) - self.page_size + 1, self.page_size):
            entry = self._by_text.get((parent, tuple(tokens[first : first + self.page_size])))
            if entry is None:
                break
            page, parent = entry
            pages.append(page)
        return pages

    def number_of(self, page: int) -> int:
        """Returns the number of a registered page's text."""
        return self._by_text[self._text_of[page]][1]

    def take(self, shared: Sequence[int], count: int) -> list[int] | None:
        """Holds `shared` pages and `count` more. Returns all of them in this order, or None if too few are free."""
        if count > self.num_free - sum(page in self._idle for page in shared):
            return None
        for page in shared:
            self._idle.pop(page, None)
            self._holders[page] += 1
        return [*shared, *(self._new() for _ in range(count))]

    def _new(self) -> int:
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._idle.popitem(last=False)
            del self._by_text[self._text_of.pop(page)]
        self._holders[page] = 1
        return page

    def register(self, page: int, parent: int, tokens: tuple[int, ...]) -> int:
        """Records that a page is full. Returns the number of its text, which is the `parent` of the next page.

        Args:
          page: a page that is held.
          parent: the number of the text before it.
          tokens: the tokens in it.
        """
        text = (parent, tokens)
        if text not in self._by_text:
            self._by_text[text] = (page, next(self._numbers))
            self._text_of[page] = text
        return self._by_text[text][1]

    def release(self, pages: Sequence[int]) -> None:
        """Releases pages that `take` returned."""
        for page in pages:
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            if page in self._text_of:
                self._idle[page] = None
            else:
                self._free.append(page)
