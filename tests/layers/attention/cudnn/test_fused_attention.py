"""Fused attention: its plain form against the whole matrix of scores, its HLO against JAX's, and who chooses it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from benchmarks.gpu.attention import exact_in_bfloat16, outputs_and_gradients
from meshtf.graph.platform_kernels import PlatformKernels
from meshtf.layers.attention import (
    AttentionConfig,
    AttentionMask,
    AttentionOptions,
    AttentionPattern,
    Tokens,
    dot_product_attention,
)
from meshtf.layers.attention.cudnn import fused_attention, is_chosen_by_itself
from meshtf.layers.transformer import Context, SelfAttention
from meshtf.lowering.emit.xla.hlo import hlo_of
from meshtf.planning.plan import Plan, walk
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from meshtf.testing import interpret
from tests.house.sharpest import sharpest
from tests.layers.attention.cudnn.jax_calls import CASES

BATCH, LENGTH, D_KV = mtf.Dimension("batch", 2), mtf.Dimension("length", 16), mtf.Dimension("d_kv", 8)
MEMORY = mtf.Dimension("memory_length", 16)
HEADS, GROUP, KV_HEADS = mtf.Dimension("heads", 4), mtf.Dimension("queries_per_head", 2), mtf.Dimension("heads", 2)
CAUSAL = AttentionMask(is_causal=True)
CALLS: dict[str, list[str]] = json.loads((Path(__file__).parent / "jax_calls.json").read_text())


def shapes(kind: str) -> tuple[mtf.Shape, mtf.Shape]:
    """The shapes of queries and of keys."""
    if kind == "grouped":
        return mtf.Shape([BATCH, LENGTH, KV_HEADS, GROUP, D_KV]), mtf.Shape([BATCH, MEMORY, KV_HEADS, D_KV])
    shared = [] if kind == "one memory head" else [HEADS]
    return mtf.Shape([BATCH, LENGTH, HEADS, D_KV]), mtf.Shape([BATCH, MEMORY, *shared, D_KV])


def pattern_of(kind: str, mesh: mtf.Mesh, extra: dict[str, mtf.Tensor]) -> AttentionPattern:
    tokens = Tokens(mtf.range(mesh, LENGTH), extra.get("segments"), extra.get("prefix"))
    masks = {
        "plain": AttentionMask(),
        "window": dataclasses.replace(CAUSAL, window=4),
        "both sides": AttentionMask(window=3),
        "prefix": dataclasses.replace(CAUSAL, sees_prefix=True),
        "bias": AttentionMask(),
    }
    bias = (lambda *_: extra["bias"]) if "bias" in extra else None
    return AttentionPattern.within(tokens, masks.get(kind, CAUSAL), bias)


def arrays(kind: str) -> dict[str, tuple[mtf.Shape, np.ndarray]]:
    """The inputs of a kind."""
    generator = np.random.default_rng(0)

    def rounded(shape: mtf.Shape) -> tuple[mtf.Shape, np.ndarray]:
        return shape, exact_in_bfloat16(shape, generator)

    q, k = shapes(kind)
    found = {"q": rounded(q), "k": rounded(k), "v": rounded(k), "dy": rounded(q)}
    if kind in ("bias", "biased and causal"):
        found["bias"] = rounded(mtf.Shape([HEADS, LENGTH, MEMORY]))
    tokens = mtf.Shape([BATCH, LENGTH])
    if kind == "segments":
        found["segments"] = (tokens, np.array([[1] * 6 + [2] * 10, [1] * 12 + [0] * 4], np.int32))
    if kind == "prefix":
        found["prefix"] = (tokens, (np.arange(32).reshape(2, 16) % 16 < 5).astype(np.int32))
    return found


def results(kind: str, layout: str, *, is_fused: bool) -> list[np.ndarray]:
    """The outputs and the gradients: fused in bfloat16, or by the matrix of scores in float32."""

    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, dy: mtf.Tensor, **extra: mtf.Tensor) -> list[mtf.Tensor]:
        otherwise = refused if is_fused else None
        return outputs_and_gradients([q, k, v], dy, extra, pattern_of(kind, q.mesh, extra), otherwise)

    return interpret(program, arrays(kind), "rows:2;cols:2", layout).results


def refused(*_: object, **__: object) -> mtf.Tensor:
    raise AssertionError("the kernel does not take this")


KINDS = ["plain", "causal", "window", "grouped", "one memory head", "segments", "prefix", "both sides", "bias"]


@pytest.mark.parametrize("kind", sharpest([*KINDS, "biased and causal"], ["grouped", "segments", "biased and causal"]))
def test_outputs_and_gradients_are_those_of_the_matrix_of_scores(kind: str) -> None:
    """Under layouts that split batch and heads, or what the kernel takes whole.

    Outputs are rounded to 8 bits. The gradient of scores subtracts a mean of 8 products with rounded outputs, and is
    summed over keys or queries, so its error is a few roundings of the largest gradient.
    """
    expected = results(kind, "", is_fused=False)
    assert len(expected) == 5 if "bias" in kind else 4
    split = ["queries_per_head:rows;heads:cols"] if kind == "grouped" else ["length:rows;memory_length:cols"]
    for layout in ("batch:rows;heads:cols", *split):
        for found, wanted in zip(results(kind, layout, is_fused=True), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2**-7, atol=2**-6 * np.abs(wanted).max())


def emitted(kind: str, dtype: tf.DType, platform: str) -> tuple[Plan, bytes]:
    """The plan and the HLO of attention and its gradients on a mesh of one core."""

    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, **extra: mtf.Tensor) -> list[mtf.Tensor]:
        y = fused_attention(q, k, v, pattern_of(kind, q.mesh, extra), otherwise=refused)
        return [y, *(g for g in mtf.gradients([y], [q, k, v, *extra.values()], [y]) if g is not None)]

    given = {n: mtf.TensorSpec(s, dtype) for n, (s, _) in arrays(kind).items() if n != "dy"}
    plan = mtf.function(program, mtf.GpuMeshImpl("all:1", ""), inputs=given)._execution.plan
    return plan, hlo_of(plan, "attention", platform=platform)


_CALL = re.compile(r'custom_call @(\S+?)\(.*?backend_config = "(.*?)", (.*)\} : (\(.*\)) -> (.*)$')


def call_of(line: str) -> tuple[str, Any, list[str], str, list[str]]:
    """A call's target, configuration, layouts, types of operands and types of results."""
    found = _CALL.search(line)
    assert found is not None, line
    target, configuration, attributes, operands, made = found.groups()
    layouts = re.findall(r"(operand_layouts|result_layouts) = (\[.*?xindex>\])", attributes)
    types = re.findall(r"tensor<[^>]*>", made)
    return target, json.loads(configuration.replace("\\22", '"')), [str(x) for x in layouts], operands, types


