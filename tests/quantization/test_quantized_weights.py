"""A model whose kernels are kept in int8: its store, its results, and other layouts."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.errors import GraphError, UsageError
from meshtf.layers import AttentionConfig, PipelineSchedule, VocabularyEmbedding
from meshtf.layers.transformer import FeedForward, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.models import TransformerLM
from meshtf.quantization import Quantization, quantize_store, quantized_weights
from meshtf.testing import assert_close, interpret

LAYOUT = "batch:rows;heads:cols;d_ff:cols;vocab:cols"
STACK = TransformerStack([SelfAttention(AttentionConfig(num_heads=2, d_kv=8)), FeedForward(24, "relu")], num_layers=2)
MODEL = TransformerLM(16, TokenEmbedding(VocabularyEmbedding(50)), STACK)
UNROLLED = dataclasses.replace(MODEL, stack=dataclasses.replace(STACK, unroll=True))
IDS = np.random.default_rng(0).integers(2, 50, [4, 8]).astype(np.int32)
INPUTS = {"targets": mtf.TensorSpec("batch:4 length:8", tf.int32)}


def losses(targets: mtf.Tensor, model: TransformerLM = MODEL) -> mtf.Tensor:
    return model.metrics({"targets": targets}, is_training=False)["loss"][0]


def int8_losses(targets: mtf.Tensor) -> mtf.Tensor:
    with quantized_weights():
        return losses(targets)


def unrolled_int8_losses(targets: mtf.Tensor) -> mtf.Tensor:
    with quantized_weights():
        return losses(targets, UNROLLED)


def test_a_trained_transformer_runs_with_quantized_weights(tmp_path: Path) -> None:
    """Its losses are those of the weights that the numbers stand for. A layout changes no number and no scale.

    A checkpoint of the store is read on another mesh, with the layers unrolled.
    """
    stores = {}
    for mesh_shape, layout in (("rows:1;cols:1", ""), ("rows:2;cols:2", LAYOUT)):
        mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout)
        program = mtf.function(losses, mesh_impl, INPUTS)
        program.initialize()
        stores[mesh_shape] = quantize_store(program)
        assert all(name in program.variables for name in kernels(stores[mesh_shape]))
    one_core, store = stores.values()
    assert sorted(store) == sorted(one_core)
    for name in store:
        np.testing.assert_array_equal(store[name], one_core[name])
    assert len(kernels(store)) == 6, "a stack of q, k, v and o, and of both kernels of the feed-forward layers"
    for name in kernels(store):
        weight, scale = program.variables[name], store[f"{name}/int8_scale"]
        assert scale.size < weight.size / 8
        scale = np.expand_dims(scale, summed_axes(program, name))
        found = store[f"{name}/int8"] * scale
        assert (np.abs(found - weight) <= scale * (0.5 + 3 * 127 * 2.0**-24)).all()
        program.variables[name] = found
    quantized = mtf.function(int8_losses, mesh_impl, INPUTS, variables=store)(IDS).numpy()
    assert_close(quantized, program(IDS).numpy(), terms=2000, magnitude=4.0)
    folder = CheckpointFolder(tmp_path)
    folder.save(1, store, {})
    unrolled = mtf.function(unrolled_int8_losses, mtf.SpmdMeshImpl("all:1", ""), INPUTS)
    saved = folder.newest_readable()
    assert saved is not None
    restore(saved, [unrolled])
    assert_close(unrolled(IDS).numpy(), quantized, terms=2000, magnitude=4.0)


@pytest.mark.parametrize("weights", ["int4", pytest.param("float8_e4m3", marks=pytest.mark.long)])
def test_a_pipeline_reads_the_numbers_of_all_its_stages(weights: str) -> None:
    """A stage holds its kernels beside those of the other stages. int4 has two of their numbers in a byte."""
    policy, found = Quantization(weights, group_size=4), []
    for mesh_shape, layout, pipeline in (
        ("all:1", "", None),
        ("rows:2;cols:2", "stage:rows;heads:cols", PipelineSchedule(2, 2)),
    ):
        model = dataclasses.replace(MODEL, stack=dataclasses.replace(STACK, pipeline=pipeline))

        def quantized(targets: mtf.Tensor, model: TransformerLM = model) -> mtf.Tensor:
            with quantized_weights(policy):
                return losses(targets, model)

        mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout)
        program = mtf.function(functools.partial(losses, model=model), mesh_impl, INPUTS)
        program.initialize()
        store = quantize_store(program, policy)
        found.append(mtf.function(quantized, mesh_impl, INPUTS, variables=store)(IDS).numpy())
    assert_close(found[1], found[0], terms=2000, magnitude=4.0)


def kernels(store: mtf.VariableStore) -> list[str]:
    return [name.removesuffix("/int8") for name in store if name.endswith("/int8")]


def summed_axes(program: mtf.Function, name: str) -> tuple[int, ...]:
    variable = program.graph.variables[name]
    assert isinstance(variable, mtf.Variable)
    assert variable.spec.matrix is not None
    return tuple(variable.shape.axis(d) for d in variable.spec.matrix[0])


def test_without_weights_a_program_gives_nan() -> None:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        with quantized_weights():
            y = mtf.layers.dense(x, "d_ff:3", use_bias=False)
        return mtf.layers.dense(y, "out:2", name="after")

    done = interpret(body, {"x": ("batch:2 hidden:4", np.ones([2, 4], np.float32))}, "rows:2", "d_ff:rows")
    assert np.isnan(done.results).all()
    shapes = {name: (value.shape, value.dtype.name) for name, value in done.variables.items()}
    assert shapes == {
        "dense/kernel/int8": ((4, 3), "int8"),
        "dense/kernel/int8_scale": ((3,), "float32"),
        "after/kernel": ((3, 2), "float32"),
        "after/bias": ((2,), "float32"),
    }


def test_the_name_of_a_format_is_no_policy() -> None:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        message = r"policy of quantization must be a Quantization, such as Quantization\('int4'\), .* and is 'int8'"
        with pytest.raises(UsageError, match=message), quantized_weights("int8"):  # type: ignore[arg-type]
            mtf.layers.dense(x, "d_ff:3")
        return mtf.layers.dense(x, "d_ff:3")

    program = mtf.function(body, mtf.PlanMeshImpl("all:1", ""), {"x": mtf.TensorSpec("batch:2 hidden:4")})
    with pytest.raises(UsageError, match="policy of quantization must be a Quantization"):
        quantize_store(program, "int8")  # type: ignore[arg-type]


def test_a_program_without_kernels_is_told() -> None:
    program = mtf.function(
        lambda x: x * mtf.get_variable(x.mesh, "w", []), mtf.PlanMeshImpl("all:1", ""), {"x": mtf.TensorSpec("n:2")}
    )
    with pytest.raises(GraphError, match="has no kernel to quantize; its floating variables with a `matrix`"):
        quantize_store(program)
