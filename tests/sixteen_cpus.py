"""A plugin of pytest, for the processes that run tests: sixteen virtual CPUs, and no configuration of another test."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import gin
import pytest

from meshtf.mesh_impl.virtual_cpus import virtual_cpus


def pytest_configure() -> None:
    virtual_cpus(16)


def pytest_collection_finish() -> None:
    """Garbage collections pass over what has been imported and collected, which takes seconds in a minute else."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_configuration() -> Iterator[None]:
    """A binding left behind would change every configurable that a later test makes."""
    yield
    gin.clear_config()
