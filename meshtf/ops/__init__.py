"""The operations of the language, one file per family.

To add an operation, add one import and one line of `__all__` here. `meshtf` and the compatibility package take their
names from this list.
"""

from meshtf.ops import _tensor_face as tensor_face
from meshtf.ops.algebra.arithmetic import (
    add,
    add_n,
    divide,
    identity,
    multiply,
    negative,
    reciprocal,
    square,
    stop_gradient,
    sub,
)
from meshtf.ops.algebra.einsum import einsum, matmul
from meshtf.ops.algebra.reduction import reduce_mean, reduce_sum
from meshtf.ops.algebra.transpose_and_broadcast import broadcast, transpose
from meshtf.ops.convolution.depthwise import depthwise_conv1d, depthwise_conv2d, depthwise_conv3d
from meshtf.ops.convolution.functions import conv1d, conv2d, conv3d, convolution
from meshtf.ops.convolution.pooling import avg_pool, max_pool
from meshtf.ops.convolution.transposed import conv1d_transpose, conv2d_transpose, conv3d_transpose
from meshtf.ops.elementwise.activations import elu, gelu, leaky_relu, relu, selu, squared_relu, swish
from meshtf.ops.elementwise.bitwise import bitwise_and, bitwise_not, bitwise_or, bitwise_xor, left_shift, right_shift
from meshtf.ops.elementwise.cast import cast, to_bfloat16, to_float, to_int32
from meshtf.ops.elementwise.comparisons import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from meshtf.ops.elementwise.complex_numbers import abs, angle, complex, conj, imag, real
from meshtf.ops.elementwise.exponentials_and_logarithms import exp2, log2, log10, logaddexp
from meshtf.ops.elementwise.hard_activations import hard_sigmoid, hard_swish, hard_tanh, relu6
from meshtf.ops.elementwise.linspace import linspace
from meshtf.ops.elementwise.math_functions import (
    ceil,
    cos,
    erf,
    exp,
    expm1,
    floor,
    is_finite,
    log,
    log1p,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    softplus,
    sqrt,
    tanh,
)
from meshtf.ops.elementwise.non_finite_numbers import is_close, is_inf, is_nan, nan_to_num
from meshtf.ops.elementwise.remainders_powers_extrema import clip_by_value, floordiv, maximum, minimum, mod, pow
from meshtf.ops.elementwise.smooth_activations import celu, log_sigmoid, mish, silu, soft_sign
from meshtf.ops.elementwise.special_functions import digamma, erfinv, lgamma
from meshtf.ops.elementwise.trigonometry import acos, acosh, asin, asinh, atan, atan2, atanh, cosh, hypot, sinh, tan
from meshtf.ops.elementwise.where import where
from meshtf.ops.fourier.fft import fft, ifft, irfft, rfft
from meshtf.ops.grouped_products.grouped_matmul import grouped_matmul
from meshtf.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from meshtf.ops.indexing.embedding_lookup import embedding_lookup
from meshtf.ops.indexing.gather import gather, one_hot
from meshtf.ops.indexing.scatter import scatter_add, scatter_update
from meshtf.ops.inputs.constants import constant, fill, ones, ones_like, range, zeros, zeros_like
from meshtf.ops.inputs.placeholder import import_tf_tensor, placeholder
from meshtf.ops.linear_algebra.decompositions import cholesky, qr
from meshtf.ops.linear_algebra.triangles_and_identity import eye, tril, triu
from meshtf.ops.linear_algebra.triangular_solve import triangular_solve
from meshtf.ops.order.argmax import argmax, argmin, top_1
from meshtf.ops.order.quantile import median, quantile
from meshtf.ops.order.sorting import argsort, sort
from meshtf.ops.order.top_k import nth_largest_element, nth_smallest_element, top_k
from meshtf.ops.random.dropout import dropout
from meshtf.ops.random.dropout_in_blocks import DropoutInBlocks
from meshtf.ops.random.dropout_in_boxes import DropoutInBoxes
from meshtf.ops.random.random_initializers import RandomNormal, RandomUniform, TruncatedNormal
from meshtf.ops.random.random_tensors import random_normal, random_truncated_normal, random_uniform
from meshtf.ops.random.sampling import sample_with_temperature
from meshtf.ops.rearranging.concat_and_slice import concat, pad, slice, split, stack, unstack
from meshtf.ops.rearranging.differences import diff
from meshtf.ops.rearranging.is_range import is_range
from meshtf.ops.rearranging.rearrange import rearrange
from meshtf.ops.rearranging.repeat_and_tile import repeat, tile
from meshtf.ops.rearranging.reshape import rename_dimension, replace_dimensions, reshape
from meshtf.ops.rearranging.with_layout import replicate, with_layout
from meshtf.ops.reductions.any_and_all import reduce_all, reduce_any
from meshtf.ops.reductions.counts import count_nonzero
from meshtf.ops.reductions.cumulative import cummax, cumsum
from meshtf.ops.reductions.cumulative_products import cumlogsumexp, cumprod
from meshtf.ops.reductions.downsampling import pool_tensor_1d, reduce_first, stride_tensor_1d
from meshtf.ops.reductions.norm import norm
from meshtf.ops.reductions.products_and_extrema import reduce_max, reduce_min, reduce_prod
from meshtf.ops.reductions.reduce import reduce
from meshtf.ops.reductions.softmax import log_softmax, reduce_logsumexp, softmax
from meshtf.ops.reductions.variance import reduce_std, reduce_variance
from meshtf.ops.side_effects.check_finite import check_finite
from meshtf.ops.side_effects.check_indices import check_indices
from meshtf.ops.side_effects.depend import depend
from meshtf.ops.side_effects.export import export
from meshtf.ops.side_effects.print_tensor import Print, print_tensor
from meshtf.ops.side_effects.summaries import histogram_summary, scalar_summary
from meshtf.ops.slicewise.binary_function import binary_op_with_broadcasting
from meshtf.ops.slicewise.nmap import nmap
from meshtf.ops.slicewise.slicewise import cwise, slicewise
from meshtf.ops.variables.assign import assign, assign_add, assign_sub, read_variable
from meshtf.ops.variables.get_variable import get_variable, like_variable
from meshtf.ops.variables.variable import Variable
from meshtf.ops.windows.dynamic_shift import dynamic_shift
from meshtf.ops.windows.shift import halo_exchange, left_halo_exchange, reverse, roll, shift

