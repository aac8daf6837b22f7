"""Inputs that go to the cores in chunks: the same arrays, bit for bit. Virtual cores take them as GPUs do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import ml_dtypes
import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import DeviceError
from meshtf.mesh_impl.pjrt import input_chunks, pjrt
from meshtf.mesh_impl.pjrt.input_chunks import InputChunks
from meshtf.mesh_impl.pjrt.kinds import TPU
from meshtf.mesh_impl.pjrt.of_this_process import accelerator

Sent: TypeAlias = tuple[tuple[int, ...], bool]
"""The shape of an array that goes to each core, and whether the runtime must copy it at once."""

THREE = InputChunks(count=3, min_bytes=1, multiple=4)
LARGE = 1 << 19
"""The elements of an array that the runtime copies where it may change, and not its caller."""


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> pjrt.Cores:
    monkeypatch.setitem(pjrt._INPUT_CHUNKS, "cpu", THREE)
    return accelerator(TPU, 2).on(mtf.convert_to_shape("all:2"), None)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Sent]:
    """The arrays that are put on the cores from now on."""
    sent: list[Sent] = []
    put = pjrt.Cores.put

    def noted(self: pjrt.Cores, pieces: Sequence[np.ndarray], *, may_change: bool = False) -> pjrt.CoreArray:
        sent.append((pieces[0].shape, may_change))
        return put(self, pieces, may_change=may_change)

    monkeypatch.setattr(pjrt.Cores, "put", noted)
    return sent


@pytest.mark.parametrize(
    ("dtype", "shape", "chunks"),
    [
        (np.float32, (), [()]),
        (np.float32, (0, 3), [(0, 3)]),
        (np.float32, (3,), [(3,)]),
        (np.float32, (1, 7, 9), [(24,), (24,), (15,)]),
        (np.float32, (5, 1), [(4,), (1,)]),
        (ml_dtypes.bfloat16, (31,), [(12,), (12,), (7,)]),
        (np.bool_, (4, 3), [(4,), (4,), (4,)]),
        (np.complex128, (2, 5), [(4,), (4,), (2,)]),
        (np.uint16, (13,), [(8,), (5,)]),
        (ml_dtypes.float8_e4m3fn, (3, 5), [(8,), (7,)]),
        (ml_dtypes.int4, (7, 3), [(7, 3)]),
    ],
)
def test_arrays_of_every_shape_and_type(
    dtype: type, shape: tuple[int, ...], chunks: Sequence[tuple[int, ...]], cores: pjrt.Cores, sent: list[Sent]
) -> None:
    rng = np.random.default_rng(1)
    one, two = (rng.integers(-8, 8, shape).astype(dtype) for _ in range(2))
    for pieces in ([one, two], [one, one]):
        sent.clear()
        array = cores.feed(pieces)
        assert sorted(sent) == sorted((chunk, False) for chunk in chunks)
        for core, piece in enumerate(pieces):
            found = cores.piece(array, core)
            assert (found.dtype, found.shape, found.tobytes()) == (piece.dtype, piece.shape, piece.tobytes())


def test_arrays_go_whole_that_are_small_or_not_in_order() -> None:
    chunks = InputChunks(count=3, min_bytes=64, multiple=4)
    small, large = np.ones((5, 3), np.float32), np.ones((4, 4), np.float32)
    given = [small], [small, small], [large], [large.T], [large[:, :2]] * 4
    assert [len(chunks.cut(pieces)) for pieces in given] == [1, 2, 2, 1, 1]


def test_chunks_go_one_by_one_when_the_interpreter_ends(cores: pjrt.Cores) -> None:
    """A program that runs at exit is fed, though threads take no more work."""
    input_chunks._threads(THREE.count).shutdown()
    try:
        one, two = np.arange(30.0), -np.arange(30.0)
        array = cores.feed([one, two])
        np.testing.assert_array_equal(cores.piece(array, 1), two)
    finally:
        input_chunks._threads.cache_clear()


def test_an_array_may_change_once_it_is_fed(cores: pjrt.Cores, sent: list[Sent]) -> None:
    """A large one is copied in chunks before the call returns."""
    x = np.arange(2 * LARGE, dtype=np.int32)
    expected = x.reshape(2, LARGE).copy()
    array = cores.feed([x[:LARGE], x[LARGE:]], may_change=True)
    x[...] = -1
    assert [may_change for _, may_change in sent] == [True] * 3
    for core in range(2):
        np.testing.assert_array_equal(cores.piece(array, core), expected[core])


def test_a_program_is_fed_in_chunks(sent: list[Sent], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of one chunk is the step's."""
    monkeypatch.setitem(pjrt._INPUT_CHUNKS, "cpu", InputChunks(count=2, min_bytes=1 << 20))
    inputs = {"x": mtf.TensorSpec([("batch", 4), ("length", LARGE)]), "y": mtf.TensorSpec("batch:4")}
    step = mtf.function(
        lambda x, y: mtf.reduce_sum(x * y, reduced_dim="length"), mtf.GpuMeshImpl("a:2", "batch:a"), inputs
    )
    x, y = np.ones([4, LARGE], np.float32), np.arange(4, dtype=np.float32)
    step(x=x, y=y)
    sent.clear()
    np.testing.assert_array_equal(step(x=x, y=y), y * LARGE)
    assert sorted(sent) == [((2,), False), ((LARGE,), True), ((LARGE,), True)]

    put = pjrt.Cores.put

    def fails(self: pjrt.Cores, pieces: Sequence[np.ndarray], *, may_change: bool = False) -> pjrt.CoreArray:
        if pieces[0].shape == (LARGE,):
            raise pjrt.PjrtError("RESOURCE_EXHAUSTED: Out of memory allocating 2097152 bytes.")
        return put(self, pieces, may_change=may_change)

    monkeypatch.setattr(pjrt.Cores, "put", fails)
    with pytest.raises(DeviceError, match=r"takes more memory than the cores of mesh \[a:2\] have left: RESOURCE_EXH"):
        step(x=x, y=y)
