"""The manifest of a folder of tokens: its contents, and the text that it was made of."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meshtf.files.regular_file import open_regular, read_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data._tokenized_text import TextSplit, TokenizedText
from meshtf.train.data.sources.files_state import is_same
from meshtf.train.data.token_folders.token_file import TokenFile
from meshtf_programs.strict_json import json_text

MANIFEST = "manifest.json"
FORMAT, VERSION = "meshtf tokens", 2
SIDES = ("train", "held_out")
LARGEST_MANIFEST = 1 << 24
_PIECE = 1 << 22

NO_TOKENS = """\
{folder} is no folder of tokens: {why}.
meshtf-tokenize or the first training makes one; the current folder is {here}."""

OTHER_TOKENS = """\
the tokens in {folder} were not made for this task:
{differences}
Give TextTask.tokens another folder, or remove this one, and it is made again."""

BROKEN = """\
the folder of tokens {folder} is damaged:
{problems}
Restore what is missing, or remove the folder and make it again."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """The contents that were written so far.

    Attributes:
      files: bytes and CRC-32 of each file, by its name.
      documents: how many documents each side has.
      text_bytes: how many bytes of text each side has.
      num_skipped: how many documents were left out.
      num_shards: how many shards of the source are done.
    """

    files: Mapping[str, tuple[int, int]]
    documents: Mapping[str, int]
    text_bytes: Mapping[str, int]
    num_skipped: int = 0
    num_shards: int = 0

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Contents:
        files = {str(name): (int(size), int(crc)) for name, (size, crc) in found["files"].items()}
        documents, text_bytes = ({s: int(found[key][s]) for s in SIDES} for key in ("documents", "text_bytes"))
        return cls(files, documents, text_bytes, int(found["num_skipped"]), int(found["num_shards"]))


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The file that is written last.

    Attributes:
      made_of: everything that determines the tokens, as values that JSON can hold.
      dtype: the dtype of ids, "uint16" or "int32".
      vocabulary_size: the size of the vocabulary. All ids are below it.
      num_parts: how many parts a document has.
      contents: the contents of the folder.
    """

    made_of: Mapping[str, Any]
    dtype: str
    vocabulary_size: int
    num_parts: int
    contents: Contents

    def to_json(self) -> bytes:
        said = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        return json_text(said, indent=2).encode()

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads a manifest, or the journal of an unfinished folder.

        Raises:
          ConfigurationError: if it is missing, or is no manifest.
        """
        try:
            found = json.loads(read_regular(path, LARGEST_MANIFEST))
            if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
                raise ConfigurationError(
                    f"{path} is of a version that this meshtf cannot read; remove {path.parent}, and it will be made "
                    f"again"
                )
            contents = Contents.of_json(found["contents"])
            manifest = cls(
                dict(found["made_of"]),
                str(found["dtype"]),
                int(found["vocabulary_size"]),
                int(found["num_parts"]),
                contents,
            )
            names = {name for side in SIDES for name in file_names(side, manifest.num_parts)}
            if manifest.dtype not in ("uint16", "int32") or set(contents.files) != names:
                raise ValueError("it lists files or ids that no folder of tokens has")
        except ConfigurationError:
            raise
        except OSError as error:
            raise ConfigurationError(NO_TOKENS.format(folder=path.parent, why=error, here=Path.cwd())) from error
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"{path} is damaged: {error!r}") from error
        return manifest

    def check_made_of(self, made_of: Mapping[str, Any], folder: Path) -> None:
        """Checks that the tokens are made of the given text.

        Raises:
          ConfigurationError: if they are made of something else. The message lists the differences.
        """
        different = [
            f"  {name}: {self.made_of.get(name)!r} then, {value!r} now"
            for name, value in made_of.items()
            if value is not None and not is_same(self.made_of.get(name), value)
        ]
        if different:
            raise ConfigurationError(OTHER_TOKENS.format(folder=folder, differences="\n".join(different)))

    def open(self, folder: Path) -> TextSplit:
        """Opens the tokens of a folder, and reads none of them yet.

        Raises:
          ConfigurationError: if files are missing or wrong. The message names all of them.
        """
        problems = [text for name, (size, _) in self.contents.files.items() if (text := _problem(folder / name, size))]
        if problems:
            raise ConfigurationError(BROKEN.format(folder=folder, problems="\n".join(problems)))
        train, held_out = (self._side(folder, side) for side in SIDES)
        return TextSplit(train, held_out, self.contents.num_skipped)

    def verify(self, folder: Path) -> None:
        """Reads all files, and compares their checksums.

        Raises:
          ConfigurationError: if some have other bytes than were written. The message names all of them.
        """
        self.open(folder)
        wrong = [name for name, (_, crc) in self.contents.files.items() if _checksum(folder / name) != crc]
        if wrong:
            problems = "\n".join(f"  {name} does not have the bytes that were written" for name in wrong)
            raise ConfigurationError(BROKEN.format(folder=folder, problems=problems))

    def _side(self, folder: Path, side: str) -> TokenizedText:
        names = file_names(side, self.num_parts)
        crcs = [self.contents.files[name][1] for name in names]
        tokens, borders = [], []
        for tokens_name, ends_name in zip(names[::2], names[1::2], strict=True):
            dtype = np.dtype(self.dtype)
            count = self.contents.files[tokens_name][0] // dtype.itemsize
            ends = np.fromfile(folder / ends_name, np.int64)
            starts_and_ends = np.concatenate([np.zeros(1, np.int64), ends])
            if len(ends) != self.contents.documents[side] or not _ascends(starts_and_ends, count):
                problem = f"  {ends_name} does not divide {count:,} tokens into documents"
                raise ConfigurationError(BROKEN.format(folder=folder, problems=problem))
            tokens.append(TokenFile(folder / tokens_name, dtype, count, self.vocabulary_size))
            borders.append(starts_and_ends)
        checksums = tuple(zip(crcs[::2], crcs[1::2], strict=True))
        return TokenizedText(tuple(tokens), tuple(borders), self.contents.text_bytes[side], checksums)


def file_names(side: str, num_parts: int) -> list[str]:
    """Returns the names of one side's files: for each part of the documents, the ids, and the ends of documents
    as int64.
    """
    return [f"{side}_{part}.{kind}" for part in range(num_parts) for kind in ("tokens", "ends")]


def _ascends(borders: np.ndarray, last: int) -> bool:
    return bool(borders[-1] == last and np.all(borders[1:] > borders[:-1]))


def _problem(path: Path, size: int) -> str:
    try:
        found = path.stat().st_size
    except OSError as error:
        return f"  {path.name} is missing ({error.strerror})"
    return "" if found == size else f"  {path.name} has {found:,} bytes, and must have {size:,}"


def _checksum(path: Path) -> int:
    crc = 0
    with open_regular(path) as file:
        while piece := file.read(_PIECE):
            crc = zlib.crc32(piece, crc)
    return crc
