"""A user's program, as pyright and mypy see it with meshtf installed from its wheel. `make typecheck` checks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, assert_type

import numpy as np
import numpy.typing as npt

import meshtf as mtf

mesh_impl = mtf.PlanMeshImpl("rows:2", "batch:rows")
classes = mtf.Dimension("classes", 10)


@mtf.checked
def mean_of_squares(x: mtf.f32["batch pixels:784"]) -> mtf.f32["batch:batch"]:
    assert_type(x, mtf.Tensor)
    return mtf.reduce_mean(mtf.square(x), reduced_dim="pixels")


@mtf.function(mesh_impl, seed=7, max_plans=4)
def step(images: mtf.f32["batch pixels:784"], labels: Annotated[mtf.Tensor, mtf.i32["batch"]]) -> mtf.f32[""]:
    weights = mtf.get_variable("weights", "pixels:784 classes:10", initializer=mtf.RandomNormal(stddev=0.02))
    logits = mtf.einsum([images, weights], reduced_dims=[("pixels", 784)])
    losses = mtf.layers.softmax_cross_entropy_with_logits(logits, mtf.one_hot(labels, classes), classes)
    return mtf.reduce_mean(losses + mean_of_squares(images))


def with_the_mesh(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
    same: Callable[..., mtf.Tensor] = mtf.zeros
    assert_type(mtf.zeros(mesh, "batch:4"), mtf.Tensor)
    assert_type(mtf.zeros("batch:4"), mtf.Tensor)
    assert_type(mtf.get_variable(mesh, "w", [classes], trainable=False), mtf.Tensor)
    assert_type(mtf.RandomNormal(stddev=0.02)("batch:4"), mtf.Tensor)
    initializer: mtf.layers.Initializer = mtf.RandomNormal()
    assert_type(mtf.DropoutInBlocks("batch:4", "batch", 2, 0.1, "dropout").block(mtf.constant(0)), mtf.Tensor)
    config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
    assert_type(mtf.layers.KeyValueCache.empty("batch:4", 16, config), mtf.layers.KeyValueCache)
    assert_type(mtf.layers.KeyValueCache.empty(mesh, "batch:4", 16, config), mtf.layers.KeyValueCache)
    x += initializer(mesh, x.shape, x.dtype)
    return x + same(mesh, "batch:4") + mtf.vmap(normalized, "batch")(x)


def normalized(row: mtf.f32["hidden:hidden"]) -> mtf.Tensor:
    return row / mtf.reduce_sum(row)


def trained(images: npt.NDArray[np.float32], labels: npt.NDArray[np.int32]) -> Any:
    assert_type(step, mtf.Function)
    assert_type(step.at(batch=64), mtf.Function)
    assert_type(mtf.function(with_the_mesh, mesh_impl, {"x": mtf.TensorSpec("batch:4")}), mtf.Function)
    return step(images=images, labels=labels)
