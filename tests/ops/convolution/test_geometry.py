"""Where windows lie, against TensorFlow's: a kernel of a single one reads the elements that a tap takes in."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from meshtf.dimension import convert_to_shape
from meshtf.errors import ShapeError
from meshtf.ops.convolution._geometry import Geometry, slide, transposed_slide

pytestmark = pytest.mark.quick

STEPS = [(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]
"""Strides and dilations: TensorFlow has one of them."""


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("stride", "dilation"), STEPS)
def test_windows_lie_where_tensorflow_has_them(stride: int, dilation: int, padding: str) -> None:
    for size, kernel in itertools.product(range(1, 9), range(1, 4)):
        if padding == "VALID" and (kernel - 1) * dilation >= size:
            continue
        found = slide("h", "kh", (size, kernel), padding, stride=stride, dilation=dilation)
        image = tf.reshape(tf.range(1.0, size + 1), [1, size, 1])
        taps = tf.reshape(tf.eye(kernel), [kernel, 1, kernel])
        theirs = tf.nn.conv1d(image, taps, stride, padding, dilations=dilation)[0].numpy()
        assert found.result_size == len(theirs)
        for window, tap in np.ndindex(*theirs.shape):
            element = window * stride - found.before + tap * dilation
            assert theirs[window, tap] == (element + 1 if 0 <= element < size else 0), (size, kernel, window, tap)
        last = (found.result_size - 1) * stride - found.before + found.reach
        assert found.after == max(0, last - size)
        assert found.length(found.result_size) == last + found.before


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_transposed_convolution_has_as_many_windows_as_asked_for(stride: int, padding: str) -> None:
    for count, kernel in itertools.product(range(1, 5), range(1, 5)):
        found = transposed_slide("h", "kh", (count, kernel), padding, stride=stride)
        reach = max(found.length(count), count * stride)
        assert found.result_size == count
        assert found.image_size == (count * stride if padding == "SAME" else reach), (count, kernel)


def test_symmetric_windows_have_their_middles_on_every_strided_element() -> None:
    """As in PyTorch, whose number of windows for a padding of half the reach is (size - 1) // stride + 1."""
    for size, kernel, stride, dilation in itertools.product(range(1, 9), (1, 3, 5), range(1, 4), range(1, 3)):
        found = slide("h", "kh", (size, kernel), "SYMMETRIC", stride=stride, dilation=dilation)
        assert found.result_size == (size - 1) // stride + 1
        assert found.before == kernel // 2 * dilation
    assert transposed_slide("h", "kh", (4, 3), "SYMMETRIC", stride=2).image_size == 8


def test_a_symmetric_window_without_a_middle_is_refused() -> None:
    with pytest.raises(ShapeError, match=r'a window of 4 along "h" has no middle, which padding="SYMMETRIC" needs'):
        slide("h", "kh", (8, 4), "SYMMETRIC")


def test_a_window_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ShapeError, match='a window of 5 along "h" is larger than its size 4; use padding="SAME"'):
        slide("h", "kh", (4, 3), "VALID", dilation=2)


def test_the_roles_of_dimensions() -> None:
    image, kernel, result = map(
        convert_to_shape, ("h:8 batch:4 group:2 in:3", "out:5 kh:3 in:3 group:2", "batch:4 h:8 group:2 out:5")
    )
    found = Geometry(image, kernel, result, (slide("h", "kh", (8, 3), "SAME"),))
    assert (found.batch, found.groups, found.inner, found.outer) == (["batch"], ["group"], ["in"], ["out"])
    assert found.image_order == ["batch", "h", "group", "in"]
    assert found.kernel_order == ["kh", "group", "in", "out"]
    assert found.result_order == ["batch", "h", "group", "out"]
