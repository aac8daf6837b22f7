"""The tests mirror the tree: of every file it is known which tests speak of it, and every test file has its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tests_of import PACKAGES, TREE, is_there, main, modules, own_tests, speaking_tests, speaks_of

TESTS = TREE / "tests"
PROMISES = ("docs", "english", "errors", "packaging", "properties", "reports", "xla")
"""Folders of tests that speak of what the whole promises, not of a room of the tree."""

MOST_FILES = 20


def test_of_every_module_some_tests_speak() -> None:
    silent = [m for m in modules() if not speaking_tests(m)]
    assert not silent, (
        f"write {[own_tests(m) for m in silent]}, or list in speaks_of.toml which tests speak of {silent}"
    )


def test_what_is_listed_is_needed() -> None:
    """Of modules that exist, and have no test file of their name."""
    known = set(modules())
    assert not [m for m in speaks_of() if m not in known], "listed in speaks_of.toml, and no module"
    assert not [m for m in speaks_of() if (TREE / own_tests(m)).exists()], "listed, and has a test file of its name"


def test_what_is_listed_exists() -> None:
    missing = [t for tests in speaks_of().values() for t in tests if not is_there(t)]
    assert not missing, f"speaks_of.toml lists {missing}"


def test_every_test_file_lies_where_a_room_is() -> None:
    """A folder of tests is that of a room of the tree, or of promises; what they share may have folders there."""
    lost = [
        path.relative_to(TREE).as_posix()
        for path in TESTS.rglob("test_*.py")
        for room in [path.parent.relative_to(TESTS)]
        if not _is_room(room) and not (room.parts and room.parts[0] in PROMISES)
    ]
    assert not lost, f"{lost}: there is no such room in {PACKAGES}"


def test_no_folder_of_tests_is_too_full() -> None:
    counts = {folder: len(list(folder.glob("*.py"))) for folder in [TESTS, *TESTS.rglob("*")] if folder.is_dir()}
    assert not {str(folder): n for folder, n in counts.items() if n > MOST_FILES}


def test_private_modules_and_packages_have_tests_of_their_names() -> None:
    assert own_tests("meshtf/planning/_splits.py") == "tests/planning/test_splits.py"
    assert own_tests("meshtf/random/__init__.py") == "tests/random/test_random.py"
    assert own_tests("layers/dense.py") == "tests/layers/test_dense.py"
    assert own_tests("meshtf/layout.py") == "tests/test_layout.py"


def test_a_file_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["meshtf/planning/split.py"]) == 2
    message = (
        "tests_of: meshtf/planning/split.py is no module of meshtf, layers, models, meshtf_programs; did you mean {}\n"
    )
    assert capsys.readouterr().err == message.format("meshtf/planning/splits.py")
    assert main([]) == 2
    assert "say which file" in capsys.readouterr().err


def _is_room(room: Path) -> bool:
    return (TREE / "meshtf" / room).is_dir() or bool(
        room.parts and room.parts[0] in PACKAGES and (TREE / room).is_dir()
    )
