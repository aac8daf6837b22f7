"""Memory that a loop takes only while it runs, beside its inputs and outputs. Collectives know their own."""

from __future__ import annotations

from collections.abc import Collection

from meshtf.planning.plan import Loop, Value


def stacking_space(loop: Loop, only_sliced: Collection[Value]) -> int:
    """Bytes of the parts that a loop has made, when they are copied to stand one behind the other.

    only_sliced: stacks that are never put together.
    """
    return sum(s.whole.slice_bytes for s in loop.stacked if s.whole not in only_sliced)
