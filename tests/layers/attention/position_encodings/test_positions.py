from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from written_out import normal

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.layers import (
    AttentionConfig,
    DynamicRotaryScaling,
    LongRopeRotaryScaling,
    RelativePositionBias,
    RotaryScaling,
    YarnRotaryScaling,
    learned_positions,
    relative_position_bucket,
    rotary_embedding,
    sinusoidal_positions,
)
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, largest

POSITIONS = np.array([[0, 1, 2, 0, 1], [7, 8, 9, 10, 1000]], np.int32)
BY_BATCH = mtf.Shape([("batch", 2), ("length", 5)])
D_MODEL = mtf.Dimension("d_model", 6)


def turned(x: np.ndarray, positions: np.ndarray, base: float, size: int) -> np.ndarray:
    """x [batch, length, heads, d_kv], pair by pair as complex numbers."""
    y, half = x.astype(np.float64), size // 2
    for i in range(half):
        turn = np.exp(1j * positions * base ** (-i / half))[..., None]
        pair = (x[..., i] + 1j * x[..., i + half]) * turn
        y[..., i], y[..., i + half] = pair.real, pair.imag
    return y


@pytest.mark.parametrize(("base", "fraction", "size"), [(10000.0, 1.0, 8), (500.0, 0.5, 4), (10000.0, 0.25, 2)])
def test_rotary(base: float, fraction: float, size: int, check_layers: Any) -> None:
    shape = BY_BATCH + [("heads", 2), ("d_kv", 8)]
    x = normal(shape.to_integer_list, 0)

    def layer(x: mtf.Tensor) -> list[mtf.Tensor]:
        positions = mtf.import_tf_tensor(x.mesh, POSITIONS, BY_BATCH)
        return [rotary_embedding(x, positions, base, fraction)]

    def formula(variables: Any, x: tf.Tensor) -> list[tf.Tensor]:
        """Rotations are linear: their matrix is what they make of the unit vectors."""
        rows = [turned(np.broadcast_to(unit, [2, 5, 1, 8]), POSITIONS, base, size) for unit in np.eye(8)]
        rotation = tf.constant(np.concatenate(rows, axis=2), tf.float32)
        return [tf.einsum("blhd,blde->blhe", x, rotation)]

    done = check_layers(layer, formula, {"x": (shape, x)}, ["d_kv:rows;heads:cols", "batch:rows;d_kv:cols"])
    assert_close(
        done.results[0][0],
        turned(x, POSITIONS, base, size),
        terms=FUNCTION_TERMS,
        magnitude=(1 + POSITIONS[:, :, None, None]) * largest(x),
    )


def yarn(i: int, pairs: int, base: float, truncate: bool) -> float:
    """Of Peng et al. 2023: the share of pair i that is not scaled, for 16 positions and turns from 0.5 to 4."""
    begin, end = (pairs * math.log(16 / (turns * 2 * math.pi)) / math.log(base) for turns in (4.0, 0.5))
    if truncate:
        begin, end = math.floor(begin), math.ceil(end)
    begin, end = max(begin, 0), min(end, 2 * pairs - 1)
    return 1.0 - min(max((i - begin) / (end - begin), 0.0), 1.0)


def grown(length: int, pairs: int, base: float) -> float:
    """The base of "NTK-aware" scaling by 2 from 4 positions."""
    return base * max(2.0 * length / 4 - 1.0, 1.0) ** (2 * pairs / (2 * pairs - 2))


