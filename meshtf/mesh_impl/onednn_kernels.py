"""oneDNN's kernels in TensorFlow: when it takes them by itself, which these are, and how to take them otherwise.

On x86-64 TensorFlow has operations for them, `_Mkl..`, which take the places of others in a graph that is about to run.
It does so on processors with AVX-512 or AVX-VNNI, or where an environment variable says so. The operations are there in
any case, and may be put into a graph by whoever knows the label of their kernels.
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

# No public name tells which kernels there are, and what is taken: that goes by the processor, and by an environment
# variable of TensorFlow's.
from tensorflow.python.framework import kernels
from tensorflow.python.util import _pywrap_util_port

_LABEL = "MklNameChangeOp"
"""Of kernels whose tensors are in no order of oneDNN's own."""
_PRODUCT, _BATCH_PRODUCT, _IMAGE_GRADIENT = "_MklMatMul", "_MklBatchMatMulV2", "_MklNativeConv2DBackpropInput"


def has_onednn_kernels() -> bool:
    """Whether it computes by them as a whole, as it does on most processors with AVX-512, or by those of its own."""
    return bool(_pywrap_util_port.IsMklEnabled())


@functools.cache
def multiplies_by_avx2() -> bool:
    """Whether oneDNN multiplies matrices of float32, which it does for TensorFlow's own kernels too, by AVX2 and not by
    AVX-512. It goes by the processor, and by an environment variable of oneDNN's, as it starts; so the answer is the
    same ever after. False where nothing says what the processor has.
    """
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "")).upper()
    instructions = _instructions()
    has_avx512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= instructions and not limit.startswith("AVX2")
    return {"avx2", "fma"} <= instructions and not has_avx512 and limit not in ("SSE41", "AVX")


@functools.cache
def can_be_called() -> bool:
    """Whether this TensorFlow has the kernels of `product`, `batch_product` and `image_gradient`."""
    return all(
        any(kernel.label == _LABEL for kernel in kernels.get_registered_kernels_for_op(name).kernel)
        for name in (_PRODUCT, _BATCH_PRODUCT, _IMAGE_GRADIENT)
    )


def product(a: tf.Tensor, b: tf.Tensor, *, transpose_a: bool, transpose_b: bool) -> tf.Tensor:
    """`tf.linalg.matmul` of two matrices of float32, in a graph."""
    return _called(_PRODUCT, [a, b], {"transpose_a": AttrValue(b=transpose_a), "transpose_b": AttrValue(b=transpose_b)})


def batch_product(x: tf.Tensor, y: tf.Tensor, *, adj_x: bool, adj_y: bool) -> tf.Tensor:
    """`tf.raw_ops.BatchMatMulV2` of float32, in a graph."""
    return _called(_BATCH_PRODUCT, [x, y], {"adj_x": AttrValue(b=adj_x), "adj_y": AttrValue(b=adj_y)})


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
        "padding": AttrValue(s=padding.encode()),
        "data_format": AttrValue(s=b"NHWC"),
        "use_cudnn_on_gpu": AttrValue(b=True),
    }
    return _called(_IMAGE_GRADIENT, [tf.constant(input_sizes, tf.int32), filter, out_backprop], attributes)


def _called(operation: str, inputs: Sequence[tf.Tensor], attributes: dict[str, AttrValue]) -> tf.Tensor:
    """The result of an operation on float32; that of a name with an underscore has no function in Python."""
    attributes |= {"T": AttrValue(type=tf.float32.as_datatype_enum), "_kernel": AttrValue(s=_LABEL.encode())}
    graph = tf.compat.v1.get_default_graph()
    return graph.create_op(operation, list(inputs), [tf.float32], name=operation[1:], attrs=attributes).outputs[0]


def _integers(numbers: Sequence[int]) -> AttrValue:
    return AttrValue(list=AttrValue.ListValue(i=numbers))


def _instructions() -> frozenset[str]:
    """Sets of instructions of this machine's first processor, as Linux calls them."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return frozenset(flags.split())
