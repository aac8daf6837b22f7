"""The result of several runs by MLPerf's rules."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_RUNS = 3
"""With fewer runs nothing is left when the fastest and the slowest are dropped."""


def rule_mean(seconds: Sequence[float | None]) -> float | None:
    """Drops the fastest and the slowest run, and returns the mean of the others.

    A run that did not reach its target is None, and the slowest. If there is more than one, or there are fewer than
    three runs, there is no result: None. (MLPerf Training Rules, "Benchmark results".)
    """
    reached = sorted(each for each in seconds if each is not None)
    missing = len(seconds) - len(reached)
    if missing > 1 or len(seconds) < LEAST_RUNS:
        return None
    kept = reached[1:] if missing else reached[1:-1]
    return sum(kept) / len(kept)
