"""The state of a source's files. With it, the next start notices a change without reading all of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from meshtf.files.regular_file import open_regular
from meshtf.train.data.sources.document import Source

FilesState: TypeAlias = "dict[str, int | str]"

_PIECE = 1 << 22
_DIGEST_BYTES = 16
_TIMES, _CONTENT = "times", "content"


@runtime_checkable
class SourceOfFiles(Source, Protocol):
    """Documents that are in files."""

    def files(self) -> list[Path]:
        """Returns all files that determine the documents, in the order in which they are read."""
        ...


def files_state(source: Source, known: object = None) -> FilesState | None:
    """Returns the number and the bytes of a source's files, and hashes of their names with sizes, times and contents.

    Args:
      source: a source of files, or any other.
      known: a state from before. If names, sizes and times are the same, the content is assumed to be the same, and is
        not read. If only times differ, as in a copy, the contents decide.

    Returns:
      A state that `is_same` compares. It has no contents if names or sizes differ from `known`. None if the source has
      no files, or they cannot be accessed.
    """
    try:
        files = source.files() if isinstance(source, SourceOfFiles) else None
        return None if files is None else _state(files, known)
    except Exception:  # the files may be gone by now, but the tokens made from them are still valid
        return None


def is_same(then: object, now: object) -> bool:
    """Tells whether two descriptions of the source of tokens are the same. The times of states do not matter."""
    if isinstance(then, dict) and isinstance(now, dict):
        return _without(then, _TIMES) == _without(now, _TIMES)
    return then == now


def _state(files: list[Path], known: object) -> FilesState:
    found = [path.stat() for path in files]
    parent = os.path.commonpath([path.parent for path in files]) if files else ""
    sizes = [(os.path.relpath(path, parent), stat.st_size) for path, stat in zip(files, found, strict=True)]
    state: FilesState = {
        "files": len(files),
        "bytes": sum(size for _, size in sizes),
        "names and sizes": _digest(repr(sizes).encode()),
        _TIMES: _digest(repr([stat.st_mtime_ns for stat in found]).encode()),
    }
    if isinstance(known, dict):
        before = _without(known, _CONTENT)
        if before == state:
            return known
        if _without(before, _TIMES) != _without(state, _TIMES):
            return state
    return state | {_CONTENT: _digest_of_all(files)}


def _without(state: FilesState, name: str) -> FilesState:
    return {key: value for key, value in state.items() if key != name}


def _digest_of_all(files: Iterable[Path]) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for path in files:
        with open_regular(path) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    return digest.hexdigest()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
