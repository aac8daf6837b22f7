"""Integers of 4 and 8 bits, and floats of 8, by outputs and by groups, are NumPy's under every layout, to the bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import LayoutError
from meshtf.quantization import Quantization
from meshtf.quantization.number_formats import from_numbers, to_numbers
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

LAYOUTS = ["", "hidden:rows", "d_ff:cols", "hidden:cols;d_ff:rows", "hidden:rows+cols", "heads:rows;hidden:cols"]
"""On 2 x 2 cores: they split the three groups of 4 and the 7 bytes of a row of int4 inside."""

WEIGHT = np.random.default_rng(0).normal(size=[2, 12, 14]).astype(np.float32)
WEIGHT[0, :, 3] = 0.0
SUMMED = ("heads", "hidden")
LARGEST = {"int8": 127, "int4": 7, "float8_e4m3": 448}


@pytest.mark.parametrize("group_size", [None, 4])
@pytest.mark.parametrize("name", LARGEST)
def test_numbers_are_numpys_under_every_layout(name: str, group_size: int | None) -> None:
    quantization = Quantization(name, group_size)

    def body(w: mtf.Tensor) -> list[mtf.Tensor]:
        kept, scale = to_numbers(w, quantization, SUMMED)
        return [mtf.to_float(kept), scale, from_numbers(kept, scale, w.shape, quantization)]

    grouped = WEIGHT.reshape(2, 3, 4, 14) if group_size else WEIGHT
    axes = (2,) if group_size else (0, 1)
    scale = np.abs(grouped).max(axes, keepdims=True) / np.float32(LARGEST[name])
    scale = np.where(scale == 0, np.float32(1), scale)
    found_numbers = rounded(grouped / scale, name)
    expected = (found_numbers * scale).reshape(WEIGHT.shape)
    for layout in LAYOUTS:
        inputs = {"w": ("heads:2 hidden:12 d_ff:14", WEIGHT)}
        kept, found_scale, found = interpret(body, inputs, "rows:2;cols:2", layout).results
        np.testing.assert_array_equal(found_scale, np.squeeze(scale, axes))
        np.testing.assert_array_equal(found, expected)
        numbers = found_numbers.reshape(WEIGHT.shape)
        if name == "float8_e4m3":
            np.testing.assert_array_equal(kept, numbers.astype(ml_dtypes.float8_e4m3fn).view(np.int8))
            continue
        packed = numbers[..., ::2] + 16 * numbers[..., 1::2] if name == "int4" else numbers
        np.testing.assert_array_equal(kept, packed)


def rounded(x: np.ndarray, name: str) -> np.ndarray:
    if name == "float8_e4m3":
        return x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return np.clip(np.rint(x), -LARGEST[name], LARGEST[name])


def test_too_few_groups_for_a_layout_are_refused() -> None:
    def body(w: mtf.Tensor) -> mtf.Tensor:
        return to_numbers(w, Quantization("int8", 6), ("hidden",))[1]

    with pytest.raises(
        LayoutError, match=r'"hidden" of size 2 does not divide into 6 parts \(rule "hidden:rows\+cols"'
    ):
        interpret(body, {"w": ("hidden:12 d_ff:2", np.ones([12, 2], np.float32))}, "rows:2;cols:3", "hidden:rows+cols")


def test_a_group_size_that_does_not_divide_becomes_the_greatest_divisor_below() -> None:
    shape = mtf.Shape([("d_model", 12), ("d_ff", 7)])
    assert str(Quantization("int8", 5).scale_shape(shape, ("d_model",))) == "d_model:3 d_ff:7"
    assert str(Quantization("int8", 99).scale_shape(shape, ("d_model",))) == "d_model:1 d_ff:7"


def test_bytes_of_an_odd_dimension_are_not_packed() -> None:
    x = np.arange(-7, 8, dtype=np.float32)[None]
    quantization = Quantization("int4")

    def body(x: mtf.Tensor) -> mtf.Tensor:
        kept, scale = to_numbers(x, quantization, ("made",))
        assert kept.shape == x.shape
        return from_numbers(kept, scale, x.shape, quantization)

    np.testing.assert_array_equal(interpret(body, {"x": ("hidden:1 made:15", x)}, "all:2", "made:all").results, x)
