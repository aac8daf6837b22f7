"""Text files as documents."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import gin

from meshtf.errors import nearest
from meshtf.field_checks import check_kinds
from meshtf.files.regular_file import kind_of
from meshtf.files.remote.local_copies import local_copies
from meshtf.files.remote.remote_folder import is_remote
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources._compressed import lines_from, opened
from meshtf.train.data.sources.document import Document
from meshtf_programs.user_paths import user_path

NO_FILES = """\
no file matches {patterns}.
A relative pattern starts at the current folder, {folder}; ** stands for any folders."""

EMPTY_LINES = re.compile(rb"\n(?:[ \t\r]*\n)+")
LINE_ENDS = b"\r\n"

MAGIC = re.compile(r"[*?\[]")

KINDS = ("file", "paragraph", "line")


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class TextFiles:
    """Text files by glob pattern.

    Attributes:
      patterns: one or several patterns, as "books/**/*.txt". Files are read in the order of their paths, each once, and
        decompressed if gzip, bzip2, xz or zstd compressed them. If a file has exactly this name, only it matches.
      document: "file", "line", or "paragraph" (the text between empty lines). Blank documents are left out. A line and
        a paragraph have no line end at their end, neither \\n nor \\r\\n.

    Raises:
      ConfigurationError: for a value of another kind. When documents are read: if no file matches, or one cannot be
        read or is no text.
    """

    patterns: str | Sequence[str]
    document: str = "file"

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        if self.document not in KINDS:
            known = ", ".join(f'"{name}"' for name in KINDS)
            raise ConfigurationError(
                f"TextFiles.document must be one of {known}, and is {self.document!r}"
                f"{nearest(str(self.document), KINDS)}"
            )

    def __str__(self) -> str:
        return f"files {', '.join(_as_tuple(self.patterns))}"

    @property
    def is_by_lines(self) -> bool:
        return self.document == "line"

    def files(self) -> list[Path]:
        return files_matching(self.patterns)

    def documents(self) -> Iterator[Document]:
        for path in self.files():
            yield from self.documents_of(path, 0, None)

    def documents_of(self, path: Path, start: int, stop: int | None) -> Iterator[Document]:
        if not self.is_by_lines:
            yield from split_file(path, str(path), self.document)
            return
        origin = f" after byte {start:,}" if start else ""
        for number, line in lines_from(path, start, stop):
            if line.strip():
                yield Document(f"{path}, line {number}{origin}", line)


def split_file(path: Path, name: str, document: str) -> Iterator[Document]:
    """Yields the documents of one file that are not blank: the file, or its paragraphs."""
    with opened(path) as file:
        content = file.read()
    pieces = [content]
    if document == "paragraph":
        pieces = [piece.strip(LINE_ENDS) for piece in EMPTY_LINES.split(content)]
    for number, piece in enumerate(pieces, start=1):
        if piece.strip():
            yield Document(name if len(pieces) == 1 else f"{name}, {document} {number}", piece)


def files_matching(patterns: str | Sequence[str]) -> list[Path]:
    """Returns the files that match any of the glob patterns, sorted by path.

    Raises:
      ConfigurationError: if there are none.
    """
    patterns = _as_tuple(patterns)
    matches = {match for pattern in patterns for match in _matches(pattern)}
    files = sorted(path for path in map(Path, matches) if path.is_file())
    others = sorted(path for path in map(Path, matches) if path.exists() and not path.is_dir() and path not in files)
    if others:
        raise ConfigurationError(
            f"{others[0]} matches, but is {kind_of(others[0].stat().st_mode)}, not a file; move it, or give other "
            f"patterns"
        )
    if not files:
        quoted = " or ".join(f'"{pattern}"' for pattern in patterns) or "an empty list of patterns"
        raise ConfigurationError(NO_FILES.format(patterns=quoted, folder=Path.cwd()))
    return files


def _matches(pattern: str) -> list[str]:
    if not is_remote(pattern):
        return glob.glob(_literal_where_there(user_path(pattern)), recursive=True)
    try:
        return list(map(str, local_copies(pattern)))
    except OSError as error:
        raise ConfigurationError(f"the files cannot be downloaded: {error.strerror or error}") from None


def _literal_where_there(pattern: Path) -> str:
    """Escapes the names in a pattern that exist literally: `data[1].txt`, or a folder `old [2]`."""
    literal = Path()
    for place, part in enumerate(pattern.parts):
        if MAGIC.search(part) and not os.path.lexists(literal / part):
            return str(Path(glob.escape(str(literal)), *pattern.parts[place:]))
        literal /= part
    return glob.escape(str(pattern))


def _as_tuple(patterns: str | Sequence[str]) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)
