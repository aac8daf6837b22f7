"""Pieces of words as tokens, by a SentencePiece model (Kudo & Richardson 2018)."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin
import numpy as np

from meshtf.files.regular_file import read_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import END_ID, PADDING_ID, sentinel_text
from meshtf_programs.user_paths import user_path

SPACE = "\u2581"  # how SentencePiece writes a space inside a piece

LARGEST_MODEL = 1 << 30
"""The most bytes of a model's file. One of a million pieces has 20 million."""

MISSING_SENTENCEPIECE = """\
SentencePiece is not installed.
Install it with the project's extra: pip install 'meshtf[text]'"""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class SentencePieceVocabulary:
    """The pieces of a SentencePiece model as tokens, and sentinels after them.

    A model whose padding is 0 and whose end is 1 keeps its ids, as do models of `meshtf-vocab` and T5. With `own_ids`
    any other model keeps its ids as well, since weights need the ids that they were trained on (Llama's, Gemma's). The
    file then defines end and padding (-1 if it has none). Without `own_ids`, the ids of other models are raised by 2,
    to make room for padding and end.

    A text that spells out "</s>" or another control token gets the pieces of these letters, and never that id, except
    in `encode_with_special`. A model's user-defined symbols, such as Gemma's "<start_of_turn>", always become their
    ids.

    Attributes:
      path: the model's file.
      extra_ids: the number of sentinels, which span corruption and masking need.
      own_ids: whether the file's ids are always kept.
      add_begin: whether every text begins with the model's begin token. This needs the model's own ids. The token is
        then a decoder's `start_id`.

    Raises:
      ConfigurationError: if SentencePiece is not installed, the file is missing or no model, or it lacks a token that
        is asked for.
    """

    path: str
    extra_ids: int = 0
    own_ids: bool = False
    add_begin: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.extra_ids, int) or self.extra_ids < 0:
            raise ConfigurationError(
                f"SentencePieceVocabulary.extra_ids must be an integer, 0 or more, and is {self.extra_ids}"
            )
        processor = self._processor  # an unusable file is an error here, not in the middle of a run
        if self._keeps_ids and processor.eos_id() < 0:
            raise ConfigurationError(f"{self.path} has no token that ends a text; leave out own_ids, which makes room")
        if self.add_begin and (not self._keeps_ids or processor.bos_id() < 0):
            raise ConfigurationError(
                f"SentencePieceVocabulary.add_begin: {self.path} has no token that begins a text, or not its own ids"
            )

    @property
    def size(self) -> int:
        return self.text_ids.stop + self.extra_ids

    @property
    def text_ids(self) -> range:
        first = 0 if self.own_ids and not self._is_ours else END_ID + 1
        return range(first, self._offset + self._processor.get_piece_size())

    @property
    def padding_id(self) -> int:
        return self._processor.pad_id() if self._keeps_ids else PADDING_ID

    @property
    def end_id(self) -> int:
        return self._processor.eos_id() if self._keeps_ids else END_ID

    @property
    def begin_id(self) -> int | None:
        return self._processor.bos_id() if self.add_begin else None

    @property
    def mask_id(self) -> int | None:
        return self.size - 1 if self.extra_ids else None

    @functools.cached_property
    def fingerprint(self) -> str:
        content = hashlib.sha256(self._processor.serialized_model_proto()).hexdigest()
        return f"{content}, raised by {self._offset}, begin {self.begin_id}, {self.extra_ids} sentinels"

    def encode(self, text: str) -> list[int]:
        return self._begun(self._encoded(text))

    def encode_with_special(self, text: str) -> list[int]:
        """Encodes a text in which control tokens that are spelt out, such as "</s>", become their ids.

        The template of a chat writes such texts. The parts between control tokens are encoded one by one, as by
        Transformers.
        """
        ids: list[int] = []
        for part in self._control_pattern.split(text):
            ids += [self._control_ids[part]] if part in self._control_ids else self._encoded(part)
        return self._begun(ids)

    def _encoded(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(text)
        return [token + self._offset for token in ids] if self._offset else ids

    def _begun(self, ids: list[int]) -> list[int]:
        return ids if self.begin_id is None else [self.begin_id, *ids]

    @functools.cached_property
    def _control_ids(self) -> dict[str, int]:
        """The ids of control tokens, by how they are spelt."""
        processor = self._processor
        tokens = [token for token in range(processor.get_piece_size()) if processor.is_control(token)]
        ids = {processor.id_to_piece(token): token + self._offset for token in tokens}
        ends = [processor.id_to_piece(token) for token in tokens if token == processor.eos_id()]
        return {**ids, **dict.fromkeys(ends, self.end_id)}

    @functools.cached_property
    def _control_pattern(self) -> re.Pattern[str]:
        spelt = "|".join(map(re.escape, sorted(self._control_ids, reverse=True)))
        return re.compile(f"({spelt or '(?!)'})")  # which matches nothing in a model without control tokens

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decodes as `Vocabulary.decode`. An unknown token is written as SentencePiece writes it."""
        text, pieces = "", list[int]()
        for token in map(int, ids):
            if token in self.text_ids:
                pieces.append(token - self._offset)
            elif self.text_ids.stop <= token < self.size:
                text += self._continued(pieces, is_first=not text) + sentinel_text(self.size - 1 - token)
                pieces = []
        return text + self._continued(pieces, is_first=not text)

    def _continued(self, pieces: Sequence[int], *, is_first: bool) -> str:
        """Returns the text of pieces. SentencePiece drops the space before the first word of a text, which must stay
        after a sentinel.
        """
        before = [] if is_first else self._letter
        text: str = self._processor.decode([*before, *pieces])
        return text.removeprefix(self._processor.decode(before))

    @functools.cached_property
    def _letter(self) -> list[int]:
        """Some piece of text without a space, or nothing if the model has none."""
        processor = self._processor
        special = (processor.is_control, processor.is_unknown, processor.is_unused, processor.is_byte)
        pieces = range(processor.get_piece_size())
        usual = (token for token in pieces if not any(is_so(token) for is_so in special))
        return [*itertools.islice((token for token in usual if SPACE not in processor.id_to_piece(token)), 1)]

    def num_bytes(self, ids: Sequence[int] | np.ndarray) -> int:
        """Counts as `Vocabulary.num_bytes`, in the text as the model normalizes it. An unknown token counts as
        one byte.
        """
        return int(self._bytes_by_id[np.asarray(ids, np.int64)].sum())

    @functools.cached_property
    def _processor(self) -> Any:
        sentencepiece = import_sentencepiece()
        path = user_path(self.path)
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
    def _is_ours(self) -> bool:
        return (self._processor.pad_id(), self._processor.eos_id()) == (PADDING_ID, END_ID)

    @property
    def _keeps_ids(self) -> bool:
        return self._is_ours or self.own_ids

    @property
    def _offset(self) -> int:
        return 0 if self._keeps_ids else END_ID + 1

    @functools.cached_property
    def _bytes_by_id(self) -> np.ndarray:
        """The number of bytes that each id stands for, [size] int64."""
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
    """Returns the module, which is an optional dependency.

    Raises:
      ConfigurationError: if it is not installed.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise ConfigurationError(MISSING_SENTENCEPIECE) from error
    return sentencepiece
