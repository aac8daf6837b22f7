"""The quantile of the normal distribution, by additions, multiplications, divisions and square roots alone.

A library's logarithm takes a vector path or a scalar path, depending on an element's place in its slice. The two paths
differ in the last bit, so the same position would get different numbers under different layouts. These four operations
are exact to rounding on every path. The logarithm is therefore written out here.

The quantile is Wichura's: "Algorithm AS 241: The percentage points of the normal distribution" (1988), to 7 digits in
f32 (PPND7) and to 16 in f64 (PPND16). It has a rational function for each part of the range:

    centre      0.075 <= p <= 0.925      z = (p - 0.5) * P(r) / Q(r),   r = 0.180625 - (p - 0.5)**2
    tail        r = sqrt(-log p) <= 5    z = P(r - 1.6) / Q(r - 1.6)
    far tail    r > 5, f64 only          z = P(r - 5) / Q(r - 5)

Each element chooses coefficients, and then evaluates one polynomial. Choosing among three results instead would give a
compiler three computations to arrange, and so three roundings.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

# Coefficients of each polynomial, from the constant term upwards. The rows are the centre, the tail and (f64) the far
# tail.
_NUMERATORS_7 = (
    (3.3871327179e0, 5.0434271938e1, 1.5929113202e2, 5.9109374720e1),
    (1.4234372777e0, 2.7568153900e0, 1.3067284816e0, 1.7023821103e-1),
)
_DENOMINATORS_7 = (
    (1.0, 1.7895169469e1, 7.8757757664e1, 6.7187563600e1),
    (1.0, 7.3700164250e-1, 1.2021132975e-1, 0.0),
)
_NUMERATORS_16 = (
    (
        *(3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4),
        *(4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0),
        *(1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1),
        *(2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
)
_DENOMINATORS_16 = (
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
    ),
    (
        *(1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
    ),
    (
        *(1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2),
        *(7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
    ),
)


@dataclasses.dataclass(frozen=True)
class _Precision:
    """The constants that differ between f32 and f64. The logarithm's coefficients are FreeBSD's, of logf and log."""

    unsigned: tf.DType
    signed: tf.DType
    fraction_bits: int
    sqrt_half: int  # the bits of sqrt(1/2)
    log: tuple[float, ...]
    numerators: tuple[tuple[float, ...], ...]
    denominators: tuple[tuple[float, ...], ...]


_PRECISIONS = {
    tf.float32: _Precision(
        tf.uint32,
        tf.int32,
        23,
        0x3F3504F3,
        (0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841),
        _NUMERATORS_7,
        _DENOMINATORS_7,
    ),
    tf.float64: _Precision(
        tf.uint64,
        tf.int64,
        52,
        0x3FE6A09E667F3BCD,
        (
            *(6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01),
            *(1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01),
        ),
        _NUMERATORS_16,
        _DENOMINATORS_16,
    ),
}


def upper_quantile(tail: tf.Tensor) -> tf.Tensor:
    """The z at or above 0 with P(Z > z) = `tail`: f32 or f64 in, the same out, any shape; 2**-66 <= tail <= 0.5."""
    precision = _PRECISIONS[tail.dtype]
    centre = 0.5 - tail
    root = tf.sqrt(-logarithm(tail))
    branches = [centre <= 0.425, root <= 5.0][: len(precision.numerators) - 1]
    argument = _choose(branches, [0.180625 - centre * centre, root - 1.6, root - 5.0])
    numerator = _polynomial(branches, precision.numerators, argument)
    denominator = _polynomial(branches, precision.denominators, argument)
    return tf.where(branches[0], centre, tf.ones_like(centre)) * (numerator / denominator)


def logarithm(x: tf.Tensor) -> tf.Tensor:
    """The natural logarithm of positive normal numbers, f32 or f64.

    It splits x = 2**exponent * m with sqrt(1/2) <= m < sqrt(2). Subtracting the bits of sqrt(1/2) first makes the
    exponent's bits count from there. Then log(m) is a series in s = (m - 1) / (m + 1), whose terms shrink fast near m =
    1.
    """
    precision = _PRECISIONS[x.dtype]
    sqrt_half = tf.constant(precision.sqrt_half, precision.unsigned)
    # The subtraction is unsigned. libtpu 0.0.42.1 splits int64 in two ways: the bits of a float64 get an int32 half,
    # and the constant gets a uint32 one. It then refuses their sum.
    bits = tf.bitcast(x, precision.unsigned) - sqrt_half
    shift = tf.constant(precision.fraction_bits, precision.signed)
    exponent = tf.cast(tf.bitwise.right_shift(tf.bitcast(bits, precision.signed), shift), x.dtype)
    fraction = tf.bitwise.bitwise_and(bits, tf.constant(2**precision.fraction_bits - 1, precision.unsigned))
    t = tf.bitcast(fraction + sqrt_half, x.dtype) - 1.0
    s = t / (t + 2.0)
    square = s * s
    series = square * _polynomial([], [precision.log], square)
    half = 0.5 * t * t
    return exponent * math.log(2.0) + (t - (half - s * (half + series)))


def _choose(branches: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> tf.Tensor:
    """The first value whose branch is taken, or the value after the last branch."""
    chosen = values[len(branches)]
    for branch, value in reversed(list(zip(branches, values, strict=False))):
        chosen = tf.where(branch, value, chosen)
    return chosen


def _polynomial(branches: Sequence[tf.Tensor], rows: Sequence[Sequence[float]], x: tf.Tensor) -> tf.Tensor:
    """Horner's rule at `x`, each coefficient chosen among the rows' by the branches."""
    total: tf.Tensor | None = None
    for column in reversed(list(zip(*rows, strict=True))):
        coefficient = _choose(branches, [tf.constant(value, x.dtype) for value in column])
        total = coefficient if total is None else total * x + coefficient
    assert total is not None
    return total
