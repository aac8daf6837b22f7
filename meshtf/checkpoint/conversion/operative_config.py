"""Gin files of Mesh TensorFlow's programs, read as text: nothing that they name is imported."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from meshtf.errors import CheckpointError
from meshtf.files.regular_file import read_regular

_LARGEST = 16 << 20
_BINDING = re.compile(r"^([\w./@]+) *= *\\?\n?(.*(?:\n[ \t]+.*)*)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Binding:
    """A line of a gin file.

    Attributes:
      line: its number, from 1.
      name: of the parameter or macro, without modules, with its scope: `encoder/SelfAttention.num_heads`.
      text: what it is bound to.
      value: that, where it is literal, or a macro that is; else None.
    """

    line: int
    name: str
    text: str
    value: Any

    @property
    def plain_name(self) -> str:
        """Without the scope."""
        return self.name.rpartition("/")[2]


def read_bindings(path: Path) -> list[Binding]:
    """Every binding of a file, in order.

    Raises:
      CheckpointError: there is no such file, or it is no text.
    """
    try:
        text = read_regular(path, _LARGEST).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"the configuration {path} cannot be read: {reason}") from None
    found = [
        (text.count("\n", 0, m.start()) + 1, _without_modules(m[1]), m[2].strip()) for m in _BINDING.finditer(text)
    ]
    texts = {name: given for _, name, given in found}
    return [Binding(line, name, given, _value(given, texts)) for line, name, given in found]


def read_gin(path: Path) -> dict[str, Any]:
    """The literal values of a gin file, by parameter: `d_ff`, `encoder/SelfAttention.num_heads`, and the last without
    its scope. A macro stands for its value; what a configurable makes is left out.

    Raises:
      CheckpointError: there is no such file.
    """
    return values_of(read_bindings(path))


def values_of(bindings: Iterable[Binding]) -> dict[str, Any]:
    """Of `read_gin`, from bindings."""
    values = {b.name: b.value for b in bindings}
    plain = {name.rpartition("/")[2]: value for name, value in values.items()}
    return {name: value for name, value in {**plain, **values}.items() if value is not None}


def _without_modules(name: str) -> str:
    scope, slash, selector = name.rpartition("/")
    return scope + slash + ".".join(selector.split(".")[-2:])


def _value(given: str, texts: Mapping[str, str]) -> Any:
    given = texts.get(given.removeprefix("%"), given) if given.startswith("%") else given
    try:
        return ast.literal_eval(given)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
