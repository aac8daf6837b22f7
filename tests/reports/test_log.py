"""The log of public reports that were tried here: its form, and that what it names exists."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.tests_of import TREE, is_there

VERDICTS = ("right", "fixed", "documented", "does not apply")
FIELDS = {"source", "title", "kind", "tried", "verdict", "test"}

THREADS: list[dict[str, str]] = tomllib.loads((TREE / "tests/reports/log.toml").read_text())["thread"]

pytestmark = pytest.mark.quick


def test_every_thread_is_logged_once() -> None:
    sources = [thread["source"] for thread in THREADS]
    assert not {source for source in sources if sources.count(source) > 1}
    assert not [source for source in sources if not re.fullmatch(r"[\w.-]+/[\w.-]+#[1-9][0-9]*", source)]


def test_every_entry_is_whole() -> None:
    for thread in THREADS:
        wanted = FIELDS - ({"test"} if thread["verdict"] == "does not apply" else set())
        assert set(thread) == wanted, thread
        assert all(value.strip() for value in thread.values()), thread
        assert thread["verdict"] in VERDICTS, thread


def test_every_test_that_is_named_exists() -> None:
    for thread in THREADS:
        if "test" in thread:
            assert "::" in thread["test"], thread
            assert is_there(thread["test"]), thread


def test_tests_name_threads_of_the_log() -> None:
    """What a test here says it is from has an entry."""
    known = {thread["source"] for thread in THREADS}
    for path in (TREE / "tests/reports").glob("test_*.py"):
        named = re.findall(r"[\w.-]+/[\w.-]+#[1-9][0-9]*", path.read_text())
        assert not set(named) - known, path.name
