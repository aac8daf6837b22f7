"""The whole suite runs with sixteen virtual CPUs, and each test with no configuration that another has read."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import gin
import pytest

from meshtf.mesh_impl.virtual_cpus import virtual_cpus

virtual_cpus(16)

INTERPRETED = {"agrees", "agrees_on_many_meshes", "twins", "count_collectives", "read"}
"""Fixtures of tests that plan programs and interpret the plans, which is quick."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests as quick by their fixtures; those of whole modules are marked there."""
    for item in items:
        if not INTERPRETED.isdisjoint(getattr(item, "fixturenames", [])):
            item.add_marker(pytest.mark.quick)


@pytest.fixture(autouse=True)
def no_configuration() -> Iterator[None]:
    """A binding left behind would change every configurable that a later test makes."""
    yield
    gin.clear_config()
