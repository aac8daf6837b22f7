"""Runs the tests that speak of a module: `python -m tests.tests_of meshtf/ops/order/argmax.py`.

They are, in this order:

1. The test file that lies and is called as the module, here tests/ops/order/test_argmax.py.
2. What tests/speaks_of.toml lists for the module or for its folder: tests that no rule finds, since they lie elsewhere.
3. The test files of the module's room that import it or name something that it defines; where there are none, those of
   the room above, and so on.
4. The test files, by 1 and 3, of the modules in the same part of the tree that import it.
"""

from __future__ import annotations

import ast
import functools
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

import pytest

TREE = Path(__file__).resolve().parents[1]
PACKAGES = ("meshtf", "layers", "models", "meshtf_programs")


@functools.cache
def modules() -> Sequence[str]:
    """The paths of all modules of the packages, from the root of the tree; without packages that only import."""
    paths = [path for package in PACKAGES for path in (TREE / package).rglob("*.py")]
    return sorted(p.relative_to(TREE).as_posix() for p in paths if p.name != "__init__.py" or _defines_something(p))


def own_tests(module: str) -> str:
    """Where the test file of a module would be: `meshtf/ops/order/_argmax.py` has tests/ops/order/test_argmax.py."""
    path = PurePosixPath(module).relative_to("meshtf") if module.startswith("meshtf/") else PurePosixPath(module)
    name = path.parent.name if path.stem == "__init__" else path.stem
    return f"tests/{path.parent}/test_{name.lstrip('_')}.py".replace("/./", "/")


@functools.cache
def speaks_of() -> Mapping[str, Sequence[str]]:
    """The tests that are listed for modules, and for folders of modules."""
    return tomllib.loads((TREE / "tests" / "speaks_of.toml").read_text())


def listed_tests(module: str) -> Sequence[str]:
    """The tests that are listed for a module or for its folder."""
    return speaks_of().get(module, speaks_of().get(str(PurePosixPath(module).parent), ()))


def speaking_tests(module: str) -> Sequence[str]:
    """The test files, tests or folders that speak of a module; none where it is not known."""
    if module not in modules():
        return ()
    return _own(module) or listed_tests(module) or found_tests(module)


def found_tests(module: str) -> Sequence[str]:
    """The test files that the rules find for a module without a test file of its name."""
    if found := _naming(module):
        return found
    part, name = _rooms(module)[-1], _dotted(module)
    users = [user for user in modules() if _imports_it(user, name) and _rooms(user)[-1] == part]
    return sorted({test for user in users for test in _own(user) or _naming(user)})


def is_there(test: str) -> bool:
    """Whether there is a folder, a test file or a test of a file, `tests/test_tree.py::test_what_is_listed_exists`."""
    path, _, name = test.partition("::")
    return (TREE / path).exists() and (not name or name in _functions(TREE / path))


def _own(module: str) -> Sequence[str]:
    own = own_tests(module)
    return [own] if (TREE / own).exists() else []


@functools.cache
def _naming(module: str) -> Sequence[str]:
    """The test files that import a module or name something that it defines, in the nearest room that has some."""
    name, defined = _dotted(module), _definitions(module)
    for room in _rooms(module):
        files = sorted(path.relative_to(TREE).as_posix() for path in (TREE / room).glob("test_*.py"))
        if found := [file for file in files if _imports_it(file, name) or _names_one(file, defined)]:
            return found
    return []


def _rooms(module: str) -> Sequence[str]:
    """The folders of tests of a module's room and of those above it, the nearest first: tests/ops/order, tests/ops."""
    room = PurePosixPath(own_tests(module)).parent
    return [str(room), *(str(above) for above in room.parents if len(above.parts) > 1)]


def _dotted(path: str) -> str:
    """The name by which a module is imported; layers/ and models/ install under meshtf."""
    parts = PurePosixPath(path.removesuffix("/__init__.py")).with_suffix("").parts
    return ".".join(("meshtf", *parts) if parts[0] in ("layers", "models") else parts)


@functools.cache
def _text(path: str) -> str:
    return (TREE / path).read_text()


@functools.cache
def _parsed(path: str) -> ast.Module:
    return ast.parse(_text(path))


def _imports_it(path: str, name: str) -> bool:
    """Whether a file imports a module. If the last part of its name is nowhere in the text, nothing is parsed."""
    return name.rpartition(".")[2] in _text(path) and name in imports(path)


def _names_one(path: str, defined: set[str]) -> bool:
    """Whether a file takes one of these names from modules. If none is anywhere in the text, nothing is parsed."""
    return any(name in _text(path) for name in defined) and bool(defined & _words(path))


@functools.cache
def imports(path: str) -> set[str]:
    """The dotted names of the modules that a file imports, and of whatever it imports from them."""
    return set(_imported_names(_parsed(path)))


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements inside another, and the branches of `try` and `match`: a tenth of what `ast.walk` finds."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            yield inner
            yield from _statements(inner)


def _definitions(path: str) -> set[str]:
    """The public functions, classes and constants of a module."""
    found = set()
    for node in _parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


@functools.cache
def _words(path: str) -> set[str]:
    """Names that a test file takes from modules: attributes, imported names, and names as text."""
    found = set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


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
