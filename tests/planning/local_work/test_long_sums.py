from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from meshtf.planning.local_work.long_sums import summed


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1 << 20, 2), [0]),
        ((4, 512, 512, 2), [0, 1, 2]),
        ((1 << 15, 4, 4, 2), [0, 1, 2]),  # small images
        ((1, 1 << 20, 1, 2), [0, 1, 2]),
        ((64, 2, 512, 32), [0, 2, 3]),  # channels first
        ((2, 1 << 19, 2), [1]),
        ((1 << 19, 3, 2), [0, 2]),
    ],
)
def test_numbers_of_one_size_add_up(shape: tuple[int, ...], axes: list[int]) -> None:
    """Added one after another, they are off by a hundredth."""
    total = summed(tf.fill(shape, tf.constant(1.1)), axes)
    kept = [n for i, n in enumerate(shape) if i not in axes]
    np.testing.assert_allclose(total, np.full(kept, 1.1 * np.prod(shape) / np.prod(kept)), rtol=2**-13)


def test_whole_numbers_wrap_around_as_ever() -> None:
    np.testing.assert_array_equal(summed(tf.fill([1 << 16, 2], 1 << 16), [0]), [0, 0])


@pytest.mark.parametrize("size", [0, 1, 16411])  # the last is prime
def test_any_number_of_rows(size: int) -> None:
    np.testing.assert_array_equal(summed(tf.ones([size, 3]), [0]), [size] * 3)
