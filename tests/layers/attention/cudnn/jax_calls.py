"""The calls of cuDNN's attention that JAX emits.

`python tests/layers/attention/cudnn/jax_calls.py` prints jax_calls.json. It needs JAX, and no GPU. JAX 0.10.2 made the
file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "local_window_size": (3, 0)},
    "grouped": {"is_causal": True, "memory_heads": 2},
    "bias": {"bias": (1, 4, 16, 16)},
    "float16": {"is_causal": True, "dtype": "float16"},
}
"""Attention of 2 sequences of 16 tokens, with 4 heads of size 8."""


def calls(case: dict[str, Any]) -> list[str]:
    import jax
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    # The checks ask the GPU, which need not be there to lower for it.
    changed: Any = cudnn
    changed.check_cudnn_version = lambda: 91900
    changed.check_is_flash_attention = lambda *_, **__: None
    changed.check_compute_capability = lambda *_: True
    case = dict(case)
    dtype, heads, bias = case.pop("dtype", "bfloat16"), case.pop("memory_heads", 4), case.pop("bias", None)
    shapes = [(2, 16, 4, 8), (2, 16, heads, 8), (2, 16, heads, 8), *([bias] if bias else [])]

    def attention(*given: Any) -> Any:
        return jax.nn.dot_product_attention(*given, implementation="cudnn", scale=1.0, **case)

    def both(*given: Any) -> Any:
        y, gradient = jax.vjp(attention, *given)
        return y, gradient(y)

    lower: Callable[..., Any] = jax.jit(both).trace(*(jax.ShapeDtypeStruct(s, dtype) for s in shapes)).lower
    lines = lower(lowering_platforms=("cuda",)).as_text().splitlines()
    return [line.strip() for line in lines if "custom_call" in line]


if __name__ == "__main__":
    print(json.dumps({name: calls(case) for name, case in CASES.items()}, indent=1))
