"""Layouts of one program, of which a run of all tests tries some, and the long run every one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def is_long_run(config: pytest.Config) -> bool:
    return "long" in config.getoption("markexpr").replace("not long", "")


def layouts_of_run(layouts: Sequence[str], config: pytest.Config) -> Sequence[str]:
    """In a short run, every second of more than three layouts, from the last on, which usually splits the most.

    A layout that splits nothing is left out then: each core does what one core does, which is tried in any case.
    """
    if is_long_run(config) or len(layouts) <= 3:
        return layouts
    return [layout for layout in layouts[::-2] if layout]
