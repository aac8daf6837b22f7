"""Keeps a program from overwriting what it reads."""

from __future__ import annotations

import os
from collections.abc import Iterable

from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.user_paths import user_path

_IS_READ = "--output={output} would overwrite {path}, which {flag} reads; give another --output"


def check_overwrites_no_input(output: str | None, flag: str, paths: Iterable[str | os.PathLike[str]]) -> None:
    """Checks that --output is none of the files that a flag reads. Devices and pipes may be both.

    Args:
      output: the file to write, as the user gave it; None for standard output.
      flag: the flag that names the files to read, as "--files".
      paths: these files, as the user gave them. They need not exist.

    Raises:
      FlagError: if the output is one of them, also by another name.
    """
    if output is None or not (written := user_path(output)).is_file():
        return
    for path in paths:
        if (found := user_path(path)).exists() and found.samefile(written):
            raise FlagError(_IS_READ.format(output=output, path=path, flag=flag))
