"""Tokens that others have made are learnt from as those that are made here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, LanguageModel, Pack, TextFiles, TextPairs, TextTask, TokenRecords

VOCABULARY = ByteVocabulary()


def ids(values: Sequence[int]) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def write(path: Path, *records: dict[str, tf.train.Feature]) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(tf.train.Example(features=tf.train.Features(feature=record)).SerializeToString())
    return str(path)


def test_batches_are_those_of_the_text(tmp_path: Path) -> None:
    """Whether an end was put there or not; also from a folder of tokens."""
    texts = [f"text number {n}" for n in range(12)]
    held_out = tmp_path / "held_out.txt"
    held_out.write_text("another")
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    encoded = [VOCABULARY.encode(text) + [VOCABULARY.end_id] * (n % 2) for n, text in enumerate(texts)]
    records = [{"targets": ids(each)} for each in encoded]
    pattern = write(tmp_path / "tokens.tfrecord", *records, {"targets": ids([])})

    def task(source: TextFiles | TokenRecords, tokens: str | None = None) -> TextTask:
        return TextTask(source, VOCABULARY, LanguageModel(), 16, held_out=TextFiles(str(held_out)), tokens=tokens)

    plain = task(TextFiles(str(tmp_path / "texts.txt"), "line"))
    expected = next(plain.training_batches(4, seed=1))
    for other in (task(TokenRecords(pattern)), task(TokenRecords(pattern), str(tmp_path / "folder"))):
        assert str(other).partition(": ")[2] == str(plain).partition(": ")[2]
        found = next(other.training_batches(4, seed=1))
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_pairs(tmp_path: Path) -> None:
    pairs = [{"inputs": ids([5, 6, n + 2]), "targets": ids([7, n + 2, 1])} for n in range(9)]
    source = TokenRecords(write(tmp_path / "pairs", *pairs), features=("inputs", "targets"))
    task = TextTask(source, VOCABULARY, TextPairs(), 8, Pack(), 0.3)
    (row, *_) = np.asarray(next(task.training_batches(1, seed=0))["targets"])
    assert row[0] == 7
    assert 1 in row
    with pytest.raises(ConfigurationError, match=r"record 1 has the tokens of 1 text, and TextPairs learns from 2"):
        str(TextTask(TokenRecords(source.patterns), VOCABULARY, TextPairs(), 8, Pack(), 0.3))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"target": ids([3])}, 'record 1 has no feature "targets", only target; did you mean "target"?'),
        (
            {"targets": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"text"]))},
            'record 1: the feature "targets" holds no integers',
        ),
        (
            {"targets": ids([3, 258])},
            "record 1 has the id 258, but the ids of TextTask.vocabulary are at least 0 and less than 258",
        ),
        ({"targets": ids([-1])}, "record 1 has the id -1"),
    ],
)
def test_what_is_no_token_is_named(record: dict[str, tf.train.Feature], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        str(TextTask(TokenRecords(write(tmp_path / "one", record)), VOCABULARY, LanguageModel(), 8))
    assert words in str(caught.value)


def test_values_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match=r"TokenRecords\.features names no feature"):
        TokenRecords("a", features=())
    with pytest.raises(ConfigurationError, match=r'TokenRecords\.compression must be .* did you mean "GZIP"'):
        TokenRecords("a", compression="gzip")  # type: ignore[arg-type]
