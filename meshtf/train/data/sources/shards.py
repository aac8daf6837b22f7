"""Splits sources into shards of some megabytes, which processes handle in parallel."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from meshtf.train.data.sources._compressed import begins_anywhere
from meshtf.train.data.sources.document import Document, Source
from meshtf.train.data.sources.files_state import SourceOfFiles

SHARD_BYTES = 8 << 20
"""The bytes of text in a shard. A process that dies loses this much work, and this much is held in memory."""


@runtime_checkable
class FileSource(SourceOfFiles, Protocol):
    """Documents of files, each of which can be read alone."""

    @property
    def is_by_lines(self) -> bool:
        """Whether every document is a line, so that a file can be split at any line."""
        ...

    def documents_of(self, path: Path, start: int, stop: int | None) -> Iterator[Document]:
        """Yields the documents of one file. If they are lines, it yields those that begin at byte `start` or later,
        and before `stop`.
        """
        ...


@dataclasses.dataclass(frozen=True)
class FileParts:
    """A source of parts of files of another source, as (path, start, stop)."""

    source: FileSource
    parts: Sequence[tuple[Path, int, int | None]]

    def documents(self) -> Iterator[Document]:
        for path, start, stop in self.parts:
            yield from self.source.documents_of(path, start, stop)


@dataclasses.dataclass(frozen=True)
class HeldDocuments:
    """A source of documents in memory."""

    held: Sequence[Document]

    def documents(self) -> Iterator[Document]:
        return iter(self.held)


def shards_of(source: Source, shard_bytes: int = SHARD_BYTES) -> Iterator[Source]:
    """Yields the source's documents in order, in shards of about `shard_bytes`.

    A shard can be pickled if the source can. If documents are not in plain UTF-8 files, the shard holds the documents
    themselves.
    """
    if isinstance(source, FileSource):
        return _shards_of_files(source, shard_bytes)
    return _held(source.documents(), shard_bytes)


def _shards_of_files(source: FileSource, shard_bytes: int) -> Iterator[Source]:
    parts: list[tuple[Path, int, int | None]] = []
    waiting = 0
    for path in source.files():
        size = path.stat().st_size
        if parts and waiting + size > shard_bytes:
            yield FileParts(source, tuple(parts))
            parts, waiting = [], 0
        is_plain = begins_anywhere(path)
        if size <= shard_bytes and is_plain:
            parts, waiting = [*parts, (path, 0, None)], waiting + size
            continue
        if parts:
            yield FileParts(source, tuple(parts))
            parts, waiting = [], 0
        if source.is_by_lines and is_plain:
            for start in range(0, size, shard_bytes):
                yield FileParts(source, ((path, start, start + shard_bytes),))
        else:
            yield from _held(source.documents_of(path, 0, None), shard_bytes)
    if parts:
        yield FileParts(source, tuple(parts))


def _held(documents: Iterable[Document], shard_bytes: int) -> Iterator[Source]:
    held: list[Document] = []
    size = 0
    for document in documents:
        held.append(document)
        size += len(document.content)
        if size >= shard_bytes:
            yield HeldDocuments(tuple(held))
            held, size = [], 0
    if held:
        yield HeldDocuments(tuple(held))
