"""Pieces of words as tokens, by a SentencePiece model (Kudo & Richardson 2018)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin
import numpy as np

from meshtf.files.regular_file import read_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import END_ID, PADDING_ID, sentinel_text

SPACE = "\u2581"  # how SentencePiece writes a space inside a piece

LARGEST_MODEL = 1 << 30
"""Bytes of a model's file; one of a million pieces has 20 million."""

MISSING_SENTENCEPIECE = """\
SentencePiece is not installed.
Install it with the project's extra: pip install 'meshtf[text]'"""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class SentencePieceVocabulary:
    """The pieces of a SentencePiece model as tokens, sentinels after them.

    A model whose padding is 0 and whose end is 1, as those of `meshtf-vocab` and of T5, keeps its ids. The ids of any
    other are raised by 2, to make room for these.

    Attributes:
      path: the model's file.
      extra_ids: the number of sentinels, which span corruption and masking need.

    Raises:
      ConfigurationError: SentencePiece is not installed, or the file is missing or no model.
    """

    path: str
    extra_ids: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.extra_ids, int) or self.extra_ids < 0:
            raise ConfigurationError(
                f"SentencePieceVocabulary.extra_ids must be an integer, 0 or more, and is {self.extra_ids}"
            )
        self._processor  # noqa: B018  # an unusable file is an error here, not in the middle of a run

    @property
    def size(self) -> int:
        return self.text_ids.stop + self.extra_ids

    @property
    def text_ids(self) -> range:
        return range(END_ID + 1, self._offset + self._processor.get_piece_size())

    @property
    def padding_id(self) -> int:
        return PADDING_ID

    @property
    def end_id(self) -> int:
        return END_ID

    def encode(self, text: str) -> list[int]:
        offset = self._offset
        ids = self._processor.encode(text)
        return [token + offset for token in ids] if offset else ids

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """As `Vocabulary.decode`; an unknown token is written as SentencePiece writes it."""
        texts, pieces = [], []
        for token in map(int, ids):
            if token in self.text_ids:
                pieces.append(token - self._offset)
            elif token > END_ID:
                texts += [self._processor.decode(pieces), sentinel_text(self.size - 1 - token)]
                pieces = []
        return "".join([*texts, self._processor.decode(pieces)])

    def num_bytes(self, ids: Sequence[int] | np.ndarray) -> int:
        """As `Vocabulary.num_bytes`, of the text as the model normalizes it; an unknown token counts as one byte."""
        return int(self._bytes_by_id[np.asarray(ids, np.int64)].sum())

    @functools.cached_property
    def _processor(self) -> Any:
        sentencepiece = import_sentencepiece()
        path = Path(self.path).expanduser()
        if not path.is_file():
            raise ConfigurationError(
                f"there is no SentencePiece model {path}; the current folder is {Path.cwd()}.\n"
                "meshtf-vocab trains one; see meshtf-vocab --help."
            )
        try:
            processor = sentencepiece.SentencePieceProcessor(model_proto=read_regular(path, LARGEST_MODEL))
            for token in range(processor.get_piece_size()):
                processor.id_to_piece(token)  # which fails for a piece that is not UTF-8
            return processor
        except (OSError, RuntimeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path} is no SentencePiece model: {error}") from error

    @functools.cached_property
    def _offset(self) -> int:
        is_ours = (self._processor.pad_id(), self._processor.eos_id()) == (PADDING_ID, END_ID)
        return 0 if is_ours else END_ID + 1

    @functools.cached_property
    def _bytes_by_id(self) -> np.ndarray:
        """[size] int64: how many bytes each id stands for."""
        counts = np.zeros(self.size, np.int64)
        for token in self.text_ids:
            counts[token] = self._bytes_of_piece(token - self._offset)
        return counts

    def _bytes_of_piece(self, token: int) -> int:
        processor = self._processor
        if processor.is_control(token) or processor.is_unused(token):
            return 0
        if processor.is_byte(token) or processor.is_unknown(token):
            return 1
        return len(processor.id_to_piece(token).replace(SPACE, " ").encode())


def import_sentencepiece() -> Any:
    """The module, which is an optional dependency.

    Raises:
      ConfigurationError: it is not installed.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise ConfigurationError(MISSING_SENTENCEPIECE) from error
    return sentencepiece
