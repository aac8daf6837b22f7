"""What each test of the suite starts with; the process that only hands tests out to others imports no TensorFlow."""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported
# TensorFlow then looks for an older Keras, which is not installed, and does not import the present one. This would take
# two seconds of every process. `tests/house/keras_module.py` imports it for the tests that compare with Keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

INTERPRETED = {"agrees", "agrees_on_many_meshes", "twins", "count_collectives", "read"}
"""Fixtures of tests that plan programs and interpret the plans, which is quick."""

COMPILED = pytest.StashKey[str]()
"""The folder of what XLA has compiled."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="of what long tests draw; by default another in every run, as printed")


def pytest_configure(config: pytest.Config) -> None:
    """Sets up what tests run on, and what all processes share: the seed, and what XLA has compiled.

    XLA compiles a segment anew for each device of each process, unless it finds it in a folder: one of this run alone,
    so that each run compiles everything once. A process that must compile for itself clears TF_XLA_FLAGS.
    """
    if hasattr(config, "workerinput"):
        config.option.seed = config.workerinput["seed"]
    elif config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(10**6)
    if not hasattr(config, "workerinput"):
        config.stash[COMPILED] = tempfile.mkdtemp(prefix="compiled")
        flags = f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_persistent_cache_directory={config.stash[COMPILED]}"
        os.environ["TF_XLA_FLAGS"] = flags
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        gc.disable()  # until all tests are collected: imports leave little garbage, and collections would take a fifth
        config.pluginmanager.import_plugin("tests.sixteen_cpus")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Gives a process that runs tests the seed that is printed."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`: two more than there are processors, since tests that start programs wait for much of their time.

    Each worker takes 7 seconds of a processor before its first test, and 15 in a tree that has no bytecode yet. With
    three more, all tests take a fifth more processor time, and longer.
    """
    return len(os.sched_getaffinity(0)) + 2


def pytest_unconfigure(config: pytest.Config) -> None:
    if COMPILED in config.stash:
        shutil.rmtree(config.stash[COMPILED], ignore_errors=True)


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
