"""Writes a folder of tokens, which appears whole or not at all, and continues where it was interrupted.

The ids are appended to files in a folder next to the final one. Every five seconds a journal records how many bytes of
each file, and how many shards, are done. A writer that continues cuts the files to these bytes, and starts with the
next shard. At the end the manifest is written, and the folder gets its final name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from meshtf.files.replaced_file import replace_file
from meshtf.files.unlinked_file import open_for_lock
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data._tokenized_text import TokenizedText
from meshtf.train.data.token_folders.manifest import MANIFEST, SIDES, Contents, Manifest, file_names

JOURNAL, LOCK = "journal.json", "lock"
SECONDS_BETWEEN_JOURNALS = 5.0

TAKEN = """\
another process is making the tokens {folder}; wait until it ends, or give another folder."""

NO_FOLDER_OF_OURS = """\
{folder} already exists, and is not a folder of tokens; remove it, or give another."""


class TokenWriter:
    """Appends shards to a folder next to the final one. The folder gets the final name at the end.

    A writer with the same manifest continues an interrupted folder, after the last shard in the journal.

    Args:
      folder: the final folder.
      empty: the manifest of a folder without contents.

    Raises:
      ConfigurationError: if the interrupted folder is made of something else, if another process writes it now, or if
        the name belongs to something that is no folder of tokens.
      OSError: if it cannot be written.
    """

    def __init__(self, folder: Path, empty: Manifest) -> None:
        if folder.exists() and not (folder / MANIFEST).is_file():
            raise ConfigurationError(NO_FOLDER_OF_OURS.format(folder=folder))
        self._final, self._folder = folder, partial_folder(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self._folder / LOCK, folder)
        try:
            self._manifest = self._begun(empty)
            self._files = {name: self._opened(name, size) for name, (size, _) in self.contents.files.items()}
        except BaseException:
            self._lock.close()
            raise
        self._next_journal = time.monotonic()

    @property
    def contents(self) -> Contents:
        return self._manifest.contents

    def append(self, sides: Mapping[str, TokenizedText], num_skipped: int) -> None:
        """Appends the next shard."""
        now = self.contents
        files = dict(now.files)
        for side, text in sides.items():
            names = file_names(side, self._manifest.num_parts)
            for part, (tokens, borders) in enumerate(zip(text.tokens, text.borders, strict=True)):
                tokens_name, ends_name = names[2 * part : 2 * part + 2]
                # A shard counts the ends of its documents from its own first token, and the file from the file's.
                before = files[tokens_name][0] // np.dtype(self._manifest.dtype).itemsize
                files[tokens_name] = self._write(tokens_name, files[tokens_name], tokens[0 : len(tokens)].tobytes())
                files[ends_name] = self._write(ends_name, files[ends_name], (borders[1:] + before).tobytes())
        documents = {side: now.documents[side] + sides[side].num_documents for side in SIDES}
        text_bytes = {side: now.text_bytes[side] + sides[side].num_bytes for side in SIDES}
        self._set(Contents(files, documents, text_bytes, now.num_skipped + num_skipped, now.num_shards + 1))
        # The journal lists only bytes that are certainly on disk, since an interrupted run continues from it.
        if time.monotonic() >= self._next_journal:
            self._flush()
            replace_file(self._folder / JOURNAL, self._manifest.to_json())
            self._next_journal = time.monotonic() + SECONDS_BETWEEN_JOURNALS

    def finish(self) -> None:
        """Gives the folder its final name."""
        self._flush()
        replace_file(self._folder / MANIFEST, self._manifest.to_json())
        for name in (JOURNAL, LOCK):
            (self._folder / name).unlink(missing_ok=True)
        self._folder.rename(self._final)
        self.close()

    def give_up(self) -> None:
        """Removes the folder."""
        self.close()
        shutil.rmtree(self._folder)

    def close(self) -> None:
        """Closes the files. The written part is kept, to be continued."""
        for file in self._files.values():
            with contextlib.suppress(OSError):  # a full disk has already been reported
                file.close()
        self._lock.close()

    def _begun(self, empty: Manifest) -> Manifest:
        if not (self._folder / JOURNAL).is_file():
            return empty
        begun = Manifest.read(self._folder / JOURNAL)
        begun.check_made_of(empty.made_of, self._folder)
        return begun

    def _opened(self, name: str, size: int) -> BinaryIO:
        path = self._folder / name
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666), "r+b")
        if os.fstat(file.fileno()).st_size < size:
            file.close()
            raise ConfigurationError(f"{path} is cut short; remove {self._folder}, and begin again")
        file.truncate(size)
        file.seek(size)
        return file

    def _write(self, name: str, before: tuple[int, int], content: bytes) -> tuple[int, int]:
        self._files[name].write(content)
        size, crc = before
        return size + len(content), zlib.crc32(content, crc)

    def _set(self, contents: Contents) -> None:
        self._manifest = dataclasses.replace(self._manifest, contents=contents)

    def _flush(self) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())


def partial_folder(folder: Path) -> Path:
    """Returns the folder in which a folder is made."""
    return folder.with_name(f".making-{folder.name}")


def nothing_yet(num_parts: int) -> Contents:
    files = {name: (0, 0) for side in SIDES for name in file_names(side, num_parts)}
    zeros = {str(side): 0 for side in SIDES}
    return Contents(files, zeros, zeros)


def _locked(path: Path, folder: Path) -> BinaryIO:
    file = open_for_lock(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigurationError(TAKEN.format(folder=folder)) from None
    except OSError:  # a file system without locks
        pass
    return file
