"""How far rounding may carry a result: from the dtype, the number of terms, and the size of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

FUNCTION_TERMS = 8
"""Roundings of one elementwise function (`exp`, `tanh`, `rsqrt`, ...): libraries promise four units in the last place
at most, each of them two roundings."""

_SIGNIFICAND_BITS = {tf.float64: 53, tf.float32: 24, tf.float16: 11, tf.bfloat16: 8}
_SMALLEST_NORMAL = {tf.float64: 2.0**-1022, tf.float32: 2.0**-126, tf.float16: 2.0**-14, tf.bfloat16: 2.0**-126}
_CERTAINTY = 8.0
_LARGEST_SHARE = 0.25


def unit_roundoff(dtype: Any) -> float:
    """The largest relative error of one rounding to nearest: 2**-24 for float32, 2**-8 for bfloat16; 0 for integers.

    A complex product is exact to sqrt(5) roundings of its parts (Brent, Percival and Zimmermann, "Error bounds on
    complex floating-point multiplication", 2007), which is then the unit.
    """
    dtype = tf.as_dtype(dtype)
    if dtype.is_complex:
        return math.sqrt(5) * unit_roundoff(dtype.real_dtype)
    return 2.0 ** -_SIGNIFICAND_BITS[dtype] if dtype.is_floating else 0.0


def rounding_bound(dtype: Any, terms: int | Sequence[int], magnitude: Any = 1.0, *, steps: Any = 0) -> Any:
    """How far apart two computations of the same values may be, where nothing but rounding makes them differ.

    A sum of n products, in any order, with or without fused multiply-adds, rounds each term n times at most on its
    way, by the unit roundoff u each: it errs by at most n * u * sum(|terms|). Where roundings go either way, the sum
    passes 8 * sqrt(n) * u once in 10**13 times (Higham and Mary, "A new approach to probabilistic rounding error
    analysis", 2019), which is less from 64 terms on; the smaller of the two is taken. Roundings of stages in a row add
    up, so the n of a chain is the sum of those of its stages. Both computations err: hence twice that.

    What the number of terms is:

    - a sum over k elements, a matrix product or a convolution of k products each: k;
    - an elementwise function: `FUNCTION_TERMS`; a sum, product or quotient of two tensors: 1;
    - a gradient: those of the forward pass, as many again for the way back, and the elements summed over;
    - in bfloat16 and float16, whose products are summed in float32: 1 for each stage that gives such numbers, and 1
      where inputs were rounded to them.

    What the magnitude is: the sum of the absolute terms. For a tensor of many elements of like size the largest result
    is as good: terms whose signs differ make it smaller, by about sqrt(k), but their roundings cancel in the same way.
    Where a result is a small difference of large values it is the size of those. A function that turns absolute errors
    into relative ones, as `exp` does, multiplies by the size of its argument; a steep function by its slope.

    What training adds: each step errs anew, so after k steps the bound is 1 + k times as large. It is no larger as long
    as steps do not amplify what they are given: a step of gradient descent maps a difference d of the weights to
    (1 - rate * curvature) * d, and where training does not diverge that factor is at most 1 in size, but for directions
    in which the loss curves downwards, where small rates keep it near 1. Hence losses are compared, of few steps or of
    a training that descends. Weights are worse: an optimizer that divides by the size of the gradient (Adam) makes a
    whole step, up or down, of a gradient that is nothing but rounding; give it an epsilon well above those.

    Args:
      dtype: of the least precise tensors on the way.
      terms: roundings on the way to each value; or those of each stage in a row.
      magnitude: a number or an array, in the unit of the values.
      steps: of training behind each value: a number, or an array for losses in a row.

    Returns:
      A number, or an array of the shape of `magnitude` and `steps` together; 0 for integers and bool.

    Raises:
      ValueError: the bound is above a quarter of the magnitude, and would not see a mistake.
    """
    count = sum([terms] if isinstance(terms, int) else terms)
    relative = 2 * min(count, _CERTAINTY * math.sqrt(count)) * unit_roundoff(dtype) * (1 + np.asarray(steps))
    if np.max(relative) > _LARGEST_SHARE:
        raise ValueError(
            f"{count} terms in {tf.as_dtype(dtype).name} after {np.max(steps)} steps may err by {np.max(relative):.2g} "
            f"of the magnitude: nothing would be seen. Compare in a wider dtype, a shorter chain, or fewer steps"
        )
    real = tf.as_dtype(dtype).real_dtype  # whose numbers below the smallest normal one are as far apart as those above
    return relative * np.maximum(magnitude, _SMALLEST_NORMAL.get(real, 0.0))
