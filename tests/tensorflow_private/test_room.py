"""The room of undocumented names: nothing of the kind stands elsewhere, and each name in it has a test and a line."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tensorflow_private.test_names import NAMES
from tests.tests_of import PACKAGES, TREE

ROOM = TREE / "meshtf" / "tensorflow_private"
UNDOCUMENTED = ("tensorflow.python", "tensorflow.core", "tensorflow.compiler")
OF_OTHERS = {"meshtf/mesh_impl/pjrt/pjrt.py": "jaxlib's", "gin_config": "gin's", "os": "Python's", "sys": "Python's"}
"""Files, and names of modules, whose attributes with an underscore are not TensorFlow's."""
ATTRIBUTES_OF_FUNCTIONS = {"_noinline", "_XlaCompile", "_XlaMustCompile", "_kernel"}


_OWN = re.compile(r"\b(self|cls)\._\w+")
_SUSPECT = re.compile(rf"\.\s*_[^_]|{'|'.join(ATTRIBUTES_OF_FUNCTIONS)}")


def test_undocumented_names_stand_in_the_room_only() -> None:
    """Attributes with an underscore, of objects of others; `make lint` sees imports."""
    paths = [path for package in PACKAGES for path in (TREE / package).rglob("*.py") if path.parent != ROOM]
    found = {path.relative_to(TREE).as_posix(): sorted(_underscored(path)) for path in paths}
    assert not {name: names for name, names in found.items() if names and name not in OF_OTHERS}


def test_an_underscored_attribute_is_seen(tmp_path: Path) -> None:
    text = "class A:\n    def f(self):\n        self._own = graph._c_graph\n        return other._own, os._exit\n"
    (tmp_path / "a.py").write_text(text)
    assert _underscored(tmp_path / "a.py") == {"_c_graph"}


def test_each_name_of_the_room_has_a_test_and_a_line_in_its_readme() -> None:
    used = {path.stem: set(_names(path)) for path in ROOM.glob("*.py")}
    known = {stem: {name.path for name in NAMES if name.room_module == stem} for stem in used}
    assert used == known
    readme = (ROOM / "README.md").read_text()
    assert not [stem for stem in used if stem != "__init__" and f"`{stem}.py`" not in readme]
    assert not [name.path for name in NAMES if f"`{name.name}`" not in readme]


def _underscored(path: Path) -> set[str]:
    """Attributes with an underscore that the file itself does not define, and attributes of functions."""
    text = path.read_text()
    if not _SUSPECT.search(_OWN.sub("", text)):  # to parse it would take ten times as long
        return set()
    nodes = list(ast.walk(ast.parse(text)))
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    own |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and _is_own(n)}
    own |= {n.target.id for n in nodes if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute) and not _is_own(n)}
    private = {name for name in attributes - own if name.startswith("_") and not name.startswith("__")}
    return private | {n.value for n in nodes if isinstance(n, ast.Constant) and n.value in ATTRIBUTES_OF_FUNCTIONS}


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and (node.value.id in ("self", "cls") or node.value.id in OF_OTHERS)


def _names(path: Path) -> Iterator[str]:
    """The paths of the undocumented names that a file of the room uses."""
    tree, modules = ast.parse(path.read_text()), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(UNDOCUMENTED):
            for name in node.names:
                if hasattr(importlib.import_module(node.module), "__path__") and _is_module(node.module, name.name):
                    modules[name.name] = f"{node.module}.{name.name}"
                else:
                    yield f"{node.module}.{name.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root = node.value
            if isinstance(root, ast.Call) and ast.unparse(root.func) == "cast":
                root = root.args[1]
            if ast.unparse(root) in modules:
                yield f"{modules[ast.unparse(root)]}.{node.attr}"
            elif ast.unparse(root) == "running()":
                yield f"tensorflow.python.eager.context.Context.{node.attr}"


def _is_module(package: str, name: str) -> bool:
    try:
        importlib.import_module(f"{package}.{name}")
    except ImportError:
        return False
    return True
