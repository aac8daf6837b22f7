"""Selects a whole tensor or zeros on processors, without a copy of the tensor."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def kept_or_zeros(x: tf.Tensor, is_kept: tf.Tensor) -> tf.Tensor:
    """Returns x if `is_kept`, a bool with one element, is true; else zeros.

    A branch would prevent the operations around it from running in one thread. Instead it reads one of two elements of
    a tensor list. The second is x. The first was never written, so TensorFlow reads zeros.
    """
    size, wanted = np.array(x.shape.as_list(), np.int32), tf.cast(tf.reshape(is_kept, []), tf.int32)
    either = tf.raw_ops.TensorListReserve(element_shape=size, num_elements=2, element_dtype=x.dtype)
    either = tf.raw_ops.TensorListSetItem(input_handle=either, index=1, item=x)
    return tf.raw_ops.TensorListGetItem(input_handle=either, index=wanted, element_shape=size, element_dtype=x.dtype)
