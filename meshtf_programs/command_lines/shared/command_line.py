"""The flags of a program: each program has its own set of absl flags. The help has examples and exit statuses."""

from __future__ import annotations

import dataclasses
import math
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from absl import flags

from meshtf_programs.command_lines.shared.flag_groups import define_tensorflow_logs
from meshtf_programs.exit_status import STATUSES, ExitStatus
from meshtf_programs.packaged_configurations import listed_configurations, packaged_folder, recipes
from meshtf_programs.standard_streams import print_text

_HELP = """\
{program} {summary}

Usage:
  {usage}

Examples:
{examples}

Flags:
{flags}

Exit status:
{statuses}"""
_CONFIGURATIONS = """
Configurations that meshtf brings along:
{configurations}
"""
_RECIPES = """
Recipes of layouts, for --recipe:
{recipes}
"""

_WIDTH, _INDENT = 100, " " * 6
_MAY_BE_EMPTY = frozenset({"layout", "prompt"})
HELP_FLAGS = frozenset({"-h", "-help", "--help", "--helpshort", "--helpfull"})


class HelpWanted(Exception):  # noqa: N818  # nothing is wrong
    """Signals that the user asked for help. The exception's text is the help."""


class FlagError(Exception):
    """A flag that does not exist, or has a wrong value."""


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """A program's name, its purpose, and its flags, in `flags`.

    Attributes:
      program: its name.
      summary: what it does, after its name, as a sentence.
      usage: the form of its command line.
      examples: commands.
      required: names of flags that must be given. "one|another" means that one of the two is enough.
      flags: defined by the functions below.
      listing: makes the text of --list from the current folder, for programs with that flag.
    """

    program: str
    summary: str
    usage: str
    examples: Sequence[str]
    required: Sequence[str] = ()
    flags: flags.FlagValues = dataclasses.field(default_factory=flags.FlagValues)
    listing: Callable[[Path], str] = listed_configurations

    def __post_init__(self) -> None:
        define_tensorflow_logs(self.flags)

    def answer(self, arguments: Sequence[str]) -> int | None:
        """Prints the help, or errors in flags or in gin names, and returns the exit status. Returns None if there is
        work.

        `arguments` begin with the program's name.
        """
        try:
            values = self.parse(arguments)
            if "gin_param" in values:
                _check_names(values)
        except HelpWanted as wanted:
            return print_text(str(wanted))
        except FlagError as error:
            self.complain(str(error))
            return ExitStatus.BAD_CONFIGURATION
        return None

    def parse(self, arguments: Sequence[str]) -> flags.FlagValues:
        """Returns the values of the flags. `arguments` begin with the program's name.

        Raises:
          HelpWanted: with the help as its text, or with the list of `--list`.
          FlagError: for an unknown flag, with the nearest; for a wrong value; for an argument that is no flag.
        """
        if HELP_FLAGS & set(arguments[1:]):
            raise HelpWanted(self.help_text())
        rest = arguments_without_flags(self.flags, arguments, self.program)
        if "list" in self.flags and self.flags["list"].value:
            raise HelpWanted(self.listing(Path.cwd()))
        if wrong := self._what_is_wrong(rest[1:]):
            raise FlagError(f"{wrong}\nSee {self.program} --help.")
        return self.flags

    def _what_is_wrong(self, rest: Sequence[str]) -> str:
        """Returns the error in flags whose values have the right types, or in arguments that are no flags."""
        if wrong := wrong_value(self.flags):
            return wrong
        if rest:
            return f"unexpected argument {rest[0]!r}: {self.usage}"
        for names in (each.split("|") for each in self.required):
            if not any(self.flags[name].value for name in names):
                return f"--{' or --'.join(names)} is needed, for example: {self.examples[0]}"
        return ""

    def help_text(self) -> str:
        described = (f"  --{name}\n{_indented(described_flag(self.flags[name]))}" for name in self.flags)
        text = _HELP.format(
            program=self.program,
            summary=self.summary,
            usage=self.usage,
            examples="\n".join(f"  {example}" for example in self.examples),
            flags="\n".join(described),
            statuses=STATUSES,
        )
        if "gin_file" in self.flags:
            configurations = sorted(path.name for path in packaged_folder().glob("*.gin"))
            text += _CONFIGURATIONS.format(configurations=_indented(", ".join(configurations)))
        if "recipe" in self.flags:
            text += _RECIPES.format(
                recipes="\n".join(_indented(f"{name}: {about}") for name, about in recipes().items())
            )
        return text

    def complain(self, message: str) -> None:
        print(f"{self.program}: error: {message}", file=sys.stderr)


def arguments_without_flags(values: flags.FlagValues, arguments: Sequence[str], program: str) -> list[str]:
    """Reads the flags among the arguments, which begin with the program's name, and returns that name and the others.

    Raises:
      FlagError: for an unknown flag, with the nearest, or for a value of the wrong type.
    """
    try:
        return values(arguments)
    except (flags.Error, OSError, UnicodeDecodeError) as error:  # --flagfile may raise the last two
        raise FlagError(f"{error}\nSee {program} --help.") from None


def wrong_value(values: flags.FlagValues, may_be_empty: Collection[str] = _MAY_BE_EMPTY) -> str:
    """Returns the error in values that have the right types: given twice, empty, or no finite number.

    `may_be_empty`: the names of flags whose value may be an empty text.
    """
    for flag in (values[name] for name in values if values[name].present):
        if flag.present > 1 and not isinstance(flag, flags.MultiFlag):
            return f"--{flag.name} is given {flag.present} times, but takes one value"
        if flag.name not in may_be_empty and "" in (flag.value if isinstance(flag.value, list) else [flag.value]):
            return f"--{flag.name} is empty"
        if isinstance(flag.value, float) and not math.isfinite(flag.value):
            return f"--{flag.name} must be a finite number, and is {flag.value}"
    return ""


def _check_names(values: flags.FlagValues) -> None:
    from meshtf_programs.gin_names import UnknownNameError, check_names  # this imports gin, which help does not need

    reads_a_run = "trust_config" in values and values.model_dir is not None  # whose modules may be anything
    try:
        check_names(
            [] if reads_a_run or "gin_file" not in values else values.gin_file,
            values.gin_param,
            values.recipe if "recipe" in values else None,
        )
    except UnknownNameError as error:
        raise FlagError(str(error)) from None


def described_flag(flag: flags.Flag) -> str:
    """Returns the help of a flag, without absl's addition to a flag that may be repeated, and with its default."""
    text = (flag.help or "").partition(";\n    repeat this option")[0]
    has_default = bool(flag.default) if flag.boolean else flag.default not in (None, "", [])
    if not has_default or "default" in text.lower():
        return text
    default = f"{flag.default:g}" if isinstance(flag.default, float) else str(flag.default)
    return f"{text} By default {default.lower() if flag.boolean else default}."


def _indented(text: str) -> str:
    """Returns lines of at most 100 characters."""
    return textwrap.fill(text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
