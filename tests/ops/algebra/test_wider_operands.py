"""Operands are made wide when both are there."""

from __future__ import annotations

import tensorflow as tf

from meshtf.ops.algebra.wider_operands import wider_operands


def test_each_waits_for_the_other() -> None:
    @tf.function(autograph=False)
    def product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matmul(*wider_operands(a, b, tf.float32))

    spec = tf.TensorSpec([2, 2], tf.bfloat16)
    graph = product.get_concrete_function(spec, spec).graph
    a, b = graph.inputs
    (matmul,) = (o for o in graph.get_operations() if o.type == "MatMul")
    of_a, of_b = (x.op for x in matmul.inputs)
    assert [o.type for o in (of_a, of_b)] == ["Cast", "Cast"]
    assert (of_a.inputs[0] is a, of_a.control_inputs) == (True, [b.op])
    assert (of_b.inputs[0] is b, of_b.control_inputs) == (True, [a.op])


def test_what_is_wide_enough_is_left_as_it_is() -> None:
    a, b = tf.ones([2, 2]), tf.ones([2, 2])
    assert all(x is y for x, y in zip(wider_operands(a, b, tf.float32), (a, b), strict=True))
