"""Reads documents once, into tokens in memory: a part to train on and a held-out part."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from meshtf.errors import counted
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.fingerprints import CONTENTS, IN_ANY_ORDER, checksum, counts_checksum
from meshtf.train.data.objectives.objective import Objective
from meshtf.train.data.sources.document import Document, Source
from meshtf.train.data.vocabularies.vocabulary import Vocabulary, inner_ids

UNDECODABLE = """\
{name} is not UTF-8: byte {offset} is 0x{byte:02x}.
Convert it, as with `iconv -f windows-1252 -t utf-8`, or leave such documents out (they are counted) with
TextTask.skip_undecodable = True."""

OTHER_PARTS = """\
{name} has the tokens of {found}, and {kind} learns from {wanted}: give the source that many features."""

NO_ID = """\
{name} has the id {found}, but the ids of TextTask.vocabulary are at least 0 and less than {size:,}.
Tokens have a meaning only with the vocabulary that made them."""

NO_TEXT = """\
there is no text in {source}: {skipped} not in UTF-8, and no other was found.
A document that is only white space does not count."""

EMPTY_SIDE = """\
with TextTask.held_out = {fraction} no document of {count:,} is {side}: a hash of each document decides.
{advice}"""

MORE_DOCUMENTS = """\
With text files, TextFiles.document = "paragraph" makes each paragraph a document, and "line" each line.
"""
FEW = 100

HASH_BYTES = 8


class TokenIds(Protocol):
    """Ids [tokens], of which slices with both ends are read."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True, eq=False)
class TokenizedText:
    """The tokens of documents one after another, an end after each, for each part of a document (see `Objective`).

    Attributes:
      tokens: for each part, [tokens] uint16 or int32, in memory or on disk.
      borders: for each part, [documents + 1] int64: document d is the tokens from number d to before number d + 1.
      num_bytes: how many bytes of text they are.
      checksums: for each part, the CRC-32 of its tokens and of the ends of its documents, [documents] int64. None if
        the tokens are in memory: then `fingerprint` computes it.
    """

    tokens: tuple[TokenIds, ...]
    borders: tuple[np.ndarray, ...]
    num_bytes: int
    checksums: tuple[tuple[int, int], ...] | None = None

    @property
    def num_documents(self) -> int:
        return len(self.borders[0]) - 1

    @property
    def num_tokens(self) -> int:
        return sum(len(tokens) for tokens in self.tokens)

    @functools.cached_property
    def fingerprint(self) -> dict[str, int | str]:
        """Facts that differ for another text, and for the same documents in another order.

        They are the same whether the tokens are in memory or on disk.
        """
        counts = {"documents": self.num_documents, "bytes": self.num_bytes, "tokens": self.num_tokens}
        if self.checksums is not None:
            return {**counts, CONTENTS: " ".join(f"{crc:08x}" for pair in self.checksums for crc in pair)}
        held = [tokens[0 : len(tokens)] for tokens in self.tokens]
        pairs = zip(held, (borders[1:] for borders in self.borders), strict=True)
        contents = checksum([array for pair in pairs for array in pair])
        return {**counts, CONTENTS: contents, IN_ANY_ORDER: counts_checksum(held)}


@dataclasses.dataclass(frozen=True, eq=False)
class TextSplit:
    """Text to train on and text held out.

    Attributes:
      train, held_out: the two parts.
      num_skipped: how many documents were left out because they are not UTF-8.
    """

    train: TokenizedText
    held_out: TokenizedText
    num_skipped: int


@dataclasses.dataclass(frozen=True, eq=False)
class ShardTokens:
    """The tokens of a part of a source.

    Attributes:
      sides: its tokens, by whether they are held out. Each side may be empty.
      num_skipped: how many documents were left out because they are not UTF-8.
    """

    sides: dict[bool, TokenizedText]
    num_skipped: int


