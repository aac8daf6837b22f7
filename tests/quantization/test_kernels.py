"""Products with kernels are those of integers where activations are quantized: the same bits under every layout."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.ops.algebra.einsum import EinsumOperation
from meshtf.quantization import (
    Quantization,
    kernel_product,
    observed_inputs,
    quantize,
    quantize_store,
    quantized_einsum,
    quantized_weights,
)
from meshtf.quantization.number_formats import NUMBER_FORMATS
from meshtf.quantization.quantized_tensor import quantized_by
from meshtf.testing import interpret

LAYOUTS = ["", "batch:rows;hidden:cols"]
"""On 2 x 2 cores. The second splits 3 groups of 8 inside. `quantized_einsum` has more of them, on the interpreter."""

generator = np.random.default_rng(0)
X, W = (generator.normal(size=shape).astype(np.float32) for shape in ([3, 24], [24, 6]))
SPECS = {"x": mtf.TensorSpec("batch:3 hidden:24")}
STATIC = Quantization("int4", group_size=8, activations="static")


def product(x: mtf.Tensor) -> mtf.Tensor:
    kernel = mtf.get_variable(x.mesh, "kernel", "hidden:24 d_ff:6", initializer=W, matrix=("hidden", "d_ff"))
    return kernel_product(x, kernel, "batch d_ff")


def quantized(x: mtf.Tensor) -> mtf.Tensor:
    with quantized_weights(STATIC):
        return product(x)


def test_static_activations_have_the_same_bits_under_every_layout() -> None:
    """Quantized and multiplied on each mesh. The numbers are NumPy's, in float64 where they are summed.

    float32 rounds shares of groups, the sum, and two factors: 4 times, and 2^-31 of the largest share.
    """
    found = []
    for layout in LAYOUTS:
        mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", layout)
        program = mtf.function(product, mesh_impl, SPECS)
        program.initialize()
        store = quantize_store(program, STATIC, {"kernel": 1.5})  # some inputs are beyond it
        assert store["kernel/int4_input_scale"] == np.float32(1.5) / np.float32(127)
        found.append(mtf.function(quantized, mesh_impl, SPECS, variables=store)(x=X).numpy())
        np.testing.assert_array_equal(found[-1], found[0])
    x_scale, w = np.float32(1.5) / np.float32(127), W.reshape(3, 8, 6)
    w_scale = np.abs(w).max(1) / np.float32(7)
    numbers = np.clip(np.rint(X / x_scale), -127, 127).reshape(3, 3, 8), np.clip(np.rint(w / w_scale[:, None]), -7, 7)
    sums = np.einsum("bgi,gid->bgd", *(n.astype(float) for n in numbers))
    terms = sums * w_scale * x_scale
    bound = 4 * 2.0**-24 * np.abs(terms).sum(1) + 2.0**-31 * np.abs(sums).sum(1) * w_scale.max(0) * x_scale
    assert (np.abs(found[0] - terms.sum(1)) <= bound).all()


FLOAT8 = Quantization("float8_e4m3", activations="static")


def in_float8(x: mtf.Tensor) -> mtf.Tensor:
    with quantized_weights(FLOAT8):
        return product(x)


def test_float8_inputs_are_multiplied_by_float8_weights() -> None:
    """Beyond its range an input becomes the greatest number. float32 rounds 24 sums and two factors."""
    x_scale, w_scale = np.float32(1.5) / np.float32(448), np.abs(W).max(0) / np.float32(448)
    float8 = lambda x: x.astype(ml_dtypes.float8_e4m3fn).astype(np.float64)  # noqa: E731
    x8, w8 = float8(np.clip(X / x_scale, -448, 448)), float8(W / w_scale)
    bound = 26 * 2.0**-24 * (np.abs(x8) @ np.abs(w8)) * w_scale * x_scale
    for layout in LAYOUTS:
        mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", layout)
        program = mtf.function(product, mesh_impl, SPECS)
        program.initialize()
        store = quantize_store(program, FLOAT8, {"kernel": 1.5})
        assert store["kernel/float8_e4m3_input_scale"] == x_scale
        found = mtf.function(in_float8, mesh_impl, SPECS, variables=store)(x=X).numpy()
        assert (np.abs(found - x8 @ w8 * w_scale * x_scale) <= bound).all()


@pytest.mark.parametrize("policy", [STATIC, FLOAT8])
def test_nan_stays_in_its_row_and_infinity_becomes_the_largest(policy: Quantization) -> None:
    """Under layouts that split the row."""
    x, numbers, scale = X.copy(), policy.input_numbers, np.float32(0.01)
    x[1, 2], x[2, 3] = np.nan, -np.inf
    finite = x.copy()
    finite[2, 3] = -scale * np.float32(NUMBER_FORMATS[numbers].largest)

    def body(x: mtf.Tensor) -> mtf.Tensor:
        w = quantize(mtf.constant(x.mesh, W, "hidden:24 d_ff:6"), "hidden", numbers=numbers)
        given = quantized_by(x, mtf.constant(x.mesh, scale), reduced="hidden", numbers=numbers)
        return quantized_einsum(given, w, "batch d_ff")

    for layout in LAYOUTS:
        found, expected = (
            interpret(body, {"x": ("batch:3 hidden:24", given)}, "rows:2;cols:2", layout).results
            for given in (x, finite)
        )
        assert np.isnan(found).tolist() == [[False] * 6, [True] * 6, [False] * 6]
        np.testing.assert_array_equal(found, expected)


def test_the_range_of_an_input_is_its_largest_magnitude() -> None:
    """Of all products with the kernel, and over all cores."""

    def body(x: mtf.Tensor) -> list[mtf.Tensor]:
        with observed_inputs() as ranges:
            product(x)
            product(0.5 * x)
        assert list(ranges) == ["kernel"]
        return list(ranges.values())

    for layout in LAYOUTS:
        assert interpret(body, {"x": ("batch:3 hidden:24", X)}, "rows:2;cols:2", layout).results == [np.abs(X).max()]


def test_a_range_that_is_missing_or_unknown_is_told() -> None:
    program = mtf.function(product, mtf.PlanMeshImpl("all:1", ""), SPECS)
    with pytest.raises(GraphError, match="static activations need the range of each kernel's input, but input_ranges "):
        quantize_store(program, STATIC)
    with pytest.raises(GraphError, match='input_ranges has "kernl", which is not a kernel; did you mean "kernel"'):
        quantize_store(program, STATIC, {"kernl": 1.0})
    for value in (-1.0, np.nan, np.inf):
        with pytest.raises(GraphError, match=r'\["kernel"\] must be finite and at least 0, and is (-1|nan|inf)'):
            quantize_store(program, STATIC, {"kernel": value})
    with pytest.raises(GraphError, match=r"are for static activations, and Quantization\.activations is 'dynamic'; le"):
        quantize_store(program, Quantization(activations="dynamic"), {"kernel": 1.0})


def test_a_stack_has_a_range_for_each_layer() -> None:
    def stacked(x: mtf.Tensor) -> list[mtf.Tensor]:
        def layer(xs: list[mtf.Tensor], _: object) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return [mtf.layers.dense(xs[0], x.shape[-1:], use_bias=False, name="dense")], []

        return mtf.layer_stack(layer, [x], "layers:2")[0]

    program = mtf.function(stacked, mtf.PlanMeshImpl("all:1", ""), SPECS)
    (kernel,) = program.graph.variables
    with pytest.raises(ShapeError, match=r"must have a number for each layer, \[layers:2\], and has shape \[\]"):
        quantize_store(program, STATIC, {kernel: 1.0})


def test_dynamic_activations_are_multiplied_in_int8() -> None:
    """Weights that were not given are NaN, so the product is; its types tell that it is one of integers."""
    with mtf.Graph() as graph:
        x = mtf.ones(mtf.Mesh(graph), "batch:3 hidden:24", tf.bfloat16)
        with quantized_weights(Quantization(activations="dynamic")):
            assert product(x).dtype == tf.bfloat16
    products = [o for o in graph.operations if isinstance(o, EinsumOperation)]
    assert [o.outputs[0].dtype for o in products] == [tf.int32]


def test_mistakes_are_told() -> None:
    with pytest.raises(DtypeError, match="activations must be one of dynamic, static, or None, and is 'statik'; did y"):
        Quantization(activations="statik")
