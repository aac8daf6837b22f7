from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, Vocabulary

VOCABULARY = ByteVocabulary(extra_ids=2)


@given(st.text())
def test_text_comes_back(text: str) -> None:
    ids = VOCABULARY.encode(text)
    assert VOCABULARY.decode(ids) == text
    assert VOCABULARY.num_bytes(ids) == len(text.encode()) == len(ids)
    assert all(token in VOCABULARY.text_ids for token in ids)


def test_ids() -> None:
    assert isinstance(VOCABULARY, Vocabulary)
    assert VOCABULARY.encode("a\0\u00e9") == [99, 2, 197, 171]
    assert VOCABULARY.size == 260
    assert ByteVocabulary().size == 258


def test_ids_that_are_no_text() -> None:
    ids = np.array([0, *VOCABULARY.encode("ab"), 259, 258, 1, 0])
    assert VOCABULARY.decode(ids) == "ab<extra_id_0><extra_id_1>"
    assert VOCABULARY.num_bytes(ids) == 2


def test_bytes_that_are_no_text_are_shown() -> None:
    assert VOCABULARY.decode([99, 2 + 0xFF, 99]) == "a\ufffda"


def test_in_a_graph_it_is_the_same() -> None:
    vocabulary = ByteVocabulary(extra_ids=2)
    texts = ["", "plain", "größer 🙂", "\0"]
    rows = tf.function(vocabulary.encode_in_graph)(tf.constant(texts))
    assert rows.to_list() == [vocabulary.encode(text) for text in texts]
    assert vocabulary.encode_in_graph(tf.constant([], tf.string)).to_tensor().shape == [0, 0]
    ids = [[*vocabulary.encode("é"), 1, 0], [258, 259, 260, -1], [2 + 0xFF, *vocabulary.encode("a"), 0, 400]]
    decoded = [text.decode() for text in tf.function(vocabulary.decode_in_graph)(tf.constant(ids)).numpy()]
    assert decoded == [vocabulary.decode(row) for row in ids] == ["é", "<extra_id_1><extra_id_0>", "\ufffda"]


def test_a_negative_number_of_sentinels() -> None:
    with pytest.raises(ConfigurationError, match=r"ByteVocabulary.extra_ids must be an integer, 0 or more, and is -1"):
        ByteVocabulary(extra_ids=-1)
