"""How text becomes ids of tokens, and ids become text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

PADDING_ID = 0
END_ID = 1


@runtime_checkable
class Vocabulary(Protocol):
    """Ids from 0 to size - 1, of which the last `extra_ids` are sentinels."""

    @property
    def size(self) -> int: ...

    @property
    def extra_ids(self) -> int:
        """How many ids at the end stand for no text: sentinel k is the id size - 1 - k."""
        ...

    @property
    def text_ids(self) -> range:
        """The ids that stand for text."""
        ...

    @property
    def padding_id(self) -> int:
        """What fills rows behind their tokens; -1 where no id is kept for that."""
        ...

    @property
    def end_id(self) -> int: ...

    @property
    def begin_id(self) -> int | None:
        """What `encode` puts before every text; None where nothing."""
        ...

    @property
    def mask_id(self) -> int | None:
        """What masked language modelling puts in place of a token; None where no id is kept for that."""
        ...

    @property
    def fingerprint(self) -> str:
        """Another for every vocabulary that would make other ids of a text: a hash of what decides."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text, `begin_id` before them where there is one, without an end."""
        ...

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of ids; padding, ends and `begin_id` are left out, and sentinel k is written as <extra_id_k>."""
        ...

    def num_bytes(self, ids: Sequence[int] | np.ndarray) -> int:
        """How many bytes of UTF-8 the ids stand for; padding, ends and sentinels stand for none."""
        ...


@runtime_checkable
class GraphVocabulary(Vocabulary, Protocol):
    """A vocabulary that a SavedModel can have in it, where no Python is."""

    def encode_in_graph(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Texts, strings [rows] -> int32 [rows, (tokens)], as `encode`."""
        ...

    def decode_in_graph(self, ids: tf.Tensor) -> tf.Tensor:
        """int32 [.., tokens] -> strings [..], as `decode`."""
        ...


def sentinel_text(number: int) -> str:
    """How a sentinel is written in decoded text."""
    return f"<extra_id_{number}>"