BASE, PAIRS, LENGTH = 50.0, 3, 7
SHORT, LONG = (1.0, 1.5, 2.0), (2.0, 5.0, 7.0)
SCALINGS: dict[str, tuple[RotaryScaling, Callable[[int, int], float], float]] = {
    # a scaling, the frequency of pair i in a sequence of a length, and by what elements are multiplied
    **{
        f"yarn, truncate={truncate}": (
            YarnRotaryScaling(5.0, 16, beta_fast=4.0, beta_slow=0.5, truncate=truncate),
            lambda i, _, t=truncate: BASE ** (-i / PAIRS) * ((s := yarn(i, PAIRS, BASE, t)) + (1 - s) / 5.0),
            0.1 * math.log(5.0) + 1.0,
        )
        for truncate in (True, False)
    },
    "dynamic": (DynamicRotaryScaling(2.0, 4), lambda i, length: grown(length, PAIRS, BASE) ** (-i / PAIRS), 1.0),
    "longrope": (
        LongRopeRotaryScaling(SHORT, LONG, original_max_length=5, magnitude=1.25),
        lambda i, length: BASE ** (-i / PAIRS) / (LONG if length > 5 else SHORT)[i],
        1.25,
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
def test_scalings(name: str) -> None:
    """Of a whole sequence, short or long; and of single positions, where the sequence ends with each of them."""
    scaling, frequency, magnitude = SCALINGS[name]
    for length, is_step in ((4, False), (LENGTH, False), (LENGTH, True)):
        x = normal([length, 8], 3)  # the first six elements of eight are rotated

        def program(x: mtf.Tensor, is_step: bool = is_step) -> mtf.Tensor:
            dim = x.shape[0]
            wide = mtf.rename_dimension(x, dim.name, "batch") if is_step else x
            positions = mtf.range(x.mesh, wide.shape[0])
            return rotary_embedding(wide, positions, BASE, 2 * PAIRS / 8, scaling=scaling)

        shape = mtf.Shape([("length", length), ("d_kv", 8)])
        for mesh_shape, layout in (("rows:1", ""), ("rows:2", "d_kv:rows")):
            y = interpret(program, {"x": (shape, x)}, mesh_shape, layout).results
            expected = x.astype(np.float64)
            for place, i in itertools.product(range(length), range(PAIRS)):
                angle = place * frequency(i, place + 1 if is_step else length)
                a, b = x[place, i], x[place, i + PAIRS]
                expected[place, i] = magnitude * (a * math.cos(angle) - b * math.sin(angle))
                expected[place, i + PAIRS] = magnitude * (a * math.sin(angle) + b * math.cos(angle))
            assert_close(y, expected, terms=4 * FUNCTION_TERMS, magnitude=LENGTH * largest(x))


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (
            YarnRotaryScaling(2.0, 16),
            "YarnRotaryScaling needs the ratio of neighbouring pairs' wavelengths, but only one",
        ),
        (DynamicRotaryScaling(2.0, 1), "DynamicRotaryScaling needs the ratio"),
        (LongRopeRotaryScaling((1.0, 2.0), (1.0,), 4), "short_factors has 2 factors for 1 rotated pairs"),
    ],
)
def test_scalings_that_do_not_fit(scaling: RotaryScaling, message: str) -> None:
    def program(mesh: mtf.Mesh) -> None:
        x = mtf.ones(mesh, "length:4 d_kv:2")
        rotary_embedding(x, mtf.range(mesh, x.shape[0]), scaling=scaling)

    with pytest.raises(ShapeError, match=message):
        build(program)
    with pytest.raises(ValueError, match=r"long_factors must be above 0, and are \(0.0,\)"):
        LongRopeRotaryScaling((1.0,), (0.0,), 4)


def test_products_of_rotated_vectors_depend_on_the_distance() -> None:
    shape = mtf.Shape([("length", 16), ("d_kv", 8)])

    def program(x: mtf.Tensor) -> mtf.Tensor:
        y = rotary_embedding(mtf.broadcast(x, shape), mtf.range(x.mesh, shape[0]))
        return mtf.einsum([y, mtf.rename_dimension(y, "length", "memory_length")], reduced_dims=[shape[1]])

    products = interpret(program, {"x": (shape[1:], normal([8], 1))}, "rows:1").results
    for distance in range(1, 16):
        assert_close(
            np.diag(products, distance),
            products[0, distance],
            terms=(FUNCTION_TERMS, 8),
            magnitude=16 * largest(products),
        )


