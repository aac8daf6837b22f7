"""The bound on rounding errors of a result, from the dtype, the number of terms, and the size of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

FUNCTION_TERMS = 8
"""The roundings of one elementwise function (`exp`, `tanh`, `rsqrt`, ...). Libraries promise an error of at most four
units in the last place. Each unit counts as two roundings."""

_SIGNIFICAND_BITS = {tf.float64: 53, tf.float32: 24, tf.float16: 11, tf.bfloat16: 8}
_SMALLEST_NORMAL = {tf.float64: 2.0**-1022, tf.float32: 2.0**-126, tf.float16: 2.0**-14, tf.bfloat16: 2.0**-126}
_CERTAINTY = 8.0
_LARGEST_SHARE = 0.25


def unit_roundoff(dtype: Any) -> float:
    """The largest relative error of one rounding to nearest: 2**-24 for float32, 2**-8 for bfloat16, 0 for integers.

    For complex numbers it is sqrt(5) times that of the parts, the bound for a complex product (Brent, Percival and
    Zimmermann, "Error bounds on complex floating-point multiplication", 2007).
    """
    dtype = tf.as_dtype(dtype)
    if dtype.is_complex:
        return math.sqrt(5) * unit_roundoff(dtype.real_dtype)
    return 2.0 ** -_SIGNIFICAND_BITS[dtype] if dtype.is_floating else 0.0


def rounding_bound(dtype: Any, terms: int | Sequence[int], magnitude: Any = 1.0, *, steps: Any = 0) -> Any:
    """The largest difference between two computations of the same values that rounding can explain.

    A sum of n products, in any order, with or without fused multiply-adds, rounds each term at most n times, by at most
    the unit roundoff u. So its error is at most n * u * sum(|terms|). If roundings go in both directions at random, the
    error exceeds 8 * sqrt(n) * u * sum(|terms|) only once in 10**13 times (Higham and Mary, "A new approach to
    probabilistic rounding error analysis", 2019). The smaller of the two bounds is used; from 64 terms on it is the
    second. Roundings of successive stages add up, so n is the sum over all stages. Both computations have errors, so
    the result is doubled.

    How many terms to count:

    - a sum over k elements, a matrix product or a convolution of k products each: k;
    - an elementwise function: `FUNCTION_TERMS`;
    - a sum, product or quotient of two tensors: 1;
    - a gradient: the terms of the forward pass, the same number for the backward pass, and the elements summed over;
    - bfloat16 and float16, whose products are summed in float32: 1 for each stage with results in this dtype, and 1 if
      inputs were rounded to it.

    The magnitude is the sum of the absolute terms. For a tensor of many elements of similar size, use the largest
    result: terms of different signs make it smaller by about sqrt(k), but their roundings cancel in the same way. If a
    result is a small difference of large values, use the size of these values. A function that turns absolute errors
    into relative errors, such as `exp`, multiplies the magnitude by the size of its argument. A steep function
    multiplies it by its slope.

    In training each step adds new errors, so after k steps the bound is 1 + k times as large. This is enough as long as
    steps do not amplify differences. A step of gradient descent maps a difference d of the weights to (1 - rate *
    curvature) * d. If training does not diverge, the absolute value of this factor is at most 1. The exceptions are
    directions of negative curvature, where small rates keep it near 1. So compare losses, after few steps or while they
    decrease. Weights are harder to compare: an optimizer that divides by the size of the gradient (Adam) makes a full
    step, up or down, from a gradient that is only a rounding error. Give it an epsilon well above such gradients.

    Args:
      dtype: the least precise dtype in the computation.
      terms: the number of roundings that lead to each value, or a list with the roundings of each successive stage.
      magnitude: a number or an array, in the unit of the values.
      steps: how many training steps led to each value: a number, or an array for a series of losses.

    Returns:
      A number, or an array of the broadcast shape of `magnitude` and `steps`. 0 for integers and bool.

    Raises:
      ValueError: if the bound is above a quarter of the magnitude, and would not detect a mistake.
    """
    count = int(np.sum(terms))
    relative = 2 * min(count, _CERTAINTY * math.sqrt(count)) * unit_roundoff(dtype) * (1 + np.asarray(steps))
    if np.max(relative) > _LARGEST_SHARE:
        raise ValueError(
            f"{count} terms in {tf.as_dtype(dtype).name} after {np.max(steps)} steps may err by {np.max(relative):.2g} "
            f"of the magnitude: nothing would be seen. Compare in a wider dtype, a shorter chain, or fewer steps"
        )
    # Numbers below the smallest normal number have the same spacing as the numbers just above it.
    real = tf.as_dtype(dtype).real_dtype
    return relative * np.maximum(magnitude, _SMALLEST_NORMAL.get(real, 0.0))
