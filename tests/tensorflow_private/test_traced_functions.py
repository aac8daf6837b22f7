"""What callers make of a traced function."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from meshtf.tensorflow_private.traced_functions import NOT_INLINED


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
