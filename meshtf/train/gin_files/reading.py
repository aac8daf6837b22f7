"""Reads gin files, and bindings that flags give, statement by statement, so that each keeps its line."""

from __future__ import annotations

import dataclasses
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gin
from gin import config as gin_config
from gin import config_parser

from meshtf.errors import nearest
from meshtf.train.gin_files.bindings import MACRO, Binding, Origin, Parameter
from meshtf.train.gin_files.errors import ConfigurationError
from meshtf.train.gin_files.modules import import_module
from meshtf.train.gin_files.names import suggestion
from meshtf_programs.packaged_configurations import shown
from meshtf_programs.user_paths import UserPathError, user_path

HERE = "{here}"
"""Stands at the beginning of a path for the folder of the gin file, or in a flag for the current folder."""

_NOT_A_VALUE = """\
A value is a Python literal: a number, a string in quotes of its own, as in --gin_param='Training.layout="batch:rows"',
True, None, a list; or @name() for what a configurable makes, %name for a macro. It cannot be an expression."""

_NOT_TEXT = """\
{file} is not a gin file: byte {offset}, in line {line}, is 0x{byte:02x}, which is not UTF-8. Save it as UTF-8."""

_CYCLE = """\
{origin}: include "{name}" would include {file} in itself: {chain}"""


@dataclasses.dataclass
class _Reader:
    """Reads statements into gin.

    Attributes:
      find_file: returns the file of an include, by its name.
      bindings: the bindings of all statements so far.
      open_files: the files that include one another, the innermost last.
      files: all files so far.
    """

    find_file: Callable[[str], Path]
    bindings: list[Binding] = dataclasses.field(default_factory=list)
    open_files: list[Path] = dataclasses.field(default_factory=list)
    files: list[Path] = dataclasses.field(default_factory=list)

    def read_file(self, file: Path) -> None:
        text = _text_of(file)
        self.files.append(file)
        self.open_files.append(file.resolve())
        self._read(text, lambda line: Origin.of_line(file, line), [file.resolve().parent, Path.cwd()])
        self.open_files.pop()

    def read_parameter(self, parameter: Parameter | str) -> None:
        is_own_flag = isinstance(parameter, Parameter)
        flag = parameter.flag if is_own_flag else f"--gin_param={parameter!r}"
        if not str(parameter).strip():
            raise ConfigurationError(f"{flag} is empty; it takes a binding, as 'Training.num_steps=100'")
        self._read(str(parameter), lambda _: Origin.of_flag(flag), [Path.cwd()])

    def _read(self, text: str, origin_of: Callable[[int], Origin], folders: Sequence[Path]) -> None:
        with gin_config._parse_scope() as context:
            for statement in _statements(text, origin_of):
                origin = origin_of(statement.location.line_num)
                if isinstance(statement, config_parser.ImportStatement):
                    import_module(statement, context, folders, origin)
                elif isinstance(statement, config_parser.IncludeStatement):
                    self._include(statement.filename, folders[0], origin)
                else:
                    self._bind(statement, origin, folders[0])
            gin_config._IMPORTS.update(context.imports)

    def _include(self, name: str, folder: Path, origin: Origin) -> None:
        try:
            beside = folder / user_path(name)
            file = beside if beside.is_file() else self.find_file(name)
        except (ConfigurationError, UserPathError) as error:
            raise ConfigurationError(f"{origin}: {error}") from error
        if file.resolve() in self.open_files:
            chain = " includes ".join(shown(path) for path in [*self.open_files, file.resolve()])
            raise ConfigurationError(_CYCLE.format(origin=origin, name=name, file=shown(file), chain=chain))
        self.read_file(file)

    def _bind(
        self, statement: config_parser.BindingStatement | config_parser.BlockDeclaration, origin: Origin, folder: Path
    ) -> None:
        try:
            if isinstance(statement, config_parser.BlockDeclaration):
                if not gin_config._parse_context().get_configurable(statement.selector):
                    raise ValueError(f"No configurable matching '{statement.selector}'")
                return
            key = _binding_key(statement)
            parsed = gin_config.ParsedBindingKey.parse(key)
            value = _with_here(statement.value, folder)
            gin.bind_parameter(parsed, value)
        except (ValueError, TypeError, KeyError) as error:  # a KeyError for a name that several modules have
            raise ConfigurationError(f"{origin}: {_in_words(str(error))}{suggestion(str(error))}") from error
        self.bindings.append(Binding(parsed.scope, parsed.complete_selector, parsed.arg_name, value, origin))


