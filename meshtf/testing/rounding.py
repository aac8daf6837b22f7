"""The bound on rounding errors of a result, from the dtype, the number of terms, and the size of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

FUNCTION_TERMS = 8
"""The roundings of one elementwise function (`exp`, `tanh`, `rsqrt`, ...). Libraries promise four units in the last
place at most, and each of these is two roundings."""

_SIGNIFICAND_BITS = {tf.float64: 53, tf.float32: 24, tf.float16: 11, tf.bfloat16: 8}
_SMALLEST_NORMAL = {tf.float64: 2.0**-1022, tf.float32: 2.0**-126, tf.float16: 2.0**-14, tf.bfloat16: 2.0**-126}
_CERTAINTY = 8.0
_LARGEST_SHARE = 0.25


def unit_roundoff(dtype: Any) -> float:
    """The largest relative error of one rounding to nearest: 2**-24 for float32, 2**-8 for bfloat16, 0 for integers.

    A complex product is exact to sqrt(5) roundings of its parts, so this is the unit for complex numbers (Brent,
    Percival and Zimmermann, "Error bounds on complex floating-point multiplication", 2007).
    """
    dtype = tf.as_dtype(dtype)
    if dtype.is_complex:
        return math.sqrt(5) * unit_roundoff(dtype.real_dtype)
    return 2.0 ** -_SIGNIFICAND_BITS[dtype] if dtype.is_floating else 0.0


def rounding_bound(dtype: Any, terms: int | Sequence[int], magnitude: Any = 1.0, *, steps: Any = 0) -> Any:
    """The largest difference of two computations of the same values, if only rounding makes them differ.

    A sum of n products, in any order, with or without fused multiply-adds, rounds each term at most n times, by at most
    the unit roundoff u. So its error is at most n * u * sum(|terms|). If roundings go either way, the error exceeds 8 *
    sqrt(n) * u only once in 10**13 times (Higham and Mary, "A new approach to probabilistic rounding error analysis",
    2019). From 64 terms on that is the smaller number, and the smaller one is taken. Roundings of stages in a row add
    up, so the n of a chain is the sum over its stages. Both computations have errors, so the bound is twice that.

    How many terms to count:

    - a sum over k elements, a matrix product or a convolution of k products each: k;
    - an elementwise function: `FUNCTION_TERMS`;
    - a sum, product or quotient of two tensors: 1;
    - a gradient: the terms of the forward pass, as many again for the way back, and the elements summed over;
    - bfloat16 and float16, whose products are summed in float32: 1 for each stage with results in them, and 1 if inputs
      were rounded to them.

    The magnitude is the sum of the absolute terms. For a tensor of many elements of similar size the largest result is
    as good: terms of different signs make it smaller, by about sqrt(k), but their roundings cancel in the same way. If
    a result is a small difference of large values, use the size of these values. A function that turns absolute errors
    into relative ones, as `exp` does, multiplies the magnitude by the size of its argument. A steep function multiplies
    it by its slope.

    In training each step adds new errors, so after k steps the bound is 1 + k times as large. It is no larger as long
    as steps do not amplify the differences that they are given. A step of gradient descent maps a difference d of the
    weights to (1 - rate * curvature) * d. If training does not diverge, this factor is at most 1 in size. The exception
    are directions in which the loss curves downwards, where small rates keep it near 1. So compare losses, after few
    steps or in a training that descends. Weights are worse: an optimizer that divides by the size of the gradient
    (Adam) makes a whole step, up or down, from a gradient that is only rounding. Give it an epsilon well above such
    gradients.

    Args:
      dtype: the dtype of the least precise tensors on the way.
      terms: the number of roundings on the way to each value, or a list with the roundings of each stage in a row.
      magnitude: a number or an array, in the unit of the values.
      steps: how many training steps are behind each value: a number, or an array for losses in a row.

    Returns:
      A number, or an array of the shape of `magnitude` and `steps` together. 0 for integers and bool.

    Raises:
      ValueError: if the bound is above a quarter of the magnitude, and would not see a mistake.
    """
    count = sum([terms] if isinstance(terms, int) else terms)
    relative = 2 * min(count, _CERTAINTY * math.sqrt(count)) * unit_roundoff(dtype) * (1 + np.asarray(steps))
    if np.max(relative) > _LARGEST_SHARE:
        raise ValueError(
            f"{count} terms in {tf.as_dtype(dtype).name} after {np.max(steps)} steps may err by {np.max(relative):.2g} "
            f"of the magnitude: nothing would be seen. Compare in a wider dtype, a shorter chain, or fewer steps"
        )
    # Numbers below the smallest normal one are as far apart as those just above it.
    real = tf.as_dtype(dtype).real_dtype
    return relative * np.maximum(magnitude, _SMALLEST_NORMAL.get(real, 0.0))
