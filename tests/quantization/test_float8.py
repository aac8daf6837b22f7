"""float8 numbers are ml_dtypes', and their products are those of the same numbers in float64, under every layout."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError
from meshtf.quantization import Quantization, quantize, quantized_einsum
from meshtf.quantization.float8 import float8_bytes, float8_numbers
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

LAYOUTS = ["", "batch:rows;hidden:cols", "hidden:rows+cols", "hidden:cols;d_ff:rows"]
"""On 2 x 2 cores, which divide none of the sizes: batch:3 hidden:21 d_ff:5."""

generator = np.random.default_rng(0)
X, W = (generator.normal(size=shape).astype(np.float32) for shape in ([3, 21], [21, 5]))
INPUTS = {"x": ("batch:3 hidden:21", X), "w": ("hidden:21 d_ff:5", W)}


def rounded(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The float8 numbers and their scales, with axes of size 1."""
    scale = np.abs(x).max(axes, keepdims=True) / np.float32(448)
    return (x / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float64), scale


def test_every_byte_is_read_and_ties_go_to_even() -> None:
    """All bytes; numbers half way between neighbours, also subnormal ones; and numbers that are too large."""
    codes = np.arange(256).astype(np.uint8)
    exact = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    positive = exact[:127]
    between = (positive[1:] + positive[:-1]) / 2
    given = np.concatenate([exact, between, -between, [500, -np.inf]]).astype(np.float32)
    expected = np.concatenate([given[:-2], [448, -448]]).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)

    def body(kept: mtf.Tensor, given: mtf.Tensor) -> list[mtf.Tensor]:
        return [float8_numbers(mtf.cast(kept, tf.int8)), float8_numbers(float8_bytes(given))]

    inputs = {"kept": ("n:256", codes.view(np.int8).astype(np.int32)), "given": (f"m:{len(given)}", given)}
    read, made = interpret(body, inputs, "all:2", "n:all").results
    np.testing.assert_array_equal(read, exact)
    np.testing.assert_array_equal(made, expected)
    assert np.isnan(made).sum() == 2


def test_a_layout_changes_no_number_and_no_scale() -> None:
    """The product has 21 terms, each exact in float32, and two scales."""

    def body(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
        x8, w8 = (quantize(t, "hidden", numbers="float8_e4m3") for t in (x, w))
        return [x8.dequantized(), x8.scale, w8.scale, quantized_einsum(x8, w8, "batch d_ff")]

    (x8, x_scale), (w8, w_scale) = rounded(X, (1,)), rounded(W, (0,))
    bound = 24 * 2.0**-24 * (np.abs(x8) @ np.abs(w8)) * x_scale * w_scale
    for layout in LAYOUTS:
        x, *scales, y = interpret(body, INPUTS, "rows:2;cols:2", layout).results
        np.testing.assert_array_equal(x, (x8 * x_scale).astype(np.float32))
        for found, expected in zip(scales, (x_scale[:, 0], w_scale[0]), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert (np.abs(y - x8 @ w8 * x_scale * w_scale) <= bound).all()


def test_groups_have_sums_of_their_own() -> None:
    def body(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        x8 = quantize(x, "hidden", numbers="float8_e4m3")
        return quantized_einsum(x8, quantize(w, "hidden", group_size=7, numbers="float8_e4m3"), "batch d_ff")

    (x8, x_scale), (w8, w_scale) = rounded(X, (1,)), rounded(W.reshape(3, 7, 5), (1,))
    weight = (w8 * w_scale.astype(np.float64)).reshape(21, 5)
    bound = 28 * 2.0**-24 * (np.abs(x8) @ np.abs(weight)) * x_scale
    for layout in LAYOUTS:
        y = interpret(body, INPUTS, "rows:2;cols:2", layout).results
        assert (np.abs(y - x8 @ weight * x_scale) <= bound).all()


def test_policies_quantize_inputs_as_their_weights() -> None:
    assert Quantization("float8_e4m3", activations="static").input_numbers == "float8_e4m3"
    assert Quantization("int4", activations="static").input_numbers == "int8"


def test_mistakes_are_told() -> None:
    with mtf.Graph() as graph:
        x = mtf.ones(mtf.Mesh(graph), "hidden:8")
        with pytest.raises(
            DtypeError, match="must be int8 or float8_e4m3, and are 'float8'; did you mean \"float8_e4m3\""
        ):
            quantize(x, "hidden", numbers="float8")
        with pytest.raises(
            DtypeError, match="float8_e4m3 and int8 numbers cannot be multiplied; quantize both to one format"
        ):
            quantized_einsum(quantize(x, "hidden", numbers="float8_e4m3"), quantize(x, "hidden"), [])
