"""Sums of many products in 16 bits are rounded once, to nearest: nothing is lost that would add up in training.

TensorFlow's own kernels do not see to it on every processor; `make test` runs this file on a plain one, too.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import interpret

pytestmark = pytest.mark.plain_cpu

TERMS, ROWS = 1024, 64
SHAPES = {
    "matrices": (f"m:{ROWS} k:{TERMS}", f"k:{TERMS} n:{ROWS}", "m n", "mk,kn->mn"),
    "transposed": (f"k:{TERMS} m:{ROWS}", f"n:{ROWS} k:{TERMS}", "n m", "km,nk->nm"),
    "batches": (f"b:4 m:{ROWS // 4} k:{TERMS}", f"b:4 k:{TERMS} n:{ROWS}", "b m n", "bmk,bkn->bmn"),
    "two_summed": (f"m:{ROWS} k:32 l:32", f"l:32 n:{ROWS} k:32", "m n", "mkl,lnk->mn"),
    "vector": (f"m:{ROWS * ROWS} k:{TERMS}", f"k:{TERMS}", "m", "mk,k->m"),
}


@pytest.mark.parametrize("layout", ["", "m:all", "n:all"])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_sums_of_products_are_rounded_to_nearest(dtype: type, shapes: str, layout: str) -> None:
    """Of N results that are off by at most u each, either way, the mean is off by less than 6 u / sqrt(N), but for a
    chance of 2 exp(-18) (Hoeffding 1963). Cut off, they would be too small by about u in the mean."""
    a_shape, b_shape, output, equation = SHAPES[shapes]
    a, b = factors(a_shape, dtype), factors(b_shape, dtype)

    def product(a: mtf.Tensor, b: mtf.Tensor) -> mtf.Tensor:
        sizes = {d.name: d for x in (a, b) for d in x.shape}
        return mtf.einsum([a, b], output_shape=[sizes[name] for name in output.split()])

    mesh = "all:4" if layout and layout[0] in output.split() else "all:1"
    done = interpret(product, {"a": (a_shape, a), "b": (b_shape, b)}, mesh, layout if mesh == "all:4" else "")
    exact = np.einsum(equation, a.astype(np.float64), b.astype(np.float64))
    error = (done.results.astype(np.float64) - exact) / exact
    unit = float(ml_dtypes.finfo(dtype).eps) / 2
    summed = TERMS * 2.0**-24  # of positive terms in float32, whatever the order
    assert np.max(np.abs(error)) < unit + summed
    assert abs(np.mean(error)) < 6 * unit / math.sqrt(error.size) + summed


def factors(shape: str, dtype: type) -> np.ndarray:
    """Positive numbers; rows of many sizes, so that sums fall anywhere between two neighbours of the dtype."""
    dims = {name: int(size) for name, size in (d.split(":") for d in shape.split())}
    rng = np.random.default_rng(1)
    x = rng.uniform(0.5, 1.5, list(dims.values()))
    scale = [size if name not in ("k", "l") else 1 for name, size in dims.items()]
    return (x * rng.uniform(0.25, 0.5, scale)).astype(dtype)
