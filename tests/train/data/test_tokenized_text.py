from __future__ import annotations

import itertools

import numpy as np
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, LanguageModel, TextPairs
from meshtf.train.data._tokenized_text import TextReader, TextSplit, is_held_out
from meshtf.train.data.objectives.objective import Objective
from meshtf.train.data.sources.document import Source

LANGUAGE_MODEL = LanguageModel()


def read(
    source: Source, held_out: float | Source = 0.5, skip: bool = False, objective: Objective = LANGUAGE_MODEL
) -> TextSplit:
    return TextReader(ByteVocabulary(), objective, skip).read(source, held_out)


def documents_of(split: TextSplit) -> tuple[list[str], list[str]]:
    """The texts to train on, and those held out."""
    return tuple(
        [ByteVocabulary().decode(side.tokens[0][start:end]) for start, end in itertools.pairwise(side.borders[0])]
        for side in (split.train, split.held_out)
    )


def test_the_split_is_the_same_for_ever() -> None:
    """Other results would no longer compare."""
    held_out = [number for number in range(40) if is_held_out(b"document %d" % number, 0.25)]
    assert held_out == [11, 15, 26, 27, 28, 36, 37]


def test_the_split_does_not_depend_on_order_or_company(texts: type) -> None:
    contents = tuple(b"document %d" % number for number in range(40))
    train, held_out = documents_of(read(texts(contents)))
    assert sorted(train + held_out) == sorted(content.decode() for content in contents)
    train_reversed, held_out_reversed = documents_of(read(texts(contents[30:9:-1])))
    assert set(train_reversed) < set(train)
    assert set(held_out_reversed) < set(held_out)


def test_the_share_held_out() -> None:
    count = sum(is_held_out(b"%d" % number, 0.1) for number in range(10_000))
    assert count == pytest.approx(1000, abs=5 * np.sqrt(900))


def test_tokens_end_with_the_end(many_texts: Source) -> None:
    train = read(many_texts).train
    (tokens,), (borders,) = train.tokens, train.borders
    assert tokens.dtype == np.uint16
    assert (tokens[borders[1:] - 1] == 1).all()
    assert train.num_bytes == train.num_tokens - train.num_documents


def test_parts_of_pairs(texts: type) -> None:
    split = read(texts((b"a\tbc", b"\td")), texts((b"e\tf",)), objective=TextPairs())
    assert [part.tolist() for part in split.train.tokens] == [[99, 1, 1], [100, 101, 1, 102, 1]]
    assert [part.tolist() for part in split.train.borders] == [[0, 2, 3], [0, 3, 5]]
    assert split.train.num_bytes == 4


def test_a_source_of_its_own_is_held_out(texts: type) -> None:
    assert documents_of(read(texts((b"a", b"b")), texts((b"c",)))) == (["a", "b"], ["c"])


def test_undecodable_bytes_are_an_error_that_says_where(texts: type) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(texts((b"good", b"b\xffd")))
    assert "text 1 is not UTF-8: byte 1 is 0xff" in str(caught.value)
    assert "TextTask.skip_undecodable = True" in str(caught.value)


def test_undecodable_documents_are_left_out_and_counted(texts: type) -> None:
    split = read(texts((b"a", b"\xff", b"b", b"\xfe")), texts((b"c", b"\xfd")), skip=True)
    assert documents_of(split) == (["a", "b"], ["c"])
    assert split.num_skipped == 3


def test_no_text(texts: type) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no text in .*: 1 document is not in UTF-8"):
        read(texts((b"\xff",)), skip=True)
    with pytest.raises(ConfigurationError, match=r"there is no text in"):
        read(texts((b"a",)), texts(()))


def test_an_empty_side(texts: type) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(texts((b"a",)), 1e-9)
    assert "no document of 1 is held out" in str(caught.value)
    assert "TextTask.held_out = @" in str(caught.value)
    assert 'TextFiles.document = "paragraph" makes each paragraph a document' in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"no document of 1 is left to train on"):
        read(texts((b"a",)), 1 - 1e-9)


def test_a_document_that_is_no_pair_is_named(texts: type) -> None:
    with pytest.raises(ConfigurationError, match=r"text 1: a pair must be two texts"):
        read(texts((b"a\tb", b"c")), objective=TextPairs())
