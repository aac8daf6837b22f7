"""Every collective in every element type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.errors import DtypeError
from meshtf.mesh_impl.spmd._bound_collectives import BoundCollectives
from tests.house.sharpest import sharpest

DTYPES = (
    *(tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64, tf.bool),
    *(tf.int8, tf.uint8, tf.int16, tf.uint16, tf.uint32, tf.uint64, tf.complex64, tf.complex128),
)
SHARPEST = (tf.bfloat16, tf.bool, tf.int8, tf.int64, tf.uint16, tf.complex64)
"""One of each way to exchange and to reduce them."""
REDUCTIONS = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}
AXES = ("cols", "rows")
POSITION_ORDER = [0, 2, 1, 3]  # cores of a 2x2 mesh, by position over AXES


def reductions_of(dtype: tf.DType) -> tuple[str, ...]:
    return ("add", "multiply") if dtype.is_complex else tuple(REDUCTIONS)


def values(dtype: tf.DType, cores: int, *shape: int) -> np.ndarray:
    """Values whose sums and products are exact; where numbers are unsigned, some above the signed range."""
    rng = np.random.default_rng(3)
    if dtype == tf.bool:
        return rng.integers(0, 2, (cores, *shape)).astype(bool)
    if dtype.is_complex:
        return (rng.integers(-3, 4, (2, cores, *shape)).T @ [1, 1j]).T.astype(dtype.as_numpy_dtype)
    if dtype.is_floating:
        return rng.integers(-3, 4, (cores, *shape)).astype(dtype.as_numpy_dtype)
    return rng.integers(dtype.min, dtype.max, (cores, *shape), dtype=dtype.as_numpy_dtype, endpoint=True)


def reduced(x: np.ndarray, reduction: str) -> np.ndarray:
    """Integers wrap; "add" of bool is "or", "multiply" is "and"."""
    result = x[0]
    for other in x[1:]:
        with np.errstate(over="ignore"):
            result = REDUCTIONS[reduction](result, other)
    return result


@pytest.mark.parametrize("dtype", sharpest(DTYPES, SHARPEST), ids=lambda d: d.name)
def test_on_four_cores(program: Callable[..., Any], dtype: tf.DType) -> None:
    mesh, destinations = SpmdMeshImpl("rows:2;cols:2", "", [f"CPU:{i}" for i in (2, 0, 3, 1)]), (3, 1, 0, 2)

    def body(core: tf.Tensor, c: BoundCollectives, x: tf.Tensor) -> list[tf.Tensor]:
        return [
            *(c.all_reduce(x, AXES, r) for r in reductions_of(dtype)),
            c.all_gather(x, AXES, 1),
            c.all_to_all(x, AXES, 0, 1),
            c.reduce_scatter(x, AXES, 0),
            c.permute(x, destinations),
        ]

    x = values(dtype, 4, 4, 5)  # five elements of one byte do not fill whole words
    *reductions, gathered, exchanged, scattered, permuted = program(mesh, [AXES], body, [destinations])(x)
    for name, result in zip(reductions_of(dtype), reductions, strict=True):
        np.testing.assert_array_equal(result, np.stack([reduced(x, name)] * 4), name)
    by_position = x[POSITION_ORDER]
    for core in range(4):
        place = POSITION_ORDER.index(core)
        np.testing.assert_array_equal(gathered[core], np.concatenate(by_position, 1))
        np.testing.assert_array_equal(exchanged[core], np.concatenate(by_position[:, place, None], 1))
        np.testing.assert_array_equal(scattered[core], reduced(x, "add")[place, None])
        np.testing.assert_array_equal(permuted[destinations[core]], x[core])
    assert gathered.dtype == permuted.dtype == x.dtype


@pytest.mark.parametrize("dtype", sharpest(DTYPES, [tf.bool]), ids=lambda d: d.name)
def test_pairwise_on_eleven_cores(program: Callable[..., Any], dtype: tf.DType) -> None:
    mesh = SpmdMeshImpl("all:11", "", [f"CPU:{(3 * i) % 11}" for i in range(11)])

    def body(core: tf.Tensor, c: BoundCollectives, x: tf.Tensor) -> list[tf.Tensor]:
        return [c.all_to_all(x, ("all",), 0, 0), c.reduce_scatter(x, ("all",), 0)]

    x = values(dtype, 11, 11, 3)
    exchanged, scattered = program(mesh, [("all",)], body)(x)
    np.testing.assert_array_equal(exchanged, x.swapaxes(0, 1))
    np.testing.assert_array_equal(scattered[:, 0], reduced(x, "add"))


def test_moving_keeps_every_bit(program: Callable[..., Any]) -> None:
    mesh, turn = SpmdMeshImpl("all:4", ""), (1, 2, 3, 0)
    special = np.array([-0.0, 1e-42, -1e-45, np.inf, -np.inf, np.nan, 3.4e38, 0.0], np.float32)
    special.view(np.int32)[5] = 0x7FC12345  # a NaN with a payload
    x = np.stack([np.roll(special, i) for i in range(4)])

    def body(core: tf.Tensor, c: BoundCollectives, x: tf.Tensor) -> list[tf.Tensor]:
        return [c.all_gather(x, ("all",), 0), c.all_to_all(x, ("all",), 0, 0), c.permute(x, turn)]

    gathered, exchanged, permuted = program(mesh, [("all",)], body, [turn])(x)
    bits = x.view(np.int32)
    np.testing.assert_array_equal(gathered.view(np.int32), np.stack([bits.ravel()] * 4))
    np.testing.assert_array_equal(exchanged.view(np.int32).reshape(4, 4, 2), bits.reshape(4, 4, 2).swapaxes(0, 1))
    np.testing.assert_array_equal(permuted.view(np.int32), np.roll(bits, 1, axis=0))


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=lambda d: d.name)
def test_a_scattered_sum_of_halves_is_rounded_once(program: Callable[..., Any], dtype: tf.DType) -> None:
    x = np.random.default_rng(4).normal(size=(8, 64)).astype(dtype.as_numpy_dtype)
    step = program(SpmdMeshImpl("all:8", ""), [("all",)], lambda core, c, x: [c.reduce_scatter(x, ("all",), 0)])
    expected = x.astype(np.float32).sum(0).astype(dtype.as_numpy_dtype)
    ulp = 2.0 ** (-8 if dtype == tf.bfloat16 else -11) * np.abs(expected.astype(np.float32))
    assert (np.abs(step(x)[0].ravel().astype(np.float32) - expected.astype(np.float32)) <= 2 * ulp).all()


def test_complex_numbers_have_no_maximum(program: Callable[..., Any]) -> None:
    step = program(SpmdMeshImpl("all:2", ""), [("all",)], lambda core, c, x: [c.all_reduce(x, ("all",), "max")])
    with pytest.raises(DtypeError, match="'max' for complex64"):
        step(np.zeros([2, 3], np.complex64))