__all__ = [
    "DropoutInBlocks",
    "DropoutInBoxes",
    "Print",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "Variable",
    "abs",
    "acos",
    "acosh",
    "add",
    "add_n",
    "angle",
    "argmax",
    "argmin",
    "argsort",
    "asin",
    "asinh",
    "assign",
    "assign_add",
    "assign_sub",
    "atan",
    "atan2",
    "atanh",
    "avg_pool",
    "binary_op_with_broadcasting",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast",
    "cast",
    "ceil",
    "celu",
    "check_finite",
    "check_indices",
    "cholesky",
    "clip_by_value",
    "complex",
    "concat",
    "conj",
    "constant",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "convolution",
    "cos",
    "cosh",
    "count_nonzero",
    "cumlogsumexp",
    "cummax",
    "cumprod",
    "cumsum",
    "cwise",
    "depend",
    "depthwise_conv1d",
    "depthwise_conv2d",
    "depthwise_conv3d",
    "diff",
    "digamma",
    "divide",
    "dropout",
    "dynamic_shift",
    "dynamic_slice",
    "dynamic_update_slice",
    "einsum",
    "elu",
    "embedding_lookup",
    "equal",
    "erf",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "export",
    "eye",
    "fft",
    "fill",
    "floor",
    "floordiv",
    "gather",
    "gelu",
    "get_variable",
    "greater",
    "greater_equal",
    "grouped_matmul",
    "halo_exchange",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "histogram_summary",
    "hypot",
    "identity",
    "ifft",
    "imag",
    "import_tf_tensor",
    "irfft",
    "is_close",
    "is_finite",
    "is_inf",
    "is_nan",
    "is_range",
    "leaky_relu",
    "left_halo_exchange",
    "left_shift",
    "less",
    "less_equal",
    "lgamma",
    "like_variable",
    "linspace",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_sigmoid",
    "log_softmax",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max_pool",
    "maximum",
    "median",
    "minimum",
    "mish",
    "mod",
    "multiply",
    "nan_to_num",
    "negative",
    "nmap",
    "norm",
    "not_equal",
    "nth_largest_element",
    "nth_smallest_element",
    "one_hot",
    "ones",
    "ones_like",
    "pad",
    "placeholder",
    "pool_tensor_1d",
    "pow",
    "print_tensor",
    "qr",
    "quantile",
    "random_normal",
    "random_truncated_normal",
    "random_uniform",
    "range",
    "read_variable",
    "real",
    "rearrange",
    "reciprocal",
    "reduce",
    "reduce_all",
    "reduce_any",
    "reduce_first",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_std",
    "reduce_sum",
    "reduce_variance",
    "relu",
    "relu6",
    "rename_dimension",
    "repeat",
    "replace_dimensions",
    "replicate",
    "reshape",
    "reverse",
    "rfft",
    "right_shift",
    "roll",
    "round",
    "rsqrt",
    "sample_with_temperature",
    "scalar_summary",
    "scatter_add",
    "scatter_update",
    "selu",
    "shift",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "slice",
    "slicewise",
    "soft_sign",
    "softmax",
    "softplus",
    "sort",
    "split",
    "sqrt",
    "square",
    "squared_relu",
    "stack",
    "stop_gradient",
    "stride_tensor_1d",
    "sub",
    "swish",
    "tan",
    "tanh",
    "tile",
    "to_bfloat16",
    "to_float",
    "to_int32",
    "top_1",
    "top_k",
    "transpose",
    "triangular_solve",
    "tril",
    "triu",
    "unstack",
    "where",
    "with_layout",
    "zeros",
    "zeros_like",
]

tensor_face.register({name: globals()[name] for name in __all__})
