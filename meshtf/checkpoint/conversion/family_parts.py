"""Parts that files of rules share: `parts = ["rotary"]` includes `parts/rotary.toml`, beside the file or from meshtf.

Tables are merged, and the file's own entries win over a part's. Lists in `_APPENDED` are joined, the part's first, but
a file's own readers come before those of its parts. Any other list of the file replaces the part's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshtf.checkpoint.conversion.axes import RuleFault
from meshtf.errors import nearest
from meshtf.files.regular_file import read_regular

LARGEST = 1 << 20
"""The largest size of a file of rules, in bytes."""
_PARTS, _FOLDER = "parts", "parts"
_APPENDED = ("tensors", "gin", "ignored", "optional", "readers")
_OF_TABLES = ("configuration", "layers")
_PACKAGED = Path(__file__).parent / "families" / "huggingface"


def read_rules(path: Path) -> dict[str, Any]:
    """The content of a file of rules, including its parts.

    Raises:
      RuleFault: if a part is missing.
      OSError, ValueError: if a file cannot be read, or is no TOML.
    """
    content = tomllib.loads(read_regular(path, LARGEST).decode())
    found: dict[str, Any] = {}
    for part in _part_files(path, content):
        found = _together(found, tomllib.loads(read_regular(part, LARGEST).decode()))
    return _together(found, {key: value for key, value in content.items() if key != _PARTS})


def copy_rules(path: Path, target: Path) -> None:
    """Copies a file of rules, and its parts beside it."""
    text = read_regular(path, LARGEST)
    target.write_bytes(text)
    for part in _part_files(path, tomllib.loads(text.decode())):
        (target.parent / _FOLDER).mkdir(exist_ok=True)
        (target.parent / _FOLDER / part.name).write_bytes(read_regular(part, LARGEST))


def _part_files(path: Path, content: Mapping[str, Any]) -> list[Path]:
    folders = [path.parent / _FOLDER, _PACKAGED / _FOLDER]
    found = []
    for name in content.get(_PARTS, ()):
        files = [folder / f"{name}.toml" for folder in folders]
        there = next((file for file in files if Path(name).name == name and file.is_file()), None)
        if there is None:
            known = sorted({file.stem for folder in folders for file in folder.glob("*.toml")})
            raise RuleFault(f"there is no part {name!r}{nearest(name, known)}; there are {', '.join(known)}")
        found.append(there)
    return found


def _together(part: Mapping[str, Any], own: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    """Merges the entries of a part and of the file. `depth`: how many levels of tables in tables are merged as well."""
    found = dict(part)
    for key, value in own.items():
        before = found.get(key)
        if isinstance(before, dict) and isinstance(value, dict) and depth:
            found[key] = _together(before, value, depth if key in _OF_TABLES else depth - 1)
        elif isinstance(before, list) and key in _APPENDED:
            found[key] = [*value, *before] if key == "readers" else [*before, *value]
        else:
            found[key] = value
    return found
