"""The arguments of a call of a program, by the names of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshtf.call_sites import user_site
from meshtf.errors import FeedError, counted


def feeds_by_name(
    names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any], program: str
) -> dict[str, Any]:
    """Maps the name of each input to its argument in a call.

    Args:
      names: the inputs, in order.
      args: arguments by position.
      kwargs: arguments by name.
      program: the program's name, in messages.

    Raises:
      FeedError: there are more arguments than inputs, an input is given twice, or all inputs come in one dict.
    """
    if len(args) == 1 and isinstance(args[0], Mapping):
        raise FeedError(
            f'program "{program}" was given a dict; inputs are given by name, as in step(**batch)\n  at {user_site()}'
        )
    if len(args) > len(names):
        inputs = f"{counted(len(names), 'input')} ({', '.join(names)})"
        raise FeedError(
            f'program "{program}" has {inputs} and was given {counted(len(args), "argument")}\n  at {user_site()}'
        )
    feeds = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name in feeds:
            raise FeedError(f'program "{program}" was given input "{name}" twice\n  at {user_site()}')
        feeds[name] = value
    return feeds
