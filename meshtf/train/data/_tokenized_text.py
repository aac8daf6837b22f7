"""Documents read once, as tokens in memory, in a part to train on and a part held out."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator

import numpy as np

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.objectives.objective import Objective
from meshtf.train.data.sources.document import Document, Source
from meshtf.train.data.vocabularies.vocabulary import Vocabulary

UNDECODABLE = """\
{name} is not UTF-8: byte {offset} is 0x{byte:02x}.
Convert it, or leave such documents out (they are counted) with TextTask.skip_undecodable = True."""

NO_TEXT = """\
there is no text in {source}: {skipped} documents are not UTF-8, and no other was found.
A document of white space alone counts as none."""

EMPTY_SIDE = """\
with TextTask.held_out = {fraction} no document of {count:,} is {side}: a hash of each document decides.
{advice}"""

MORE_DOCUMENTS = """\
Of text files TextFiles.document = "paragraph" makes each paragraph a document, and "line" each line.
"""
FEW = 100

HASH_BYTES = 8


@dataclasses.dataclass(frozen=True, eq=False)
class TokenizedText:
    """Tokens of documents one after another, an end after each; for each part of a document (see `Objective`).

    Attributes:
      tokens: for each part, [tokens] uint16 or int32.
      borders: for each part, [documents + 1] int64: document d is the tokens from number d to before number d + 1.
      num_bytes: of the text.
    """

    tokens: tuple[np.ndarray, ...]
    borders: tuple[np.ndarray, ...]
    num_bytes: int

    @property
    def num_documents(self) -> int:
        return len(self.borders[0]) - 1

    @property
    def num_tokens(self) -> int:
        return sum(len(tokens) for tokens in self.tokens)


@dataclasses.dataclass(frozen=True, eq=False)
class TextSplit:
    """Text to train on and text held out.

    Attributes:
      train, held_out: the two parts.
      num_skipped: documents left out, because they are not UTF-8.
    """

    train: TokenizedText
    held_out: TokenizedText
    num_skipped: int


@dataclasses.dataclass(frozen=True)
class TextReader:
    """Reads documents into tokens.

    Attributes:
      vocabulary: makes ids of text.
      objective: says which texts a document holds.
      skip_undecodable: whether a document that is not UTF-8 is left out and counted, or else an error.
    """

    vocabulary: Vocabulary
    objective: Objective
    skip_undecodable: bool

    def read(self, source: Source, held_out: float | Source) -> TextSplit:
        """Reads everything, split by a hash of each document or from two sources.

        Raises:
          ConfigurationError: there is no text, a document is not UTF-8 or not what the objective needs, or one of the
            two parts is empty.
        """
        if isinstance(held_out, Source):
            train, train_skipped = self._read_side(source)
            other, other_skipped = self._read_side(held_out)
            return TextSplit(train, other, train_skipped + other_skipped)
        sides, skipped = self._read(source, held_out)
        _check_sides(sides, held_out)
        return TextSplit(sides[False], sides[True], skipped)

    def _read_side(self, source: Source) -> tuple[TokenizedText, int]:
        sides, skipped = self._read(source, 0.0)
        return sides[False], skipped

    def _read(self, source: Source, fraction: float) -> tuple[dict[bool, TokenizedText], int]:
        """The text by whether it is held out, and the number of documents left out."""
        collectors = {side: _Collector(self.vocabulary, self.objective.num_parts) for side in (False, True)}
        skipped = 0
        for document in source.documents():
            text = self._decode(document)
            if text is None:
                skipped += 1
            else:
                collectors[is_held_out(document.content, fraction)].add(self._parts(document.name, text))
        sides = {side: collector.collected() for side, collector in collectors.items()}
        if not any(side.num_documents for side in sides.values()):
            raise ConfigurationError(NO_TEXT.format(source=source, skipped=skipped))
        return sides, skipped

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
    """Decided by the document alone: not by its name, its place, the machine, or a version of anything."""
    digest = hashlib.blake2b(content, digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "big") < fraction * 2 ** (8 * HASH_BYTES)


class _Collector:
    """Gathers the tokens of documents."""

    def __init__(self, vocabulary: Vocabulary, num_parts: int) -> None:
        self._vocabulary = vocabulary
        self._dtype = np.uint16 if vocabulary.size <= 2**16 else np.int32
        self._documents: list[list[np.ndarray]] = [[] for _ in range(num_parts)]
        self._num_bytes = 0

    def add(self, parts: tuple[str, ...]) -> None:
        for collected, text in zip(self._documents, parts, strict=True):
            collected.append(np.array([*self._vocabulary.encode(text), self._vocabulary.end_id], self._dtype))
            self._num_bytes += len(text.encode())

    def collected(self) -> TokenizedText:
        return TokenizedText(tuple(self._tokens()), tuple(self._borders()), self._num_bytes)

    def _tokens(self) -> Iterator[np.ndarray]:
        for documents in self._documents:
            yield np.concatenate([np.zeros(0, self._dtype), *documents])

    def _borders(self) -> Iterator[np.ndarray]:
        for documents in self._documents:
            yield np.cumsum([0, *map(len, documents)], dtype=np.int64)


def _check_sides(sides: dict[bool, TokenizedText], fraction: float) -> None:
    count = sum(side.num_documents for side in sides.values())
    for is_held, side, advice in (
        (True, "held out", "Hold out more, give more documents, or give a source of its own: TextTask.held_out = @..."),
        (False, "left to train on", "Hold out less, or give more documents."),
    ):
        if not sides[is_held].num_documents:
            advice = MORE_DOCUMENTS * (count < FEW) + advice
            raise ConfigurationError(EMPTY_SIDE.format(fraction=fraction, count=count, side=side, advice=advice))
