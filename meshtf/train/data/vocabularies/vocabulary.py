"""Vocabularies turn text into ids of tokens, and ids into text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

PADDING_ID = 0
END_ID = 1


@runtime_checkable
class Vocabulary(Protocol):
    """A vocabulary with ids from 0 to size - 1. The last `extra_ids` of them are sentinels."""

    @property
    def size(self) -> int: ...

    @property
    def extra_ids(self) -> int:
        """The number of ids at the end that stand for no text: sentinel k is the id size - 1 - k."""
        ...

    @property
    def text_ids(self) -> range:
        """The ids that stand for text."""
        ...

    @property
    def padding_id(self) -> int:
        """The id that fills rows after their tokens, or -1 if there is none."""
        ...

    @property
    def end_id(self) -> int: ...

    @property
    def begin_id(self) -> int | None:
        """The id that `encode` puts before every text, or None."""
        ...

    @property
    def mask_id(self) -> int | None:
        """The id that masked language modelling substitutes for a token, or None if there is none."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash that differs for every vocabulary that encodes some text as other ids."""
        ...

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text without an end, and with `begin_id` before them if there is one."""
        ...

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text of ids. Padding, ends and `begin_id` are left out, and sentinel k is written as
        <extra_id_k>.

        Ids outside of the vocabulary stand for no text. A model may have more rows than a vocabulary has ids.
        """
        ...

    def num_bytes(self, ids: Sequence[int] | np.ndarray) -> int:
        """Returns how many bytes of UTF-8 the ids stand for. Padding, ends and sentinels stand for none."""
        ...


@runtime_checkable
class GraphVocabulary(Vocabulary, Protocol):
    """A vocabulary that works inside a SavedModel, where there is no Python."""

    def encode_in_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes strings [rows] to int32 [rows, (tokens)], as `encode`."""
        ...

    def decode_in_graph(self, ids: tf.Tensor) -> tf.Tensor:
        """Decodes int32 [.., tokens] to strings [..], as `decode`."""
        ...


def inner_ids(vocabulary: Vocabulary, text: str) -> list[int]:
    """Returns the ids of a text inside of another, where no `begin_id` stands before it."""
    ids = vocabulary.encode(text)
    return ids if vocabulary.begin_id is None else ids[1:]


def sentinel_text(number: int) -> str:
    """Returns the text of a sentinel in decoded text."""
    return f"<extra_id_{number}>"
