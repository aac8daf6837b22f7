"""A plugin of pytest, for the processes that run tests: sixteen virtual CPUs, a virtual TPU of eight cores, eight
virtual GPUs, and no configuration of another test."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import gin
import hypothesis  # noqa: F401  # whose plugins, such as trio's, look for objects that are frozen below
import pytest

from meshtf.mesh_impl.pjrt.virtual_cores import virtual_gpus, virtual_tpu
from meshtf.mesh_impl.virtual_cpus import virtual_cpus


def pytest_configure() -> None:
    virtual_cpus(16)
    virtual_tpu(8)
    virtual_gpus(8)


def pytest_collection_finish() -> None:
    """Makes garbage collections rare, and lets them pass over the objects that imports and the collection have made.

    Otherwise they take a tenth of the time. A fortieth is JAX's: it calls its runtime at each of them, of young objects
    too.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True)
def no_configuration() -> Iterator[None]:
    """A binding left behind would change every configurable that a later test makes."""
    yield
    gin.clear_config()
