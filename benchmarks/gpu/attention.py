"""Compares cuDNN's attention, which needs a GPU, with plain attention by a matrix of scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionMask, AttentionPattern, Tokens, dot_product_attention
from meshtf.layers.attention.cudnn import fused_attention
from meshtf.tensorflow_private.xla_modules import parsed_hlo

BATCH, LENGTH, D_KV = mtf.Dimension("batch", 4), mtf.Dimension("length", 256), mtf.Dimension("d_kv", 64)
HEADS, GROUP, MEMORY = (mtf.Dimension(n, s) for n, s in (("heads", 4), ("queries_per_head", 2), ("memory_length", 256)))
KINDS = ("plain", "causal", "window", "grouped", "segments", "bias")


def outputs_and_gradients(
    given: Sequence[mtf.Tensor],
    dy: mtf.Tensor,
    extra: Mapping[str, mtf.Tensor],
    pattern: AttentionPattern,
    otherwise: Callable[..., mtf.Tensor] | None,
) -> list[mtf.Tensor]:
    """Attends, and returns the outputs and their gradients.

    Args:
      given: queries, keys and values, float32.
      dy: the gradient of the outputs.
      extra: other inputs. Only "bias" has a gradient.
      pattern: which keys a query sees.
      otherwise: the function that fused attention, in bfloat16, calls for inputs that its kernel does not support. None
        selects the matrix of scores in float32.
    """
    if otherwise is None:
        y = dot_product_attention(*given, pattern)
    else:
        y = mtf.to_float(fused_attention(*(mtf.to_bfloat16(x) for x in given), pattern, otherwise=otherwise))
    wrt = [*given, *(x for name, x in extra.items() if name == "bias")]
    return [y, *(g for g in mtf.gradients([y], wrt, [dy]) if g is not None)]


def exact_in_bfloat16(shape: mtf.Shape, generator: np.random.Generator) -> np.ndarray:
    """Returns float32 numbers that bfloat16 represents exactly, so that both forms have the same inputs."""
    drawn = tf.cast(generator.normal(size=[d.size for d in shape]), tf.bfloat16)
    return np.asarray(tf.cast(drawn, tf.float32))


def check_cudnn_attention() -> list[str]:
    """Attends with cuDNN's kernel and with the matrix of scores, with gradients, and returns a line for each kind.

    Raises AssertionError if they differ by more than the rounding of bfloat16, or if the kernel was not used.
    """
    mesh_impl = mtf.GpuMeshImpl("all:1", "", product_precision="highest")
    assert mesh_impl.kernel_platform == "cuda", "this GPU has no kernel of cuDNN's for attention"
    return [_checked(kind, mesh_impl) for kind in KINDS]


def _checked(kind: str, mesh_impl: mtf.GpuMeshImpl) -> str:
    arrays = _arrays(kind)
    names = ["outputs", "queries", "keys", "values", *(["bias"] if kind == "bias" else [])]
    found, expected = (_results(kind, mesh_impl, arrays, is_fused=is_fused) for is_fused in (True, False))
    largest = {}
    for name, ours, theirs in zip(names, found, expected, strict=True):
        error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
        # Outputs are rounded to 8 bits. Gradients subtract a mean of rounded outputs, and weights may also be rounded.
        bound = 2**-6 if name == "outputs" else 2**-5
        assert error < bound, f"attention by cuDNN, {kind}: {name} are off by {error:.1e} of the largest"
        largest[name] = f"{name} {error:.0e}"
    return f"{kind}: {', '.join(largest.values())}"


def _arrays(kind: str) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for name, shape in _shapes(kind).items():
        arrays[name] = exact_in_bfloat16(shape, generator) * (D_KV.size**-0.5 if name == "q" else 1.0)
    if kind == "segments":
        segments = np.ones((BATCH.size, LENGTH.size), np.int32)
        segments[:, 100:] = 2
        segments[1, 200:] = 0
        arrays["segments"] = segments
    return arrays


def _shapes(kind: str) -> dict[str, mtf.Shape]:
    group = [GROUP] if kind == "grouped" else []
    q, k = mtf.Shape([BATCH, LENGTH, HEADS, *group, D_KV]), mtf.Shape([BATCH, MEMORY, HEADS, D_KV])
    bias = {"bias": mtf.Shape([HEADS, LENGTH, MEMORY])} if kind == "bias" else {}
    return {"q": q, "k": k, "v": k, "dy": q, **bias}


def _pattern(kind: str, mesh: mtf.Mesh, extra: Mapping[str, mtf.Tensor]) -> AttentionPattern:
    mask = AttentionMask(is_causal=kind != "plain", window=64 if kind == "window" else None)
    bias = (lambda *_: extra["bias"]) if kind == "bias" else None
    return AttentionPattern.within(Tokens(mtf.range(mesh, LENGTH), extra.get("segments")), mask, bias)


def attention_step(kind: str, mesh_impl: mtf.GpuMeshImpl, *, is_fused: bool) -> mtf.Function:
    """The program for a kind of attention, with outputs and gradients."""

    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, dy: mtf.Tensor, **extra: mtf.Tensor) -> list[mtf.Tensor]:
        otherwise = dot_product_attention if is_fused else None
        return outputs_and_gradients([q, k, v], dy, extra, _pattern(kind, q.mesh, extra), otherwise)

    inputs = {n: mtf.TensorSpec(s) for n, s in _shapes(kind).items()}
    if kind == "segments":
        inputs["segments"] = mtf.TensorSpec([BATCH, LENGTH], tf.int32)
    return mtf.function(program, mesh_impl, inputs=inputs)


def _results(
    kind: str, mesh_impl: mtf.GpuMeshImpl, arrays: Mapping[str, np.ndarray], *, is_fused: bool
) -> list[np.ndarray]:
    step = attention_step(kind, mesh_impl, is_fused=is_fused)
    hlo = step.hlo()
    assert hlo is not None
    calls = [i.custom_call_target for c in parsed_hlo(hlo).computations for i in c.instructions]
    assert sum(target.startswith("__cudnn$fmha") for target in calls) == (2 if is_fused else 0)
    return [x.numpy() for x in step(**arrays)]
