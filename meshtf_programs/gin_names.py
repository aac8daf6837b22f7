"""Finds unknown names in gin files before meshtf is imported, since the import takes seconds.

It reports only names that are certainly misspelt, with the same messages as gin's full reading later. Everything else
is left to that reading. `configurables.toml` lists meshtf's configurables and their parameters (`make configurables`
writes it).
"""

from __future__ import annotations

import dataclasses
import io
import tokenize
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gin import config_parser
from gin.selector_map import SelectorMap

from meshtf_programs.nearest import nearest, nearest_public
from meshtf_programs.packaged_configurations import gin_file_choices, no_gin_file, origin_of_line, recipe_file
from meshtf_programs.user_paths import UserPathError, user_path

CONFIGURABLES = Path(__file__).with_name("configurables.toml")

_GINS_PLACE = "\n  In bindings string line "


class UnknownNameError(ValueError):
    """A name that meshtf cannot have, with the place where it is written."""


def check_names(files: Sequence[str], parameters: Sequence[str], recipe: str | None = None) -> None:
    """Checks the names of a configuration, up to the first statement that only the later reading can judge.

    Args:
      files: the files of --gin_file. Without any, programs first read a run's own configuration, whose modules may
        define other configurables. Then only parameters of meshtf's configurables are checked.
      parameters: the bindings of --gin_param.
      recipe: the name of --recipe.

    Raises:
      UnknownNameError: if there is no such gin file, configurable, or parameter of it.
    """
    reader = _Reader(_own_configurables(), may_be_foreign=not files)
    try:
        for name in files:
            reader.read_named(name)
        if recipe is not None:
            reader.read_file(recipe_file(recipe))
        for parameter in parameters:
            flag = f"--gin_param={parameter!r}"
            reader.read(parameter, Path.cwd(), lambda _, flag=flag: flag)
    except _OthersJudgeError:
        return


def unknown_configurable(name: str, known: Iterable[str]) -> str:
    """Returns the second line of the message on an unknown configurable. `known`: names without modules."""
    hint = nearest_public(name.rpartition("/")[2].rpartition(".")[2], known)
    return f"A configurable is known once its module is imported in the gin file{hint}"


def unknown_parameter(configurable: str, name: str, parameters: Sequence[str]) -> str:
    """Returns the second line of the message on an unknown parameter."""
    return f"{configurable} has the parameters {', '.join(parameters)}{nearest(name, parameters)}"


class _OthersJudgeError(Exception):
    """Stops the check at a statement that only the later reading can judge. That reading then judges the rest."""


@dataclasses.dataclass
class _Reader(config_parser.ParserDelegate):
    """Reads statements and checks only their names.

    Attributes:
      own: the parameters of each configurable of meshtf, by its full name. None for gin's own configurables.
      may_be_foreign: whether a name may come from a module that is not part of meshtf.
      open_files: the file that is being read, and the files that include it.
    """

    own: SelectorMap
    may_be_foreign: bool
    open_files: list[Path] = dataclasses.field(default_factory=list)

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> None:
        self._check_configurable(scoped_configurable_name, f"reference '@{scoped_configurable_name}{'()' * evaluate}'")

    def macro(self, macro_name: str) -> None:
        """Accepts any macro, since its value may come later."""

    def read_named(self, name: str) -> None:
        self.read_file(_found(name, UnknownNameError))

    def read_file(self, file: Path) -> None:
        if file.resolve() in self.open_files:
            raise _OthersJudgeError
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            raise _OthersJudgeError from None
        self.open_files.append(file.resolve())
        self.read(text, file.resolve().parent, lambda line: origin_of_line(file, line))
        self.open_files.pop()

    def read(self, text: str, folder: Path, origin_of: Callable[[int], str]) -> None:
        line = 1
        try:
            parser = config_parser.ConfigParser(io.StringIO(text), self)
            while (statement := parser.parse_statement()) is not None:
                line = statement.location.line_num
                self._look_at(statement, folder)
        except _UnplacedError as error:
            told, _, place = str(error).partition(_GINS_PLACE)  # for a reference, gin adds the line itself
            raise UnknownNameError(f"{origin_of(int(place.split()[0]) if place else line)}: {told}") from None
        except UnknownNameError:  # raised for a file that this one includes
            raise
        except (SyntaxError, tokenize.TokenError, ValueError, TypeError, KeyError, RuntimeError):
            raise _OthersJudgeError from None

    def _look_at(self, statement: Any, folder: Path) -> None:
        if isinstance(statement, config_parser.ImportStatement):
            self.may_be_foreign |= statement.module.partition(".")[0] != "meshtf"
        elif isinstance(statement, config_parser.IncludeStatement):
            beside = folder / user_path(statement.filename)
            self.read_file(beside if beside.is_file() else _found(statement.filename, _UnplacedError))
        elif isinstance(statement, config_parser.BlockDeclaration):
            self._check_configurable(statement.selector, f"'{statement.selector}'")
        elif isinstance(statement, config_parser.BindingStatement) and statement.arg_name:
            self._check_configurable(statement.selector, f"'{statement.selector}'")
            self._check_parameter(statement.selector, statement.arg_name)

    def _check_configurable(self, scoped: str, as_written: str) -> None:
        if not self.may_be_foreign and not self.own.matching_selectors(scoped.rpartition("/")[2]):
            names = sorted({name.rpartition(".")[2] for name, _ in self.own.items()})
            raise _UnplacedError(f"No configurable matching {as_written}\n{unknown_configurable(scoped, names)}")

    def _check_parameter(self, selector: str, name: str) -> None:
        matching = self.own.matching_selectors(selector)
        parameters = self.own[matching[0]] if len(matching) == 1 else None
        if parameters is not None and name not in parameters:
            raise _UnplacedError(
                f"Configurable '{selector}' doesn't have a parameter named '{name}'\n"
                f"{unknown_parameter(selector, name, parameters)}"
            )


class _UnplacedError(ValueError):
    """An unknown name. The message ends with the place if gin's parser adds it."""


def _found(name: str, error: type[ValueError]) -> Path:
    """Returns the file of a configuration. Raises `error` if there is none."""
    if "://" in name:
        raise _OthersJudgeError
    try:
        choices = gin_file_choices(name)
    except UserPathError:
        raise _OthersJudgeError from None
    if len(choices) == 2:  # the two files may differ
        raise _OthersJudgeError
    if not choices:
        raise error(no_gin_file(name))
    return choices[0]


def _own_configurables() -> SelectorMap:
    known = SelectorMap()
    for name, parameters in tomllib.loads(CONFIGURABLES.read_text()).items():
        known[name] = parameters
    for name in ("gin.macro", "gin.constant", "gin.singleton"):
        known[name] = None
    return known