def read(
    files: Sequence[Path], parameters: Sequence[Parameter | str], find_file: Callable[[str], Path]
) -> tuple[list[Binding], list[Path]]:
    """Reads files into gin's configuration, and bindings that override them.

    Returns all bindings, in order, and all files, with those that others include.

    Raises:
      ConfigurationError: with the line or the flag. For an unknown name it has the nearest match.
    """
    reader = _Reader(find_file)
    for file in files:
        reader.read_file(file)
    for parameter in parameters:
        reader.read_parameter(parameter)
    _check_macros(reader.bindings)
    return reader.bindings, reader.files


def _binding_key(statement: config_parser.BindingStatement) -> tuple[str, str, str]:
    if statement.arg_name:
        return statement.scope, statement.selector, statement.arg_name
    name = f"{statement.scope}/{statement.selector}" if statement.scope else statement.selector
    return name, MACRO, "value"


def _with_here(value: Any, folder: Path) -> Any:
    """Replaces {here} at the beginning of each text in a value by the folder of its file."""
    if isinstance(value, str) and f"{value}/".startswith(f"{HERE}/"):
        return str(folder) + value.removeprefix(HERE)
    if isinstance(value, dict):
        return {_with_here(key, folder): _with_here(each, folder) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_here(each, folder) for each in value)
    return value


def _text_of(file: Path) -> str:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the gin file {shown(file)} cannot be read: {error.strerror or error}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            _NOT_TEXT.format(file=shown(file), offset=error.start, line=line, byte=content[error.start])
        ) from error


def _statements(text: str, origin_of: Callable[[int], Origin]) -> Iterator[gin_config.config_parser.BindingStatement]:
    """Yields every statement of a text. References are looked up as they are read, after the imports before them."""
    last_line = 1
    try:
        parser = config_parser.ConfigParser(io.StringIO(text), gin_config.ParserDelegate())
        while (statement := parser.parse_statement()) is not None:
            last_line = statement.location.line_num
            yield statement
    except SyntaxError as error:
        place = origin_of(error.lineno or last_line)
        marked = f"\n    {error.text.strip()}" if error.text else ""
        raise ConfigurationError(f"{place}: {_in_words(error.msg)}{marked}\n{_NOT_A_VALUE}") from error
    except tokenize.TokenError as error:
        message, (line, _) = error.args
        raise ConfigurationError(f"{origin_of(line)}: {message}: a bracket or a quote is not closed") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        place = origin_of(int(line[1]) if line else last_line)
        told = str(error).split("\n  In ")[0]
        raise ConfigurationError(f"{place}: {_in_words(told)}{suggestion(told)}") from error


def _in_words(message: str) -> str:
    """Returns gin's message without its final dot and its parser's words."""
    if token := re.search(r"Failed to parse token '(.*)'", message):
        return f"{token[1]} is no value"
    return message.split("\n")[0].strip('"').removesuffix(".").replace("Malformatted", "malformed")


def _check_macros(bindings: Sequence[Binding]) -> None:
    """Raises ConfigurationError for a macro that has no value."""
    known = [binding.scope for binding in bindings if binding.is_macro]
    for binding in bindings:
        for reference in binding.references:
            scope, selector = reference.config_key
            if selector == MACRO and scope not in known:
                raise ConfigurationError(
                    f"{binding.origin}: the macro %{scope} has no value{nearest(scope, known)}\n"
                    f"  {binding.name} uses it; set it with `{scope} = ...`"
                )
