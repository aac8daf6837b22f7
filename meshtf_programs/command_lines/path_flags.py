"""Flags whose values are paths: one that begins with the name of no user is refused as it is read."""

from __future__ import annotations

from absl import flags

from meshtf_programs.user_paths import UserPathError, user_path


class PathParser(flags.ArgumentParser[str]):
    """Keeps the text, which may be of remote storage, or the name of something that meshtf brings along.

    `~/` is not looked at: it stands in defaults, and whoever uses none of them may be without a home.
    """

    def parse(self, argument: str) -> str:
        """ValueError, of which absl makes one that names the flag and the path, where there is no such user."""
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
    """A flag of one path, with a help as absl's functions take it."""
    flags.DEFINE(PathParser(), name, default, help, flag_values=values)


def define_paths(values: flags.FlagValues, name: str, help: str) -> None:  # noqa: A002  # absl's
    """A flag that may be given several times."""
    flags.DEFINE_multi(PathParser(), flags.ArgumentSerializer(), name, [], help, flag_values=values)
