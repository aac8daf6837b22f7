"""Pages: shared by those that begin alike, kept while nobody needs them, never lost."""

from __future__ import annotations

from meshtf.serving.page_pool import ROOT, PagePool


def test_a_page_is_found_by_all_tokens_before_it_and_is_freed_by_its_last_holder() -> None:
    pool = PagePool(4, 2)
    first = pool.take([], 2)
    assert first is not None
    number = pool.register(first[0], ROOT, (1, 2))
    pool.register(first[1], number, (3, 4))
    assert pool.found((1, 2, 3, 4)) == first
    assert pool.found((1, 2, 3)) == first[:1]
    assert pool.found((3, 4)) == [], "its place in the text counts"
    second = pool.take(first[:1], 1)
    assert second is not None
    assert (second[0], pool.num_free) == (first[0], 1)
    pool.release(first)
    assert pool.num_free == 2, "the first page has another holder"
    assert pool.take([], 3) is None
    pool.release(second)
    assert pool.num_free == 4


def test_pages_that_are_needed_forget_what_was_left_longest() -> None:
    pool = PagePool(2, 1)
    pages = pool.take([], 2)
    assert pages is not None
    for page, token in zip(pages, (7, 8), strict=True):
        pool.register(page, ROOT, (token,))
    pool.release(pages[1:])
    pool.release(pages[:1])
    assert pool.take([], 1) == pages[1:]
    assert (pool.found((8,)), pool.found((7,))) == ([], pages[:1])
    assert pool.take(pool.found((7,)), 1) is None, "a page that is shared is no longer free"
