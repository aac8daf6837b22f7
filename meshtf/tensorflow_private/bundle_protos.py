"""The entries in the index of a TensorFlow checkpoint.

The public `tf.train.load_checkpoint` is not sufficient. It reads whole tensors, and does not tell which file holds the
bytes of a slice. If an index has a slice that starts before 0, it crashes the process.
"""

from __future__ import annotations

from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

__all__ = ["BundleEntryProto", "BundleHeaderProto"]
