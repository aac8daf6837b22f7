"""Operations that ask where a core's part begins, along a dimension that two mesh axes of different sizes split."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.random.row_keys import RowGumbel
from meshtf.ops.random.stochastic_rounding import VariableBits
from tests.built_program import BuiltProgram

RNG = np.random.default_rng(0)


def results(
    x: mtf.Tensor, kernel: mtf.Tensor, matrices: mtf.Tensor, at: mtf.Tensor, rows: mtf.Tensor, *, stride: int
) -> Mapping[str, mtf.Tensor]:
    """What the operations make of x [n, c]. Some windows lie at multiples of `stride`.

    All numbers are whole, so only means are rounded. Gradients are those of sums in which each element has its weight.
    """
    mesh, n = x.mesh, x.shape["n"]
    first, second = mtf.unstack(at, "i")[:2]
    number, low = mtf.range(mesh, n, tf.float32), mtf.fill(mesh, -np.inf, x.shape)
    values, places = mtf.top_k(mtf.reduce_sum(x, reduced_dim="c"), "n", ("k", 2))
    mtf.get_variable(mesh, "weight", x.shape)
    found = {
        "argmax": mtf.argmax(x, "n"),
        "top_k": values,
        "top_k, places": places,
        "cumsum": mtf.cumsum(x, "n"),
        "cumsum, reverse": mtf.cumsum(x, "n", exclusive=True, reverse=True),
        "cummax": mtf.cummax(x, "n"),
        "cumprod": mtf.cumprod(mtf.sign(x), "n"),
        "conv1d": mtf.conv1d(x, kernel),
        "conv1d, strides": mtf.conv1d(x, kernel, strides=stride),
        "conv1d, VALID": mtf.conv1d(x, kernel, strides=stride, padding="VALID"),
        "max_pool": mtf.max_pool(x, {"n": 3}, strides=1, padding="SAME"),
        "max_pool, strides": mtf.max_pool(x, {"n": kernel.shape["f_n"].size}, strides=stride),
        "max_pool, wide": mtf.max_pool(x, {"n": 13}, strides=1, padding="SAME"),
        "avg_pool": mtf.avg_pool(x, {"n": 4}, strides=1, padding="SAME"),
        "roll": mtf.roll(x, 5, "n"),
        "dynamic_shift": mtf.dynamic_shift(x, first, "n", wrap=True),
        "dynamic_shift, zeros": mtf.dynamic_shift(x, second, "n", wrap=False),
        "dynamic_slice": mtf.dynamic_slice(x, first, 12, "n"),
        "dynamic_update_slice": mtf.dynamic_update_slice(x, mtf.slice(x, 0, 6, "n"), second, "n"),
        "slice": mtf.slice(x, 3, 12, "n"),
        "concat": mtf.concat([x, x * 2], "n"),
        "gather": mtf.gather(x, at, "n"),
        "gather, split indices": mtf.gather(mtf.range(mesh, ("m", 9), tf.float32), rows, "m"),
        "scatter_add": mtf.scatter_add(x, at, mtf.gather(x, at, "n"), "n"),
        "scatter_update": mtf.scatter_update(mtf.ones(mesh, "m:9"), rows, number, "m"),
        "one_hot": mtf.one_hot(at, n),
        "grouped_matmul": mtf.grouped_matmul(x, matrices, sizes_of_groups(mesh), "n", "experts"),
        "random": mtf.random_uniform(mesh, x.shape),
        "noise by rows": RowGumbel(mtf.cast(at, tf.int64), n).outputs[0],
        "bits of a variable": VariableBits(mesh.graph.variables["weight"], "bits").outputs[0],
        "dropout": mtf.dropout(x, is_training=True, rate=0.5),
        "sort": mtf.sort(x, "n"),
        "reverse": mtf.reverse(x, "n"),
    }
    slopes: dict[str, mtf.Tensor | None] = {}
    for name, y in found.items():
        if y.dtype.is_floating:
            of_x, of_kernel = mtf.gradients(mtf.reduce_sum(y * weights_like(y)), [x, kernel])
            slopes |= {f"gradient of {name}": of_x, f"gradient of {name}, kernel": of_kernel}
    pooled = mtf.max_pool(low, {"n": 13}, strides=1, padding="SAME")
    slopes["gradient of max_pool, all -inf"] = mtf.gradients(mtf.reduce_sum(pooled * number), [low])[0]
    return found | {name: y for name, y in slopes.items() if y is not None}


def weights_like(y: mtf.Tensor) -> mtf.Tensor:
    return mtf.reshape(mtf.range(y.mesh, ("w", y.shape.size), tf.float32), y.shape)


def sizes_of_groups(mesh: mtf.Mesh) -> mtf.Tensor:
    return mtf.constant(mesh, [5, 2, 1, 4, 3, 2], "experts:6", tf.int32)


@pytest.mark.parametrize(("size", "stride", "taps"), [(48, 5, 4), (19, 2, 3)])
def test_the_first_axis_of_a_split_is_outermost(size: int, stride: int, taps: int) -> None:
    """Some slices do not divide. Two cores have padding then."""
    inputs = {
        "x": (f"n:{size} c:2", RNG.permutation(2 * size).reshape(size, 2).astype(np.float32) - size),
        "kernel": (f"f_n:{taps} c:2 out:2", RNG.integers(-3, 4, (taps, 2, 2)).astype(np.float32)),
        "matrices": ("experts:6 c:2 out:2", RNG.integers(-3, 4, (6, 2, 2)).astype(np.float32)),
        "at": ("i:4", np.array([7, 14, 3, 18], np.int32)),
        "rows": (f"n:{size}", RNG.integers(0, 9, size).astype(np.int32)),
    }
    program = BuiltProgram(functools.partial(results, stride=stride), inputs)
    expected = program.interpret("rows:1;cols:1").results
    for axes in ("rows+cols", "cols+rows"):
        found = program.interpret("rows:2;cols:3", f"n:{axes};experts:{axes}").results
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, err_msg=f"{name}, {axes}")
