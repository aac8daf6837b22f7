from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, Pack, Pad, TextContinuations, TextPairs, TextTask
from meshtf.train.data.sources.document import Document
from meshtf.train.dialog import LabelledDialogs


@dataclasses.dataclass(frozen=True)
class TwoDocuments:
    """A response, and its rating."""

    def documents(self) -> list[Document]:
        return [Document("response", b"Q R\t ok\n"), Document("rating", b"Q R ok\nSAFE\t 1")]


def test_only_the_continuation_has_weights() -> None:
    """Byte b is the token 2 + b. The weights are written out: nothing of what is given, and no end, counts."""
    task = TextTask(TwoDocuments(), ByteVocabulary(), TextContinuations(longest=8), 24, Pack(), held_out=TwoDocuments())
    (batch,) = task.evaluation_batches(1)
    response, rating = "Q R ok\n", "Q R ok\nSAFE 1"
    assert batch["targets"][0].tolist() == [2 + b for b in (response + rating).encode()] + [0] * 4
    assert batch["targets_weights"][0].tolist() == [0] * 3 + [1] * 4 + [0] * 11 + [1] * 2 + [0] * 4
    assert batch["targets_segmentation"][0].tolist() == [1] * 7 + [2] * 13 + [0] * 4
    assert batch["targets_position"][0].tolist() == [*range(7), *range(13), *[0] * 4]


class BeginVocabulary(ByteVocabulary):
    """Bytes, with the id 0 before every text."""

    @property
    def begin_id(self) -> int:  # type: ignore[override]
        return 0

    def encode(self, text: str) -> list[int]:
        return [self.begin_id, *super().encode(text)]


def test_a_begin_token_stands_before_the_given_text_alone() -> None:
    """With one inside, the model would learn to begin a text in the middle of a dialog, and decode otherwise."""
    task = TextTask(
        TwoDocuments(), BeginVocabulary(), TextContinuations(longest=8), 26, Pack(), held_out=TwoDocuments()
    )
    (batch,) = task.evaluation_batches(1)
    expected = [[0, *(2 + b for b in text)] for text in (b"Q R ok\n", b"Q R ok\nSAFE 1")]
    assert batch["targets"][0].tolist() == [*expected[0], *expected[1], *[0] * 4]
    assert batch["targets_weights"][0].tolist() == [0] * 4 + [1] * 4 + [0] * 12 + [1] * 2 + [0] * 4


def test_a_folder_of_pairs_that_both_begin_is_refused(tmp_path: Path) -> None:
    def text_task(objective: TextPairs | TextContinuations) -> TextTask:
        folder = str(tmp_path / "tokens")
        return TextTask(
            TwoDocuments(), BeginVocabulary(), objective, 26, Pack(), held_out=TwoDocuments(), tokens=folder
        )

    str(text_task(TextPairs()))
    with pytest.raises(ConfigurationError, match="texts in a document: 2 then, '2, of which only the first has the be"):
        str(text_task(TextContinuations(longest=8)))


def test_labels_have_weights_on_the_response_the_query_the_reply_and_the_rating_alone() -> None:
    """Of all documents of some dialogs: the weighted bytes are those behind the tab."""
    objective, vocabulary = TextContinuations(), ByteVocabulary()
    for document in LabelledDialogs(count=5).documents():
        given, learned = document.content.decode().split("\t")
        parts = [np.array(vocabulary.encode(text), np.int32) for text in (given, learned)]
        example = objective.example(parts, vocabulary, None)  # type: ignore[arg-type]
        weighted = example["targets"][example["targets_weights"] != 0]
        assert vocabulary.decode(example["targets"]) == given + learned
        assert vocabulary.decode(weighted) == learned


@dataclasses.dataclass(frozen=True)
class LongDocuments:
    """One fits, of one the given text is too long, and of one the continuation."""

    def documents(self) -> list[Document]:
        return [Document("fits", b"Q?\t ok"), Document("given", b"Long: Q?\t no"), Document("learnt", b"Q?\t yes")]


def test_the_end_of_a_given_text_and_the_beginning_of_a_continuation_stay() -> None:
    """Without the question, the model would learn to answer at random."""
    objective = TextContinuations(longest=3)
    assert objective.limits([7]) == (4, 3)
    task = TextTask(LongDocuments(), ByteVocabulary(), objective, 7, Pad(), held_out=LongDocuments())
    (batch,) = task.evaluation_batches(3)
    texts = [ByteVocabulary().decode(row[: np.count_nonzero(row)]) for row in batch["targets"]]
    assert sorted(texts) == [": Q? no", "Q? ok", "Q? ye"]
    assert "4 documents cut" in str(task)


@pytest.mark.parametrize(("document", "tabs"), [("no tab", 0), ("a\tb\tc", 2), ("nothing to learn\t", 1)])
def test_a_document_of_another_form(document: str, tabs: int) -> None:
    with pytest.raises(
        ValueError, match=rf"a given text, a tab and a non-empty continuation, but this one has {tabs} tabs"
    ):
        TextContinuations().parts(document)


def test_a_continuation_must_leave_room() -> None:
    with pytest.raises(ConfigurationError, match=r"longest must be from 1 to below TextTask.length, 8, and is 8"):
        TextContinuations(longest=8).check([8], ByteVocabulary())
