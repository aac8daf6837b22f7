"""A traced function that is called from outside of any trace, and from inside one."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from meshtf.lowering.emit._outermost_calls import OutermostFunction
from meshtf.lowering.emit._traced_function import traced_function


def counted(total: tf.Variable) -> OutermostFunction:
    """Adds to a variable that it closes over; gives the quotient of its arguments, and the new total."""

    def body(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        tf.raw_ops.AssignAddVariableOp(resource=total.handle, value=tf.reduce_sum(x))
        return [x // y, tf.raw_ops.ReadVariableOp(resource=total.handle, dtype=tf.int32)]

    return OutermostFunction(traced_function(body, [tf.TensorSpec([2], tf.int32)] * 2, "counted"))


def test_it_is_the_same_from_outside_and_from_inside_of_a_trace() -> None:
    total = tf.Variable(0)
    function = counted(total)
    inside = tf.function(lambda x, y: function([x, y]), autograph=False)
    x, y = tf.constant([7, 8]), tf.constant([2, 4])
    for n, call in enumerate((lambda: function([x, y]), lambda: inside(x, y), lambda: function([x, y])), start=1):
        quotient, now = call()
        np.testing.assert_array_equal(quotient, [3, 2])
        assert now == total == 15 * n


def test_an_operation_that_fails_is_an_error_of_tensorflow_s() -> None:
    function = counted(tf.Variable(0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="division by zero"):
        function([tf.constant([1, 2]), tf.constant([0, 1])])
    np.testing.assert_array_equal(function([tf.constant([4, 6]), tf.constant([2, 2])])[0], [2, 3])
