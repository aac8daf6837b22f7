"""The table of docs/tpu.md: small random programs around each operation, with gradients, on eight replicas."""

from __future__ import annotations

import random
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from agreement import TORUS, OneCore, tpu_function
from xla_run import XlaRun

import meshtf as mtf
import meshtf.compat.mesh_tensorflow as original
from meshtf.errors import CompilationError, ExecutionError
from meshtf.mesh_impl.mesh_options import PRODUCT_PRECISIONS
from meshtf.ops.variables.program_step import program_step
from tests.ops.algebra import test_wrapping_integers
from tests.properties.random_programs.builder import ANY_SIZE, USUAL, RejectedError, Space
from tests.properties.random_programs.cases import CASES
from tests.properties.random_programs.checking import check_values, describe
from tests.properties.random_programs.generate import draw_layout, random_program
from tests.properties.random_programs.program import Program

MESHES = ["rows:2;cols:4", "all:8", "x:2;y:2;z:2"]
FAULTS_OF_XLA = {
    ("ifft", 1): (
        "XLA for CPUs lays a gathered array by columns, which its own Fourier transform refuses",
        r'program "program" failed on the cores .*fft_thunk.*IsMonotonicWithDim0Major',
    ),
}
"""Described in docs/tpu.md; with what the test then says. Where one is mended, its test fails."""
PAGE = Path(__file__).parents[2] / "docs" / "tpu.md"


def drawn(
    rng: random.Random, case: str, mesh_shape: mtf.Shape, longest: int, space: Space = USUAL
) -> tuple[mtf.Mesh, Program]:
    for _ in range(40):
        mesh = mtf.Mesh(mtf.Graph("program"))
        try:
            with mesh.graph:
                program_step(mesh)
                return mesh, random_program(rng, mesh, mesh_shape, case, longest=longest, space=space)
        except RejectedError:
            continue
    raise AssertionError(f"no program with case {case!r} was found")


def check_case(case: str, seed: int, mesh: str, longest: int = 1) -> None:
    rng, mesh_shape = random.Random(zlib.crc32(f"{case} {seed}".encode())), mtf.convert_to_shape(mesh)
    graph_mesh, program = drawn(rng, case, mesh_shape, longest)
    rules = draw_layout(rng, program, mesh_shape)
    check_run(graph_mesh, program, mtf.TpuMeshImpl(mesh_shape, rules, physical_torus=TORUS))


def check_run(graph_mesh: mtf.Mesh, program: Program, mesh_impl: mtf.TpuMeshImpl | mtf.GpuMeshImpl) -> None:
    """Runs a program, and compares all its results and its collectives."""
    mesh_shape = mesh_impl.shape
    lowering = mtf.Lowering(graph_mesh.graph, {graph_mesh: mesh_impl})
    plan = lowering.execution(program.fetches).plan
    variables = initial_values(graph_mesh, program, mesh_shape) if plan.variable_names else {}
    run = XlaRun(lowering, program.fetches, variables)
    results = run(program.feeds)
    run.check_collectives()
    try:
        variables = {name: run.variable(name) for name in plan.variable_names}
        check_values(program, results, variables, same_kernels=False)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{describe(program, mesh_shape, mesh_impl.layout_rules)}") from None


def initial_values(mesh: mtf.Mesh, program: Program, mesh_shape: mtf.Shape) -> dict[str, np.ndarray]:
    one_core = mtf.Shape([(axis.name, 1) for axis in mesh_shape])  # the same axes, which overrides may name
    lowering = mtf.Lowering(mesh.graph, {mesh: mtf.SpmdMeshImpl(one_core, "", ["CPU:0"])})
    lowering.execution(program.fetches).initialize({})
    return {name: lowering.variables[name] for name in lowering.variables}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.long] * (i % 12 != 6)) for i, case in enumerate(CASES)]
)
def test_case(case: str) -> None:
    """Every twelfth, and all of them in the long run: the interpreter has every one in each run."""
    check_case(case, 0, MESHES[0])


