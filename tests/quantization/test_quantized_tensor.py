"""int8 numbers and scales are NumPy's, under layouts of every kind, and err by half a step at most."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.quantization import QuantizedTensor, quantize
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

LAYOUTS = ["", "hidden:rows", "d_ff:cols", "hidden:cols;d_ff:rows", "hidden:rows+cols", "heads:rows;hidden:cols"]
"""Of a weight [heads:2 hidden:12 d_ff:7] on 2 x 2 cores, which 7 does not divide among."""

WEIGHT = np.random.default_rng(0).normal(size=[2, 12, 7]).astype(np.float32)
WEIGHT[:, :, 3] = 0.0
WEIGHT[0, :, 4] = np.tile([127.0, 0.5, 1.5, -2.5, -0.5, -126.5], 2)  # of which the scale is 1: halves go to even
WEIGHT[0, :, 5] = 1e-40  # too small for a scale


def steps(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """NumPy's numbers, and scales with axes of size 1."""
    scale = np.abs(x).max(axes, keepdims=True) / np.float32(127)
    scale = np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)
    return np.clip(np.rint(x / scale), -127, 127).astype(np.int8), scale


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_and_scales_are_numpys(layout: str) -> None:
    def body(x: mtf.Tensor) -> list[mtf.Tensor]:
        by_output, by_group = quantize(x, "hidden"), quantize(x, "hidden", group_size=3)
        of_all = quantize(x, "heads hidden d_ff")
        parts = [t for q in (by_output, by_group, of_all) for t in (q.values, q.scale)]
        return [*parts, by_output.dequantized(), by_group.dequantized()]

    found = interpret(body, {"x": ("heads:2 hidden:12 d_ff:7", WEIGHT)}, "rows:2;cols:2", layout).results
    values, scale = steps(WEIGHT, (1,))
    group_values, group_scale = steps(WEIGHT.reshape(2, 4, 3, 7), (2,))
    whole_values, whole_scale = steps(WEIGHT, (0, 1, 2))
    by_output, by_group = [values, scale[:, 0]], [group_values.reshape(2, 12, 7), group_scale[:, :, 0]]
    of_all = [whole_values, whole_scale[0, 0, 0]]
    read = [values * scale, (group_values * group_scale).reshape(2, 12, 7)]
    for own, numpys in zip(found, [*by_output, *by_group, *of_all, *read], strict=True):
        np.testing.assert_array_equal(own, numpys)
    assert values[0, :6, 4].tolist() == [127, 0, 2, -2, 0, -126]
    assert (scale[:, 0, 3] == 1).all()


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_the_error_is_half_a_step(dtype: tf.DType) -> None:
    """Three roundings of float32 on the way, of numbers up to 127 steps, and one to bfloat16."""

    def body(x: mtf.Tensor) -> list[mtf.Tensor]:
        x = mtf.cast(x, dtype)
        q = quantize(x, "n")
        return [mtf.to_float(x), mtf.to_float(q.dequantized(dtype)), mtf.broadcast(q.scale, x.shape)]

    x = np.random.default_rng(1).normal(size=[4, 1000]).astype(np.float32)
    given, found, step = interpret(body, {"x": ("rows:4 n:1000", x)}, "all:2", "n:all").results
    last = 0.0 if dtype == tf.float32 else 2.0**-8
    assert (np.abs(found - given) <= step * (0.5 + 3 * 127 * 2.0**-24) + last * np.abs(given) * 1.01).all()
    assert np.abs(found - given).max() > 0.4 * step.min()


def test_no_number_hides_one_that_is_not_finite() -> None:
    x = np.array([[1.0, np.inf], [np.nan, 2.0], [3.0, -3.0]], np.float32)
    found = interpret(lambda x: quantize(x, "n").dequantized(), {"x": ("rows:3 n:2", x)}, "all:2", "n:all").results
    np.testing.assert_array_equal(np.isnan(found), [[True, True], [True, True], [False, False]])


def test_groups_and_scales_are_split_without_messages() -> None:
    """A group's dimension has the name of the whole: no core sends anything to quantize and to read."""
    body = lambda x: quantize(x, "hidden", group_size=4).dequantized()  # noqa: E731
    inputs = {"x": mtf.TensorSpec("hidden:16 d_ff:8")}
    program = mtf.function(body, mtf.PlanMeshImpl("rows:2;cols:2", "hidden:rows;d_ff:cols"), inputs)
    assert program.report().bytes_sent_per_core == 0


def test_mistakes_are_told() -> None:
    with mtf.Graph() as graph:
        mesh = mtf.Mesh(graph)
        x, values = mtf.ones(mesh, "batch:4 hidden:8"), mtf.ones(mesh, "hidden:8", tf.int8)
        with pytest.raises(DtypeError, match="quantize: a floating tensor is needed, not int8; convert it"):
            quantize(values, "hidden")
        with pytest.raises(ShapeError, match=r'no dimension "hiden" in \[batch:4 hidden:8\]; did you mean "hidden"'):
            quantize(x, "hiden")
        with pytest.raises(ShapeError, match=r'group_size 3 does not divide dimension "hidden" of size 8'):
            quantize(x, "hidden", group_size=3)
        with pytest.raises(ShapeError, match=r"along one dimension, but reduced_dims are \[batch:4 hidden:8\]"):
            quantize(x, "batch hidden", group_size=2)
        with pytest.raises(DtypeError, match="values of int8 and a scale of float32, not float32 and float32"):
            QuantizedTensor(x, x)
        with pytest.raises(ShapeError, match=r'\[hidden:3\] has 3 groups along "hidden", which do not divide the val'):
            QuantizedTensor(values, mtf.ones(mesh, "hidden:3"))
