"""The text of a call of cuDNN's fused attention in StableHLO: its target, its configuration, its layouts.

XLA recognizes these calls by their targets, `__cudnn$fmhaSoftmax` and so on, and reads a JSON object from each
(`xla/service/gpu/backend_configs.proto`, `CudnnfMHABackendConfig`). JAX emits the same calls for
`jax.nn.dot_product_attention(implementation="cudnn")`; a test compares them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from meshtf.layers.attention.cudnn._sizes import AttentionSizes
from meshtf_programs.strict_json import json_text

ELEMENTS = {tf.bfloat16: ("bf16", "BF16"), tf.float16: ("f16", "F16")}
"""The element types that cuDNN supports, with their names in StableHLO and in the configuration."""

# Dimensions that each product sums over, and that it treats as a batch: (left, right) of each. Queries, keys, values
# and outputs are [batch, length, heads, size], scores are [batch, heads, length, memory_length].
_FORWARD = {
    "bmm1": ((3, 3), ((0, 2), (0, 2))),  # scores from queries and keys
    "bmm2": ((3, 1), ((0, 1), (0, 2))),  # outputs from weights and values
}
_BACKWARD = {
    "bmm1_grad_gemm1": ((2, 1), ((0, 1), (0, 2))),  # of keys, from scores' gradient and queries
    "bmm1_grad_gemm2": ((3, 1), ((0, 1), (0, 2))),  # of queries, from scores' gradient and keys
    "bmm2_grad_gemm1": ((2, 1), ((0, 1), (0, 2))),  # of values, from weights and outputs' gradient
    "bmm2_grad_gemm2": ((3, 3), ((0, 2), (0, 2))),  # of weights, from outputs' gradient and values
}
_ROW_MAJOR = {
    "dim_level_types": [],
    "dim_unique": [],
    "dim_ordered": [],
    "minor_to_major": ["3", "2", "1", "0"],
    "tiles": [],
    "element_size_in_bits": "0",
    "memory_space": "0",
    "index_primitive_type": "PRIMITIVE_TYPE_INVALID",
    "pointer_primitive_type": "PRIMITIVE_TYPE_INVALID",
    "dynamic_shape_metadata_prefix_bytes": "0",
}
_ANY_ALGORITHM = {
    "algo_id": "0",
    "math_type": "TENSOR_OP_MATH",
    "tuning_knobs": {"17": "1", "24": "0"},
    "is_cudnn_frontend": True,
    "workspace_size": "0",
}


@dataclasses.dataclass(frozen=True)
class Array:
    """An array of a module: its name there, its shape, its element type in StableHLO, and its layout in memory."""

    name: str
    shape: tuple[int, ...]
    element: str
    minor_to_major: tuple[int, ...] = ()

    @property
    def type(self) -> str:
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}{self.element}>"

    @property
    def layout(self) -> str:
        order = self.minor_to_major or tuple(reversed(range(len(self.shape))))
        numbers = str(list(order)) if len(order) > 1 else "".join(map(str, order))
        return f"dense<{numbers}> : tensor<{len(order)}xindex>"


def call_text(
    target: str, configuration: dict[str, Any], operands: Sequence[Array], results: Sequence[Array], name: str
) -> str:
    """The line of a module that calls a target. Its results are `%name#0`, `%name#1` and so on."""
    text = json_text(configuration).replace('"', "\\22")
    attributes = ", ".join(
        [
            "api_version = 2 : i32",
            f'backend_config = "{text}"',
            f"operand_layouts = [{', '.join(x.layout for x in operands)}]",
            f"result_layouts = [{', '.join(x.layout for x in results)}]",
        ]
    )
    names, given = ", ".join(x.name for x in operands), ", ".join(x.type for x in operands)
    made = ", ".join(x.type for x in results)
    return f"{name}:{len(results)} = stablehlo.custom_call @{target}({names}) {{{attributes}}} : ({given}) -> ({made})"


def configuration_of(
    sizes: AttentionSizes, dtype: tf.DType, *, is_causal: bool, window: int | None, is_backward: bool
) -> dict[str, Any]:
    """The configuration of a call. Queries are scaled already, and nothing is dropped."""
    products = _BACKWARD if is_backward else _FORWARD
    attention = {
        "algorithm": _ANY_ALGORITHM,
        "fmha_scale": 1.0,
        "intermediate_tensor_shape": {
            "element_type": ELEMENTS[dtype][1],
            "dimensions": [str(n) for n in sizes.scores],
            "tuple_shapes": [],
            "layout": _ROW_MAJOR,
            "is_dynamic_dimension": [False] * 4,
        },
        "is_flash_attention": True,
        "mask_type": "CAUSAL" if is_causal else "NO_MASK",
        **{f"{name}_dot_dimension_numbers": _dimension_numbers(*own) for name, own in products.items()},
        "dropout_rate": 0.0,
        "seed": 42,  # cuDNN draws nothing
        "sliding_window_length": window or 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
    }
    return {"operation_queue_id": "0", "cudnn_fmha_backend_config": attention}


def _dimension_numbers(summed: tuple[int, int], batch: tuple[tuple[int, ...], tuple[int, ...]]) -> dict[str, list[str]]:
    (left, right), (left_batch, right_batch) = summed, batch
    return {
        "lhs_contracting_dimensions": [str(left)],
        "rhs_contracting_dimensions": [str(right)],
        "lhs_batch_dimensions": [str(n) for n in left_batch],
        "rhs_batch_dimensions": [str(n) for n in right_batch],
    }
