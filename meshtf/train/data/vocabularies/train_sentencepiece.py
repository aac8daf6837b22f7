"""Trains SentencePiece models."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

from meshtf.errors import nearest
from meshtf.files.replaced_file import replace_file
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources.document import Source
from meshtf.train.data.vocabularies.sentencepiece_vocabulary import import_sentencepiece
from meshtf.train.data.vocabularies.vocabulary import END_ID, PADDING_ID

MODEL_TYPES = ("unigram", "bpe")
SMALLEST_SIZE = 256 + 3  # a piece for each byte, padding, end and unknown
LONGEST_LINE = 4096  # bytes; SentencePiece leaves out what is longer
ERRORS_ONLY = 2
_OF_CHARACTER, _INSIDE_CHARACTER = 0b1100_0000, 0b1000_0000  # of a byte of UTF-8 that does not begin a character

CANNOT_WRITE = "the vocabulary {path} cannot be written: {error}"

ARGUMENTS = {
    "pad_id": PADDING_ID,
    "eos_id": END_ID,
    "unk_id": 2,
    "bos_id": -1,
    # With these, decoding gives the text back exactly, whatever characters it has.
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,  # indentation is one token, and not one for each space
    "max_sentence_length": 2 * LONGEST_LINE,
    "num_threads": 1,  # the same model on every machine
    "minloglevel": ERRORS_ONLY,
}


def train_sentencepiece(
    source: Source, path: Path, size: int, model_type: str = "unigram", character_coverage: float = 0.9995
) -> int:
    """Trains a model on the text of a source, and writes it. Returns how many bytes of text it was trained on.

    Text that encodes to the model's ids decodes to the same text, except that the character U+2581 becomes a space.

    Args:
      source: the text. A document that is not UTF-8 is left out.
      path: the file to write.
      size: the number of ids, with padding, end, unknown and 256 bytes.
      model_type: "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016).
      character_coverage: the share of the text's characters that get a piece. The others become bytes.

    Raises:
      ConfigurationError: if a value is impossible, there is too little text for the size, or a file cannot be written.
    """
    _check(path, size, model_type, character_coverage)
    sentencepiece = import_sentencepiece()
    _make_folder(path)  # first, since the work would be lost if it failed later
    lines, model = _CountedLines(source), io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=size,
            model_type=model_type,
            character_coverage=character_coverage,
            **ARGUMENTS,
        )
    except (OSError, RuntimeError) as error:
        if lines.error is not None:
            raise lines.error from None
        if not lines.num_bytes:
            raise ConfigurationError(f"there is no text in {source}") from error
        reason = str(error).rpartition("] ")[2]  # drops the line and the condition in SentencePiece's source
        raise ConfigurationError(
            f"SentencePiece cannot train a vocabulary of {size:,} on {lines.num_bytes:,} bytes of text: {reason}"
        ) from error
    try:
        replace_file(path, model.getvalue())
    except OSError as error:
        raise ConfigurationError(CANNOT_WRITE.format(path=path, error=error)) from error
    return lines.num_bytes


class _CountedLines:
    """Lines of text, none of them too long for SentencePiece.

    Attributes:
      num_bytes: how many bytes of text there were so far.
      error: the error of the source, which SentencePiece does not report.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.num_bytes = 0
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._pieces()
        except Exception as error:
            self.error = error
            raise

    def _pieces(self) -> Iterator[str]:
        for document in self._source.documents():
            try:
                document.content.decode()
            except UnicodeDecodeError:
                continue
            for line in document.content.split(b"\n"):
                for piece in _cut(line):
                    self.num_bytes += len(piece)
                    yield piece.decode()


def _cut(line: bytes) -> Iterator[bytes]:
    """Yields the parts of a line, none too long and each of whole characters."""
    start = 0
    while start < len(line):
        end = start + LONGEST_LINE
        while end < len(line) and line[end] & _OF_CHARACTER == _INSIDE_CHARACTER:
            end -= 1
        yield line[start:end]
        start = end


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(CANNOT_WRITE.format(path=path, error=error)) from error
    if not os.access(path.parent, os.W_OK):
        raise ConfigurationError(CANNOT_WRITE.format(path=path, error=f"nothing can be written in {path.parent}"))


def _check(path: Path, size: int, model_type: str, character_coverage: float) -> None:
    if path.is_dir():
        raise ConfigurationError(f"the vocabulary {path} is a folder; name a file, as {path / 'vocabulary.model'}")
    if size < SMALLEST_SIZE:
        raise ConfigurationError(f"a vocabulary has {SMALLEST_SIZE} ids at least, and the size is {size}")
    if model_type not in MODEL_TYPES:
        raise ConfigurationError(
            f'the model type must be "unigram" or "bpe", and is {model_type!r}{nearest(model_type, MODEL_TYPES)}'
        )
    if not 0 < character_coverage <= 1:
        raise ConfigurationError(f"the character coverage must be above 0 and at most 1, and is {character_coverage}")
