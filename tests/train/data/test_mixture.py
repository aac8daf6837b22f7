"""Tasks by turns: every place has its example, whoever asks and wherever reading starts."""

from __future__ import annotations

import dataclasses
import json
import types
from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import (
    ArrayTask,
    ByteVocabulary,
    LanguageModel,
    Mixture,
    Pack,
    PrefixLanguageModel,
    SpanCorruption,
    TextPairs,
    TextTask,
)
from meshtf.train.data.sources.document import Source
from meshtf.train.task import TaskByRows, TaskOfParts

ONE = mtf.Shape([])


def numbers(name: str, first: int, count: int) -> ArrayTask:
    """Examples that are numbers of their own."""
    train = {"x": np.arange(first, first + count, dtype=np.int32)}
    return ArrayTask(name, {"x": ONE}, train, {"x": np.arange(3, dtype=np.int32) + first})


def mixture(**options: object) -> Mixture:
    return Mixture([numbers("few", 0, 10), numbers("some", 100, 40), numbers("many", 1000, 400)], **options)


def drawn(task: TaskByRows, count: int, batch_size: int = 200) -> np.ndarray:
    batches = task.training_batches(batch_size, seed=3)
    return np.concatenate([np.asarray(next(batches)["x"]) for _ in range(count // batch_size)])


def counts(examples: np.ndarray) -> list[int]:
    return np.histogram(examples, [0, 100, 1000, 2000])[0].tolist()


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({}, [10, 40, 400]),
        ({"largest_size": 40}, [10, 40, 40]),
        ({"temperature": 2.0}, [10**0.5, 40**0.5, 400**0.5]),
        ({"temperature": 0.005}, [0, 0, 1]),
        ({"rates": [2, 1, 1]}, [2, 1, 1]),
        ({"rates": [1e-9, 1, 1]}, [0, 1, 1]),
    ],
)
def test_shares(options: dict[str, object], rates: list[float]) -> None:
    shares = mixture(**options)._shares
    assert shares.sum() == 65536
    assert shares.min() >= 1
    np.testing.assert_allclose(shares, np.array(rates) / sum(rates) * 65536, atol=3)


def test_every_task_is_taken_as_often_as_its_rate_says_and_goes_through_its_examples() -> None:
    examples = drawn(mixture(rates=[1, 1, 2]), 1600)
    expected = np.array([400, 400, 800])
    assert (np.abs(np.array(counts(examples)) - expected) < 5 * np.sqrt(expected)).all()
    for first, size in (0, 10), (100, 40), (1000, 400):
        of_task = examples[(examples >= first) & (examples < first + size)].tolist()
        for start in range(0, len(of_task) - size + 1, size):  # every epoch has every example
            assert sorted(of_task[start : start + size]) == list(range(first, first + size))
        assert of_task[:size] != of_task[size : 2 * size] or len(of_task) < 2 * size


def test_any_position_and_any_rows_give_the_same(tmp_path: Path) -> None:
    mixed = mixture()
    batches = mixed.training_batches(8, seed=1)
    for _ in range(3):
        next(batches)
    position = json.loads(json.dumps(batches.position))
    following = np.asarray(next(batches)["x"])
    assert (np.asarray(next(mixed.training_batches(8, 1, position))["x"]) == following).all()
    rows = np.asarray(next(mixed.training_rows(slice(2, 5), 8, 1, position))["x"])
    assert (rows[2:5] == following[2:5]).all()
    assert not rows[:2].any()
    assert not (np.asarray(next(mixed.training_batches(8, 2, position))["x"]) == following).all()


def test_evaluations_go_through_the_tasks() -> None:
    mixed = mixture(names=["a", "b", "c"])
    assert isinstance(mixed, TaskOfParts)
    batches = list(mixed.evaluation_batches(2))
    assert [batch["x"].tolist() for batch in batches] == [[0, 1], [2, 0], [100, 101], [102, 0], [1000, 1001], [1002, 0]]
    assert list(mixed.parts_of_evaluation(2)) == ["a", "a", "b", "b", "c", "c"]
    assert next(batch["x"].tolist() for batch in mixed.evaluation_rows(slice(1, 2), 2)) == [0, 1]


def test_objectives_of_text(many_texts: Source) -> None:
    vocabulary = ByteVocabulary(extra_ids=100)
    corrupted = TextTask(many_texts, vocabulary, SpanCorruption(), 64, Pack(), 0.3)
    tabs = dataclasses.replace(many_texts, contents=tuple(b"x\t" + text for text in many_texts.contents))
    pairs = TextTask(tabs, vocabulary, TextPairs(), 64, Pack(), 0.3)
    mixed = Mixture([corrupted, pairs], names=["corrupted", "pairs"], rates=[1, 3])
    batch = next(mixed.training_batches(16, 0))
    of_pairs = np.asarray(batch["inputs"])[:, 0] == vocabulary.encode("x")[0]
    assert 4 < of_pairs.sum() < 16
    assert mixed.num_bytes(batch) > 0
    assert "25.00% corrupted: SpanCorruption on" in str(mixed)
    assert "75.00% pairs: TextPairs on" in str(mixed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rates": [1, 2]}, r"Mixture\.rates must have one value for each of the 3 tasks, and is \[1, 2\]"),
        ({"rates": [1, 2, 0]}, r"Mixture\.rates must be positive numbers, and are \[1, 2, 0\]"),
        ({"rates": [1, 2, 1], "temperature": 2.0}, r"make rates from the tasks' sizes; leave out Mixture\.rates"),
        ({"temperature": 0.0}, r"Mixture\.temperature and largest_size must be positive, and are 0\.0 and None"),
        ({"names": ["a", "a", "b"]}, r"need different names, and have a, a, b; Mixture\.names gives others"),
    ],
)
def test_values_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        mixture(**options)


def test_tasks_that_do_not_go_together(many_texts: Source) -> None:
    with pytest.raises(ConfigurationError, match=r"Mixture\.tasks must be a list of tasks, two or more"):
        Mixture([numbers("alone", 0, 3)])
    with pytest.raises(ConfigurationError, match=r"Mixture\.tasks must be a list of tasks"):
        Mixture([numbers("a", 0, 3), types.SimpleNamespace(name="none")])
    text = TextTask(many_texts, ByteVocabulary(), LanguageModel(), 16, held_out=0.3)
    prefix = TextTask(many_texts, ByteVocabulary(), PrefixLanguageModel(), 16, held_out=0.3)
    with pytest.raises(ConfigurationError, match=r"differ:\n  targets \[.*\n.*targets_prefix"):
        Mixture([text, prefix], names=["a", "b"])
    other = dataclasses.replace(text, vocabulary=ByteVocabulary(extra_ids=1))
    with pytest.raises(ConfigurationError, match=r"the same vocabulary"):
        Mixture([text, other], names=["a", "b"])
