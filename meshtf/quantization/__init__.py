"""Quantization: tensors and weights stored as numbers of 8 or 4 bits with float32 scales, and products of them.

Scales have named dimensions, so the layout rules that split weights split their scales too.
"""

from typing import TYPE_CHECKING

from meshtf.errors import unknown_name
from meshtf.quantization.kernels import kernel_product
from meshtf.quantization.observed_inputs import observed_inputs
from meshtf.quantization.quantization import Quantization
from meshtf.quantization.quantization_aware import QuantizationAware, move_ranges, quantization_aware
from meshtf.quantization.quantized_einsum import quantized_einsum
from meshtf.quantization.quantized_tensor import QuantizedTensor, quantize
from meshtf.quantization.quantized_weights import keeps_int8_cache, quantize_store, quantized_weights

__all__ = [
    "Quantization",
    "QuantizationAware",
    "QuantizedTensor",
    "keeps_int8_cache",
    "kernel_product",
    "move_ranges",
    "observed_inputs",
    "quantization_aware",
    "quantize",
    "quantize_store",
    "quantized_einsum",
    "quantized_weights",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = unknown_name(__name__, __all__)
