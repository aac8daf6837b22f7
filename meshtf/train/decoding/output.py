"""Writes results, and shows progress."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from meshtf.errors import SaveError
from meshtf_programs.strict_json import json_text
from meshtf_programs.user_paths import user_path


@dataclasses.dataclass(frozen=True)
class Output:
    """Writes results one after the other.

    Attributes:
      stream: the stream that they are written to.
      is_json: whether a result is a JSON object in a line, or text.
      advance: tells that some more texts are done.
    """

    stream: TextIO
    is_json: bool
    advance: Callable[[int], None]

    def write(self, as_json: dict[str, Any], as_text: str) -> None:
        """Writes a result in one of its two forms, without delay."""
        print(json_text(as_json, ensure_ascii=False) if self.is_json else as_text, file=self.stream, flush=True)


@contextlib.contextmanager
def open_output(path: str | None, num_texts: int, *, is_json: bool, num_kept: int = 0) -> Iterator[Output]:
    """Opens a file or standard output for results. A bar is shown on standard error, if that is a terminal.

    There is no bar if results appear on the same terminal, since they show the progress.

    Args:
      path: the file; None for standard output.
      num_texts: how many texts there are.
      is_json: whether results are JSON lines.
      num_kept: the number of bytes to keep at the beginning of an existing file.

    Raises:
      SaveError: if the file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        stream: TextIO = sys.stdout
        if path is not None:
            try:
                stream = stack.enter_context(_opened(user_path(path), num_kept))
            except OSError as error:
                raise SaveError(f"--output={path} cannot be written: {error.strerror or error}") from error
        advance = stack.enter_context(shown_progress(num_texts, is_shown=not stream.isatty()))
        yield Output(stream, is_json, advance)


def _opened(path: Path, num_kept: int) -> TextIO:
    if not num_kept:
        return path.open("w", encoding="utf-8")
    file = path.open("r+", encoding="utf-8")
    file.truncate(num_kept)
    file.seek(0, os.SEEK_END)
    return file


@contextlib.contextmanager
def shown_progress(num_texts: int, *, is_shown: bool) -> Iterator[Callable[[int], None]]:
    """Shows a bar on standard error, if that is a terminal. Yields a function that advances it by some texts."""
    console = Console(stderr=True)
    columns = [TextColumn("decoding"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(
        *columns,
        console=console,
        disable=not (is_shown and console.is_terminal),
        redirect_stdout=False,
        redirect_stderr=False,
    ) as progress:
        task = progress.add_task("decoding", total=num_texts)
        yield lambda count: progress.advance(task, count)
