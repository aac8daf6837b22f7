"""Reads text to be continued or scored, and checks that it is text."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from meshtf.files.text_content import BROKEN, NoTextError, plain_text
from meshtf.train.configuration import ConfigurationError
from meshtf_programs.user_paths import user_path

_NO_TEXT = """\
there is no text to work on: {where} {is_are} empty. Give --prompt='def main(', --prompt_file=FILE with a prompt a line,
or lines on standard input."""

_NOT_TEXT = """\
{place} is not UTF-8: byte {byte:#04x} at column {column}. Convert it, as with iconv -t utf-8, or leave it out."""

_NO_TEXT_FILE = """\
{name} cannot be read as prompts: {error}.
Prompts are lines of text, which gzip, bzip2, xz or zstd may have compressed."""

_MARK = "\ufeff"

_SHOWN = 40

MOST_BYTES = 1 << 28
"""The most bytes of a file of prompts."""


@dataclasses.dataclass(frozen=True)
class PromptText:
    """A text, and where it stood."""

    text: str
    place: str

    def __str__(self) -> str:
        short = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 3] + "..."
        return f"{self.place} ({short!r})"


def given_texts(prompts: Sequence[str], files: Sequence[Path], standard_input: BinaryIO) -> list[PromptText]:
    """Returns the given prompts, and then one for each line of the files. Without both, the lines of standard input.

    Raises:
      ConfigurationError: if there is none, one is not UTF-8, or a file cannot be read.
    """
    # Python turns bytes of an argument that are no text into lone surrogates. fsencode returns the bytes.
    places = [f"prompt {number}" for number in range(1, len(prompts) + 1)]
    decoded = [_decoded(os.fsencode(x), place) for x, place in zip(prompts, places, strict=True)]
    texts = [PromptText(x.removeprefix(_MARK), place) for x, place in zip(decoded, places, strict=True)]
    for path in files:
        try:
            texts += lines_of(_read(user_path(path)), str(path))
        except OSError as error:
            raise ConfigurationError(f"the prompts in {path} cannot be read: {error.strerror or error}") from error
    if not prompts and not files:
        texts = lines_of(standard_input.read(), "standard input")
    if not texts:
        where = " and ".join(str(path) for path in files) or "standard input"
        raise ConfigurationError(_NO_TEXT.format(where=where, is_are="are" if len(files) > 1 else "is"))
    return texts


def lines_of(data: bytes, name: str) -> list[PromptText]:
    """Returns the lines of a file, with empty ones, without a byte-order mark. Compressed content is decompressed.

    Raises:
      ConfigurationError: if it is no text, or damaged; or if a line is not UTF-8. The message says which, and where in
        it.
    """
    lines = _plain(data, name).split(b"\n")
    if not lines[-1]:
        lines.pop()
    texts = []
    for number, line in enumerate(lines, 1):
        place = f"line {number} of {name}"
        texts.append(PromptText(_decoded(line.removesuffix(b"\r"), place), place))
    return texts


def _read(path: Path) -> bytes:
    """Reads a file or a pipe, up to a limit."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"there are more than {MOST_BYTES:,} bytes")
    return data


def _plain(data: bytes, name: str) -> bytes:
    try:
        text = plain_text(data, name, MOST_BYTES)
    except ImportError:
        needed = "zstd compressed it, which pyarrow reads: pip install 'meshtf[arrow]'"
        raise ConfigurationError(_NO_TEXT_FILE.format(name=name, error=needed)) from None
    except (*BROKEN, NoTextError, OSError) as error:
        raise ConfigurationError(_NO_TEXT_FILE.format(name=name, error=error)) from None
    if len(text) > MOST_BYTES:
        raise ConfigurationError(_NO_TEXT_FILE.format(name=name, error=f"there are more than {MOST_BYTES:,} bytes"))
    return text


def _decoded(data: bytes, place: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte, column = error.object[error.start], error.start + 1
        raise ConfigurationError(_NOT_TEXT.format(place=place, byte=byte, column=column)) from None
