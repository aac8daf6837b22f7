"""Rows hold every token once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import Concatenate, LanguageModel, Pack, Pad, SpanCorruption, TextPairs
from meshtf.train.data.arrangement import Rows

# Each document has its end at least.
lengths_of_documents = st.lists(st.integers(1, 25), min_size=1, max_size=20)


def borders_of(lengths: list[int]) -> np.ndarray:
    return np.cumsum([0, *lengths])


def pieces_by_row(rows: Rows) -> list[list[tuple[int, int]]]:
    """Where each piece of the only part begins and ends."""
    pieces = [tuple(piece) for piece in rows.pieces[:, 0].tolist()]
    return [pieces[start:end] for start, end in itertools.pairwise(rows.borders)]


def tokens_of(row: list[tuple[int, int]]) -> list[int]:
    return [token for start, end in row for token in range(start, end)]


@settings(deadline=None, max_examples=100)
@given(lengths_of_documents, st.integers(1, 12), st.booleans())
def test_concatenation_fills_rows(lengths: list[int], size: int, separate: bool) -> None:
    rows = pieces_by_row(Concatenate(separate).rows([borders_of(lengths)], LanguageModel(), [size]))
    tokens = list(range(sum(lengths)))
    assert [tokens_of(row) for row in rows] == [tokens[start : start + size] for start in range(0, len(tokens), size)]
    starts = {start for row in rows for start, _ in row}
    if separate:
        assert starts == set(range(0, len(tokens), size)) | set(borders_of(lengths)[:-1].tolist())
    else:
        assert {len(row) for row in rows} == {1}


@settings(deadline=None, max_examples=100)
@given(lengths_of_documents, st.integers(1, 12))
def test_packing_keeps_documents_whole_or_cuts_the_long_ones(lengths: list[int], size: int) -> None:
    borders = borders_of(lengths)
    rows = pieces_by_row(Pack().rows([borders], LanguageModel(), [size]))
    assert tokens_of([piece for row in rows for piece in row]) == list(range(sum(lengths)))
    assert all(len(tokens_of(row)) <= size for row in rows)
    expected = [
        (start, min(start + size, end))
        for begin, end in itertools.pairwise(borders.tolist())
        for start in range(begin, end, size)
    ]
    assert [piece for row in rows for piece in row] == expected
    padded = pieces_by_row(Pad().rows([borders], LanguageModel(), [size]))
    assert padded == [[piece] for piece in expected]


def test_objectives_that_add_ends_get_texts_without() -> None:
    """The document of one token is an end alone: an empty text."""
    rows = Pad().rows([borders_of([4, 1])], SpanCorruption(), [512, 114])
    assert pieces_by_row(rows) == [[(0, 3)], [(4, 4)]]


def test_pairs_that_are_too_long_are_cut_and_counted() -> None:
    inputs, targets = borders_of([4, 9]), borders_of([3, 2])
    rows = Pack().rows([inputs, targets], TextPairs(), [6, 6])
    assert rows.pieces.tolist() == [[[0, 3], [0, 2]], [[4, 9], [3, 4]]]
    assert rows.borders.tolist() == [0, 1, 2]
    assert rows.num_cut == 1


def test_pairs_cannot_be_concatenated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Concatenate().check(TextPairs())
    assert "TextPairs needs 2 texts in each document" in str(caught.value)
    assert "TextTask.arrangement = @Pack() or @Pad()" in str(caught.value)


def test_separate_documents_need_an_objective_that_keeps_lengths() -> None:
    with pytest.raises(ConfigurationError, match=r"SpanCorruption does not allow.*\n.*@Pack\(\)"):
        Concatenate(separate_documents=True).check(SpanCorruption())
