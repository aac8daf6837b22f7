from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.train.batches.own_rows import rows_read

BATCH = mtf.Dimension("batch", 8)


@pytest.mark.parametrize(("slices", "expected"), [
    ({"x": (slice(0, 4), slice(0, 9)), "y": (slice(0, 4),)}, slice(0, 4)),
    ({"x": (slice(4, 6), slice(3, 6)), "y": (slice(5, 8),)}, slice(4, 8)),
    ({"x": (slice(4, 8),), "whole": (slice(0, 8),)}, slice(0, 8)),
    ({"x": (slice(4, 8),), "unread": (slice(0, 0),)}, slice(4, 8)),
    ({}, slice(0, 8)),
])  # fmt: skip
def test_the_rows_that_some_input_needs(slices: dict[str, tuple[slice, ...]], expected: slice) -> None:
    assert rows_read(slices, BATCH) == expected
