from __future__ import annotations

import re

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import WordVocabulary
from meshtf.train.dialog import DialogText, LabelledDialogs, dialog_words
from meshtf.train.dialog.questions import is_held_out
from meshtf.train.dialog.roles import ATTRIBUTES, GROUNDED


def texts(source: DialogText | LabelledDialogs) -> list[str]:
    return [document.content.decode() for document in source.documents()]


def test_documents_depend_on_the_seed_alone() -> None:
    for kind in (DialogText, LabelledDialogs):
        assert texts(kind(6, 3)) == texts(kind(6, 3)) != texts(kind(6, 4))
        assert texts(kind(6, 3))[: len(texts(kind(2, 3)))] == texts(kind(2, 3))


def test_a_labelled_dialog_gives_what_it_promises() -> None:
    for start in range(0, 160, 8):
        documents = [text.split("\t") for text in texts(LabelledDialogs(20))[start : start + 8]]
        ends = [given.rsplit("\n", 1)[1] for given, _ in documents]
        assert ends == ["RESPONSE", *ATTRIBUTES, "TO", "TO", GROUNDED]
        learned = [text for _, text in documents]
        assert all(
            text in (" 0", " 1") for text, end in zip(learned, ends, strict=True) if end not in ("RESPONSE", "TO")
        )
        assert learned[5].startswith(" TS ")
        assert learned[6].startswith(" USER ")
        # The query, as it was learned, is part of what is given for the reply; so is the tool's answer.
        assert f"TO{learned[5]}TOOL " in documents[6][0]


def test_no_training_dialog_has_a_held_out_question() -> None:
    subjects = re.compile(r"(\d+ (?:plus|minus) \d+|(?:does) (\w+ \w+))")
    for text in [*texts(DialogText(200)), *texts(LabelledDialogs(50))]:
        for found in subjects.finditer(text):
            assert not is_held_out(found[2] or found[1]), text


def test_the_vocabulary_has_all_words() -> None:
    """No document has a byte but digits, tabs and newlines, and a space before a second digit's number."""
    vocabulary = WordVocabulary(dialog_words())
    for text in [*texts(DialogText(50)), *texts(LabelledDialogs(10))]:
        single = {vocabulary.decode([token]) for token in vocabulary.encode(text) if token < 258}
        assert single <= {*"0123456789\n\t"}, text


def test_impossible_counts() -> None:
    with pytest.raises(ConfigurationError, match=r"DialogText.count must be an integer, 1 or more, and is 0"):
        DialogText(count=0)
    with pytest.raises(ConfigurationError, match=r"LabelledDialogs.seed must be an integer, 0 or more, and is -1"):
        LabelledDialogs(seed=-1)
