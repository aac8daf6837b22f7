"""Runs the tests that speak of a module: `python -m tests.tests_of meshtf/ops/order/argmax.py`.

They are in the test file that lies and is called as the module, here tests/ops/order/test_argmax.py; where there is
none, what tests/speaks_of.toml lists.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

import pytest

TREE = Path(__file__).resolve().parents[1]
PACKAGES = ("meshtf", "layers", "models", "meshtf_programs")


def modules() -> list[str]:
    """The paths of all modules of the packages, from the root of the tree; without packages that only import."""
    paths = [path for package in PACKAGES for path in (TREE / package).rglob("*.py")]
    return sorted(p.relative_to(TREE).as_posix() for p in paths if p.name != "__init__.py" or _defines_something(p))


def own_tests(module: str) -> str:
    """Where the test file of a module would be: `meshtf/ops/order/_argmax.py` has tests/ops/order/test_argmax.py."""
    path = PurePosixPath(module).relative_to("meshtf") if module.startswith("meshtf/") else PurePosixPath(module)
    name = path.parent.name if path.stem == "__init__" else path.stem
    return f"tests/{path.parent}/test_{name.lstrip('_')}.py".replace("/./", "/")


def speaks_of() -> Mapping[str, Sequence[str]]:
    """The tests that are listed for modules without a test file."""
    return tomllib.loads((TREE / "tests" / "speaks_of.toml").read_text())


def speaking_tests(module: str) -> Sequence[str]:
    """The test files, tests or folders that speak of a module; none where it is not known."""
    own = own_tests(module)
    return [own] if (TREE / own).exists() else speaks_of().get(module, ())


def is_there(test: str) -> bool:
    """Whether there is a folder, a test file or a test of a file, `tests/test_tree.py::test_what_is_listed_exists`."""
    path, _, name = test.partition("::")
    return (TREE / path).exists() and (not name or name in _functions(TREE / path))


def _functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def _defines_something(path: Path) -> bool:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(node, definitions) for node in ast.parse(path.read_text()).body)


def main(arguments: Sequence[str]) -> int:
    """`arguments`: the module, and options for pytest."""
    if not arguments or arguments[0].startswith("-"):
        print("tests_of: say which file, as in: make tests-of FILE=meshtf/ops/order/argmax.py", file=sys.stderr)
        return 2
    module = arguments[0].removeprefix("./")
    found = speaking_tests(module)
    if not found:
        near = get_close_matches(module, modules(), 1)
        print(
            f"tests_of: {module} is no module of {', '.join(PACKAGES)}{f'; did you mean {near[0]}' if near else ''}",
            file=sys.stderr,
        )
        return 2
    print(f"{module}: {' '.join(found)}", flush=True)
    return pytest.main([*found, *arguments[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
