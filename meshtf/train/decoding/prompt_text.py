"""Reads text to be continued or scored, and checks that it is text."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from meshtf.files.text_content import BROKEN, NoTextError, plain_text, text_stream
from meshtf.train.configuration import ConfigurationError
from meshtf_programs.user_paths import user_path

_NO_TEXT = """\
there is no text to work on: {where} {is_are} empty. Give --prompt='def main(', --prompt_file=FILE with one prompt per
line, or lines on standard input."""

_NOT_TEXT = """\
{place} is not UTF-8: byte {byte:#04x} at column {column}. Convert it, as with iconv -t utf-8, or leave it out."""

_NO_TEXT_FILE = """\
{name} cannot be read as prompts: {error}.
Prompts are lines of text, which gzip, bzip2, xz or zstd may have compressed."""

_MARK = "\ufeff"

_SHOWN = 40

MOST_BYTES = 1 << 28
"""The most bytes of prompts that are held at once, and of a line of texts that are read one by one."""


@dataclasses.dataclass(frozen=True)
class PromptText:
    """A text, and where it is from."""

    text: str
    place: str

    def __str__(self) -> str:
        short = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 3] + "..."
        return f"{self.place} ({short!r})"


def given_texts(prompts: Sequence[str], files: Sequence[Path], standard_input: BinaryIO) -> list[PromptText]:
    """Returns the given prompts, then each line of the files. Without both, returns the lines of standard input.

    Raises:
      ConfigurationError: if there is none, one is not UTF-8, or a file cannot be read.
    """
    # Python decodes invalid bytes of an argument as lone surrogates. fsencode restores the bytes.
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
        raise ConfigurationError(no_text_in(files))
    return texts


def no_text_in(files: Sequence[Path]) -> str:
    """Returns the sentence for empty files, or for empty standard input if there are no files."""
    where = " and ".join(str(path) for path in files) or "standard input"
    return _NO_TEXT.format(where=where, is_are="are" if len(files) > 1 else "is")


@dataclasses.dataclass(frozen=True)
class TextsOfFiles:
    """The lines of files of any size. They are read anew each time, and one by one.

    Iterating raises ConfigurationError as `given_texts` does.

    Attributes:
      paths: regular files, which may be compressed.
    """

    paths: Sequence[Path]

    def __iter__(self) -> Iterator[PromptText]:
        for path in self.paths:
            try:
                with user_path(path).open("rb") as file:
                    yield from _streamed(file, str(path))
            except OSError as error:
                raise ConfigurationError(f"the prompts in {path} cannot be read: {error.strerror or error}") from error


def _streamed(file: io.BufferedReader, name: str) -> Iterator[PromptText]:
    with _text_errors(name):
        stream, number = text_stream(file, name), 0
        while line := stream.readline(MOST_BYTES + 1):
            number += 1
            place = f"line {number} of {name}"
            if len(line) > MOST_BYTES:
                raise OSError(errno.EFBIG, f"line {number} has more than {MOST_BYTES:,} bytes")
            yield PromptText(_decoded(line.removesuffix(b"\n").removesuffix(b"\r"), place), place)


def lines_of(data: bytes, name: str) -> list[PromptText]:
    """Returns the lines of a file, including empty ones, without a byte-order mark. Compressed content is decompressed.

    Raises:
      ConfigurationError: if it is not text, or is damaged; or if a line is not UTF-8. The message names the line and
        the place.
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
    with _text_errors(name):
        text = plain_text(data, name, MOST_BYTES)
        if len(text) > MOST_BYTES:
            raise OSError(f"there are more than {MOST_BYTES:,} bytes")
        return text


@contextlib.contextmanager
def _text_errors(name: str) -> Iterator[None]:
    """Says in words what is wrong with the content of a file."""
    try:
        yield
    except ImportError:
        needed = "it is compressed with zstd, which only pyarrow can read: pip install 'meshtf[arrow]'"
        raise ConfigurationError(_NO_TEXT_FILE.format(name=name, error=needed)) from None
    except (*BROKEN, NoTextError, OSError) as error:
        raise ConfigurationError(_NO_TEXT_FILE.format(name=name, error=error)) from None


def _decoded(data: bytes, place: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte, column = error.object[error.start], error.start + 1
        raise ConfigurationError(_NOT_TEXT.format(place=place, byte=byte, column=column)) from None
