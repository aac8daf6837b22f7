"""Programs for `side_by_side`: one that counts, one whose result has no loss, one that two processes are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from benchmarks.measuring.side_by_side import Program
from benchmarks.workloads.processes import OnTwoProcesses


def counting() -> Callable[[], int]:
    return itertools.count(1).__next__


def without_loss() -> Callable[[], None]:
    return lambda: None


def joined(index: int, addresses: Sequence[str]) -> Callable[[], int]:
    """Counts by as many as there are processes."""
    return itertools.count(index, len(addresses)).__next__


PROGRAMS: dict[str, Program] = {
    "counting": counting,
    "without loss": without_loss,
    "in two processes": OnTwoProcesses(joined),
}
