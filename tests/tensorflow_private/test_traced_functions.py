"""Functions of flat tensors, and what their callers make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.tensorflow_private.traced_functions import NOT_INLINED, traced


def test_effects_take_place_in_the_order_of_the_body_and_results_are_no_copies() -> None:
    variable, other = tf.Variable(1.0), tf.Variable(5.0)

    def body(handle: tf.Tensor, x: tf.Tensor) -> list[tf.Tensor]:
        before = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        tf.raw_ops.AssignVariableOp(resource=handle, value=before * 3.0)
        after = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        tf.raw_ops.AssignVariableOp(resource=handle, value=after + 1.0)
        other.assign_add(after)  # nothing waits for it but the end
        return [before, after, x]

    function: Any = traced(body, [tf.TensorSpec([], tf.resource), tf.TensorSpec([2])], "both")
    assert function.name.startswith(b"__inference_both")
    assert not any(o.type == "Identity" for o in function.graph.get_operations())
    for expected, left in (((1.0, 3.0), (4.0, 8.0)), ((4.0, 12.0), (13.0, 20.0))):
        *numbers, x = function(variable.handle, tf.constant([7.0, 8.0]))
        assert tuple(map(float, numbers)) == expected
        assert (float(variable), float(other)) == left
        np.testing.assert_array_equal(x, [7, 8])


@pytest.mark.parametrize("attributes", [NOT_INLINED, {}], ids=["stays", "is inlined"])
def test_what_is_not_inlined_is_called(attributes: dict[str, bool]) -> None:
    options, metadata = tf.compat.v1.RunOptions(output_partition_graphs=True), tf.compat.v1.RunMetadata()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inner = tf.function(lambda x: x * 2, autograph=False, experimental_attributes=dict(attributes))
        x = tf.compat.v1.placeholder(tf.float32, [2])
        result = session.run(-tf.abs(inner(-tf.abs(x))), {x: [1, 2]}, options=options, run_metadata=metadata)
    np.testing.assert_array_equal(result, [-2, -4])
    called = any(node.op.endswith("PartitionedCall") for part in metadata.partition_graphs for node in part.node)
    assert called == bool(attributes)
