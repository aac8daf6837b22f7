"""The bindings of gin's present configuration, and the place where each was written."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gin import config as gin_config

from meshtf_programs.packaged_configurations import origin_of_line

MACRO = "gin.macro"


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A binding that a flag of its own sets. For example, --layout sets `Training.layout`."""

    flag: str
    binding: str

    def __str__(self) -> str:
        return self.binding


@dataclasses.dataclass(frozen=True)
class Origin:
    """The place where something was written: a line of a file, or a flag."""

    text: str
    is_flag: bool = False

    @classmethod
    def of_line(cls, file: Path, line: int) -> Origin:
        return cls(origin_of_line(file, line))

    @classmethod
    def of_flag(cls, flag: str) -> Origin:
        return cls(flag, is_flag=True)

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True, eq=False)
class Binding:
    """A statement `scope/selector.parameter = value`, or `scope = value` for a macro.

    Attributes:
      scope: the scope in which it applies. For a macro, its name.
      selector: the configurable's whole name, as gin keeps it.
      parameter: the parameter of the configurable.
      value: the value, with references as gin keeps them.
      origin: where it was written.
    """

    scope: str
    selector: str
    parameter: str
    value: Any
    origin: Origin

    @property
    def is_macro(self) -> bool:
        return self.selector == MACRO

    @property
    def configurable(self) -> str:
        """The configurable's name, without its module."""
        return self.selector.rpartition(".")[2]

    @property
    def name(self) -> str:
        """The name of the binding as it is written."""
        if self.is_macro:
            return self.scope
        return f"{self.scope}/" * bool(self.scope) + f"{self.configurable}.{self.parameter}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scope, self.selector, self.parameter

    @property
    def references(self) -> Iterator[gin_config.ConfigurableReference]:
        return gin_config.iterate_references(self.value)

    def __str__(self) -> str:
        value = repr(self.value)
        return f"{self.name} = {value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + '...'}"


_LONGEST_VALUE = 60

# gin has one configuration for the process, and forgets where its bindings were written. These lists keep these places.
_present: list[Binding] = []
_files: list[Path] = []


def keep(bindings: Sequence[Binding], files: Sequence[Path] = ()) -> None:
    """Makes these the bindings of gin's configuration, and these the files from which they were read."""
    _present[:], _files[:] = bindings, files


def present_bindings() -> list[Binding]:
    """Returns every binding of gin's present configuration that `read_configuration` has read, later ones last."""
    return [binding for binding in _present if _is_in_gin(binding)]


def files_read() -> list[Path]:
    """Returns the files of gin's present configuration, with those that others include."""
    return list(_files)


def where_written(message: str, *names: str) -> str:
    """Returns lines that say where the bindings in a message were written, or an empty text.

    Args:
      message: the message of an error. A binding is recognised by its name, as "Training.seed".
      names: the names of further bindings.
    """
    last = {b.name: b for b in present_bindings() if not b.is_macro}
    spoken = [b for name, b in last.items() if name in names or _speaks_of(message, b)]
    return "".join(f"\n  {b}  is from {b.origin}" for b in spoken)


def names_of_bindings_with(path: str) -> list[str]:
    """Returns the names of the bindings whose value has a path in it, as it was written."""
    return [b.name for b in present_bindings() if path in _texts_in(b.value)]


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for each in pair for text in _texts_in(each))
    elif isinstance(value, list | tuple):
        yield from (text for each in value for text in _texts_in(each))


def _speaks_of(message: str, binding: Binding) -> bool:
    name = re.escape(f"{binding.configurable}.{binding.parameter}")
    return re.search(rf"(?<![\w.]){name}(?!\w)", message) is not None


def _is_in_gin(binding: Binding) -> bool:
    values = gin_config._CONFIG.get((binding.scope, binding.selector), {})
    return binding.parameter in values
