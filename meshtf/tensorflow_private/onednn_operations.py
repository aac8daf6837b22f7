"""oneDNN's kernels in TensorFlow: whether it takes them by itself, and how to take them otherwise.

On x86-64 TensorFlow has operations for them, `_Mkl..`, which take the places of others in a graph that is about to run.
The operations are there in any case. A graph may hold them, with the label of those kernels whose tensors are in no
order of oneDNN's own.

Public ways that do not do:

- `IsMklEnabled`: `tf.sysconfig.get_build_info` tells of the build. Whether the kernels are taken goes by the processor
  and by the environment variable `TF_ENABLE_ONEDNN_OPTS`, which TensorFlow reads as it starts.
- `kernels.get_registered_kernels_for_op`: `tf.raw_ops` tells of operations, not of their kernels.
- `_MklMatMul`, `_MklBatchMatMulV2`, `_MklNativeConv2DBackpropInput` and their label `MklNameChangeOp`: the environment
  variable switches all kernels, for the user's own operations too, and is read before meshtf is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.framework import kernels
from tensorflow.python.util import _pywrap_util_port

_LABEL = "MklNameChangeOp"
_PRODUCT, _BATCH_PRODUCT, _IMAGE_GRADIENT = "_MklMatMul", "_MklBatchMatMulV2", "_MklNativeConv2DBackpropInput"

_AttrValue: Any = tf.compat.v1.AttrValue


def is_onednn_on() -> bool:
    """Whether TensorFlow takes oneDNN's kernels by itself, as it does on most processors with AVX-512."""
    return bool(cast("Any", _pywrap_util_port).IsMklEnabled())


def are_kernels_there() -> bool:
    """Whether this TensorFlow has the kernels of `product`, `batch_product` and `image_gradient`."""
    return all(_has_kernel(name) for name in (_PRODUCT, _BATCH_PRODUCT, _IMAGE_GRADIENT))


def _has_kernel(operation: str) -> bool:
    return any(kernel.label == _LABEL for kernel in kernels.get_registered_kernels_for_op(operation).kernel)


def product(a: tf.Tensor, b: tf.Tensor, *, transpose_a: bool, transpose_b: bool) -> tf.Tensor:
    """`tf.linalg.matmul` of two matrices of float32, in a graph."""
    given = {"transpose_a": _AttrValue(b=transpose_a), "transpose_b": _AttrValue(b=transpose_b)}
    return _called(_PRODUCT, [a, b], given)


def batch_product(x: tf.Tensor, y: tf.Tensor, *, adj_x: bool, adj_y: bool) -> tf.Tensor:
    """`tf.raw_ops.BatchMatMulV2` of float32, in a graph."""
    return _called(_BATCH_PRODUCT, [x, y], {"adj_x": _AttrValue(b=adj_x), "adj_y": _AttrValue(b=adj_y)})


def image_gradient(
    *,
    input_sizes: Sequence[int],
    filter: tf.Tensor,  # noqa: A002  # TensorFlow calls it so
    out_backprop: tf.Tensor,
    strides: Sequence[int],
    padding: str,
) -> tf.Tensor:
    """`tf.raw_ops.Conv2DBackpropInput` of float32, in a graph."""
    attributes = {
        "strides": _integers(strides),
        "dilations": _integers([1] * len(strides)),
        "explicit_paddings": _integers([]),
        "padding": _AttrValue(s=padding.encode()),
        "data_format": _AttrValue(s=b"NHWC"),
        "use_cudnn_on_gpu": _AttrValue(b=True),
    }
    return _called(_IMAGE_GRADIENT, [tf.constant(input_sizes, tf.int32), filter, out_backprop], attributes)


def _called(operation: str, inputs: Sequence[tf.Tensor], attributes: dict[str, Any]) -> tf.Tensor:
    """The result of an operation on float32; that of a name with an underscore has no function in Python."""
    attributes |= {"T": _AttrValue(type=tf.float32.as_datatype_enum), "_kernel": _AttrValue(s=_LABEL.encode())}
    graph = tf.compat.v1.get_default_graph()
    return graph.create_op(operation, list(inputs), [tf.float32], name=operation[1:], attrs=attributes).outputs[0]


def _integers(numbers: Sequence[int]) -> Any:
    return _AttrValue(list=_AttrValue.ListValue(i=numbers))
