"""Folders of remote storage: list, read, write and copy whole files, and read ranges, as every object store can."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from meshtf.files.remote.failures import StorageError, persistent, without_secrets
from meshtf.files.unlinked_file import create_file
from meshtf_programs.user_paths import user_path

Value = TypeVar("Value")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_EXTRAS = {"s3": ("s3fs", "s3"), "s3a": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "gcs": ("gcsfs", "gcs")}

_NO_LIBRARY = """\
{url} needs {library}, which is not installed: pip install 'meshtf[{extra}]', or mount the storage and give its path"""

_UNKNOWN = """\
{url} cannot be opened: {error}. Give a path, or an address that fsspec knows, such as s3:// or gs://"""

_CHANGED = """\
{file} has {found:,} bytes after {wanted:,} were written; another process also writes it, or the storage lost some"""


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Tells whether a user's path names remote storage: `s3://bucket/runs`, but neither `runs` nor `file:///runs`."""
    match = _SCHEME.match(os.fspath(path))
    return match is not None and match[1].lower() != "file"


def place_of(path: str | os.PathLike[str] | RemoteFolder) -> Path | RemoteFolder:
    """Converts a user's path to a path on this machine or a folder of remote storage.

    Raises:
      StorageError: if the library for such storage is not installed.
      UserPathError: if it begins with the name of an unknown user, such as `~nobody`.
    """
    if isinstance(path, RemoteFolder):
        return path
    return RemoteFolder.open(os.fspath(path)) if is_remote(path) else user_path(path)


@dataclasses.dataclass(frozen=True, repr=False)
class RemoteFolder:
    """A folder of remote storage. It exists as soon as it contains a file. File names are relative to it, with `/`.

    A file appears whole or not at all, and is never appended to. Each request is retried after failures that may be
    temporary. A missing file raises FileNotFoundError. Storage that does not answer raises StorageError.

    Attributes:
      url: the address of the folder, which may contain a password. `str` of the folder omits it.
    """

    url: str
    _storage: Any = dataclasses.field(compare=False)  # fsspec has no types
    _root: str = dataclasses.field(compare=False)

    @classmethod
    def open(cls, url: str) -> RemoteFolder:
        """Opens a folder by its address.

        Raises:
          StorageError: if the library for such storage is not installed, or if there is no such storage.
        """
        scheme = (_SCHEME.match(url) or [url, url])[1].lower()
        library, extra = _EXTRAS.get(scheme, ("fsspec", "remote"))
        for needed in {"fsspec", library}:
            if importlib.util.find_spec(needed) is None:
                raise StorageError(_NO_LIBRARY.format(url=without_secrets(url), library=library, extra=extra))
        try:
            storage, root = importlib.import_module("fsspec").core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError, TypeError, OSError) as error:
            told = without_secrets(str(error)).rstrip(".")
            raise StorageError(_UNKNOWN.format(url=without_secrets(url), error=told)) from None
        return cls(url.rstrip("/"), storage, root.rstrip("/"))

    def __str__(self) -> str:
        return without_secrets(self.url)

    def __repr__(self) -> str:
        return f"RemoteFolder({str(self)!r})"

    def __truediv__(self, name: str) -> RemoteFolder:
        return RemoteFolder(f"{self.url}/{name}", self._storage, f"{self._root}/{name}")

    @property
    def name(self) -> str:
        return self._root.rpartition("/")[2]

    @property
    def parent(self) -> RemoteFolder:
        return RemoteFolder(self.url.rpartition("/")[0], self._storage, self._root.rpartition("/")[0])

    def files(self) -> dict[str, int]:
        """Returns the size in bytes of each file in the folder and its subfolders, by name."""

        def found() -> dict[str, int]:
            with contextlib.suppress(FileNotFoundError):
                return {
                    name.removeprefix(self._root).lstrip("/"): int(facts["size"] or 0)
                    for name, facts in self._storage.find(self._root, detail=True).items()
                    if facts["type"] == "file"
                }
            return {}

        return dict(sorted(self._asked("listing", found).items()))

    def glob(self, pattern: str) -> list[str]:
        """Returns the names of files that match a pattern: `*` is any part of a name, `**` any part of a path."""
        found = self._asked(
            "listing",
            lambda: [
                name.removeprefix(self._root).lstrip("/")
                for name, facts in self._storage.glob(f"{self._root}/{pattern}", detail=True).items()
                if facts["type"] == "file"
            ],
            pattern,
        )
        return sorted(found)

    def size(self, name: str) -> int:
        """Returns the size of a file in bytes."""
        return int(self._asked("reading", lambda: self._storage.info(self._path(name))["size"], name))

    def modified(self, name: str) -> float:
        """Returns the time when a file was written, in seconds since 1970."""
        return self._asked("reading", lambda: self._storage.modified(self._path(name)), name).timestamp()

    def version(self, name: str) -> str:
        """Returns a text that changes when the file changes."""
        return str(self._asked("reading", lambda: self._storage.ukey(self._path(name)), name))

    def has(self, name: str) -> bool:
        """Tells whether there is such a file."""
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes:
        """Returns the content of a file, or its bytes from `start` to `stop`.

        Raises:
          StorageError: if fewer bytes arrived than requested.
        """

        def content() -> bytes:
            found = self._storage.cat_file(self._path(name), start=start, end=stop)
            if start is not None and stop is not None and len(found) != stop - start:
                raise OSError(f"received {len(found):,} bytes instead of {stop - start:,}")
            return found

        return self._asked("reading", content, name)

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, and replaces an existing one."""
        self._asked("writing", lambda: self._storage.pipe_file(self._path(name), content), name)
        self._check_size(name, len(content))

    def upload(self, local: Path, name: str) -> None:
        """Copies a file of this machine to the folder. It must not change meanwhile."""
        self._asked("writing", lambda: self._storage.put_file(str(local), self._path(name)), name)
        self._check_size(name, local.stat().st_size)

    def download(self, name: str, local: Path) -> None:
        """Copies a file to this machine, whole or not at all.

        Raises:
          OSError: if it cannot be written.
        """
        size, passing = self.size(name), local.with_name(f".bringing-{local.name}")
        try:
            with create_file(passing) as file:
                for start in range(0, size, _PART):
                    file.write(self.read(name, start, min(start + _PART, size)))
            passing.replace(local)
        finally:
            passing.unlink(missing_ok=True)

    def copy(self, name: str, target: str) -> None:
        """Copies a file to another name within the storage."""
        self._asked("copying", lambda: self._storage.cp_file(self._path(name), self._path(target)), name)

    def delete(self, names: Iterable[str]) -> None:
        """Deletes files, one after the other. A missing file is not an error."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._asked("deleting", lambda name=name: self._storage.rm_file(self._path(name)), name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _check_size(self, name: str, wanted: int) -> None:
        if (found := self.size(name)) != wanted:
            raise StorageError(_CHANGED.format(file=f"{self}/{name}", found=found, wanted=wanted))

    def _asked(self, verb: str, request: Callable[[], Value], name: str = "") -> Value:
        return persistent(f"{verb} {self.url}{'/' if name else ''}{name}", request)


_PART = 32 << 20
"""The number of bytes to read in one request."""
