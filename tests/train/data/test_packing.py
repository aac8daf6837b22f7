"""Packing against a slow reference that works on lists."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshtf.errors import ShapeError
from meshtf.train.data._packing import lay_out, packed_rows
from meshtf.train.data.objectives.objective import Example

SEQUENCES = {"inputs": ("inputs",), "targets": ("targets", "targets_weights")}

Packed = dict[str, list[list[float]]]


def example(inputs: list[int], targets: list[int]) -> Example:
    weights = np.arange(len(targets), dtype=np.float32) / 4
    return {"inputs": np.array(inputs, np.int32), "targets": np.array(targets, np.int32), "targets_weights": weights}


def packed(examples: list[Example], sizes: tuple[int, int]) -> dict[str, np.ndarray]:
    lengths = np.array([[len(e["inputs"]), len(e["targets"])] for e in examples], np.int64).reshape(-1, 2)
    borders = packed_rows(lengths, sizes)
    rows = [examples[start:end] for start, end in itertools.pairwise(borders)]
    return lay_out(rows, SEQUENCES, sizes)


def slowly_packed(examples: list[Example], sizes: tuple[int, int]) -> Packed:
    """One token at a time; a new row whenever the next example does not fit in the row that is open."""
    rows: list[list[Example]] = []
    for candidate in examples:
        if rows and all(
            sum(len(e[name]) for e in rows[-1]) + len(candidate[name]) <= size
            for name, size in zip(SEQUENCES, sizes, strict=True)
        ):
            rows[-1].append(candidate)
        else:
            rows.append([candidate])
    result: Packed = {}
    for (sequence, names), size in zip(SEQUENCES.items(), sizes, strict=True):
        for name in names:
            result[name] = [[v for e in row for v in e[name].tolist()] for row in rows]
        result[f"{sequence}_segmentation"] = [[i + 1 for i, e in enumerate(row) for _ in e[sequence]] for row in rows]
        result[f"{sequence}_position"] = [[i for e in row for i in range(len(e[sequence]))] for row in rows]
        for name in (*names, f"{sequence}_segmentation", f"{sequence}_position"):
            result[name] = [values + [0] * (size - len(values)) for values in result[name]]
    return result


tokens = st.lists(st.integers(0, 3), max_size=6)  # zeros and empty sequences often


@settings(deadline=None, max_examples=150)
@given(st.lists(st.builds(example, tokens, tokens), max_size=12), st.tuples(st.integers(6, 14), st.integers(6, 14)))
def test_packing_is_that_of_the_reference(examples: list[Example], sizes: tuple[int, int]) -> None:
    fast, slow = packed(examples, sizes), slowly_packed(examples, sizes)
    assert fast.keys() == slow.keys()
    for name, rows in slow.items():
        np.testing.assert_array_equal(fast[name], np.array(rows).reshape(fast[name].shape), err_msg=name)


def test_an_empty_sequence_keeps_its_number_in_the_others() -> None:
    features = packed([example([5], [6]), example([], [7, 8]), example([9], [])], (4, 4))
    assert features["inputs_segmentation"].tolist() == [[1, 3, 0, 0]]
    assert features["targets_segmentation"].tolist() == [[1, 2, 2, 0]]


def test_an_id_of_zero_is_a_token() -> None:
    features = packed([example([3, 0, 5, 1], [0]), example([0], [0, 0])], (6, 4))
    assert features["inputs"].tolist() == [[3, 0, 5, 1, 0, 0]]
    assert features["inputs_segmentation"].tolist() == [[1, 1, 1, 1, 2, 0]]
    assert features["targets_position"].tolist() == [[0, 0, 1, 0]]


def test_one_row_is_open_at_a_time() -> None:
    """The third would fit in the first row; order is kept instead."""
    assert packed_rows(np.array([[5], [5], [3]]), [8]).tolist() == [0, 1, 3]


def test_types_are_those_of_the_features() -> None:
    dtypes = {name: array.dtype for name, array in packed([example([1], [1])], (2, 2)).items()}
    assert dtypes.pop("targets_weights") == np.float32
    assert set(dtypes.values()) == {np.dtype(np.int32)}


def test_an_example_that_fits_in_no_row() -> None:
    with pytest.raises(ShapeError, match=r"example 1 has sequences of \[9\] tokens, and a row has room for \[8\]"):
        packed_rows(np.array([[5], [9]]), [8])
