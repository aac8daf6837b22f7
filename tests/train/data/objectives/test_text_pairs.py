from __future__ import annotations

import numpy as np
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, TextPairs
from meshtf.train.data.objectives.uniforms import Uniforms


def test_both_parts_get_an_end() -> None:
    parts = [np.array([5, 0, 6], np.int32), np.array([], np.int32)]
    example = TextPairs().example(parts, ByteVocabulary(), Uniforms(0, 0))
    assert {name: array.tolist() for name, array in example.items()} == {
        "inputs": [5, 0, 6, 1],
        "targets": [1],
        "targets_weights": [1.0],
    }


def test_parts_stand_around_a_tab() -> None:
    assert TextPairs().parts("a question\tan answer") == ("a question", "an answer")
    assert TextPairs().parts("\tan answer") == ("", "an answer")


@pytest.mark.parametrize(("line", "tabs"), [("no pair", 0), ("a\tb\tc", 2)])
def test_a_line_that_is_no_pair(line: str, tabs: int) -> None:
    with pytest.raises(
        ValueError, match=rf"a pair must be two texts with a tab between them, but this document has {tabs} tabs"
    ):
        TextPairs().parts(line)


def test_too_short_for_a_token_and_the_end() -> None:
    with pytest.raises(ConfigurationError, match=r"TextTask.length of 2 or more"):
        TextPairs().check([8, 1], ByteVocabulary())
