"""Sums of int8 products are those of integers, and quantized products have the same bits under every layout."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.quantization import QuantizedTensor, quantize, quantized_einsum
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

LAYOUTS = ["", "hidden:rows", "batch:cols", "batch:rows;d_ff:cols", "hidden:rows+cols", "hidden:cols;d_ff:rows"]
"""On 2 x 2 cores, which none of the sizes divides among: batch:3 hidden:10007 d_ff:5."""

generator = np.random.default_rng(0)
X, W = (generator.integers(100, 127, shape, np.int8, endpoint=True) for shape in ([3, 10007], [10007, 5]))
X[1] *= -1
X_SCALE, W_SCALE = (generator.uniform(0.5, 2, [n]).astype(np.float32) for n in (3, 5))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_are_exact(layout: str) -> None:
    """They are far above 2^24, so sums in float32 are not exact."""

    def body(x: mtf.Tensor, w: mtf.Tensor, x_scale: mtf.Tensor, w_scale: mtf.Tensor) -> mtf.Tensor:
        return quantized_einsum(QuantizedTensor(x, x_scale), QuantizedTensor(w, w_scale), "batch d_ff")

    inputs = {"x": ("batch:3 hidden:10007", X), "w": ("hidden:10007 d_ff:5", W)}
    inputs |= {"x_scale": ("batch:3", X_SCALE), "w_scale": ("d_ff:5", W_SCALE)}
    found = interpret(body, inputs, "rows:2;cols:2", layout).results
    total = X.astype(np.int32) @ W.astype(np.int32)
    assert np.abs(total).min() > 2**26
    np.testing.assert_array_equal(found, total.astype(np.float32) * X_SCALE[:, None] * W_SCALE)


def test_a_quantized_layer_has_the_same_bits_under_every_layout() -> None:
    """Activations with a scale for each row, made in the program, times weights with a scale for each output."""
    x, w = (generator.normal(size=shape).astype(np.float32) for shape in ([3, 101], [101, 5]))

    def body(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return quantized_einsum(quantize(x, "hidden"), quantize(w, "hidden"), "batch d_ff")

    inputs = {"x": ("batch:3 hidden:101", x), "w": ("hidden:101 d_ff:5", w)}
    found = [interpret(body, inputs, "rows:2;cols:2", layout).results for layout in LAYOUTS]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    # Each factor errs by half a step, which is 1/254 of the largest of its row, and so the sum of 101 products.
    steps = np.abs(x).max(1)[:, None] / 127, np.abs(w).max(0) / 127
    bound = steps[0] / 2 * np.abs(w).sum(0) + steps[1] / 2 * np.abs(x).sum(1)[:, None] + 101 * steps[0] * steps[1] / 4
    assert (np.abs(found[0] - x @ w) <= bound * 1.0001).all()


GROUPED = ["", "hidden:rows", "d_ff:cols", "batch:rows;hidden:cols", "hidden:rows+cols", "hidden:cols;d_ff:rows"]
"""On 2 x 2 cores: 2 cores split 7 groups of 16 inside, and 4 cores do not divide them."""


def test_groups_have_the_same_bits_under_every_layout() -> None:
    """Sums of float32 would not: groups whose scales are far apart come in another order on other cores.

    The numbers are NumPy's, in float64. A share errs by 2^-24 of itself, and by 2^-31 of the largest; then float32
    rounds three times.
    """
    x, w = (generator.integers(-127, 127, shape, np.int8, endpoint=True) for shape in ([3, 112], [112, 5]))
    x_scale = generator.uniform(0.5, 2, [3]).astype(np.float32)
    w_scale = np.exp(generator.uniform(-9, 9, [7, 5])).astype(np.float32)

    def body(x: mtf.Tensor, w: mtf.Tensor, x_scale: mtf.Tensor, w_scale: mtf.Tensor) -> mtf.Tensor:
        return quantized_einsum(QuantizedTensor(x, x_scale), QuantizedTensor(w, w_scale), "batch d_ff")

    inputs = {"x": ("batch:3 hidden:112", x), "w": ("hidden:112 d_ff:5", w)}
    inputs |= {"x_scale": ("batch:3", x_scale), "w_scale": ("hidden:7 d_ff:5", w_scale)}
    found = [interpret(body, inputs, "rows:2;cols:2", layout).results for layout in GROUPED]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    sums = np.einsum("bgi,gid->bgd", x.reshape(3, 7, 16).astype(float), w.reshape(7, 16, 5).astype(float))
    terms = sums * w_scale * x_scale[:, None, None]
    bound = np.abs(terms).sum(1) * 4 * 2.0**-24
    bound += 2.0**-31 * np.abs(sums).sum(1) * w_scale.max(0) * x_scale[:, None]
    assert (np.abs(found[0] - terms.sum(1)) <= bound).all()


def test_both_factors_may_be_in_the_same_groups() -> None:
    x, w = (generator.normal(size=shape).astype(np.float32) for shape in ([3, 12], [12, 5]))

    def body(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
        quantized = [quantize(t, "hidden", group_size=4) for t in (x, w)]
        return [quantized_einsum(*quantized, "batch d_ff"), *(q.dequantized() for q in quantized)]

    inputs = {"x": ("batch:3 hidden:12", x), "w": ("hidden:12 d_ff:5", w)}
    found, x, w = interpret(body, inputs, "rows:2;cols:2", "hidden:rows;d_ff:cols").results
    np.testing.assert_allclose(found, x @ w, rtol=0, atol=20 * 2.0**-24 * (np.abs(x) @ np.abs(w)).max())


def test_mistakes_are_told() -> None:
    with mtf.Graph() as graph:
        mesh = mtf.Mesh(graph)
        x, w = mtf.ones(mesh, "batch:4 hidden:8"), mtf.ones(mesh, "hidden:8 d_ff:2")
        with pytest.raises(
            ShapeError, match=r'have different groups along "hidden", which is summed; give both the same gr'
        ):
            quantized_einsum(quantize(x, "hidden", group_size=4), quantize(w, "hidden", group_size=2), "batch d_ff")
        with pytest.raises(ShapeError, match=r'in groups along "batch", a dimension of the result; multiply'):
            quantized_einsum(quantize(x, "batch", group_size=2), quantize(w, "d_ff hidden"), "batch hidden")
        long = quantize(mtf.ones(mesh, "hidden:131072"), "hidden")
        with pytest.raises(ShapeError, match="a sum of 131072 products of int8, over hidden, may overflow int32"):
            quantized_einsum(long, long, [])
