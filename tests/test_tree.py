"""The tests mirror the tree: of every file it is known which tests speak of it, and every test file has its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tests_of import (
    PACKAGES,
    TREE,
    found_tests,
    imports,
    is_there,
    listed_tests,
    main,
    modules,
    own_tests,
    speaking_tests,
    speaks_of,
)

TESTS = TREE / "tests"
PROMISES = ("docs", "english", "errors", "house", "packaging", "properties", "reports", "xla")
"""Folders of tests that speak of what the whole promises, not of a room of the tree."""

MOST_FILES = 20


def test_of_every_module_some_tests_speak() -> None:
    silent = [m for m in modules() if not speaking_tests(m)]
    assert not silent, (
        f"write {[own_tests(m) for m in silent]}, or list in speaks_of.toml which tests speak of {silent}"
    )


def test_what_is_listed_is_needed() -> None:
    """Of modules without a test file of their name, and of folders that have such modules, where no rule finds it."""
    without = [module for module in modules() if not (TREE / own_tests(module)).exists()]
    known = {*without, *(str(Path(module).parent) for module in without)}
    assert not [key for key in speaks_of() if key not in known], "listed in speaks_of.toml, and needs no list"
    found = [module for module in without if set(listed_tests(module)) == set(found_tests(module)) != set()]
    assert not [module for module in found if module in speaks_of()], "listed in speaks_of.toml as the rules find it"


def test_rules_find_tests() -> None:
    """By what tests of the module's room, or of one above, import or name; else by the modules that import it."""
    assert found_tests("meshtf/ops/variables/assign.py") == ["tests/ops/variables/test_variables.py"]
    assert "tests/layers/moe/test_routers.py" in found_tests("layers/moe/capacity.py")
    assert "tests/layers/attention/test_ring.py" in found_tests("layers/attention/_dropped.py")
    assert not found_tests("meshtf/control_flow/_inline_block_lowering.py"), "which no module with tests imports"


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


def test_no_folder_is_too_full() -> None:
    """Every folder of code has at most `MOST_FILES` files of Python: more need rooms of their own."""
    roots = [TREE / name for name in (*PACKAGES, "benchmarks", "tests")]
    counts = {
        folder.relative_to(TREE).as_posix(): len(list(folder.glob("*.py")))
        for root in roots
        for folder in [root, *root.rglob("*")]
        if folder.is_dir()
    }
    assert all(counts.get(root.name) for root in roots)
    assert not {folder: number for folder, number in counts.items() if number > MOST_FILES}


def test_no_module_imports_private_modules_of_another_package() -> None:
    """A module whose name begins with an underscore is for the package that it is in, and the packages inside that."""
    found = [(module, name) for module in modules() for name in imports(module) if _is_private(name, module)]
    assert not found, f"{found}: make the module public in its package, or move what is shared to where it belongs"


def test_which_modules_are_private() -> None:
    assert _is_private("meshtf.ops.grouped_products._by_tiles", "meshtf/lowering/passes/pacing.py")
    assert _is_private("meshtf.layers.attention._scores", "models/transformer_lm.py")
    assert not _is_private("meshtf.ops.grouped_products._by_tiles", "meshtf/ops/grouped_products/grouped_matmul.py")
    assert not _is_private("meshtf.layers.attention._scores", "layers/attention/lean/lean_attention.py")
    assert not _is_private("__future__.annotations", "meshtf/layout.py")


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


def _is_private(name: str, module: str) -> bool:
    """Whether the dotted name leads through a private module of ours which a module at this path may not know."""
    parts, package = name.split("."), Path(module).parent.parts
    own = package if package[0] in ("meshtf", "meshtf_programs") else ("meshtf", *package)
    private = [i for i, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
    return bool(private) and parts[0] in PACKAGES and own[: private[0]] != tuple(parts[: private[0]])


def test_parameters_of_tests_have_an_order() -> None:
    """The order of a set changes from process to process, and workers that collect different orders end the run."""
    found = [
        f"{path.relative_to(TREE)}:{values.lineno}"
        for path in TESTS.rglob("test_*.py")
        for values in _parameters(ast.parse(path.read_text()))
        if _is_set(values)
    ]
    assert not found, f"give a list: {found}"


def test_a_set_of_parameters_is_seen() -> None:
    for text in ("{1, 2}", "set(x)", "x.keys() - y.keys()", "frozenset(x)"):
        decorated = f'@pytest.mark.parametrize("x", {text})\ndef test_x(x): ...'
        assert [_is_set(values) for values in _parameters(ast.parse(decorated))] == [True]
    assert not any(map(_is_set, _parameters(ast.parse('@pytest.mark.parametrize("x", sorted({1}))\ndef f(x): ...'))))


def _parameters(tree: ast.AST) -> Iterator[ast.expr]:
    """The values that tests are parametrized with."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[_, values, *_]):
                yield values
            case _:
                pass


def _is_set(values: ast.expr) -> bool:
    if isinstance(values, ast.BinOp):
        return _is_set(values.left) or ".keys()" in ast.unparse(values.left)
    is_call = isinstance(values, ast.Call) and ast.unparse(values.func) in ("set", "frozenset")
    return is_call or isinstance(values, ast.Set | ast.SetComp)
