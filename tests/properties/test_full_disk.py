"""A disk that fills at every byte: nothing is left behind, what was there is as it was, and errors name the file."""

from __future__ import annotations

import pytest

from tests.fresh_process import run_fresh
from tests.properties.full_disk import WRITERS


@pytest.mark.long
@pytest.mark.parametrize("name", WRITERS)
def test_everything_that_is_written(name: str) -> None:
    ended = run_fresh(["-m", "tests.properties.full_disk", name], timeout_seconds=600)
    assert ended.stdout == f"{name}: 0 are wrong\n", ended
