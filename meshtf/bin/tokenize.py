"""meshtf-tokenize: tokenizes the text of a configuration once, onto disk, with several processes."""

from __future__ import annotations

import copy
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import gin
from absl import flags

from meshtf.bin.shared.run_program import run_program
from meshtf.errors import counted
from meshtf.train.configuration import ConfigurationError, configuration_errors, find_gin_file, read_configuration
from meshtf.train.data.mixture import Mixture
from meshtf.train.data.text_task import TextTask
from meshtf.train.data.token_folders.making import TokenFolder
from meshtf.train.data.token_folders.manifest import SIDES
from meshtf.train.gin_files.bindings import Parameter
from meshtf_programs.command_lines.tokenize import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus

__all__ = ["PROGRAM", "command_line", "main", "run"]

_NO_TASK = """\
the configuration binds no Training.task of text that has a folder for its tokens.
Give one with --output=FOLDER, or TextTask.tokens = "FOLDER"."""


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Tokenizes, and returns the exit status."""
    return run_program(command_line(), prepare, arguments, has_mesh=False)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the part of the configuration that describes the text."""
    files = [find_gin_file(name) for name in values.gin_file]
    output = [] if values.output is None else [Parameter("--output", f"TextTask.tokens = {values.output!r}")]
    read_configuration(files, [*values.gin_param, *output])
    folders = configured_folders()
    if values.verify:
        return functools.partial(verify, folders)
    return functools.partial(make, folders, values.processes or len(os.sched_getaffinity(0)))


def configured_folders() -> list[TokenFolder]:
    """Returns the folders of the configuration's task.

    Raises:
      ConfigurationError: if it has none, or a parameter is missing or wrong.
    """
    with configuration_errors():
        try:
            bound = gin.query_parameter("Training.task")
        except ValueError:
            raise ConfigurationError(_NO_TASK) from None
        task = copy.deepcopy(bound)  # gin evaluates references in a copy, and reports errors of their parts
    tasks = task.tasks if isinstance(task, Mixture) else [task]
    folders = [each.token_folder for each in tasks if isinstance(each, TextTask)]
    found = [folder for folder in folders if folder is not None]
    if not found:
        raise ConfigurationError(_NO_TASK)
    return found


def make(folders: Sequence[TokenFolder], num_processes: int) -> int:
    for folder in folders:
        began = time.monotonic()
        if not folder.is_made:
            folder.make(num_processes, functools.partial(print, flush=True))
            print(
                f"made in:       {time.monotonic() - began:,.1f} s, by {counted(num_processes, 'process', 'processes')}"
            )
        _describe(folder)
    return ExitStatus.DONE


def verify(folders: Sequence[TokenFolder]) -> int:
    for folder in folders:
        folder.manifest().verify(folder.path)
        _describe(folder)
        print("verified:      every byte is as it was written")
    return ExitStatus.DONE


def _describe(folder: TokenFolder) -> None:
    manifest = folder.manifest()
    text = manifest.open(folder.path)
    for side, tokens in zip(SIDES, (text.train, text.held_out), strict=True):
        print(
            f"{side + ':':<15}{counted(tokens.num_documents, 'document')} of {counted(tokens.num_bytes, 'byte')}, "
            f"{counted(tokens.num_tokens, 'token')}"
        )
    if text.num_skipped:
        print(f"left out:      {counted(text.num_skipped, 'document')}, not in UTF-8")
    print(f"tokens:        {_shown(folder.path)} ({sum(size for size, _ in manifest.contents.files.values()):,} bytes)")


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    run()