class XlaFaultError(Exception):
    """A program fails just as FAULTS_OF_XLA says."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "seed"),
    [
        pytest.param(case, seed, marks=[pytest.mark.xfail(raises=XlaFaultError, reason=FAULTS_OF_XLA[case, seed][0])])
        if (case, seed) in FAULTS_OF_XLA
        else (case, seed)
        for case, seed in dict.fromkeys([*((case, 1 + i % 4) for i, case in enumerate(CASES)), *FAULTS_OF_XLA])
    ],
)
def test_case_among_others(case: str, seed: int) -> None:
    """Each with one of four seeds in turn, and so on one of the meshes. Its neighbours, of its kind, have others."""
    try:
        check_case(case, seed, MESHES[seed % 3], longest=4)
    except (AssertionError, ExecutionError) as error:
        _, message = FAULTS_OF_XLA.get((case, seed), ("", None))
        if message is None or not re.match(message, str(error)):
            raise
        raise XlaFaultError(str(error)) from None


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.long] * (i % 36 != 18)) for i, case in enumerate(CASES)]
)
def test_case_on_gpus_with_padding_and_precision(case: str) -> None:
    """Dimensions of any size, also split over axes that do not divide them; and each precision of products."""
    rng, mesh_shape = random.Random(zlib.crc32(case.encode())), mtf.convert_to_shape(MESHES[len(case) % 3])
    mesh, program = drawn(rng, case, mesh_shape, 4, ANY_SIZE)
    rules, precision = draw_layout(rng, program, mesh_shape), rng.choice(PRODUCT_PRECISIONS)
    options = mtf.MeshOptions(max_padding=program.max_padding, product_precision=precision)
    try:
        check_run(mesh, program, mtf.GpuMeshImpl(mesh_shape, rules, options=options))
    except ExecutionError as error:
        for reason, message in FAULTS_OF_XLA.values():
            if re.match(message, str(error)):
                pytest.xfail(reason)
        raise


@pytest.mark.long
def test_what_the_field_has() -> None:
    """The operations that jax.numpy has and random programs do not draw, in one program with its gradients."""
    numbers = np.random.default_rng(0)
    x, n = numbers.uniform(0.1, 0.9, (8, 8)).astype(np.float32), numbers.integers(0, 8, (8, 8), np.int32)

    def program(x: mtf.Tensor, n: mtf.Tensor) -> list[mtf.Tensor]:
        names = (
            "exp2 log2 log10 tan asin acos atan sinh cosh asinh atanh erfinv lgamma digamma silu mish celu soft_sign "
            "log_sigmoid relu6 hard_tanh hard_sigmoid hard_swish nan_to_num"
        )
        row = mtf.reduce_mean(x, reduced_dim="h")
        ys = [*(getattr(mtf, name)(x) for name in names.split()), mtf.acosh(1.0 + x), mtf.logaddexp(x, row)]
        ys += [mtf.atan2(x, row), mtf.hypot(x, row), mtf.tril(x, "b", "h"), mtf.triu(x, "b", "h", 1)]
        ys += [
            mtf.repeat(x, 2, "h"),
            mtf.tile(x, 2, "b"),
            mtf.cumprod(x, "h"),
            mtf.cumlogsumexp(x, "b"),
            mtf.diff(x, "b"),
        ]
        ys += [mtf.reduce_variance(x, reduced_dim="b"), mtf.reduce_std(x), mtf.norm(x, reduced_dim="h")]
        ys += [mtf.median(x, "h"), mtf.quantile(x, 0.3, "b")]
        whole = [f(n, 3) for f in (mtf.bitwise_and, mtf.bitwise_or, mtf.bitwise_xor, mtf.left_shift, mtf.right_shift)]
        whole += [mtf.bitwise_not(n), mtf.count_nonzero(n, reduced_dim="b"), mtf.argmin(x, "h")]
        whole += [mtf.cast(f(x), tf.int32) for f in (mtf.is_nan, mtf.is_inf, lambda x: mtf.is_close(x, row, 0.1))]
        made = [mtf.eye(x.mesh, ("b", 8), ("h", 8)), mtf.linspace(x.mesh, 0.0, 1.0, ("b", 8))]
        return [*ys, *whole, *made, *mtf.gradients([mtf.reduce_sum(mtf.square(y)) for y in ys], [x])]

    specs = {"x": mtf.TensorSpec("b:8 h:8"), "n": mtf.TensorSpec("b:8 h:8", tf.int32)}
    OneCore.of(program, specs, [{"x": x, "n": n}]).check("rows:2;cols:4", "b:rows;h:cols")


def test_what_random_programs_do_not_draw() -> None:
    b, h, w, c, k = "b:8", "h:8", "w:8", "c:4", "k:2"
    x_shape, dy_shape = mtf.convert_to_shape(f"{b};{h};{w};{c}"), mtf.convert_to_shape(f"{b};{h};{w};{k}")
    filter_shape, fed = mtf.convert_to_shape(f"fh:3;fw:3;{c};{k}"), {}

    def gradients_of_convolutions(x: mtf.Tensor, dy: mtf.Tensor) -> list[mtf.Tensor]:
        kernel = mtf.get_variable(x.mesh, "kernel", filter_shape, initializer=mtf.RandomNormal())
        y = mtf.max_pool(x, {"h": 2, "w": 2}, {"h": 2, "w": 2})
        return [
            original.conv2d_backprop_input(x_shape, kernel, dy, 1, "SAME"),
            original.conv2d_backprop_filter(x, filter_shape, dy, 1, "SAME"),
            original.conv2d_transpose_backprop_input(dy_shape, kernel, x, 1, "SAME"),
            original.pool_backprop(x, y, y, {"h": 2, "w": 2}, {"h": 2, "w": 2}, "MAX_2D"),
        ]

    def variables_and_names(x: mtf.Tensor, dy: mtf.Tensor) -> list[mtf.Tensor]:
        spread = mtf.get_variable(x.mesh, "spread", x_shape, initializer=mtf.RandomUniform(-1, 1))
        near = mtf.get_variable(x.mesh, "near", dy_shape, initializer=mtf.TruncatedNormal(0, 1))
        mtf.assign(spread, x)
        y = mtf.matmul(mtf.rename_dimension(x, "b", "a"), dy, output_shape=[("a", 8), ("b", 8)])
        mtf.scalar_summary("mean", mtf.reduce_mean(y))
        mtf.histogram_summary("all", y)
        return [mtf.export(y, "y"), mtf.read_variable(spread), near]

    generator = np.random.default_rng(0)
    for name, shape in (("x", x_shape), ("dy", dy_shape)):
        fed[name] = generator.normal(size=shape.to_integer_list).astype(np.float32)
    specs = {"x": mtf.TensorSpec(x_shape), "dy": mtf.TensorSpec(dy_shape)}
    OneCore.of(gradients_of_convolutions, specs, [fed]).check("rows:2;cols:4", "h:rows;w:cols")
    OneCore.of(variables_and_names, specs, [fed]).check("rows:2;cols:4", "b:rows;h:cols")


@pytest.mark.parametrize("layout", ["", "vocab:cols"])
def test_the_largest_of_random_numbers_compiles(layout: str) -> None:
    """Where the numbers are drawn in the loop that compares them, of a multiple of 8 iterations, LLVM did not end."""
    shape = mtf.convert_to_shape("batch:6;vocab:64")
    logits = np.random.default_rng(0).normal(size=shape.to_integer_list).astype(np.float32)

    def sampled(logits: mtf.Tensor) -> mtf.Tensor:
        return mtf.sample_with_temperature(logits, "vocab")

    inputs = {"logits": mtf.TensorSpec(shape)}
    on_one_core = mtf.function(sampled, mtf.SpmdMeshImpl("one:1", "", ["CPU:0"]), inputs=inputs)
    step = tpu_function(sampled, inputs, "rows:2;cols:4", layout)
    np.testing.assert_array_equal(step(logits=logits), on_one_core(logits=logits))


@pytest.mark.long
def test_integers_that_overflow_are_what_they_are_elsewhere() -> None:
    arrays = {dtype.name: test_wrapping_integers.numbers(dtype) for dtype in test_wrapping_integers.DTYPES}
    specs = {name: mtf.TensorSpec([("n", array.size)], array.dtype) for name, array in arrays.items()}
    step = tpu_function(test_wrapping_integers.all_at_once, specs, "all:8", "")
    test_wrapping_integers.check([np.asarray(y) for y in step(**arrays)], arrays)


@pytest.mark.parametrize("layout", ["n:cols", pytest.param("", marks=pytest.mark.long)])
def test_running_sums_products_and_orders_of_every_dtype(layout: str) -> None:
    """XLA has kernels for running sums of floats, int32 and int64 alone, and sorts no uint16. Small integers wrap."""
    small, large = (tf.int8, tf.uint8, tf.int16, tf.uint16), (tf.int32, tf.uint32, tf.int64, tf.uint64)
    complexes = (tf.complex64, tf.complex128)
    numbers = np.arange(60, 72)
    arrays = {d.name: numbers.astype(d.as_numpy_dtype) for d in (*small, *large)}
    arrays |= {d.name: (numbers - 1j * numbers[::-1]).astype(d.as_numpy_dtype) for d in complexes}

    def results(**xs: mtf.Tensor) -> dict[str, list[mtf.Tensor]]:
        tables = [mtf.reshape(x, "k:3 n:4") for x in xs.values()]
        return {
            "sums": [mtf.cumsum(x, "n", reverse=True) for x in xs.values()],
            "products": [mtf.einsum("k n, k m -> n m", x, mtf.rename_dimension(x, "n", "m")) for x in tables],
            "sorted": [mtf.sort(x, "n", "DESCENDING") for x in xs.values() if not x.dtype.is_complex],
        }

    specs = {name: mtf.TensorSpec("n:12", array.dtype) for name, array in arrays.items()}
    found = tpu_function(results, specs, "rows:2;cols:4", layout)(**arrays)
    for sums, products, given in zip(found["sums"], found["products"], arrays.values(), strict=True):
        assert sums.dtype == products.dtype == given.dtype
        np.testing.assert_array_equal(sums, np.cumsum(given[::-1], dtype=given.dtype)[::-1])
        np.testing.assert_array_equal(products, given.reshape(3, 4).T @ given.reshape(3, 4))
    for ordered, given in zip(found["sorted"], arrays.values(), strict=False):
        assert ordered.dtype == given.dtype
        np.testing.assert_array_equal(ordered, given[::-1])


def printing(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.print_tensor(mtf.reduce_sum(x), [x], message="sum")


def table() -> dict[str, str]:
    """For each operation that the page names, what its row says."""
    rows = re.findall(r"^\| (.+) \| (.+) \|$", PAGE.read_text().split("## Operations")[1], re.MULTILINE)
    return {name: verdict for names, verdict in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_table_names_every_operation_and_tells_the_truth() -> None:
    assert sorted(table()) == sorted(mtf.ops.__all__)
    refused = {name for name, verdict in table().items() if not verdict.startswith("compiled and executed")}
    assert refused == {"print_tensor", "Print"}
    with pytest.raises(CompilationError, match="StringFormat"):
        mtf.function(
            printing,
            mtf.TpuMeshImpl("all:8", "batch:all", physical_torus=TORUS),
            inputs={"x": mtf.TensorSpec("batch:8", tf.float32)},
        )
