"""Sweeps of which a run of all tests has the sharpest cases, and the long run every one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sharpest(cases: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Marks every case as long but the kept ones.

    Args:
      cases: values of one parameter, or tuples of several.
      kept: the cases that cross the most features; each has to be a case.
    """
    every = list(cases)
    unknown = [case for case in kept if case not in every]
    assert not unknown, f"no cases: {unknown}"
    return [
        pytest.param(*(case if isinstance(case, tuple) else [case]), marks=[] if case in kept else [pytest.mark.long])
        for case in every
    ]
