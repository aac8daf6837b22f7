"""Given words as tokens, and bytes for the rest."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Sequence

import gin
import numpy as np

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.byte_vocabulary import ByteVocabulary

_BYTES = ByteVocabulary()


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class WordVocabulary:
    """A vocabulary of given words. Other text is written as bytes of UTF-8, so every text has ids.

    At each place the longest matching word is taken. A space before a word belongs to it if it is in `words` that way.
    Ids up to 257 are those of a `ByteVocabulary`, and word w is the id 258 + w.

    Attributes:
      words: the words, all different.

    Raises:
      ConfigurationError: if a word is empty, or occurs twice.
    """

    words: Sequence[str]

    def __post_init__(self) -> None:
        is_text = isinstance(self.words, list | tuple) and all(isinstance(x, str) and x for x in self.words)
        if not is_text or len(set(self.words)) < len(self.words):
            raise ConfigurationError("WordVocabulary.words must be non-empty texts, all different")

    @property
    def size(self) -> int:
        return _BYTES.size + len(self.words)

    @property
    def extra_ids(self) -> int:
        return 0

    @property
    def text_ids(self) -> range:
        return range(_BYTES.text_ids.start, self.size)

    @property
    def padding_id(self) -> int:
        return _BYTES.padding_id

    @property
    def end_id(self) -> int:
        return _BYTES.end_id

    @property
    def begin_id(self) -> None:
        return None

    @property
    def mask_id(self) -> None:
        return None

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b("\0".join(self.words).encode(), digest_size=8).hexdigest()
        return f"{_BYTES.fingerprint}, and {len(self.words)} words {digest}"

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        end = 0
        for found in self._pattern.finditer(text):
            ids += _BYTES.encode(text[end : found.start()])
            ids.append(self._ids[found[0]])
            end = found.end()
        return ids + _BYTES.encode(text[end:])

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decodes as `Vocabulary.decode`. Bytes that are not UTF-8 become U+FFFD."""
        known = (int(token) for token in ids if 0 <= token < self.size)
        return b"".join(self._pieces[token] for token in known).decode(errors="replace")

    def num_bytes(self, ids: Sequence[int] | np.ndarray) -> int:
        return sum(len(self._pieces[int(token)]) for token in np.asarray(ids).ravel())

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {word: _BYTES.size + number for number, word in enumerate(self.words)}

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.words, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    @functools.cached_property
    def _pieces(self) -> list[bytes]:
        first = _BYTES.text_ids.start
        return [b""] * first + [bytes([byte]) for byte in range(256)] + [word.encode() for word in self.words]
