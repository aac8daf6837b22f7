"""Rows of labelled texts, their classes, their sides, and what is said of labels that there are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, LabelledFiles, LabelledTextTask
from meshtf.train.task import TaskByRows, TaskOfKnownData

FIRST = 2  # the id of the byte 0
NAMES = ["no", "yes"]


def ids(text: str) -> list[int]:
    return [byte + FIRST for byte in text.encode()]


def task(tmp_path: Path, text: str, **options: Any) -> LabelledTextTask:
    (tmp_path / "a.csv").write_text(text)
    columns = {"pair": "pair"} if options.get("has_pairs") else {}
    source = LabelledFiles(str(tmp_path / "a.csv"), **columns)
    return LabelledTextTask(source, ByteVocabulary(), **{"labels": NAMES, "length": 6, "held_out": source, **options})


def held_out(made: LabelledTextTask) -> dict[str, np.ndarray]:
    (batch,) = made.evaluation_batches(3)
    return {name: np.asarray(value) for name, value in batch.items()}


def test_rows_and_classes(tmp_path: Path) -> None:
    """A text, its end, padding; what is too long loses its last tokens. Labels are names, or numbers of them."""
    made = task(tmp_path, "text,label\nab,yes\nabcdefgh,no\n")
    assert isinstance(made, TaskByRows)
    assert isinstance(made, TaskOfKnownData)
    batch = held_out(made)
    rows = [[*ids("ab"), 1, 0, 0, 0], [*ids("abcde"), 1], [0] * 6]
    np.testing.assert_array_equal(batch["inputs"], rows)
    assert batch["labels"].tolist() == [1, 0, 0]
    assert batch["weights"].tolist() == [1.0, 1.0, 0.0]
    specs = made.inputs(mtf.Dimension("batch", 3))
    assert {name: (spec.shape.to_integer_list, spec.dtype.name) for name, spec in specs.items()} == {
        name: (list(batch[name].shape), str(batch[name].dtype)) for name in ("inputs", "labels")
    }
    assert held_out(task(tmp_path, "text,label\na,1\nb,0\n"))["labels"].tolist() == [1, 0, 0]
    assert held_out(task(tmp_path, "text,label\na,2\nb,0\n", labels=3))["labels"].tolist() == [2, 0, 0]
    assert made.fingerprint() != task(tmp_path, "text,label\nab,yes\nabcdefgh,yes\n").fingerprint()
    assert str(made).startswith("2 classes of labelled files ")


def test_a_number_that_is_a_name_is_the_name_in_every_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": 1}\n{"text": "b", "label": 3}\n')
    source, stars = LabelledFiles(str(tmp_path / "a.jsonl")), ("1", "2", "3")
    numbers = LabelledTextTask(source, ByteVocabulary(), labels=stars, length=6, held_out=source)
    texts = task(tmp_path, "text,label\na,1\nb,3\n", labels=stars)
    assert held_out(numbers)["labels"].tolist() == held_out(texts)["labels"].tolist() == [0, 2, 0]


def test_pairs(tmp_path: Path) -> None:
    """The second text has the type 1; the longer one is cut."""
    batch = held_out(task(tmp_path, "text,pair,label\nab,c,yes\na,bcdefg,no\n", has_pairs=True, length=7))
    rows = [[*ids("ab"), 1, *ids("c"), 1, 0, 0], [*ids("a"), 1, *ids("bcde"), 1], [0] * 7]
    np.testing.assert_array_equal(batch["inputs"], rows)
    types = [[0, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1], [0] * 7]
    np.testing.assert_array_equal(batch["inputs_token_types"], types)


def test_pairs_as_roberta_has_them(tmp_path: Path) -> None:
    """Two ends between the texts, and one type for both."""
    options = {"has_pairs": True, "ends_between": 2, "second_type": 0}
    batch = held_out(task(tmp_path, "text,pair,label\nab,c,yes\na,bcdefg,no\n", length=8, **options))
    rows = [[*ids("ab"), 1, 1, *ids("c"), 1, 0, 0], [*ids("a"), 1, 1, *ids("bcde"), 1], [0] * 8]
    np.testing.assert_array_equal(batch["inputs"], rows)
    np.testing.assert_array_equal(batch["inputs_token_types"], np.zeros([3, 8]))


def test_a_share_is_held_out_by_a_hash(tmp_path: Path) -> None:
    lines = [f"{number},{NAMES[number % 2]}" for number in range(200)]
    made = task(tmp_path, "\n".join(["text,label", *lines]), held_out=0.2)
    kept = sum(int(np.asarray(batch["weights"]).sum()) for batch in made.evaluation_batches(16))
    assert 20 < kept < 60
    assert kept + made.num_training_examples == 200
    with pytest.raises(ConfigurationError, match=r"none of the 1 example of labelled files .* is held out: a hash"):
        held_out(task(tmp_path, "text,label\na,yes\n", held_out=1e-9))
    with pytest.raises(ConfigurationError, match="there is no example in labelled files"):
        held_out(task(tmp_path, "text,label\n"))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    'a.csv, row 2, column "label": \'yess\' is not one of the labels no, yes; did you mean "yes"?': ({}, "yess"),
    "a.csv, row 2, column \"label\": '2' is not one of the labels no, yes": ({}, "2"),
    "a.csv, row 2, column \"label\": '-1' is no number from 0 to 2 (LabelledTextTask.labels = 3)": (
        {"labels": 3},
        "-1",
    ),
    "a.csv, row 2, column \"label\": 'x' is no number from 0 to 2": ({"labels": 3}, "x"),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_label_that_there_is_not(words: str, tmp_path: Path) -> None:
    options, label = WRONG[words]
    with pytest.raises(ConfigurationError) as caught:
        held_out(task(tmp_path, f"text,label\na,1\nb,{label}\n", **options))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": 1}, "labels must be the names of the classes, two or more"),
        ({"labels": ["a", "a"]}, "no two alike"),
        ({"length": 2}, "length must be an integer, 3 or more, and is 2"),
        ({"length": 5, "has_pairs": True, "ends_between": 2}, "length must be an integer, 6 or more, and is 5"),
        ({"ends_between": 0}, "ends_between must be an integer, 1 or more, and is 0"),
        ({"second_type": -1}, "second_type must be an integer, 0 or more, and is -1"),
        ({"held_out": 1.5}, r"held_out must be a share of the examples, in \(0, 1\), or a source"),
        ({"source": LabelledFiles}, "source is no source: .* in gin @Name"),
    ],
)
def test_values_that_cannot_be(options: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"source": LabelledFiles("a.csv"), "labels": 2, "length": 4, **options}
    with pytest.raises(ConfigurationError, match=words):
        LabelledTextTask(vocabulary=ByteVocabulary(), **given)


def test_pairs_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,yes\n")
    source = LabelledFiles(str(tmp_path / "a.csv"))
    made = LabelledTextTask(source, ByteVocabulary(), NAMES, 6, source, has_pairs=True)
    with pytest.raises(ConfigurationError, match=r"a.csv, row 1: the source gives 1 text, and .* takes pairs of texts"):
        held_out(made)