@dataclasses.dataclass(frozen=True)
class TextReader:
    """Reads documents into tokens.

    Attributes:
      vocabulary: encodes text as ids.
      objective: says which texts a document has.
      skip_undecodable: whether a document that is not UTF-8 is left out and counted. If not, it is an error.
    """

    vocabulary: Vocabulary
    objective: Objective
    skip_undecodable: bool

    def read(self, source: Source, held_out: float | Source) -> TextSplit:
        """Reads everything. A hash of each document divides it into the two parts, or they come from two sources.

        Raises:
          ConfigurationError: if there is no text, a document is not UTF-8 or unfit for the objective, or one of the two
            parts is empty.
        """
        if isinstance(held_out, Source):
            train, other = self.read_shard(source, 0.0), self.read_shard(held_out, 1.0)
            sides, skipped = {False: train.sides[False], True: other.sides[True]}, train.num_skipped + other.num_skipped
        else:
            shard = self.read_shard(source, held_out)
            sides, skipped = shard.sides, shard.num_skipped
        check_sides({side: text.num_documents for side, text in sides.items()}, source, held_out, skipped)
        return TextSplit(sides[False], sides[True], skipped)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of ids."""
        return np.dtype(np.uint16 if self.vocabulary.size <= 2**16 else np.int32)

    def read_shard(self, source: Source, fraction: float) -> ShardTokens:
        """Reads a part of the text. `fraction`: the share of documents that is held out.

        Raises:
          ConfigurationError: if a document is not UTF-8, or unfit for the objective.
        """
        collectors = {side: _Collector(self.objective.num_parts, self.dtype) for side in (False, True)}
        skipped = 0
        for document in source.documents():
            found = self._of_ids(document, document.ids) if document.ids is not None else self._of_text(document)
            if found is None:
                skipped += 1
            else:
                collectors[is_held_out(document.content, fraction)].add(*found)
        return ShardTokens({side: collector.collected() for side, collector in collectors.items()}, skipped)

    def _of_text(self, document: Document) -> tuple[list[np.ndarray], int] | None:
        """Returns the tokens of each part, and their bytes of text, or None if the document is left out."""
        text = self._decode(document)
        if text is None:
            return None
        parts = self._parts(document.name, text)
        end = self.vocabulary.end_id
        tokens = [np.array([*ids, end], self.dtype) for ids in self._ids(parts)]
        return tokens, sum(len(part.encode()) for part in parts)

    @property
    def parts_in_words(self) -> int | str:
        """The number of parts in a document, and whether later parts lack the begin token of the vocabulary."""
        count = self.objective.num_parts
        lacks_begin = self._is_one_text and count > 1 and self.vocabulary.begin_id is not None
        return f"{count}, of which only the first has the begin token" if lacks_begin else count

    @property
    def _is_one_text(self) -> bool:
        """Whether the parts stand in one sequence, and so are one text, which begins once."""
        return len(self.objective.sequences) == 1

    def _ids(self, parts: Sequence[str]) -> list[list[int]]:
        """The ids of each part without an end."""
        first, *others = parts
        encode = functools.partial(inner_ids, self.vocabulary) if self._is_one_text else self.vocabulary.encode
        return [self.vocabulary.encode(first), *map(encode, others)]

    def _of_ids(self, document: Document, parts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], int]:
        end, size = self.vocabulary.end_id, self.vocabulary.size
        if len(parts) != self.objective.num_parts:
            kind = type(self.objective).__name__
            raise ConfigurationError(
                OTHER_PARTS.format(
                    name=document.name, found=counted(len(parts), "text"), kind=kind, wanted=self.objective.num_parts
                )
            )
        for part in parts:
            wrong = part[(part < 0) | (part >= size)]
            if len(wrong):
                raise ConfigurationError(NO_ID.format(name=document.name, found=int(wrong[0]), size=size))
        ended = [part if len(part) and part[-1] == end else np.append(part, end) for part in parts]
        return [part.astype(self.dtype) for part in ended], sum(map(self.vocabulary.num_bytes, parts))

    def _decode(self, document: Document) -> str | None:
        try:
            return document.content.decode()
        except UnicodeDecodeError as error:
            if self.skip_undecodable:
                return None
            byte = document.content[error.start]
            raise ConfigurationError(UNDECODABLE.format(name=document.name, offset=error.start, byte=byte)) from error

    def _parts(self, name: str, text: str) -> tuple[str, ...]:
        try:
            return self.objective.parts(text)
        except ValueError as error:
            raise ConfigurationError(f"{name}: {error}") from error


def is_held_out(content: bytes, fraction: float) -> bool:
    """Decides from a document's content alone. Its name, its place, the machine and versions do not matter."""
    digest = hashlib.blake2b(content, digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "big") < fraction * 2 ** (8 * HASH_BYTES)


class _Collector:
    """Gathers the tokens of documents."""

    def __init__(self, num_parts: int, dtype: np.dtype) -> None:
        self._dtype = dtype
        self._documents: list[list[np.ndarray]] = [[] for _ in range(num_parts)]
        self._num_bytes = 0

    def add(self, parts: Sequence[np.ndarray], num_bytes: int) -> None:
        for collected, tokens in zip(self._documents, parts, strict=True):
            collected.append(tokens)
        self._num_bytes += num_bytes

    def collected(self) -> TokenizedText:
        return TokenizedText(tuple(self._tokens()), tuple(self._borders()), self._num_bytes)

    def _tokens(self) -> Iterator[np.ndarray]:
        for documents in self._documents:
            yield np.concatenate([np.zeros(0, self._dtype), *documents])

    def _borders(self) -> Iterator[np.ndarray]:
        for documents in self._documents:
            yield np.cumsum([0, *map(len, documents)], dtype=np.int64)


def check_sides(counts: Mapping[bool, int], source: Source, held_out: float | Source, num_skipped: int) -> None:
    """Checks that there are documents on both sides.

    Args:
      counts: how many documents there are, by whether they are held out.
      source, held_out: where they are from.
      num_skipped: how many documents were left out.

    Raises:
      ConfigurationError: if there is no text, or one of the two parts is empty.
    """
    count = sum(counts.values())
    skipped = counted(num_skipped, "document is", "documents are")
    if not count or (isinstance(held_out, Source) and not counts[False]):
        raise ConfigurationError(NO_TEXT.format(source=source, skipped=skipped))
    if isinstance(held_out, Source):
        if not counts[True]:
            raise ConfigurationError(NO_TEXT.format(source=held_out, skipped=skipped))
        return
    for is_held, side, advice in (
        (True, "held out", "Hold out more, give more documents, or give a source of its own: TextTask.held_out = @..."),
        (False, "left to train on", "Hold out less, or give more documents."),
    ):
        if not counts[is_held]:
            advice = MORE_DOCUMENTS * (count < FEW) + advice
            raise ConfigurationError(EMPTY_SIDE.format(fraction=held_out, count=count, side=side, advice=advice))
