"""The entries of the index of TensorFlow's checkpoints.

The public `tf.train.load_checkpoint` does not do. It reads whole tensors, and does not say in which file the bytes of a
slice are. Where an index has a slice that starts before 0, the process dies.
"""

from __future__ import annotations

from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

__all__ = ["BundleEntryProto", "BundleHeaderProto"]
