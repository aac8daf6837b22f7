"""`mtf.testing.assert_close`: what rounding may do passes, a mistake does not, and the message says where it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import FUNCTION_TERMS, assert_close, largest, plan, rounding_bound, terms_of, unit_roundoff

RNG = np.random.default_rng(0)


def test_unit_roundoff() -> None:
    """The largest relative error of one rounding: of numbers halfway between two neighbours."""
    for dtype in (tf.float32, tf.float16, tf.bfloat16):
        u = unit_roundoff(dtype)
        assert float(tf.cast(tf.constant(1 + u, tf.float64), dtype)) == 1.0
        assert float(tf.cast(tf.constant(1 + 3 * u, tf.float64), dtype)) == 1 + 4 * u
    assert (unit_roundoff(np.float64), unit_roundoff(tf.int32), unit_roundoff(bool)) == (2.0**-53, 0.0, 0.0)


@pytest.mark.parametrize("terms", [2, 50, 3000])
def test_sums_in_any_order_are_within_the_bound_and_lost_terms_are_not(terms: int) -> None:
    x = RNG.normal(size=[200, terms]).astype(np.float32)
    exact = x.astype(np.float64).sum(1)
    one_by_one = np.zeros([200], np.float32)
    for column in x.T:
        one_by_one += column
    for found in (one_by_one, x.sum(1), x[:, ::-1].sum(1)):
        assert_close(found, exact, terms=terms)
    with pytest.raises(AssertionError, match=r"elements .* are further off than rounding goes"):
        assert_close(x[:, 1:].sum(1), exact, terms=terms)
    with pytest.raises(AssertionError, match="terms in float32"):
        assert_close(tf.cast(tf.cast(one_by_one, tf.bfloat16), tf.float32), exact, terms=terms)


def test_the_bound() -> None:
    assert rounding_bound(tf.float32, 16) == 2 * 16 * 2.0**-24
    assert rounding_bound(tf.float32, [4, 12], 10.0) == 10 * rounding_bound(tf.float32, 16)
    assert rounding_bound(tf.float32, np.prod([4, 4])) == rounding_bound(tf.float32, 16)
    assert rounding_bound(tf.float64, 10_000) == 2 * 8 * 100 * 2.0**-53
    assert rounding_bound(tf.complex64, 1) == pytest.approx(math.sqrt(5) * rounding_bound(tf.float32, 1))
    assert rounding_bound(tf.float32, 16, steps=[0, 1, 3]).tolist() == [k * 2.0**-19 for k in (1, 2, 4)]
    assert rounding_bound(tf.int32, 16) == 0.0


def test_numbers_too_small_to_be_normal() -> None:
    """Float16 has them down to 2**-24, one step from each other."""
    assert rounding_bound(tf.float16, 1, 0.0) == 2 * 2.0**-11 * 2.0**-14
    x = RNG.uniform(0, 2.0**-14, size=[100])
    assert_close(x.astype(np.float16), x, terms=1, magnitude=x)


def test_a_bound_that_would_see_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1000 terms in bfloat16 after 0 steps may err by 2 of the magnitude"):
        rounding_bound(tf.bfloat16, 1000)
    with pytest.raises(ValueError, match="after 10000000 steps"):
        assert_close(np.float32([1.0]), np.float32([1.0]), terms=1, steps=10**7)


def test_numbers_of_python_need_a_dtype() -> None:
    losses = [float(np.float32(0.1)), float(np.float32(0.2))]
    with pytest.raises(ValueError, match=r"in which dtype they were computed; give dtype="):
        assert_close(losses, losses, terms=1)
    assert_close([x * (1 + 2.0**-24) for x in losses], losses, terms=4, dtype="float32")
    assert_close(losses, np.float32(losses), terms=4)


def test_the_message_names_the_place_and_what_is_allowed() -> None:
    x = RNG.normal(size=[8, 12]).astype(np.float32)
    wrong = x.copy()
    wrong[3, 7] += 0.5
    wrong[5, 1] += 0.25
    with pytest.raises(AssertionError) as failed:
        assert_close(wrong, x, terms=(16, FUNCTION_TERMS), shape="batch:8 hidden:12", magnitude=4.0, what="logits")
    message = str(failed.value)
    assert "logits: 2 of 96 elements (2.08%) are further off than rounding goes" in message
    assert f"the largest error is 0.5 at batch 3, hidden 7: {float(wrong[3, 7])}, expected {float(x[3, 7])}" in message
    assert "allowed is 1.14e-05: 24 terms in float32, values of 4" in message


def test_what_is_not_rounded_must_be_equal() -> None:
    assert_close(np.array([1, 2]), np.array([1, 2]), terms=9)
    with pytest.raises(AssertionError, match=r"largest error is 1 at \[1\]: 2, expected 3"):
        assert_close(np.array([1, 2]), np.array([1, 3]), terms=9)
    with pytest.raises(AssertionError, match="1 of 1 elements"):
        assert_close(np.array([True]), np.array([False]), terms=9)
    with pytest.raises(AssertionError, match=r"largest error is 9 at \[0\]: 3, expected 12"):
        assert_close(np.uint8([3, 9]), np.uint8([12, 8]), terms=9)
    with pytest.raises(AssertionError, match=r"shape \[2\], expected \[1\]"):
        assert_close(np.zeros([2]), np.zeros([1]), terms=9)
    assert_close(np.full([2], 7), 7, terms=9)


def test_infinities_and_nans_must_be_at_the_same_places() -> None:
    special = np.float32([np.nan, np.inf, -np.inf, 1.0])
    assert_close(special, special, terms=1)
    for place, value in [(0, 1.0), (1, 1.0), (2, np.inf), (3, np.nan), (3, np.inf)]:
        other = special.copy()
        other[place] = value
        with pytest.raises(AssertionError, match=rf"1 of 4 elements .*\n.* at \[{place}\]"):
            assert_close(other, special, terms=1)
        with pytest.raises(AssertionError, match="1 of 4 elements"):
            assert_close(other, special, terms=1, magnitude=np.abs(special))
    assert_close(special, special, terms=1, magnitude=np.abs(special))


def test_dtypes() -> None:
    """The less precise of the two, unless another lay on the way."""
    x = RNG.normal(size=[100])
    narrow = tf.cast(x, tf.bfloat16)
    assert_close(narrow, x, terms=1)
    assert_close(tf.cast(narrow, tf.float32), x, terms=1, dtype=tf.bfloat16)
    with pytest.raises(AssertionError):
        assert_close(tf.cast(narrow, tf.float32), x, terms=1)
    assert_close((x + 1j * x).astype(np.complex64), x + 1j * x, terms=1)
    assert largest(np.float32([1.0, -3.0, np.inf]), np.array([7]), np.array([3 + 4j])) == 5.0


def test_terms_of_a_program() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.tanh(mtf.reduce_sum(mtf.exp(x), reduced_dim="b"))

    wide = plan(program, {"x": mtf.TensorSpec("a:4 b:32")}, "one:1")
    assert terms_of(wide) == (FUNCTION_TERMS + 1) + (FUNCTION_TERMS + 32) + (FUNCTION_TERMS + 1)
    assert terms_of(wide, tf.bfloat16) == 1
    narrow = plan(program, {"x": mtf.TensorSpec("a:4 b:32", tf.bfloat16)}, "one:1")
    assert terms_of(narrow, tf.bfloat16) == 3


def test_terms_of_a_loop_are_those_of_its_body_so_many_times() -> None:
    def repeated(x: mtf.Tensor) -> list[mtf.Tensor]:
        return mtf.while_loop(lambda y: mtf.reduce_sum(y) < 9.0, lambda y: mtf.tanh(y), x, maximum_iterations=5)

    planned = plan(repeated, {"x": mtf.TensorSpec("a:4")}, "one:1")
    assert terms_of(planned) == 5 * (FUNCTION_TERMS + 1)
