"""Forward, gradients and ten training steps on eight replicas, against one core and the interpreter."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from agreement import OneCore, tpu_function
from xla_run import XlaRun

import meshtf as mtf
from meshtf.errors import NonFiniteError
from meshtf.layers import AttentionMask, AttentionPattern, Tokens
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.house.by_kind import by_kind
from tests.models.transformers import MODELS, case

pytestmark = pytest.mark.plain_cpu

STEPS = 10
BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 16), mtf.Dimension("d_model", 8), mtf.Dimension("d_ff", 32)
IMAGES = mtf.convert_to_shape("batch:8;height:16;width:8;channels:4")
HEADS, D_KV = mtf.Dimension("heads", 4), mtf.Dimension("d_kv", 4)
TEXT = mtf.convert_to_shape("batch:4;length:32;d_model:8")
MLP_LAYOUTS = [
    ("all:8", "batch:all", {}),
    ("rows:2;cols:4", "batch:rows;d_ff:cols", {}),
    ("rows:4;cols:2", "batch:cols;d_model:rows", {"bucket_bytes": 0}),
    ("x:2;y:2;z:2", "batch:x;d_ff:y+z", {"parameter_layout": "d_ff:z+x"}),
    ("rows:2;cols:4", "d_ff:cols+rows", {"shard_weight_update": False}),
]
IMAGE_LAYOUTS = [
    ("rows:2;cols:4", "batch:rows;height:cols", {}),
    ("rows:2;cols:4", "height:rows;width:cols", {}),
    ("all:8", "batch:all", {}),
    ("x:2;y:2;z:2", "height:x;channels:y;hidden:z", {}),
    ("rows:4;cols:2", "batch:cols;hidden:rows", {}),
]
ATTENTION_LAYOUTS = [
    ("rows:2;cols:4", "batch:rows;heads:cols", {}),
    ("rows:4;cols:2", "length:rows;heads:cols", {}),
    ("rows:4;cols:2", "batch:rows;d_kv:cols", {}),
    ("x:2;y:2;z:2", "batch:x;length:y;heads:z", {}),
    ("all:8", "d_model:all", {}),
]
MODEL_LAYOUTS = [
    ("rows:4;cols:2", "batch:rows;heads:cols;d_ff:cols", {}),
    ("rows:4;cols:2", "batch:rows;length:cols", {"parameter_layout": "d_model:rows"}),
    ("rows:2;cols:4", "batch:cols;d_model:rows", {}),
    ("x:2;y:2;z:2", "batch:x;heads:y;d_ff:y+z;d_kv:z", {}),
    ("all:8", "d_model:all", {}),
]


def mostly_long(layouts: Sequence[tuple[str, str, dict[str, Any]]], *kept: int) -> list[Any]:
    """The layouts, of which those at some places alone run in the short run, too."""
    return [pytest.param(*x, marks=[] if i in kept else [pytest.mark.long]) for i, x in enumerate(layouts)]


def mlp(x: mtf.Tensor) -> list[mtf.Tensor]:
    h = mtf.dropout(mtf.layers.dense(x, [D_FF], activation=mtf.relu), True, rate=0.1)
    loss = mtf.reduce_mean(mtf.square(mtf.layers.dense(h, [D_MODEL])))
    kernels = [v.value for v in loss.graph.trainable_variables]
    grads = mtf.gradients([loss], [x, *kernels])
    mtf.optimize.AdamWOptimizer(0.01).minimize(loss)
    return [loss, *(g for g in grads if g is not None)]


def image_classifier(x: mtf.Tensor) -> list[mtf.Tensor]:
    hidden = mtf.Dimension("hidden", 8)
    h = mtf.relu(mtf.layers.conv2d(x, hidden, strides=(2, 1)))
    h = mtf.max_pool(h, {"height": 2, "width": 2}, {"height": 2, "width": 2})
    h = mtf.layers.layer_norm(h, hidden)
    h = mtf.avg_pool(mtf.layers.conv2d(h, mtf.Dimension("channels", 4)), {"width": 3}, {"width": 1}, "SAME")
    loss = mtf.reduce_mean(mtf.square(h))
    (grad,) = mtf.gradients([loss], [x])
    mtf.optimize.AdamWOptimizer(0.01).minimize(loss)
    assert grad is not None
    return [loss, grad]


def attention(attend: Callable[..., mtf.Tensor], x: mtf.Tensor) -> list[mtf.Tensor]:
    """Heads of dimension 4, causal within a window, and the gradient."""
    q, k, v = (mtf.einsum([x, _weights(x, n)], output_shape=[*x.shape.dims[:2], HEADS, D_KV]) for n in "qkv")
    k, v = (mtf.rename_dimension(t, "length", "memory_length") for t in (k, v))
    mask = AttentionMask(is_causal=True, window=8)
    y = attend(q, k, v, AttentionPattern.within(Tokens.along(q), mask))
    loss = mtf.reduce_mean(mtf.square(y))
    (grad,) = mtf.gradients([loss], [x])
    mtf.optimize.AdamWOptimizer(0.01).minimize(loss)
    assert grad is not None
    return [y, grad]


def plain_attention(x: mtf.Tensor) -> list[mtf.Tensor]:
    return attention(mtf.layers.dot_product_attention, x)


def lean_attention(x: mtf.Tensor) -> list[mtf.Tensor]:
    """With dropout, which each block draws by itself, and again in the gradient."""
    dropped = mtf.layers.AttentionOptions(dropout_rate=0.3)
    return attention(functools.partial(mtf.layers.lean_attention, options=dropped, is_training=True, block_size=4), x)


def local_attention(x: mtf.Tensor) -> list[mtf.Tensor]:
    return attention(mtf.layers.local_attention, x)


def _weights(x: mtf.Tensor, name: str) -> mtf.Tensor:
    return mtf.get_variable(x.mesh, name, [x.shape[-1], HEADS, D_KV], initializer=mtf.RandomNormal(stddev=0.5))


@functools.cache
def on_one_core(fn: Callable[..., Any], shape: mtf.Shape) -> OneCore:
    generator = np.random.default_rng(0)
    batches = [{"x": generator.normal(size=shape.to_integer_list).astype(np.float32)} for _ in range(STEPS)]
    return OneCore.of(fn, {"x": mtf.TensorSpec(shape)}, batches)


@functools.cache
def model_on_one_core(name: str) -> OneCore:
    model = case(name)
    return OneCore.of(model.training_step(), model.specs, [model.batch(seed) for seed in range(STEPS)])


@pytest.mark.parametrize(("mesh", "layout", "options"), mostly_long(MLP_LAYOUTS, 3))
def test_feed_forward(mesh: str, layout: str, options: dict[str, Any]) -> None:
    on_one_core(mlp, mtf.Shape([BATCH, D_MODEL])).check(mesh, layout, on_interpreter=True, **options)


@pytest.mark.parametrize(("mesh", "layout", "options"), mostly_long(IMAGE_LAYOUTS, 3))
def test_convolution_and_pooling(mesh: str, layout: str, options: dict[str, Any]) -> None:
    on_one_core(image_classifier, IMAGES).check(mesh, layout, **options)


@pytest.mark.parametrize(("mesh", "layout", "options"), mostly_long(ATTENTION_LAYOUTS, 3))
def test_plain_attention(mesh: str, layout: str, options: dict[str, Any]) -> None:
    on_one_core(plain_attention, TEXT).check(mesh, layout, **options)


@pytest.mark.parametrize(("mesh", "layout", "options"), mostly_long(ATTENTION_LAYOUTS))
def test_lean_attention(mesh: str, layout: str, options: dict[str, Any]) -> None:
    on_one_core(lean_attention, TEXT).check(mesh, layout, **options)


@pytest.mark.parametrize(("mesh", "layout", "options"), mostly_long(ATTENTION_LAYOUTS))
def test_local_attention(mesh: str, layout: str, options: dict[str, Any]) -> None:
    on_one_core(local_attention, TEXT).check(mesh, layout, **options)


@pytest.mark.long
@pytest.mark.parametrize(("mesh", "layout", "options"), MODEL_LAYOUTS[:1])
def test_language_model(mesh: str, layout: str, options: dict[str, Any]) -> None:
    model_on_one_core("gpt2").check(mesh, layout, **options)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "mesh", "layout", "options"), [(name, *x) for name, x in by_kind(MODELS, MODEL_LAYOUTS)]
)
def test_each_model(name: str, mesh: str, layout: str, options: dict[str, Any]) -> None:
    model_on_one_core(name).check(mesh, layout, on_interpreter=True, **options)


@pytest.mark.parametrize(("mesh", "layout", "options"), MLP_LAYOUTS[1:2])
def test_initial_values(mesh: str, layout: str, options: dict[str, Any]) -> None:
    """Their program, compiled, draws the same random bits on eight cores as on one."""
    expected = on_one_core(mlp, mtf.Shape([BATCH, D_MODEL]))
    step = tpu_function(mlp, expected.specs, mesh, layout, **options)
    step.initialize()
    for name, array in expected.before.items():
        assert_close(step.variables[name], array, terms=2 * FUNCTION_TERMS, what=name)


def test_updates_divided_by_parts_of_an_axis() -> None:
    """[12, 20] among eight cores: four of them divide one dimension, two the other."""
    options = PassOptions(smallest_divided_update=2)
    d_model, d_ff = mtf.Dimension("d_model", 12), mtf.Dimension("d_ff", 20)

    def step(x: mtf.Tensor) -> list[mtf.Tensor]:
        loss = mtf.reduce_mean(mtf.square(mtf.layers.dense(x, [d_ff], use_bias=False)))
        mtf.optimize.AdamWOptimizer(0.01).minimize(loss)
        return [loss]

    on_one_core(step, mtf.Shape([BATCH, d_model])).check("all:8", "batch:all", pass_options=options)
    program = tpu_function(step, {"x": mtf.TensorSpec([BATCH, d_model])}, "all:8", "batch:all", pass_options=options)
    assert len(program.report().axis_parts) == 2


def test_a_failed_check_assigns_nothing() -> None:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        h = mtf.layers.dense(x, [D_FF])
        mtf.assign(h.graph.variables["dense/bias"], mtf.reduce_sum(mtf.check_finite(mtf.log(h)), output_shape=[D_FF]))
        return mtf.reduce_sum(h)

    program = tpu_function(step, {"x": mtf.TensorSpec([BATCH, D_MODEL])}, "rows:2;cols:4", "batch:rows;d_ff:cols")
    before = {"dense/kernel": np.ones([8, 32], np.float32), "dense/bias": np.zeros([32], np.float32)}
    run = XlaRun.of(program, before)
    x = np.ones([16, 8], np.float32)
    x[13] = -1
    with pytest.raises(NonFiniteError, match="nothing was assigned in this step"):
        run({"x": x})
    np.testing.assert_array_equal(run.variable("dense/bias"), before["dense/bias"])
    run({"x": np.abs(x)})
    assert_close(run.variable("dense/bias"), np.full([32], 16 * np.log(8)), terms=(8, FUNCTION_TERMS, 16))