def stablehlo_calls(hlo: bytes) -> list[str]:
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        text = str(ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo)))
    return [line.strip() for line in text.splitlines() if "stablehlo.custom_call" in line]


@pytest.mark.parametrize("kind", sharpest(CASES, ["window", "grouped", "bias"]))
def test_the_compiler_is_given_the_calls_that_jax_gives_it(kind: str) -> None:
    """Target, configuration, operands, results and their layouts, forward and backward."""
    dtype = tf.float16 if kind == "float16" else tf.bfloat16
    _, hlo = emitted("causal" if kind == "float16" else kind, dtype, "cuda")
    ours, theirs = ([call_of(line) for line in lines] for lines in (stablehlo_calls(hlo), CALLS[kind]))
    assert len(ours) == 2
    assert ours == theirs


def test_a_module_is_for_its_platform_alone() -> None:
    """Elsewhere the program has products and exponentials, and no call."""
    plan, hlo = emitted("causal", tf.bfloat16, "")
    opcodes = [i.opcode for computation in parsed_hlo(hlo).computations for i in computation.instructions]
    assert "custom-call" not in opcodes
    assert "dot" in opcodes
    assert sum(i.operation.name.startswith("fused_attention") for i, _ in walk(plan.instructions)) >= 1


CHOICES: dict[str, tuple[PlatformKernels, tf.DType, int, bool]] = {
    "a GPU": (PlatformKernels("cuda", frozenset(["batch", "heads"])), tf.bfloat16, 8, True),
    "no GPU": (PlatformKernels("", frozenset()), tf.bfloat16, 8, False),
    "a split length": (PlatformKernels("cuda", frozenset(["length"])), tf.bfloat16, 8, False),
    "float32": (PlatformKernels("cuda"), tf.float32, 8, False),
    "the largest head": (PlatformKernels("cuda"), tf.float16, 128, True),
    "a larger head": (PlatformKernels("cuda"), tf.bfloat16, 136, False),
    "no multiple of 8": (PlatformKernels("cuda"), tf.bfloat16, 12, False),
}


