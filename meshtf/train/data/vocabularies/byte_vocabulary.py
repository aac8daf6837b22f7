"""Bytes as tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import gin
import numpy as np
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import END_ID, PADDING_ID, sentinel_text

FIRST_BYTE = END_ID + 1
NUM_BYTES = 256


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class ByteVocabulary:
    """The bytes of UTF-8 as tokens: byte b is the id 2 + b, and sentinels come after the bytes.

    Attributes:
      extra_ids: the number of sentinels, which span corruption and masking need.

    Raises:
      ConfigurationError: if the number of sentinels is negative.
    """

    extra_ids: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.extra_ids, int) or self.extra_ids < 0:
            raise ConfigurationError(f"ByteVocabulary.extra_ids must be an integer, 0 or more, and is {self.extra_ids}")

    @property
    def size(self) -> int:
        return FIRST_BYTE + NUM_BYTES + self.extra_ids

    @property
    def text_ids(self) -> range:
        return range(FIRST_BYTE, FIRST_BYTE + NUM_BYTES)

    @property
    def padding_id(self) -> int:
        return PADDING_ID

    @property
    def end_id(self) -> int:
        return END_ID

    @property
    def begin_id(self) -> None:
        return None

    @property
    def mask_id(self) -> int | None:
        return self.size - 1 if self.extra_ids else None

    @property
    def fingerprint(self) -> str:
        return f"bytes from id {FIRST_BYTE}, {self.extra_ids} sentinels"

    def encode(self, text: str) -> list[int]:
        return (np.frombuffer(text.encode(), np.uint8).astype(np.int32) + FIRST_BYTE).tolist()

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decodes as `Vocabulary.decode`. Bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self._bytes_of(int(token)) for token in ids).decode(errors="replace")

    def encode_in_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes as `GraphVocabulary.encode_in_graph`."""
        split = tf.strings.bytes_split(texts)
        values = tf.reshape(tf.io.decode_raw(split.flat_values, tf.uint8), [-1])
        return split.with_flat_values(tf.cast(values, tf.int32) + FIRST_BYTE)

    def decode_in_graph(self, ids: tf.Tensor) -> tf.Tensor:
        """Decodes as `GraphVocabulary.decode_in_graph`. Bytes that are not UTF-8 become U+FFFD."""
        pieces = tf.constant([*(self._bytes_of(token) for token in range(self.size)), b""])
        known = tf.where((ids >= 0) & (ids < self.size), ids, self.size)
        texts = tf.strings.reduce_join(tf.gather(pieces, known), axis=-1)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    def num_bytes(self, ids: Sequence[int] | np.ndarray) -> int:
        ids = np.asarray(ids)
        return int(np.count_nonzero((ids >= FIRST_BYTE) & (ids < FIRST_BYTE + NUM_BYTES)))

    def _bytes_of(self, token: int) -> bytes:
        if token in self.text_ids:
            return bytes([token - FIRST_BYTE])
        if not FIRST_BYTE <= token < self.size:
            return b""
        return sentinel_text(self.size - 1 - token).encode()
