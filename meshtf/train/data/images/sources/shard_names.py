"""The names of files that are shards of one data set: `train-00017-of-01024`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from meshtf.errors import counted
from meshtf.train.configuration import ConfigurationError

_SHARD = re.compile(r"(?P<before>.*-)(?P<number>\d+)-of-(?P<count>\d+)(?P<after>.*)")

_MISSING = """\
{count} missing out of the {all} that the name of {example} promises: {names}
Copy the files here, or give {option} that match only complete data sets."""

_NAMED = 5
"""The most missing shards that a message names."""


def check_shards(files: Iterable[Path], option: str) -> None:
    """Checks that all shards of a data set are there, if the names say how many there are.

    Args:
      files: the existing files.
      option: the name of the patterns that found them, for messages.

    Raises:
      ConfigurationError: names the shards that are missing.
    """
    sets: dict[tuple[str, str, str], dict[int, Path]] = {}
    for path in files:
        if match := _SHARD.fullmatch(str(path)):
            sets.setdefault((match["before"], match["count"], match["after"]), {})[int(match["number"])] = path
    for (before, count, after), found in sets.items():
        missing = [number for number in range(int(count)) if number not in found]
        if missing:
            names = [f"{before}{number:0{len(count)}}-of-{count}{after}" for number in missing[:_NAMED]]
            raise ConfigurationError(
                _MISSING.format(
                    count=f"{counted(len(missing), 'shard')} {'is' if len(missing) == 1 else 'are'}",
                    all=f"{int(count):,}",
                    option=option,
                    example=next(iter(found.values())),
                    names=", ".join(names) + (", ..." if len(missing) > _NAMED else ""),
                )
            )
