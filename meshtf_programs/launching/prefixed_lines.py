"""The output of several processes on one terminal: whole lines, each with the number of its process."""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import IO, TextIO

_COLOURS = ("36", "33", "32", "35", "34", "31")
_LOCK = threading.Lock()


def colour_of(index: int, stream: TextIO) -> str:
    """Returns the code of a terminal's colour. It is empty if the stream is no terminal, or NO_COLOR is set."""
    return _COLOURS[index % len(_COLOURS)] if stream.isatty() and not os.environ.get("NO_COLOR") else ""


@dataclasses.dataclass(frozen=True)
class PrefixedLines:
    """Writes lines with a prefix to a stream.

    Attributes:
      prefix: the text before each line.
      colour: the colour of the prefix, or an empty text.
      stream: the stream that receives the lines.
    """

    prefix: str
    colour: str
    stream: TextIO

    def copy(self, source: IO[bytes]) -> str:
        """Copies all lines of a source until its end, and returns the last.

        It continues even if nobody reads the stream, since otherwise the process that writes to the source would stop.
        """
        text = ""
        with source:
            for line in source:
                text = line.decode(errors="replace").rstrip("\r\n")
                self._write(text)
        return text

    def _write(self, line: str) -> None:
        prefix = f"\x1b[{self.colour}m{self.prefix}\x1b[0m" if self.colour else self.prefix
        with _LOCK:
            try:
                self.stream.write(f"{prefix}{line}\n")
                self.stream.flush()
            except OSError:  # nobody reads
                pass
