from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from written_out import normal

import meshtf as mtf
from meshtf.layers import (
    AttentionConfig,
    QueryKeyNorm,
    project_keys_and_values,
    project_output,
    project_queries,
    t5_attention_initializers,
)
from meshtf.layers.transformer import RmsNorm
from meshtf.testing import interpret
from tests.house.sharpest import sharpest

X = mtf.Shape([("batch", 2), ("length", 4), ("d_model", 8)])
D_MODEL = X[2]
CONFIGS = {
    "multi-head": (AttentionConfig(num_heads=4, d_kv=4, use_bias=True), "mhd", "mhd"),
    "one head": (AttentionConfig(num_heads=1, d_kv=4, num_kv_heads=1), "mhd", "mhd"),
    "multi-query": (AttentionConfig(num_heads=4, d_kv=4, num_kv_heads=1, query_scale=1.0), "mhd", "md"),
    "grouped-query": (AttentionConfig(num_heads=4, d_kv=4, num_kv_heads=2, use_bias=True), "mhgd", "mhd"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_projections(name: str, check_layers: Any) -> None:
    config, of_q, of_k = CONFIGS[name]

    def layer(x: mtf.Tensor) -> list[mtf.Tensor]:
        with mtf.variable_scope("attention"):
            q, (k, v) = project_queries(x, config), project_keys_and_values(x, config)
            return [q, k, v, project_output(q, D_MODEL, config)]

    def formula(variables: Any, x: tf.Tensor) -> list[tf.Tensor]:
        w = {key.removeprefix("attention/"): value for key, value in variables.items()}
        bias = {key: w[f"{key}_bias"] if config.use_bias else 0.0 for key in "qkvo"}
        scale = 1.0 if name == "multi-query" else 0.5
        q = scale * (tf.einsum(f"blm,{of_q}->bl{of_q[1:]}", x, w["q"]) + bias["q"])
        k, v = (tf.einsum(f"blm,{of_k}->bl{of_k[1:]}", x, w[key]) + bias[key] for key in "kv")
        return [q, k, v, tf.einsum(f"bl{of_q[1:]},{of_q[1:]}m->blm", q, w["o"]) + bias["o"]]

    layouts = ["batch:rows;heads:cols", "d_model:rows;d_kv:cols"] if name != "one head" else []
    done = check_layers(layer, formula, {"x": (X, normal([2, 4, 8], 0))}, layouts)
    assert {v.removeprefix("attention/") for v in done.variables} == {
        *"qkvo",
        *(f"{key}_bias" for key in "qkvo" if config.use_bias),
    }


@pytest.mark.parametrize(
    ("name", "over_heads"),
    sharpest(
        itertools.product(["multi-head", "multi-query", "grouped-query"], [False, True]),
        [("multi-head", False), ("multi-query", True), ("grouped-query", True)],
    ),
)
def test_norms_of_queries_and_keys(name: str, over_heads: bool, check_layers: Any) -> None:
    """x / sqrt(mean of squares + 0.1) · scale, of each head or of all together, before queries are scaled."""
    config = dataclasses.replace(
        CONFIGS[name][0], use_bias=False, query_key_norm=QueryKeyNorm(RmsNorm(0.1), over_heads)
    )
    of_q, of_k = CONFIGS[name][1:]

    def layer(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [project_queries(x, config), *project_keys_and_values(x, config)]

    def normed(y: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        axes = list(range(2, y.shape.rank)) if over_heads else [-1]
        assert scale.shape == (y.shape[2:] if over_heads else y.shape[-1:])
        return y / tf.sqrt(tf.reduce_mean(y * y, axes, keepdims=True) + 0.1) * scale

    def formula(w: Any, x: tf.Tensor) -> list[tf.Tensor]:
        q, k, v = (tf.einsum(f"blm,{f}->bl{f[1:]}", x, w[key]) for key, f in (("q", of_q), ("k", of_k), ("v", of_k)))
        scale = 1.0 if name == "multi-query" else 0.5
        return [scale * normed(q, w["queries/norm/scale"]), normed(k, w["keys/norm/scale"]), v]

    layouts = ["batch:rows;heads:cols", "d_model:rows;d_kv:cols"]
    check_layers(layer, formula, {"x": (X, normal([2, 4, 8], 0))}, layouts)


def test_keys_of_one_token_have_no_length() -> None:
    config, shapes = CONFIGS["grouped-query"][0], []

    def program(x: mtf.Tensor) -> mtf.Tensor:
        k, _ = project_keys_and_values(x, config)
        own, _ = project_keys_and_values(x, config, keeps_length=True)
        shapes.append((str(k.shape), str(own.shape)))
        return k

    for shape in (X, X[::2]):
        interpret(program, {"x": (shape, normal(shape.to_integer_list, 0))}, "rows:1")
    assert shapes == [
        ("batch:2 memory_length:4 heads:2 d_kv:4", "batch:2 length:4 heads:2 d_kv:4"),
        ("batch:2 heads:2 d_kv:4", "batch:2 heads:2 d_kv:4"),
    ]


def test_initial_deviations_of_t5() -> None:
    config = AttentionConfig(num_heads=16, d_kv=16, initializers=t5_attention_initializers(d_kv=16))
    wide = mtf.Shape([("batch", 1), ("length", 1), ("d_model", 64)])

    def program(x: mtf.Tensor) -> mtf.Tensor:
        return project_output(project_queries(x, config), wide[2], config) + project_keys_and_values(x, config)[0].size

    variables = interpret(_all_values(program), {"x": (wide, normal([1, 1, 64], 0))}, "rows:1").results
    expected = {"q": (64 * 16) ** -0.5, "k": 64**-0.5, "v": 64**-0.5, "o": 256**-0.5}
    assert variables.keys() == expected.keys()
    for name, deviation in expected.items():
        five_standard_errors = 5 / np.sqrt(2 * variables[name].size)
        assert variables[name].std() == pytest.approx(deviation, rel=five_standard_errors)
        assert np.abs(variables[name]).max() > 2.5 * deviation, "normals that are not cut"


def _all_values(program: Any) -> Any:
    def values(x: mtf.Tensor) -> dict[str, mtf.Tensor]:
        program(x)
        return {name: variable.outputs[0] for name, variable in x.graph.variables.items()}

    return values


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_heads": 6, "num_kv_heads": 4}, r"num_heads=6 is not a multiple of num_kv_heads=4; each head of keys"),
        ({"num_heads": 0}, r"num_heads must be a positive integer, and is 0"),
        ({"num_heads": 4, "num_kv_heads": -2}, r"num_kv_heads must be a positive integer, and is -2"),
    ],
)
def test_heads_that_do_not_divide(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=f"AttentionConfig: {message}"):
        AttentionConfig(d_kv=4, **sizes)
