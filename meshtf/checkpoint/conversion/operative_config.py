"""Reads gin files of Mesh TensorFlow's programs as text. It imports nothing that they name."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from meshtf.errors import CheckpointError
from meshtf.files.regular_file import read_regular

_LARGEST = 16 << 20
_BINDING = re.compile(r"([\w./@]+)\s*=\s*(.*)", re.DOTALL)
_INCLUDE = re.compile(r"""include\s+(['"])(.+)\1""")
_IMPORT = re.compile(r"(?:import|from)\s")
_STRING_OR_COMMENT = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\#.*""")
_MOST_FOLDERS_UP = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Binding:
    """A line of a gin file.

    Attributes:
      line: the number of the line, from 1.
      name: the name of the parameter or macro, without modules, with its scope: `encoder/SelfAttention.num_heads`.
      text: the text that it is bound to.
      value: the value of a literal, or of a macro that stands for a literal, else None.
      resolved: the text, or for a macro the text that the macro is bound to.
      file: the name of the file, if it is an included one.
    """

    line: int
    name: str
    text: str
    value: Any
    resolved: str = ""
    file: str = ""

    @property
    def plain_name(self) -> str:
        """The name without the scope."""
        return self.name.rpartition("/")[2]

    @property
    def scope(self) -> str:
        return self.name.rpartition("/")[0]


@dataclasses.dataclass(frozen=True)
class UnreadLine:
    """A line that was not read as a binding, and the reason."""

    line: int
    text: str
    reason: str
    file: str = ""


@dataclasses.dataclass(frozen=True)
class GinSource:
    """The statements of a gin file and of the files that it includes.

    Attributes:
      bindings: the bindings, in order.
      unread: lines that were not read.
    """

    bindings: tuple[Binding, ...]
    unread: tuple[UnreadLine, ...]


def read_source(path: Path) -> GinSource:
    """Reads the statements of a file. It looks for an included file beside it, and then in the folders above.

    Raises:
      CheckpointError: if there is no such file, or it is no text.
    """
    statements = list(_statements_of(path, "", frozenset()))
    found = [each for each in statements if isinstance(each, Binding)]
    texts = {binding.name: binding.text for binding in found}
    bindings = []
    for binding in found:
        resolved = _resolved(binding.text, texts)
        bindings.append(dataclasses.replace(binding, resolved=resolved, value=_value(resolved)))
    return GinSource(tuple(bindings), tuple(each for each in statements if isinstance(each, UnreadLine)))


def read_bindings(path: Path) -> list[Binding]:
    """Every binding of a file and of the files that it includes, in order. Raises the errors of `read_source`."""
    return list(read_source(path).bindings)


def _statements_of(path: Path, file: str, within: frozenset[Path]) -> Iterator[Binding | UnreadLine]:
    try:
        text = read_regular(path, _LARGEST).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"the configuration {path} cannot be read: {reason}") from None
    within |= {path.resolve()}
    for line, statement in _statements(text):
        if match := _INCLUDE.fullmatch(statement):
            yield from _included(path, match[2], UnreadLine(line, statement, "", file), within)
        elif match := _BINDING.fullmatch(statement):
            yield Binding(line, _without_modules(match[1]), match[2].strip(), None, file=file)
        elif not _IMPORT.match(statement):
            yield UnreadLine(line, statement, "this is not a binding that meshtf-import-gin understands", file)


def _included(path: Path, name: str, where: UnreadLine, within: frozenset[Path]) -> Iterator[Binding | UnreadLine]:
    folders = [path.parent, *list(path.resolve().parent.parents)[:_MOST_FOLDERS_UP]]
    found = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if found is None:
        yield dataclasses.replace(
            where, reason="there is no such file in the folder of this one, or above it: its lines are missing"
        )
    elif found.resolve() in within:
        yield dataclasses.replace(where, reason="the file includes itself")
    else:
        yield from _statements_of(found, found.name, within)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each statement with the number of its first line. It continues while a bracket is open, or after a backslash."""
    held: list[str] = []
    start = depth = 0
    for number, line in enumerate(text.splitlines(), start=1):
        code = _STRING_OR_COMMENT.sub(lambda m: "" if m[0].startswith("#") else m[0], line).rstrip()
        if not held and not code.strip():
            continue
        start = start if held else number
        without_strings = _STRING_OR_COMMENT.sub("", code)
        depth += sum(without_strings.count(c) for c in "([{") - sum(without_strings.count(c) for c in ")]}")
        held.append(code.removesuffix("\\").rstrip() if held else code.removesuffix("\\").strip())
        if depth <= 0 and not code.endswith("\\"):
            yield start, "\n".join(held)
            held, depth = [], 0
    if held:
        yield start, "\n".join(held)


def _resolved(text: str, texts: Mapping[str, str]) -> str:
    """The text that a macro stands for, possibly through other macros."""
    for _ in texts:
        if not text.startswith("%") or text[1:] not in texts:
            break
        text = texts[text[1:]]
    return text


def read_gin(path: Path) -> dict[str, Any]:
    """The literal values of a gin file, by parameter: `d_ff`, or `encoder/SelfAttention.num_heads`.

    The latter is also present without its scope. A macro has the value that it stands for. Values that a configurable
    makes are left out.

    Raises:
      CheckpointError: if there is no such file.
    """
    return values_of(read_bindings(path))


def values_of(bindings: Iterable[Binding]) -> dict[str, Any]:
    """The values that `read_gin` returns, from bindings."""
    values = {b.name: b.value for b in bindings}
    plain = {name.rpartition("/")[2]: value for name, value in values.items()}
    return {name: value for name, value in {**plain, **values}.items() if value is not None}


def _without_modules(name: str) -> str:
    scope, slash, selector = name.rpartition("/")
    return scope + slash + ".".join(selector.split(".")[-2:])


def _value(given: str) -> Any:
    try:
        return ast.literal_eval(given)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
