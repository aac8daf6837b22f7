"""Finds code that the configuration of a run would execute when it is read. The run may be a stranger's.

gin imports the modules that a configuration names, and calls functions that they register. Unless the user trusts the
configuration, it may not use:

- code that came with it, in the run's own folder;
- modules of Python's library, which no model needs;
- gin's dynamic registration, with which a configuration calls any function of any module;
- gin files from elsewhere.

It may use meshtf's modules and gin files, and modules that the user has elsewhere, such as a user's model. The same
rules hold for a gin file in the run's own folder that it includes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from tokenize import TokenError

from gin.config_parser import ConfigParser, ImportStatement, IncludeStatement, ParserDelegate

from meshtf.files.regular_file import read_regular
from meshtf.train.configuration import ConfigurationError
from meshtf_programs.packaged_configurations import gin_file_choices, packaged_folder
from meshtf_programs.user_paths import user_path

LARGEST_CONFIGURATION = 16 << 20
"""The greatest size of a configuration that is read, in bytes."""

_NOT_TRUSTED = """\
{file} has statements that execute code, which meshtf does only on request:
{statements}
If it is your own, or you have read it and the files that it names,
give --trust_config (in Python: trust_config=True)."""

_OF_GIN = "__gin__"


def check_foreign(file: Path) -> None:
    """Checks a configuration without executing any of it.

    Raises:
      ConfigurationError: if it needs trust (the message has the lines), or if it cannot be read.
    """
    if lines := list(_untrusted(file, file.parent, frozenset())):
        raise ConfigurationError(_NOT_TRUSTED.format(file=file, statements="\n".join(lines)))


def _untrusted(file: Path, folder: Path, including: frozenset[Path]) -> Iterator[str]:
    """Yields a line for each statement that needs trust, in a file of a run's folder and in its included files there.

    `including` has the files that include this one.
    """
    for statement in _statements(file):
        beside = _beside(statement, file)
        if beside is not None and _is_inside(beside, folder):
            if beside.resolve() not in including:  # a cycle is reported where the files are read
                yield from _untrusted(beside, folder, including | {beside.resolve()})
        elif (reason := _reason(statement, folder, beside)) is not None:
            yield _line(statement, reason, f"{file.name}, " if including else "")


def _statements(file: Path) -> list[ImportStatement | IncludeStatement]:
    try:
        text = read_regular(file, LARGEST_CONFIGURATION).decode()
        return [s for s in ConfigParser(text, _Nothing()) if isinstance(s, ImportStatement | IncludeStatement)]
    except OSError as error:
        raise ConfigurationError(f"the configuration {file} cannot be read: {error.strerror or error}") from None
    except TokenError as error:
        message, (line, _) = error.args
        told = f"line {line}: {message}: a bracket or a quote is not closed"
        raise ConfigurationError(f"the configuration {file} cannot be read: {told}") from None
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ConfigurationError(f"the configuration {file} cannot be read: {error}") from None


def _beside(statement: ImportStatement | IncludeStatement, file: Path) -> Path | None:
    """The file that a statement includes by its path from the file's folder, if there is one."""
    if not isinstance(statement, IncludeStatement):
        return None
    beside = file.resolve().parent / user_path(statement.filename)
    return beside if beside.is_file() else None


class _Nothing(ParserDelegate):
    """A parser delegate that makes no object for a statement."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> None:
        pass

    def macro(self, macro_name: str) -> None:
        pass


def _line(statement: ImportStatement | IncludeStatement, reason: str, where: str) -> str:
    text = "include" if isinstance(statement, IncludeStatement) else statement.format()
    return f"  {where}line {statement.location.line_num}: {text}: {reason}"


def _reason(statement: ImportStatement | IncludeStatement, folder: Path, beside: Path | None) -> str | None:
    """The reason why a statement needs trust, or None if it needs none.

    `beside` is the file that the statement includes, if `_beside` finds one.
    """
    if isinstance(statement, IncludeStatement):
        found = gin_file_choices(statement.filename) if beside is None else [beside]
        is_ours = bool(found) and all(_is_inside(path, packaged_folder()) for path in found)
        return None if is_ours else f"{statement.filename}, another file"
    if statement.module.startswith(f"{_OF_GIN}."):
        return "lets it call any function of any module"
    if statement.module in sys.modules:
        return None
    if statement.module.partition(".")[0] in sys.stdlib_module_names:
        return "Python's own, which no model needs"
    inside = next((place for place in _places(statement.module, folder) if _is_inside(place, folder)), None)
    return None if inside is None else f"code in the run's own folder, {inside}"


def _places(module: str, folder: Path) -> Iterator[Path]:
    """Finds a module and its parent packages without executing them, and yields their paths."""
    names = module.split(".")
    path: Sequence[str] | None = None
    for number, name in enumerate(names):
        spec = _spec(".".join(names[: number + 1]), name, path)
        if spec is None and not number:  # then beside the file, and in the current folder
            spec = PathFinder.find_spec(names[0], [str(folder), str(Path.cwd())])
        if spec is None:
            return
        path = list(spec.submodule_search_locations or [])
        yield from (Path(place) for place in [*([spec.origin] if spec.has_location and spec.origin else []), *path])


def _spec(module: str, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Returns the specification that Python would find for a module.

    For a folder without __init__.py the finder would look up the parent package, which is not imported because nothing
    is executed. So the finder gets the last part of the name, and searches the parent's folders for it.
    """
    found = (f.find_spec(name if f is PathFinder else module, path) for f in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)


def _is_inside(place: Path, folder: Path) -> bool:
    return place.resolve().is_relative_to(folder.resolve())
