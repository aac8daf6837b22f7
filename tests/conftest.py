"""The whole suite runs with sixteen virtual CPUs, and each test with no configuration that another has read."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import gin
import pytest

from meshtf.mesh_impl.virtual_cpus import virtual_cpus

virtual_cpus(16)

INTERPRETED = {"agrees", "agrees_on_many_meshes", "twins", "count_collectives", "read"}
"""Fixtures of tests that plan programs and interpret the plans, which is quick."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="of what long tests draw; by default another in every run, as printed")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:  # processes that run tests beside others are given the options of the first
        config.option.seed = random.SystemRandom().randrange(10**6)


def pytest_report_header(config: pytest.Config) -> str:
    return f"long tests draw with --seed={config.option.seed}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of this run of the tests."""
    return request.config.option.seed


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
