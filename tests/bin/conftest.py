"""What tests of programs leave behind is cleared."""

from __future__ import annotations

from collections.abc import Iterator

import gin
import pytest


@pytest.fixture(autouse=True)
def _clear_gin() -> Iterator[None]:
    yield
    gin.clear_config()
