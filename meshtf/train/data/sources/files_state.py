"""What the files of a source are, so that a change is seen at the next start without reading all of them."""

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
        """All that decide the documents, in the order in which they are read."""
        ...


def files_state(source: Source, known: object = None) -> FilesState | None:
    """How many files a source has, their bytes, and hashes of names with sizes, of times and of contents.

    Args:
      source: of files, or of anything else.
      known: a state from before. What has its names, sizes and times has its content, too, and is not read; where
        only times differ, as of a copy, the contents decide.

    Returns:
      None where the source has no files, or they cannot be seen; a state that `is_same` compares, without contents
      where names or sizes are others than in `known`.
    """
    try:
        files = source.files() if isinstance(source, SourceOfFiles) else None
        return None if files is None else _state(files, known)
    except Exception:  # gone by now, which what was made of them need not mind
        return None


def is_same(then: object, now: object) -> bool:
    """Whether two values of what tokens are made of are the same; of two states, whatever their times are."""
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
