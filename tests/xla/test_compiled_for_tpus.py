"""Every operation compiled by the TPU's own compiler, many in one program, with gradients, under random layouts."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence

import pytest
import tensorflow as tf
from joint_operations import joint_program

import meshtf as mtf
from meshtf.errors import CompilationError, MeshtfError
from meshtf.quantization import quantize, quantized_einsum
from tests.house.pairwise import pairwise
from tests.properties.random_programs.cases import CASES

TOPOLOGIES = ["v2:2x2", "v3:2x2", "v4:2x2x2", "v5e:2x4", "v5p:2x2x2", "v6e:2x4", "tpu7x:2x2x1"]
BATCHES = 8
COMPLEX128 = "libtpu compiles no quotient, abs and Fourier transform of complex128, nor some products: docs/tpu.md"
SMALL_CONVOLUTION = "libtpu ends at some small convolutions for v2 and v3: docs/tpu.md"
REFUSALS = {
    "Check failed: operand->shape().IsTuple()": COMPLEX128,
    "Unexpected operand type for FFT: c128": COMPLEX128,
    "xprecision_emitters.cc": COMPLEX128,
    "Check failed: llo::CouldLtS32(digits[i], bounds[i])": SMALL_CONVOLUTION,
}


def batch(number: int) -> tuple[str, ...]:
    return tuple(CASES)[number::BATCHES]


@functools.cache
def program(cases: tuple[str, ...], seed: int, mesh: str) -> tuple[mtf.Lowering, list[mtf.Tensor]]:
    return joint_program(cases, seed, mtf.convert_to_shape(mesh))


def check(cases: tuple[str, ...], seed: int, mesh: str, topology: str) -> None:
    """Where they do not compile together, says which do not by themselves."""
    lowering, fetches = program(cases, seed, mesh)
    try:
        compiled = lowering.compile(topology, fetches)
    except MeshtfError as error:
        found = refused(cases, seed, mesh, topology)
        known = [reason for message in found.values() for text, reason in REFUSALS.items() if text in message]
        if not found or len(known) < len(found):
            raise AssertionError(f"{sorted(found)}\n{error}") from None
        pytest.xfail("; ".join(dict.fromkeys(known)))
    assert compiled.memory.peak < compiled.memory.available


def refused(cases: Sequence[str], seed: int, mesh: str, topology: str) -> dict[str, str]:
    """Why, by case."""
    found = {}
    for case in cases:
        lowering, fetches = program((case,), seed, mesh)
        try:
            lowering.compile(topology, fetches)
        except MeshtfError as error:
            found[case] = str(error)
    return found


SOME = (*tuple(CASES)[::24], "scan")


@pytest.mark.parametrize("cases", [SOME, *(pytest.param(batch(n), marks=pytest.mark.long) for n in range(BATCHES))])
def test_every_operation(cases: tuple[str, ...]) -> None:
    """Some of them, and all in the long run."""
    check(cases, 0, "rows:2;cols:4", "v5e:2x4")


def test_products_of_int64() -> None:
    """libtpu has no product of their matrices. Neither einsum nor grouped_matmul asks for one."""

    def products(x: mtf.Tensor, w: mtf.Tensor, sizes: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.einsum("batch k, n k m -> batch n m", x, w), mtf.grouped_matmul(x, w, sizes, "batch", "n")]

    shapes = {"x": "batch:8 k:3", "w": "n:2 k:3 m:4", "sizes": "n:2"}
    specs = {name: mtf.TensorSpec(shape, tf.int64) for name, shape in shapes.items()}
    assert mtf.function(products, mtf.PlanMeshImpl("all:8", "batch:all"), specs).compile("v5e:2x4").hlo


@pytest.mark.long
def test_products_of_int8_stay_products_of_int8() -> None:
    """The program multiplies int32 that were converted from int8. libtpu multiplies the int8 numbers."""

    def product(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return quantized_einsum(quantize(x, "hidden"), quantize(w, "hidden"), "batch d_ff")

    specs = {"x": mtf.TensorSpec("batch:8192 hidden:1024"), "w": mtf.TensorSpec("hidden:1024 d_ff:1024")}
    program = mtf.function(product, mtf.PlanMeshImpl("all:8", "batch:all"), specs).compile("v5e:2x4").hlo
    ((x, w),) = re.findall(r"= s32\S+ convolution\((\S+), (\S+)\)", program)
    assert f"{x} = s8[" in program
    assert f"{w} = s8[" in program


@pytest.mark.long
def test_narrow_logits_are_widened_where_they_are_used() -> None:
    """If the loss and its gradient shared wide logits, these would be written. So would a copy of them, since the
    product that makes the weights' gradient wants another order: the peak would be 2.4 times as high.
    """
    batch, length, d_model, vocab = (
        mtf.Dimension(name, size) for name, size in (("batch", 64), ("length", 256), ("d_model", 256), ("vocab", 32768))
    )

    def train(x: mtf.Tensor, targets: mtf.Tensor) -> list[mtf.Tensor | None]:
        x, w = mtf.to_bfloat16(x), mtf.to_bfloat16(mtf.get_variable(x.mesh, "w", [d_model, vocab]))
        logits = mtf.einsum([x, w], [batch, length, vocab])
        loss = mtf.reduce_mean(mtf.layers.softmax_cross_entropy_with_logits(logits, targets, vocab))
        return [loss, *mtf.gradients([loss], [x, w])]

    specs = {"x": mtf.TensorSpec([batch, length, d_model]), "targets": mtf.TensorSpec([batch, length], tf.int32)}
    compiled = mtf.function(train, mtf.PlanMeshImpl("all:8", "batch:all"), specs).compile("v5e:2x4")
    program = compiled.hlo[compiled.hlo.index("ENTRY") :]
    assert "bf16[2048,32768]" in program
    assert not re.search(r"f32\[(2048|8,256),32768\]", program)
    assert 0.9 <= compiled.planned_peak / compiled.memory.peak <= 1.1


@pytest.mark.long
def test_random_numbers_of_float64() -> None:
    """Which are made from the bits of a float64. The programs above have them where they draw that type."""

    def drawn(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        shape = mtf.convert_to_shape("n:64;k:8")
        draws = (mtf.random_uniform, mtf.random_normal, mtf.random_truncated_normal)
        sampled = mtf.sample_with_temperature(mtf.zeros(mesh, shape, tf.float64), "k")
        return [sampled, *(draw(mesh, shape, tf.float64) for draw in draws)]

    compiled = mtf.function(drawn, mtf.PlanMeshImpl("all:8", "n:all"), inputs={}).compile("v5e:2x4")
    assert compiled.memory.peak < compiled.memory.available


@pytest.mark.long
@pytest.mark.xfail(raises=CompilationError, reason=COMPLEX128)
@pytest.mark.parametrize(
    "fn",
    [mtf.abs, lambda x: mtf.divide(x, mtf.conj(x)), lambda x: mtf.fft(x, "k")],
    ids=["abs", "divide", "fft"],
)
def test_complex128(fn: Callable[[mtf.Tensor], mtf.Tensor]) -> None:
    """By itself: a random program with one of them is expected to fail, too."""
    inputs = {"x": mtf.TensorSpec("n:8;k:6", tf.complex128)}
    assert mtf.function(fn, mtf.PlanMeshImpl("all:8", "n:all"), inputs=inputs).compile("v5e:2x4").hlo


@pytest.mark.long
@pytest.mark.xfail(raises=CompilationError, reason=SMALL_CONVOLUTION)
def test_a_small_convolution_for_v2() -> None:
    """By itself, as above."""

    def convolved(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.conv2d(x, w, strides=[7, 5], padding="VALID")
        return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [x, w])]

    inputs = {"x": mtf.TensorSpec("height:7 width:5 in:8"), "w": mtf.TensorSpec("f_height:2 f_width:2 in:8 out:1")}
    assert mtf.function(convolved, mtf.PlanMeshImpl("all:8", "in:all"), inputs=inputs).compile("v2:2x2").hlo


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "topology", "mesh"), pairwise(itertools.product(range(BATCHES), TOPOLOGIES, ["all:8", "x:2;y:2;z:2"]))
)
def test_every_operation_otherwise(number: int, topology: str, mesh: str, seed: int) -> None:
    """Under layouts of each run's own, for older and newer chips: each eighth for each chip, on one of two meshes."""
    check(batch(number), seed, mesh, topology)
