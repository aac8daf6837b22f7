"""Saving while training goes on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import BackgroundSaver, CheckpointFolder, restore
from meshtf.checkpoint.chunks import Chunk
from meshtf.checkpoint.saving._host_buffers import HostBuffers
from meshtf.errors import CheckpointError, SaveError

MESH = mtf.SpmdMeshImpl("rows:2;cols:2", "a:rows")


def counter() -> mtf.Function:
    """Counts its runs, in variables of several types, of which two of four cores hold the same slices."""

    def count(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        results = []
        for dtype in (tf.float32, tf.bfloat16, tf.uint32):
            v = mtf.get_variable(mesh, dtype.name, [("a", 4), ("b", 3)], dtype, initializer=mtf.zeros)
            one = mtf.cast(mtf.ones(mesh, [("a", 4), ("b", 3)], tf.int32), dtype)
            results.append(mtf.assign(v, mtf.cast(mtf.cast(v, tf.float32) + mtf.cast(one, tf.float32), dtype)))
        return results

    return mtf.function(count, MESH)


@pytest.fixture(scope="module")
def program() -> mtf.Function:
    return counter()


class Gate:
    """A folder whose writes begin once they are let through; `threads` has the priority of each writing thread."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = CheckpointFolder(path)
        self.opened = threading.Event()
        self.priorities: list[int] = []
        write = self.folder.write

        def gated(*arguments: object) -> Path:
            self.priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            assert self.opened.wait(500)
            return write(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(self.folder, "write", gated)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(tmp_path, monkeypatch)


def test_what_is_saved_is_what_was_there_when_save_was_called(program: mtf.Function, gate: Gate) -> None:
    program()
    saved = {name: program.variables[name] for name in program.variables}
    state = {"position": [1]}
    with BackgroundSaver(gate.folder) as saver:
        saver.save(1, program.variables, state)
        state["position"].append(2)
        for _ in range(3):
            program()
        assert saver.is_writing
        assert gate.folder.steps() == []
        gate.opened.set()
        saver.wait()
        assert not saver.is_writing
    checkpoint = gate.folder.newest_readable()
    assert checkpoint is not None
    assert checkpoint.state == {"position": [1]}
    for name, value in saved.items():
        np.testing.assert_array_equal(checkpoint.read(name), value)
        assert (program.variables[name] != value).all()
    other = counter()
    restore(checkpoint, [other])
    np.testing.assert_array_equal(other()[0], saved["float32"] + 1)


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="there are no priorities")
def test_the_writing_thread_alone_has_low_priority(program: mtf.Function, gate: Gate) -> None:
    program()
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    gate.opened.set()
    with BackgroundSaver(gate.folder) as saver:
        saver.save(1, program.variables, {})
    assert gate.priorities == [19]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own


def test_the_next_save_waits_for_the_one_before(program: mtf.Function, gate: Gate) -> None:
    program()
    with BackgroundSaver(gate.folder) as saver:
        saver.save(1, program.variables, {})
        timer = threading.Timer(0.2, gate.opened.set)
        timer.start()
        saver.save(2, program.variables, {})
        assert gate.opened.is_set()
        assert gate.folder.path(1).exists()
        timer.join()
    assert gate.folder.steps() == [1, 2]


def failing(message: str) -> Callable[..., Path]:
    def write(*_: object) -> Path:
        raise SaveError(message)

    return write


@pytest.fixture
def full(program: mtf.Function, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackgroundSaver:
    """A saver whose disk is full."""
    program()
    folder = CheckpointFolder(tmp_path)
    monkeypatch.setattr(folder, "write", failing("the disk is full"))
    return BackgroundSaver(folder)


def test_a_failure_is_told_at_the_next_save_which_begins_all_the_same(
    program: mtf.Function, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program()
    folder = CheckpointFolder(tmp_path)
    saver = BackgroundSaver(folder)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "write", failing("the disk is full"))
        saver.save(1, program.variables, {})
        while saver.is_writing:
            pass
    with pytest.raises(SaveError, match="the disk is full"):
        saver.save(2, program.variables, {})
    saver.wait()
    assert folder.steps() == [2]


def test_a_failure_is_told_once_by_wait_or_at_the_end(program: mtf.Function, full: BackgroundSaver) -> None:
    full.save(1, program.variables, {})
    with pytest.raises(SaveError, match="the disk is full"):
        full.wait()
    full.wait()
    with pytest.raises(SaveError, match="the disk is full"), BackgroundSaver(full.folder) as saver:
        saver.save(1, program.variables, {})


def test_a_failure_is_told_although_the_next_save_is_refused(program: mtf.Function, full: BackgroundSaver) -> None:
    full.save(1, program.variables, {})
    with pytest.raises(CheckpointError, match="cannot be saved as JSON"):
        full.save(2, program.variables, {"x": object()})
    with pytest.raises(CheckpointError, match="there is nothing to save"):
        full.save(2, mtf.VariableStore(), {})
    with pytest.raises(SaveError, match="the disk is full"):
        full.wait()


def test_a_sandbox_without_priorities(program: mtf.Function, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program()

    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    folder = CheckpointFolder(tmp_path)
    with BackgroundSaver(folder) as saver:
        saver.save(1, program.variables, {})
    assert folder.steps() == [1]


def test_an_error_of_the_runs_own_goes_first(
    program: mtf.Function, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program()
    folder = CheckpointFolder(tmp_path)
    monkeypatch.setattr(folder, "write", failing("the disk is full"))

    def run() -> None:
        with BackgroundSaver(folder) as saver:
            saver.save(1, program.variables, {})
            raise KeyError

    with pytest.raises(KeyError):
        run()


def test_what_cannot_be_saved_is_refused_at_once(program: mtf.Function, tmp_path: Path) -> None:
    program()
    with BackgroundSaver(CheckpointFolder(tmp_path)) as saver:
        with pytest.raises(CheckpointError, match="cannot be saved as JSON"):
            saver.save(1, program.variables, {"x": object()})
        with pytest.raises(CheckpointError, match="there is nothing to save"):
            saver.save(1, mtf.VariableStore(), {})
    assert not saver.is_writing


def test_buffers_hold_one_replica_and_are_used_again(program: mtf.Function) -> None:
    program()
    buffers = HostBuffers()
    chunks = buffers.copy(program.variables)
    assert buffers.num_bytes == 4 * 3 * (4 + 2 + 4)
    before = [buffers.value_of(chunk).numpy() for chunk in chunks]
    arrays = [array for held in buffers._arrays.values() for array in held.values()]
    program()
    assert buffers.copy(program.variables) == chunks
    again = [array for held in buffers._arrays.values() for array in held.values()]
    assert all(a is b for a, b in zip(again, arrays, strict=True))
    for chunk, value in zip(chunks, before, strict=True):
        assert_counted(buffers, chunk, value)


def assert_counted(buffers: HostBuffers, chunk: Chunk, value: np.ndarray) -> None:
    np.testing.assert_array_equal(buffers.value_of(chunk).numpy().astype(float), value.astype(float) + 1)
    assert buffers.value_of(chunk).dtype == chunk.dtype
