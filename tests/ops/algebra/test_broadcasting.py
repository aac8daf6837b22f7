"""Broadcasting by name: the shape of a result, and slices that NumPy's rule then broadcasts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from meshtf.dimension import convert_to_shape
from meshtf.errors import ShapeError
from meshtf.ops.algebra.broadcasting import aligner, broadcast_shape, union

pytestmark = pytest.mark.quick

SIZES = {"a": 2, "b": 3, "c": 5}


def shape(names: str) -> object:
    return convert_to_shape(" ".join(f"{name}:{SIZES[name]}" for name in names))


@pytest.mark.parametrize(
    ("operands", "result"),
    [
        (["ab", "b"], "ab"),
        (["b", "ab"], "ab"),  # the operand that holds the other as a subsequence
        (["a", "b"], "ab"),
        (["ba", "ab"], "ba"),
        (["ca", "abc"], "cab"),  # no subsequence: the dimensions of the first, then the new ones
        (["", "c"], "c"),
        (["ac", "abc", "b"], "abc"),
    ],
)
def test_the_shape_of_a_result(operands: list[str], result: str) -> None:
    assert broadcast_shape([shape(names) for names in operands]) == shape(result)


def test_an_output_shape_holds_every_dimension() -> None:
    assert broadcast_shape([shape("ab"), shape("b")], shape("bca")) == shape("bca")
    with pytest.raises(ShapeError, match='"b"'):
        broadcast_shape([shape("ab")], shape("ac"))


def test_one_name_has_one_size() -> None:
    with pytest.raises(ShapeError, match='dimension "a" has size 2 in one operand and 4 in another; rename'):
        union([shape("ab"), convert_to_shape("a:4")])


@pytest.mark.parametrize("target", list(map("".join, itertools.permutations(SIZES))))
def test_slices_are_aligned_by_name(target: str) -> None:
    for source in (s for n in range(4) for s in itertools.permutations(SIZES, n)):
        names = "".join(source)
        x = np.arange(np.prod([SIZES[n] for n in names], dtype=int)).reshape([SIZES[n] for n in names])
        aligned = aligner(shape(names), shape(target))(tf.constant(x)).numpy()
        sizes = [SIZES[n] for n in target]
        expected = np.einsum(f"{names},{target}->{target}", x, np.ones(sizes, int))
        np.testing.assert_array_equal(np.broadcast_to(aligned, sizes), expected)
