"""Flags whose values are paths. A path with an unknown user's name is refused when it is read."""

from __future__ import annotations

from absl import flags

from meshtf_programs.user_paths import UserPathError, user_path


class PathParser(flags.ArgumentParser[str]):
    """Keeps the text of a path. It may be on remote storage, or the name of a file that comes with meshtf.

    `~/` is not checked, because defaults contain it, and a user who does not need them may have no home folder.
    """

    def parse(self, argument: str) -> str:
        """Returns the path. Raises ValueError if there is no such user, and absl adds the flag and the path."""
        if argument.startswith("~/"):
            return argument
        try:
            user_path(argument)
        except UserPathError as error:
            raise ValueError(error.reason) from None
        return argument

    def flag_type(self) -> str:
        return "path"


def define_path(values: flags.FlagValues, name: str, default: str | None, help: str) -> None:  # noqa: A002  # absl's
    """Defines a flag of one path, with a help as absl's functions take it."""
    flags.DEFINE(PathParser(), name, default, help, flag_values=values)


def define_paths(values: flags.FlagValues, name: str, help: str) -> None:  # noqa: A002  # absl's
    """Defines a flag that may be given several times."""
    flags.DEFINE_multi(PathParser(), flags.ArgumentSerializer(), name, [], help, flag_values=values)