@pytest.mark.parametrize("layout", ["", "d_model:rows;batch:cols"])
def test_sinusoidal(layout: str) -> None:
    """Of seven elements four are sines, wherever these stand."""
    wide, narrow = mtf.Dimension("d_model", 6), mtf.Dimension("d_model", 7)

    def program(positions: mtf.Tensor) -> list[mtf.Tensor]:
        halves = [sinusoidal_positions(positions, dim, is_interleaved=False) for dim in (wide, narrow)]
        return [sinusoidal_positions(positions, wide), sinusoidal_positions(positions, narrow), *halves]

    mesh_shape = "rows:2;cols:2" if not layout else "rows:1;cols:2"  # 7 elements divide by nothing
    found = interpret(program, {"positions": (mtf.Shape([("batch", 2), ("length", 5)]), POSITIONS)}, mesh_shape, layout)
    for size, taking_turns, in_halves in ((6, found.results[0], found.results[2]), (7, *found.results[1::2])):
        expected = np.zeros([2, 5, size])
        for b, i, j in np.ndindex(2, 5, size):
            angle = POSITIONS[b, i] / 10000.0 ** (2 * (j // 2) / size)
            expected[b, i, j] = math.cos(angle) if j % 2 else math.sin(angle)
        bound = {"terms": 2 * FUNCTION_TERMS, "magnitude": 1 + POSITIONS[:, :, None]}
        assert_close(taking_turns, expected, **bound)
        assert_close(in_halves, np.concatenate([expected[..., ::2], expected[..., 1::2]], axis=-1), **bound)


@pytest.mark.parametrize("offset", [0, 2])
def test_learned(offset: int, check_layers: Any) -> None:
    known = np.minimum(POSITIONS, 11)

    def layer(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [x + learned_positions(mtf.import_tf_tensor(x.mesh, known, BY_BATCH), 12, D_MODEL, offset=offset)]

    def formula(variables: Any, x: tf.Tensor) -> list[tf.Tensor]:
        assert variables["positions"].shape == (12 + offset, 6)
        return [x + tf.gather(variables["positions"], known + offset)]

    shape = BY_BATCH + [D_MODEL]
    layouts = ["d_model:rows;batch:cols", "positions:rows"]
    check_layers(layer, formula, {"x": (shape, normal(shape.to_integer_list, 0))}, layouts)


def bucket(relative: int, num_buckets: int, max_distance: int, is_bidirectional: bool) -> int:
    """The published rule, of one distance; of whole powers the logarithm's last bit is not trusted."""
    behind, first = -relative, 0
    if is_bidirectional:
        num_buckets //= 2
        first, behind = (num_buckets, -behind) if behind < 0 else (0, behind)
    behind, exact = max(behind, 0), num_buckets // 2
    if behind < exact:
        return first + behind
    wide = exact + math.log(behind / exact) / math.log(max_distance / exact) * (num_buckets - exact)
    wide = round(wide) if abs(wide - round(wide)) < 1e-9 else int(wide)
    return first + min(wide, num_buckets - 1)


@pytest.mark.parametrize("is_bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (32, 20), (8, 9), (6, 40), (4, 3)])
def test_buckets(num_buckets: int, max_distance: int, is_bidirectional: bool) -> None:
    relative = np.arange(-200, 201, dtype=np.int32)

    def program(relative: mtf.Tensor) -> mtf.Tensor:
        return relative_position_bucket(relative, num_buckets, max_distance, is_bidirectional=is_bidirectional)

    found = interpret(program, {"relative": ("length:401", relative)}, "rows:1").results
    expected = [bucket(int(r), num_buckets, max_distance, is_bidirectional) for r in relative]
    assert found.tolist() == expected
    assert (min(found), max(found)) == (0, num_buckets - 1)


def test_buckets_at_the_powers_of_two() -> None:
    """32 buckets to both sides: 8 exact ones, and two more each time that the distance doubles."""
    distances = {1: 1, 7: 7, 8: 8, 11: 8, 12: 9, 15: 9, 16: 10, 32: 12, 63: 13, 64: 14, 91: 15, 128: 15, 9999: 15}

    def program(relative: mtf.Tensor) -> mtf.Tensor:
        return relative_position_bucket(relative)

    for sign, offset in ((-1, 0), (1, 16)):
        relative = sign * np.array(list(distances), np.int32)
        found = interpret(program, {"relative": (f"length:{len(relative)}", relative)}, "rows:1").results
        assert found.tolist() == [offset + b for b in distances.values()]


def test_bias_of_blocks_and_of_one_position_is_that_of_the_whole() -> None:
    config = AttentionConfig(num_heads=4, num_kv_heads=2, d_kv=4)
    length, memory = mtf.Dimension("length", 8), mtf.Dimension("memory_length", 8)

    def program(mesh: mtf.Mesh) -> tuple[mtf.Tensor, mtf.Tensor, list[mtf.Tensor]]:
        bias = RelativePositionBias.make(mesh, config, 8, 6, is_bidirectional=True)
        queries, keys = mtf.range(mesh, length), mtf.range(mesh, memory)
        blocks = [bias(queries, part) for part in mtf.split(keys, memory, 2)]
        one = [bias(mtf.constant(mesh, i, [], tf.int32), keys) for i in (0, 5)]
        return bias(queries, keys), mtf.concat(blocks, memory.name), one

    for layout in ["", "heads:rows;length:cols", "relative_position_buckets:rows;queries_per_head:cols"]:
        whole, blocks, one = interpret(program, {}, "rows:2;cols:2", layout).results
        assert whole.shape == (2, 2, 8, 8)
        np.testing.assert_array_equal(whole, blocks)
        np.testing.assert_array_equal(np.stack(one, 2), whole[:, :, [0, 5]])


def build(program: Any) -> None:
    graph = mtf.Graph()
    with graph:
        program(mtf.Mesh(graph))


@pytest.mark.parametrize(
    ("d_kv", "fraction", "error", "message"),
    [
        (7, 1.0, ShapeError, r"rotated in pairs, but 7 of d_kv:7 would be; change d_kv or fraction"),
        (8, 0.4, ShapeError, r"3 of d_kv:8 would be"),
        (8, 0.01, ShapeError, r"0 of d_kv:8 would be"),
        (8, 1.5, GraphError, r"fraction, the part of d_kv:8 that is rotated, must be in \(0, 1\], and is 1\.5"),
    ],
)
def test_sizes_that_cannot_be_rotated(d_kv: int, fraction: float, error: type[Exception], message: str) -> None:
    def program(mesh: mtf.Mesh) -> None:
        x = mtf.zeros(mesh, [("length", 4), ("d_kv", d_kv)])
        rotary_embedding(x, mtf.range(mesh, x.shape[0]), fraction=fraction)

    with pytest.raises(error, match=message):
        build(program)


def test_positions_that_do_not_fit() -> None:
    def rotate(positions: mtf.Shape, dtype: tf.DType) -> None:
        def program(mesh: mtf.Mesh) -> None:
            x = mtf.zeros(mesh, [("memory_length", 4), ("d_kv", 4)])
            rotary_embedding(x, mtf.zeros(mesh, positions, dtype))

        build(program)

    with pytest.raises(ShapeError, match=r'no dimension "length" in \[memory_length:4 d_kv:4\]; did you mean'):
        rotate(mtf.Shape([("length", 4)]), tf.int32)
    with pytest.raises(DtypeError, match=r"positions \[memory_length:4\] must be integers, not float32"):
        rotate(mtf.Shape([("memory_length", 4)]), tf.float32)
    with pytest.raises(ShapeError, match=r"there are 4 learned positions, fewer than length:5; make max_length larger"):
        build(lambda mesh: learned_positions(mtf.zeros(mesh, BY_BATCH, tf.int32), 4, D_MODEL))


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(2, 128), (32, 8)])
def test_too_few_buckets(num_buckets: int, max_distance: int) -> None:
    with pytest.raises(GraphError, match=r"use at least 2 buckets, and a max_distance above"):
        build(lambda mesh: relative_position_bucket(mtf.zeros(mesh, BY_BATCH, tf.int32), num_buckets, max_distance))
