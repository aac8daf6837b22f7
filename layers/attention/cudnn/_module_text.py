"""The text of the StableHLO modules of fused attention and of its gradient: one call, with reshapes around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from meshtf.layers.attention.cudnn._call_text import ELEMENTS, Array, call_text
from meshtf.layers.attention.cudnn._sizes import AttentionSizes

_TARGETS = {
    (False, False): "__cudnn$fmhaSoftmax",
    (False, True): "__cudnn$fmhaScaleBiasSoftmax",
    (True, False): "__cudnn$fmhaSoftmaxBackward",
    (True, True): "__cudnn$fmhaScaleBiasSoftmaxBackward",
}
_WORKSPACE = Array("", (0,), "ui8")
_AS_QUERIES = (3, 1, 2, 0)
"""The layout of [batch, heads, length, size] that lies in memory as [batch, length, heads, size] does."""

_MODULE = """\
module @attention {{
  func.func public @main({parameters}) -> ({types}) {{
    {lines}
    return {results} : {types}
  }}
}}
"""


def forward_text(
    slices: Sequence[tf.TensorSpec],
    sizes: AttentionSizes,
    bias: tuple[int, ...] | None,
    configuration: dict[str, Any],
    *,
    statistics: tuple[int, ...],
) -> str:
    """The module of outputs, and of statistics in this shape. `bias` is its shape of four dimensions."""
    text = _ModuleText(slices)
    shapes = [sizes.q, sizes.k, sizes.k, *([bias] if bias else [])]
    operands = [text.reshaped(x, shape) for x, shape in zip(text.parameters, shapes, strict=True)]
    q = text.parameters[0]
    results = [
        Array("%call#0", (sizes.batch, sizes.heads, sizes.length, sizes.size), q.element, _AS_QUERIES),
        Array("%call#1", sizes.statistics, "f32"),
        _WORKSPACE,
    ]
    text.lines.append(call_text(_TARGETS[False, bias is not None], configuration, operands, results, "%call"))
    y = text.reshaped(text.turned(results[0]), q.shape)
    return text.module([y, text.reshaped(results[1], statistics)])


def backward_text(
    slices: Sequence[tf.TensorSpec],
    sizes: AttentionSizes,
    bias: tuple[int, ...] | None,
    configuration: dict[str, Any],
    *,
    is_bias_learned: bool,
) -> str:
    """The module of the gradients of queries, keys, values and a learned bias.

    Its parameters are the forward module's, then its two results, and the gradient of the first.
    """
    text = _ModuleText(slices)
    q, k, v, *given_bias, y, statistics, dy = text.parameters
    four = [text.reshaped(x, shape) for x, shape in ((q, sizes.q), (k, sizes.k), (v, sizes.k))]
    operands = [*four, text.reshaped(statistics, sizes.statistics), text.reshaped(dy, sizes.q)]
    operands += [text.reshaped(x, bias) for x in given_bias if bias is not None]
    operands.append(text.reshaped(y, sizes.q))
    gradients = [
        Array(f"%call#{n}", (shape[0], shape[2], shape[1], shape[3]), q.element, _AS_QUERIES)
        for n, shape in enumerate((sizes.q, sizes.k, sizes.k))
    ]
    of_bias = [Array("%call#3", bias, q.element)] if bias is not None and is_bias_learned else []
    results = [*gradients, *of_bias, _WORKSPACE]
    text.lines.append(call_text(_TARGETS[True, bias is not None], configuration, operands, results, "%call"))
    made = [text.reshaped(text.turned(g), x.shape) for g, x in zip(gradients, (q, k, v), strict=True)]
    return text.module([*made, *(text.reshaped(g, x.shape) for g, x in zip(of_bias, given_bias, strict=False))])


class _ModuleText:
    """The lines of a module whose parameters are these slices."""

    def __init__(self, slices: Sequence[tf.TensorSpec]) -> None:
        names = {dtype: name for dtype, (name, _) in ELEMENTS.items()} | {tf.float32: "f32"}
        self.parameters = [Array(f"%given{n}", tuple(x.shape.as_list()), names[x.dtype]) for n, x in enumerate(slices)]
        self.lines: list[str] = []

    def reshaped(self, x: Array, shape: Sequence[int]) -> Array:
        """The array in another shape with the same elements."""
        return x if x.shape == tuple(shape) else self._made("reshape", x, tuple(shape))

    def turned(self, x: Array) -> Array:
        """[batch, heads, length, size] as [batch, length, heads, size], which moves nothing in memory."""
        a, b, c, d = x.shape
        return self._made("transpose", x, (a, c, b, d), ", dims = [0, 2, 1, 3]")

    def module(self, results: Sequence[Array]) -> str:
        """The module that returns these arrays."""
        return _MODULE.format(
            parameters=", ".join(f"{x.name}: {x.type}" for x in self.parameters),
            types=", ".join(x.type for x in results),
            results=", ".join(x.name for x in results),
            lines="\n    ".join(self.lines),
        )

    def _made(self, operation: str, x: Array, shape: tuple[int, ...], attributes: str = "") -> Array:
        made = Array(f"%made{len(self.lines)}", shape, x.element)
        self.lines.append(f"{made.name} = stablehlo.{operation} {x.name}{attributes} : ({x.type}) -> {made.type}")
        return made
