"""Checks the file or folder that a program is to write, before its work begins."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from meshtf.train.gin_files.bindings import files_read
from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.user_paths import user_path

_THIS_COMMAND = "this command"
_IS_READ = "{given}={output} would overwrite {path}, which {flag} reads; give another {given}"

_IS_DEVICE = "{given}={output} is a device or a pipe, whose place the file would take; give the name of a file"


def check_overwrites_no_input(
    output: str | None, flag: str, paths: Iterable[str | os.PathLike[str]], given: str = "--output"
) -> None:
    """Checks that the file to write is none of the files that a flag reads. Devices and pipes may be both.

    Args:
      output: the file to write, as the user gave it; None for standard output.
      flag: the flag that names the files to read, as "--files", or what else reads them.
      paths: these files, as the user gave them. They need not exist.
      given: the flag that names the file to write.

    Raises:
      FlagError: if the output is one of them, also by another name.
    """
    if output is None or not (written := user_path(output)).is_file():
        return
    for path in paths:
        if (found := user_path(path)).exists() and found.samefile(written):
            raise FlagError(_IS_READ.format(given=given, output=output, path=path, flag=flag))


def check_overwrites_no_configuration(output: str | None, given: str = "--output") -> None:
    """Checks that the file to write is none of the gin files that were read, with those that others include.

    `output` and `given` are as in `check_overwrites_no_input`. Call this after the configuration is read.
    """
    check_overwrites_no_input(output, _THIS_COMMAND, files_read(), given)


def check_is_no_device(output: str | None, given: str) -> None:
    """Checks that a file that is written beside its name, and then renamed, takes the place of no device.

    Args:
      output: the file to write, as the user gave it; None if there is none.
      given: the flag that names it, as "--html".

    Raises:
      FlagError: if the output is a device or a pipe, such as /dev/null, or /dev/stdout.
    """
    if output is None:
        return
    path = user_path(output)
    is_standard_stream = path.is_symlink() and path.absolute().parent == Path("/dev")
    if is_standard_stream or (path.exists() and not path.is_file() and not path.is_dir()):
        raise FlagError(_IS_DEVICE.format(given=given, output=output))


def check_can_be_written(output: str | None, given: str) -> None:
    """Checks that a file can be made, also in place of another one.

    Args:
      output: the file to write, as the user gave it; None if there is none.
      given: the flag that names it, as "--html".

    Raises:
      OSError: if its folder is not there or is read-only, or if the path is a folder.
    """
    if output is None:
        return
    path = user_path(output)
    if not path.absolute().parent.is_dir():
        raise OSError(errno.ENOENT, f"there is no folder for {given}", str(path.parent))
    if path.is_dir():
        raise OSError(errno.EISDIR, f"{given} is a folder", output)
    if not os.access(path.absolute().parent, os.W_OK):
        raise OSError(errno.EACCES, f"nothing can be written for {given} there", str(path.parent))


def check_folder_can_be_made(output: Path, given: str) -> None:
    """Checks that a new folder can be made, with the folders above it that are not there.

    Args:
      output: the folder, which is not there yet.
      given: the flag that names it, as "--output_dir".

    Raises:
      OSError: if the nearest thing above it is no folder, or is read-only.
    """
    above = next(path for path in output.absolute().parents if path.exists())
    if not above.is_dir():
        raise OSError(errno.ENOTDIR, f"{given} would be below a file", str(above))
    if not os.access(above, os.W_OK):
        raise OSError(errno.EACCES, f"nothing can be written for {given} there", str(above))
