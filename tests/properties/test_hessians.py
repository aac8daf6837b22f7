"""The Hessian of every differentiable operation: symmetric, and the slope of the gradient, also at zeros and at ties,
among tiny numbers, and beside an infinity. In float64, of the cases of random programs: no operation is forgotten.

What is differentiated is `sum(c y + e y**2 / 2)` of an operation's results y, so that gradients of gradients have all
their terms. Where an operation has a kink, the convention is TensorFlow's, whose own gradients are taken there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshtf as mtf
from tests.house.sharpest import sharpest
from tests.properties.differentiated import (
    Arrays,
    Differentiated,
    differentiated,
    directions,
    of_tensorflow,
    scaled,
    slopes,
)
from tests.properties.random_programs.cases import CASES, EVERY_CASE, elementwise, experts, function_families, sequence

CORES = mtf.convert_to_shape("rows:2;cols:2")

WITHOUT_GRADIENTS = {
    "floor", "ceil", "round", "stop_gradient", "is_finite", "less", "less_equal", "greater", "greater_equal", "equal",
    "not_equal", "floordiv", "logical_and", "logical_or", "logical_xor", "scalar //", "scalar <", "scalar <=",
    "scalar >", "scalar >=", "integer unary", "logical_not", "reduce_any", "reduce_all", "one_hot", "argmax", "argsort",
    "range", "constant", "import_tf_tensor", "zeros", "ones", "fill", "zeros_like", "ones_like", "random_uniform",
    "random_normal", "random_truncated_normal", "sample_with_temperature", "check_indices",
    "is_close", "bitwise_not bitwise_and bitwise_or bitwise_xor left_shift right_shift", "count_nonzero", "argmin",
    "eye", "linspace",
}  # fmt: skip
"""Cases whose results hang on nothing, or jump, or are no numbers."""

OF_OTHER_NUMBERS = {
    "cast", "to_int32", "cast and back", "to_float", "to_bfloat16", "get_variable", "assign", "assign_add",
    "assign_sub", *experts.CASES,
}  # fmt: skip
"""Cases of other dtypes than float64, of variables in place of inputs, and of experts, whose inputs are float32."""

KINKS = {
    "relu", "squared_relu", "elu", "selu", "abs", "leaky_relu", "maximum", "minimum", "clip_by_value", "reduce_max",
    "reduce_min", "max_pool", "top_1", "top_k", "nth_largest_element", "nth_smallest_element", "cummax", "sort",
    "pool_backprop MAX", "sign",
    "celu soft_sign", "relu6 hard_tanh hard_sigmoid", "hard_swish", "norm", "reduce", "median quantile",
}  # fmt: skip
"""Cases with a kink or a jump at zeros or ties, where the gradient is the one of TensorFlow: of relu at 0 it is 0."""

SINGULAR_AT_0 = {
    "log", "sqrt", "rsqrt", "reciprocal", "divide", "pow", "scalar /", "scalar **",
    "complex real imag conj angle", "log2 log10 lgamma digamma", "atan2 hypot", "norm",
}  # fmt: skip
"""Cases whose derivatives at 0 are infinite, or none; see tests/ops/elementwise/test_edges.py."""

JUMPS = {"mod", "scalar %", "acosh"}
"""Cases that jump within a step from zeros and tiny numbers, or have no value there."""

TIES_HAVE_AN_ORDER = {"max_pool", "pool_backprop MAX"}
"""Cases that give the gradient to the first of equals, which the reference does not know."""

NAN_BESIDE_INFINITY = {
    **dict.fromkeys(
        ["swish", "gelu", "exact gelu", "silu mish log_sigmoid", "hard_swish"],
        "x times what is 0 at -inf, as in TensorFlow",
    ),
    **dict.fromkeys(
        [
            f"{name}{more}"
            for name in ("softmax", "log_softmax", "reduce_logsumexp")
            for more in ("", " with extra_logit")
        ],
        "inf less inf, as in TensorFlow",
    ),
    "pow": "a power of -inf to -inf",
    "atan2 hypot": "inf over an infinite length, as in TensorFlow",
    "scalar %": "the last step of a floor is at infinity",
}
"""Cases whose derivatives do not tend to that at an infinity. Of those with sums of products none is asked: 0 times an
infinity is in the sum."""


def points(case: str, drawn: Arrays) -> dict[str, Arrays]:
    """Where to differentiate: of some elements of each array, others in their place. At zeros there are ties, too."""
    numbers = np.random.default_rng(1)

    def changed(change: Callable[[np.ndarray], np.ndarray]) -> Arrays:
        """A few of each: a product of many zeros is 0 whatever is done to it."""
        few = [numbers.permutation(x.size).reshape(x.shape) < max(1, x.size // 6) for x in drawn]
        return [np.where(is_chosen, change(x), x) for is_chosen, x in zip(few, drawn, strict=True)]

    ties = changed(lambda x: numbers.choice(x.flat[:2], x.shape))
    if case in JUMPS:
        return {"drawn": drawn, "ties": ties}
    tiny = {"drawn": drawn, "tiny": changed(lambda x: x * 1e-20)}
    if case in TIES_HAVE_AN_ORDER:
        return tiny
    return {**tiny, "ties": ties} if case in SINGULAR_AT_0 else {**tiny, "zeros": changed(_zeros)}


def _zeros(x: np.ndarray) -> np.ndarray:
    """Of both signs."""
    return np.where(np.arange(x.size).reshape(x.shape) % 2, -0.0, 0.0)


def check_hessian(case: str, d: Differentiated, xs: Arrays, what: str) -> None:
    ws = directions(xs)
    found = d(xs, ws)
    first, second = (scaled(each, xs) for each in found)
    if case in KINKS:
        for ours, tensorflows in zip((first, second), of_tensorflow(d, xs, ws), strict=True):
            np.testing.assert_allclose(ours, scaled(tensorflows, xs), rtol=1e-9, atol=1e-9, err_msg=what)
        return
    slope = scaled(slopes(d, xs, ws), xs)
    # A difference errs by STEP**2 times fourth derivatives, and by the rounding of the gradient over STEP.
    error = 1e-6 * np.max(np.abs(slope)) + 1e-9 * np.max(np.abs(first)) + 1e-9
    np.testing.assert_allclose(second, slope, rtol=0, atol=error, err_msg=what)


def check_symmetry(d: Differentiated, xs: Arrays, what: str) -> None:
    ws, vs = directions(xs), directions(xs, 3)
    terms = [
        np.concatenate([(h * v).ravel() for h, v in zip(d(xs, w)[1], v, strict=True)]) for w, v in ((ws, vs), (vs, ws))
    ]
    largest = max(np.sum(np.abs(each)) for each in terms)
    assert abs(np.sum(terms[0]) - np.sum(terms[1])) <= 1e-12 * largest + 1e-12, f"{what}: the Hessian is not symmetric"


def is_differentiable(case: str) -> bool:
    return case not in WITHOUT_GRADIENTS | OF_OTHER_NUMBERS


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, marks=[pytest.mark.long] * (i % (2 if c in KINKS | SINGULAR_AT_0 else 6) > 0))
        for i, c in enumerate(filter(is_differentiable, CASES))
    ],
)
def test_hessian(case: str) -> None:
    """Among zeros, or else ties. A short run has half of the cases with kinks or singularities, a sixth of others."""
    d = differentiated(case)
    assert d is not None, "no program with gradients was found: is it one of WITHOUT_GRADIENTS?"
    for name, xs in points(case, d.drawn).items():
        if name in ("zeros", "ties"):
            check_hessian(case, d, xs, f"{case} at {name}")


@pytest.mark.long
@pytest.mark.parametrize(("number", "case"), [*enumerate(filter(is_differentiable, EVERY_CASE))])
def test_hessian_at_each_kind_of_point_under_layouts(number: int, case: str) -> None:
    """Each with one of four draws in turn, of shapes and a layout. Its neighbours, of its kind, have others."""
    seed = 1 + number % 4
    d = differentiated(case, CORES, seed)
    assert d is not None
    for name, xs in points(case, d.drawn).items():
        what = f"{case} at {name}, seed {seed}, layout {d.rules}\n{d.program}"
        check_hessian(case, d, xs, what)
        check_symmetry(d, xs, what)


def test_what_is_said_to_have_no_gradient_has_none() -> None:
    assert not [case for case in sorted(WITHOUT_GRADIENTS) if differentiated(case, tries=1) is not None]


OF_ONE_ELEMENT = {**elementwise.CASES, **function_families.OF_REAL_NUMBERS, **sequence.CASES}


CASES_AT_INFINITY = [c for c in OF_ONE_ELEMENT if is_differentiable(c) and c not in NAN_BESIDE_INFINITY]


@pytest.mark.parametrize("case", sharpest(CASES_AT_INFINITY, CASES_AT_INFINITY[::2]))
def test_derivatives_beside_an_infinity(case: str) -> None:
    """Where derivatives tend to something as one number grows, they are that where it is infinite."""
    d = differentiated(case, is_linear=True)
    assert d is not None
    for sign in (1, -1):
        found = []
        for number in (1e4, 1e8, np.inf):
            xs, ws = [x.copy() for x in d.drawn], directions(d.drawn)
            xs[0].flat[0], ws[0].flat[0] = sign * number, 0.0
            first, second = d(xs, ws)
            second[0].flat[0] = 0.0  # an infinity does not move
            found.append(np.concatenate([y.ravel() for y in (*first, *second)]))
        nearer, near, there = found
        tends = np.isclose(nearer, near, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(there[tends], near[tends], rtol=2e-6, atol=2e-6, err_msg=f"{sign}")
