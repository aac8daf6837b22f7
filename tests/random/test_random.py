"""Random bits on positions: the generator, keys, and the same bits under every slicing, device, thread and process."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from meshtf import random
from meshtf.errors import DtypeError, ShapeError
from meshtf.random import compiled_segments as segments
from meshtf.random.positions import SliceGeometry
from meshtf.random.threefry import threefry_2x32_of_ints
from tests.fresh_process import run_fresh
from tests.house.sharpest import sharpest

pytestmark = pytest.mark.plain_cpu

Draw = Callable[[random.Key, random.Begin, Sequence[int], Sequence[int]], tf.Tensor]

KEY = random.fold_in((1, 2), random.stable_hash("layer/dropout"))
FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
KINDS: dict[str, Draw] = {
    f"{draw.__name__}-{dtype.name}": functools.partial(draw, dtype=dtype)
    for draw in (random.uniform, random.normal, random.truncated_normal)
    for dtype in FLOATS
}
KINDS["random_bits"] = random.random_bits
KINDS["keep_mask"] = functools.partial(random.keep_mask, keep_prob=0.7)
for integer in (tf.int32, tf.int64):
    KINDS[f"uniform-{integer.name}"] = functools.partial(random.uniform, dtype=integer, minval=-7, maxval=1000)
SHARPEST = ("truncated_normal-float16", "uniform-float64", "uniform-int64", "keep_mask")
"""Words of 16 and 64 bits, and bits alone. Slices of every padded size are of the normal distribution."""

# Random123's known answers (kat_vectors, threefry2x32, 20 rounds): counter, key, result.
ONES = (0xFFFFFFFF, 0xFFFFFFFF)
KNOWN_ANSWERS = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    (ONES, ONES, (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def bits_at(position: int, key: tuple[int, int] = KEY) -> int:
    return threefry_2x32_of_ints(*key, *divmod(position, 2**32))[0]


@functools.cache
def whole(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    return KINDS[kind](KEY, [0] * len(shape), shape, shape).numpy()


def assert_same_bits(kind: str, shape: tuple[int, ...], begin: Sequence[int], part: Sequence[int]) -> None:
    """The part drawn alone is the part of the whole, bit for bit."""
    drawn = KINDS[kind](KEY, tf.constant(begin, tf.int32), part, shape).numpy()
    expected = whole(kind, shape)[tuple(slice(start, start + size) for start, size in zip(begin, part, strict=True))]
    assert drawn.shape == expected.shape
    assert drawn.tobytes() == expected.tobytes(), f"{kind} {shape}: slice {part} at {begin}"


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: tuple[int, int], key: tuple[int, int], answer: tuple[int, int]) -> None:
    assert threefry_2x32_of_ints(*key, *counter) == answer
    words = [tf.constant(word, tf.uint32) for word in (*key, *counter)]
    for function in (random.threefry_2x32, tf.function(random.threefry_2x32, jit_compile=True)):
        assert tuple(int(word) for word in function(*words)) == answer


def test_one_word_for_each_position_in_row_major_order() -> None:
    expected = [bits_at(position) for position in range(3 * 5 * 7)]
    assert random.random_bits(KEY, [0, 0, 0], (3, 5, 7), (3, 5, 7)).numpy().ravel().tolist() == expected


def test_positions_beyond_32_bits() -> None:
    shape, begin, part = (2**20, 2**18), (2**14 - 1, 2**18 - 3), (2, 3)
    drawn = random.random_bits(KEY, tf.constant(begin), part, shape).numpy()
    expected = [[bits_at((begin[0] + i) * shape[1] + begin[1] + j) for j in range(3)] for i in range(2)]
    assert drawn.tolist() == expected
    across = random.random_bits(KEY, tf.constant([2**40 - 5], tf.int64), [10], [2**62]).numpy()
    assert across.tolist() == [bits_at(2**40 - 5 + i) for i in range(10)]
    outer = random.random_bits(KEY, [1, 2, 1], (2, 2, 2), (4, 2**33, 3)).numpy().ravel()
    places = itertools.product((1, 2), (2, 3), (1, 2))
    assert outer.tolist() == [bits_at((i * 2**33 + j) * 3 + k) for i, j, k in places]


@pytest.mark.parametrize("kind", sharpest(KINDS, SHARPEST))
def test_odd_slices(kind: str) -> None:
    """Every length that could end in the scalar rest of a vector loop, at places of every alignment."""
    for size in (1, 3, 7, 13, 64, 65, 127, 1023, 1025):
        assert_same_bits(kind, (2111,), [size * 31 % 1001], [size])
    for begin, part in (((0, 64), (129, 65)), ((127, 0), (1, 129)), ((1, 2), (128, 1)), ((5, 3), (77, 126))):
        assert_same_bits(kind, (129, 129), begin, part)


@given(st.data())
@settings(max_examples=5, deadline=None)
def test_any_box_of_any_whole(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    shape = data.draw(st.sampled_from([(67,), (63, 65), (13, 1, 65), (5, 7, 3, 13), (300, 411), ()]))
    begin = [data.draw(st.integers(0, size - 1)) for size in shape]
    part = [data.draw(st.integers(1, size - start)) for size, start in zip(shape, begin, strict=True)]
    assert_same_bits(kind, shape, begin, part)


@pytest.mark.parametrize("kind", ["normal-float32", pytest.param("uniform-float32", marks=pytest.mark.long)])
def test_slices_of_every_padded_size(kind: str) -> None:
    for rows in (1, 20, 65, 130, 400):
        assert_same_bits(kind, (501, 611), [501 - rows, 0], [rows, 611])
        assert_same_bits(kind, (501, 611), [500 - rows, 13], [rows, 597])


def test_large_slices_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole("normal-float32", (63, 65))
    monkeypatch.setattr(segments, "MOST_ELEMENTS", 500)
    assert_same_bits("normal-float32", (63, 65), [1, 2], [62, 61])
    known = random.normal(KEY, [1, 2], [62, 61], (63, 65)).numpy()
    assert known.tobytes() == whole("normal-float32", (63, 65))[1:, 2:63].tobytes()


@pytest.mark.parametrize("kind", sharpest(["normal-float32", "truncated_normal-float64"], ["normal-float32"]))
def test_one_traced_program_on_every_device(kind: str) -> None:
    """Cores of a mesh, their place known only when they run, against eager calls, which an interpreter makes.

    Grappler, on by default, would change the last bit in the program alone if it saw the segments' bodies.
    """
    devices = tf.config.list_logical_devices("CPU")[:4]
    shape, part = (39, 5 * len(devices)), (13, 5)

    def per_core(core: tf.Tensor) -> tf.Tensor:
        return KINDS[kind](KEY, [13, core * 5], part, shape)

    core_function = tf.function(
        per_core, input_signature=[tf.TensorSpec([], tf.int32)], experimental_attributes={"_noinline": True}
    )

    @tf.function
    def program() -> list[tf.Tensor]:
        results = []
        for core, device in enumerate(devices):
            with tf.device(device.name):
                results.append(core_function(tf.constant(core)))
        return results

    together = np.concatenate([each.numpy() for each in program()], 1)
    assert together.tobytes() == whole(kind, shape)[13:26].tobytes()
    for device in devices:
        with tf.device(device.name):
            assert_same_bits(kind, shape, [13, 5], part)
    assert core_function.experimental_get_tracing_count() == 1


def digest() -> str:
    """Of some kinds, at sizes that several threads share."""
    drawn = hashlib.sha256()
    for kind in ("random_bits", "truncated_normal-float64", "normal-float32", "uniform-bfloat16"):
        for size in (77, 70_001):
            drawn.update(KINDS[kind](KEY, [5], [size], [10**12]).numpy().tobytes())
    return drawn.hexdigest()


def test_same_bits_in_another_process_with_other_threads_and_numpys_rules_for_tensors() -> None:
    program = (
        "import runpy, tensorflow as tf; tf.config.threading.set_intra_op_parallelism_threads(7); "
        "tf.experimental.numpy.experimental_enable_numpy_behavior(); "
        f"print(runpy.run_path({__file__!r})['digest']())"
    )
    run = run_fresh(["-c", program], environment={"TF_XLA_FLAGS": ""})  # compiles for itself
    assert run.stdout.split()[-1:] == [digest()], run.stderr


def test_slices_share_compiled_segments() -> None:
    random.normal(KEY, [0], [1000], [1000])
    before = segments.segment.cache_info().currsize
    for size in (5, 7, 800, 1024):
        random.normal((size, 3), tf.constant([1]), [size], [2000], stddev=0.1 * size, mean=2.0)
    assert segments.segment.cache_info().currsize == before
    random.normal(KEY, [1, 0, 0], [3, 8, 9], [7, 8, 9])  # one axis, once merged
    random.normal(KEY, [1, 0, 0], [3, 2, 2], [7, 8, 9])  # three axes, and small
    assert segments.segment.cache_info().currsize == before


@pytest.mark.parametrize("size", [1, 1024, 1025, 10**5, 10**6, 10**7 + 1, 2**30])
def test_padding(size: int) -> None:
    drawn = segments.padded_rows(size) * segments.ROW
    assert size <= drawn <= max(64 * segments.ROW, size * 9 / 8 + segments.ROW)
    assert len({segments.padded_rows(each) for each in range(size, 2 * size, max(1, size // 999))}) <= 10


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
def test_division_by_a_reciprocal_is_exact(index: int, size: int) -> None:
    geometry = SliceGeometry(strides=(), merged=((2, 3 * size), (size, 1))).geometry()
    divisor, reciprocal, shift, stride = (int(each) for each in geometry[:, 0])
    assert (divisor, stride) == (size, 3 * size)
    assert index * reciprocal < 2**64
    assert index * reciprocal >> shift == index // size


@pytest.mark.parametrize(
    ("part", "shape", "merged"),
    [
        ((), (), ((1, 1),)),
        ((3, 5), (9, 5), ((15, 1),)),
        ((9, 2), (9, 5), ((9, 5), (2, 1))),
        ((9, 1), (9, 5), ((9, 5), (1, 1))),
        ((2, 4, 1, 3, 5), (4, 4, 6, 3, 5), ((8, 90), (15, 1))),
    ],
)
def test_contiguous_axes_are_merged(part: tuple, shape: tuple, merged: tuple) -> None:
    assert SliceGeometry.plan(part, shape).merged == merged


def test_keys() -> None:
    assert random.stable_hash("layer/dropout") == (4074420795, 837967855)
    assert threefry_2x32_of_ints(1, 2, *random.stable_hash("layer/dropout")) == KEY
    key = tf.constant(KEY, tf.uint32)
    for data in (0, 1, -3, 2**40 + 1, 2**63 + 5, (7, 9), (2**31, 0)):
        folded = random.fold_in(KEY, data)
        assert all(type(word) is int for word in folded)
        assert tuple(random.fold_in(key, data).numpy()) == folded
    assert tuple(random.fold_in(KEY, tf.constant(-3)).numpy()) == random.fold_in(KEY, -3)
    assert tuple(random.fold_in(KEY, tf.constant(2**40, tf.int64)).numpy()) == random.fold_in(KEY, 2**40)
    many = random.fold_in(tf.constant([KEY, (3, 4)], tf.uint32), tf.constant(5, tf.int64)).numpy()
    assert [tuple(each) for each in many] == [random.fold_in(KEY, 5), random.fold_in((3, 4), 5)]
    assert len({random.fold_in(KEY, step) for step in range(1000)}) == 1000
    with pytest.raises(ValueError, match="does not fit 64 bits; fold in its stable_hash"):
        random.fold_in(KEY, 2**64)


def test_tensorflows_own_random_numbers_are_left_alone() -> None:
    tf.random.set_seed(5)
    expected = tf.random.uniform([3]).numpy().tolist()
    tf.random.set_seed(5)
    segments.segment.cache_clear()
    random.normal(KEY, [0], [3], [3])
    assert tf.random.uniform([3]).numpy().tolist() == expected


def test_empty_slices() -> None:
    assert random.normal(KEY, [0, 0], [0, 3], [4, 3]).shape == (0, 3)


def test_bad_input() -> None:
    with pytest.raises(ShapeError, match=r"slice \(3,\) is larger than the whole \(2,\)"):
        random.random_bits(KEY, [0], [3], [2])
    with pytest.raises(ShapeError, match="differ in their number of axes"):
        random.random_bits(KEY, [0], [3], [2, 3])
    with pytest.raises(ShapeError, match=r"2\*\*63"):
        random.random_bits(KEY, [0, 0], [1, 1], [2**32, 2**31])
    with pytest.raises(DtypeError, match="random normal: dtype int32; use one of float16"):
        random.normal(KEY, [0], [3], [3], tf.int32)
    with pytest.raises(ValueError, match="no float32 lies in"):
        random.uniform(KEY, [0], [3], [3], minval=1.0, maxval=1.0)
    with pytest.raises(ValueError, match="beyond float32"):
        random.uniform(KEY, [0], [3], [3], minval=-3e38, maxval=3e38)
    for bounds in ({"maxval": 1e6}, {"minval": -1e6}):
        with pytest.raises(ValueError, match=r"a bound or the width of .* is beyond float16"):
            random.uniform(KEY, [0], [3], [3], tf.float16, **bounds)
    with pytest.raises(ValueError, match="give bounds that are integers"):
        random.uniform(KEY, [0], [3], [3], tf.int32, 0, 1.5)
    with pytest.raises(ValueError, match="not within int32"):
        random.uniform(KEY, [0], [3], [3], tf.int32, 0, 2**32)
    with pytest.raises(ValueError, match="is not a probability"):
        random.keep_mask(KEY, [0], [3], [3], 1.5)