@pytest.mark.parametrize("case", CHOICES)
def test_who_chooses_the_kernel(case: str) -> None:
    kernels, dtype, size, is_chosen = CHOICES[case]
    graph = mtf.Graph("attention", kernels=kernels)
    with graph:
        mesh, d_kv = mtf.Mesh(graph), mtf.Dimension("d_kv", size)
        q, k = mtf.zeros(mesh, [LENGTH, HEADS, d_kv], dtype), mtf.zeros(mesh, [MEMORY, HEADS, d_kv], dtype)
        assert is_chosen_by_itself(q, k) == is_chosen


@pytest.mark.parametrize(
    "options",
    [AttentionOptions(dropout_rate=0.1), AttentionOptions(extra_logit=0.0), AttentionOptions(logit_cap=5.0)],
    ids=["dropout", "extra logit", "cap"],
)
def test_what_the_kernel_does_not_take_is_done_otherwise(options: AttentionOptions) -> None:
    """Dropout of our own masks, for one, which depend on positions only."""
    graph = mtf.Graph("attention")
    with graph:
        mesh = mtf.Mesh(graph)
        q, k = (mtf.zeros(mesh, [n, HEADS, D_KV], tf.bfloat16) for n in (LENGTH, MEMORY))
        pattern = AttentionPattern.within(Tokens.along(q), CAUSAL)
        called = fused_attention(q, k, k, pattern, options, is_training=True, otherwise=dot_product_attention)
    assert called.shape == q.shape
    assert not any(o.name.startswith("fused_attention") for o in graph.operations)


def test_a_model_takes_the_kernel_in_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its gradient, once each, although the layers recompute elementwise work; and not with dropout."""
    monkeypatch.setattr(mtf.GpuMeshImpl, "kernel_platform", property(lambda _: "cuda"))
    layer = {"self_attention": SelfAttention(AttentionConfig(num_heads=4, d_kv=8), rotary=None)}
    d_model = mtf.Dimension("d_model", 16)

    def calls(rate: float) -> int:
        def train(x: mtf.Tensor) -> mtf.Tensor:
            options = AttentionOptions(dropout_rate=rate)
            attention = dataclasses.replace(layer["self_attention"], options=options)

            def one(carried: list[mtf.Tensor], _: object) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
                context = Context(CAUSAL, Tokens.along(carried[0]), mtf.range(x.mesh, LENGTH), True)
                return [carried[0] + attention(mtf.tanh(carried[0]), context)], []

            (y,), _ = mtf.layer_stack(one, x, ("layers", 3), recompute="costly")
            loss = mtf.reduce_mean(mtf.to_float(mtf.square(y)))
            mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
            return loss

        inputs = {"x": mtf.TensorSpec([BATCH, LENGTH, d_model], tf.bfloat16)}
        mesh_impl = mtf.GpuMeshImpl("rows:2;cols:2", "batch:rows;heads:cols")
        narrow = mtf.VariableDType(activation_dtype=tf.bfloat16)
        step = mtf.function(train, mesh_impl, inputs=inputs, variable_dtype=narrow)
        hlo = step.hlo()
        assert hlo is not None
        every = [i for computation in parsed_hlo(hlo).computations for i in computation.instructions]
        return sum(i.custom_call_target.startswith("__cudnn$fmha") for i in every)

    assert [calls(0.0), calls(0.1)] == [6, 0]
