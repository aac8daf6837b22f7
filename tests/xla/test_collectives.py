"""Every collective, for every element type, on eight replicas, against the plain interpreter.

bool is sent over one axis, two, and one of size 1, other types over one order of two; in the long run all over all.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf
from hlo_collectives import collectives_of_hlo

import meshtf as mtf
from meshtf.errors import DtypeError
from meshtf.layout import Axes
from meshtf.lowering.interpreter import Interpreter
from meshtf.mesh_impl.pjrt._stablehlo import element_type
from meshtf.mesh_impl.pjrt.kinds import TPU
from meshtf.mesh_impl.pjrt.of_this_process import accelerator
from meshtf.mesh_impl.pjrt.xla_collectives import XlaCollectives, combine
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.permute import Permute
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf.planning.plan import Plan

MESH = mtf.convert_to_shape("rows:2;one:1;cols:4")
AXES: list[Axes] = [("rows",), ("cols",), ("rows", "cols"), ("cols", "rows"), ("one",)]
CORES = MESH.size
DTYPES = [
    *(tf.bool, tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.complex64, tf.complex128),
]
SHARPEST = (tf.bfloat16, tf.float32, tf.int8, tf.uint64, tf.complex128)
"""One of each way to reduce them."""
DESTINATIONS = (1, 2, 0, 3, 5, 4, 7, 6)
SLICE = (8, 3, 8)


def steps(dtype: tf.DType, over: Sequence[Axes] = AXES) -> list[CollectiveStep]:
    reductions = ("add", "multiply") if dtype.is_complex else ("add", "multiply", "max", "min")
    every = [AllReduce(axes, r) for axes, r in itertools.product(over, reductions)]
    for axes in over:
        every.append(ReduceScatter(axes, 2))
        every.append(AllGather(axes, 1))
        every += [AllToAll(axes, split_dim=a, concat_dim=b) for a, b in ((0, 1), (2, 0), (0, 0))]
    return [*every, Permute((), destinations=DESTINATIONS)]


def values(dtype: tf.DType) -> list[np.ndarray]:
    """By core; products of them stay within the smallest types."""
    generator = np.random.default_rng(0)
    arrays = [generator.integers(0 if dtype.is_unsigned else -1, 3, SLICE) for _ in range(CORES)]
    return [(x + 1j * x[::-1] if dtype.is_complex else x).astype(dtype.as_numpy_dtype) for x in arrays]


def hlo_of(steps: list[CollectiveStep], dtype: tf.DType, shape: tuple[int, ...]) -> bytes:
    def core_program(x: tf.Tensor) -> list[tf.Tensor]:
        return [step.emit(XlaCollectives(MESH), x) for step in steps]

    function = tf.function(core_program, jit_compile=True, autograph=False)
    return function.experimental_get_compiler_ir(tf.zeros(shape, dtype))(stage="hlo_serialized")


@pytest.mark.parametrize(
    ("dtype", "over"),
    [
        pytest.param(tf.bool, [AXES[0], *AXES[3:]], id="bool"),
        *(pytest.param(dtype, AXES[3:4], id=dtype.name) for dtype in SHARPEST),
        *(pytest.param(dtype, AXES, id=f"{dtype.name} over all axes", marks=pytest.mark.long) for dtype in DTYPES),
    ],
)
def test_each_collective_of_each_type(dtype: tf.DType, over: Sequence[Axes]) -> None:
    given, every = values(dtype), steps(dtype, over)
    interpreter = Interpreter(Plan(MESH, (), (), (), False))
    expected = [interpreter.collective(step, given) for step in every]
    cores = accelerator(TPU, CORES).on(MESH, None)
    program = cores.compile(hlo_of(every, dtype, SLICE), [(e[0].shape, dtype.as_numpy_dtype) for e in expected])
    for step, actual, each in zip(every, program.start([cores.put(given)]), expected, strict=True):
        for core, own in enumerate(each):
            assert cores.piece(actual, core).dtype == dtype.as_numpy_dtype
            np.testing.assert_array_equal(cores.piece(actual, core), own, f"{step} on core {core}")  # small integers


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float32, tf.float64], ids=lambda d: d.name)
def test_a_maximum_or_minimum_of_a_nan_is_nan(dtype: tf.DType) -> None:
    """XLA for CPUs takes the larger of two numbers, which loses a NaN."""
    numbers = np.array(
        [[1.0, -2.0, np.inf, -np.inf, 0.0], [np.nan, 3.0, np.nan, 5.0, -1e-3], [7.0, -9.0, 1.0, 2.0, 1e-3]]
    )
    given = list(np.resize(numbers, (CORES, 5)).astype(dtype.as_numpy_dtype))
    every: list[CollectiveStep] = [AllReduce(("rows", "cols"), "max"), AllReduce(("rows", "cols"), "min")]
    cores = accelerator(TPU, CORES).on(MESH, None)
    program = cores.compile(hlo_of(every, dtype, (5,)), [((5,), dtype.as_numpy_dtype)] * 2)
    for choose, actual in zip((np.max, np.min), program.start([cores.put(given)]), strict=True):
        found, expected = cores.piece(actual, 0), choose(np.array(given).astype(np.float64), axis=0)
        assert found.dtype == dtype.as_numpy_dtype
        np.testing.assert_array_equal(found.astype(np.float64), expected)


def test_nothing_to_send_is_not_sent() -> None:
    every = [s for s in steps(tf.float32) if s.axes == ("one",)]
    assert not collectives_of_hlo(hlo_of(every, tf.float32, SLICE))
    assert not collectives_of_hlo(hlo_of(steps(tf.float32), tf.float32, (8, 0, 8)))


def test_complex_numbers_have_no_order() -> None:
    with pytest.raises(DtypeError, match="no all_reduce with reduction 'max' for complex64"):
        combine(tf.complex64, "max")


def test_text_is_not_sent() -> None:
    with pytest.raises(DtypeError, match="XLA has no collectives for string"):
        element_type(tf.string)
