"""Saving into a folder: what appears, what is kept, and what a failure leaves."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, atomic_folder, manifest
from meshtf.errors import CheckpointError, SaveError


@pytest.fixture(scope="module")
def store() -> mtf.VariableStore:
    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "v", "a:4 b:50000", initializer=mtf.zeros)

    function = mtf.function(program, mtf.SpmdMeshImpl("all:2", "a:all"))
    function.initialize()
    return function.variables


def names_in(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())


@pytest.mark.parametrize(("keep", "kept"), [(1, [9]), (2, [5, 9]), (None, [1, 2, 5, 9])])
def test_the_newest_are_kept(store: mtf.VariableStore, tmp_path: Path, keep: int | None, kept: list[int]) -> None:
    folder = CheckpointFolder(tmp_path / "new" / "folder", keep)
    assert folder.steps() == []
    for step in (1, 2, 5, 9):
        assert folder.save(step, store, {"step": step}) == folder.path(step)
    assert folder.steps() == kept
    assert names_in(folder.folder) == [f"step_{step:08d}" for step in kept]
    newest = folder.newest_readable()
    assert newest is not None
    assert (newest.step, dict(newest.state)) == (9, {"step": 9})


def test_a_later_one_that_was_passed_over_displaces_none(store: mtf.VariableStore, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    for step in (20, 30):
        CheckpointFolder(tmp_path, keep=None).save(step, store, {})
    (folder.path(30) / "variables.index").unlink()
    folder.save(25, store, {})
    assert folder.steps() == [25, 30]
    newest = folder.newest_readable()
    assert newest is not None
    assert newest.step == 25
    folder.save(35, store, {})
    assert folder.steps() == [35]


def test_a_step_that_is_saved_again_replaces_the_first(store: mtf.VariableStore, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for run in ("first", "second"):
        folder.save(4, store, {"run": run})
    assert names_in(tmp_path) == ["step_00000004"]
    assert folder.open(4).state["run"] == "second"


def test_what_an_interruption_leaves_is_removed(store: mtf.VariableStore, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for step in (1, 2):
        folder.save(step, store, {})
    folder.path(1).rename(tmp_path / ".replaced-step_00000001")
    for name in (".writing-step_00000003", ".deleting-step_00000000", ".replaced-step_00000002"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").touch()
    (tmp_path / "notes").mkdir()
    assert folder.steps() == [2]
    assert len(folder.remove_unfinished()) == 3
    assert names_in(tmp_path) == ["notes", "step_00000001", "step_00000002"]
    assert folder.remove_unfinished() == []
    folder.open(1).verify()
    assert CheckpointFolder(tmp_path / "nowhere").remove_unfinished() == []


@contextlib.contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """No file may grow beyond this, as on a disk that is full by then."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def check_failed_save(folder: CheckpointFolder, store: mtf.VariableStore, reason: str) -> None:
    with pytest.raises(SaveError) as caught:
        folder.save(2, store, {})
    text = str(caught.value)
    assert f"the checkpoint of step 2 cannot be written to {folder.path(2)}: " in text
    assert reason in text
    assert "It would take 800,000 bytes" in text
    assert "Earlier checkpoints are unchanged." in text
    assert names_in(folder.folder) == ["step_00000001"]
    folder.open(1).verify()


def test_files_that_cannot_grow(store: mtf.VariableStore, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(1, store, {})
    with file_size_limit(100_000):
        check_failed_save(folder, store, "File too large")


@pytest.mark.parametrize("call", ["SaveV2", "MergeV2Checkpoints", "fsync", "write_text", "rename", "mkdir"])
def test_a_full_disk_at_any_moment(
    store: mtf.VariableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(1, store, {})

    def full(*args: object, **kwargs: object) -> None:
        if call in ("SaveV2", "MergeV2Checkpoints"):
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        raise OSError(errno.ENOSPC, "No space left on device")

    owner = {"fsync": os, "write_text": Path, "rename": Path, "mkdir": Path}.get(call, tf.raw_ops)
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, full)
        check_failed_save(folder, store, "No space left on device")
    folder.save(2, store, {})
    assert folder.steps() == [2]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(store: mtf.VariableStore, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(1, store, {})
    tmp_path.chmod(0o500)
    check_failed_save(folder, store, "Permission denied")
    tmp_path.chmod(0o700)


def test_a_folder_that_is_a_file(store: mtf.VariableStore, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SaveError, match=r"cannot be written to .*file/step_00000001: (Not a directory|File exists)"):
        CheckpointFolder(tmp_path / "file").save(1, store, {})


def test_a_manifest_that_would_be_too_large_to_read_again(
    store: mtf.VariableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(1, store, {})
    monkeypatch.setattr(manifest, "LARGEST", 1000)
    with pytest.raises(SaveError, match=r"could not be read again: manifest\.json has .* and the limit is 1,000"):
        folder.save(2, store, {"text": 1000 * "x"})
    assert names_in(tmp_path) == ["step_00000001"]
    folder.open(1).verify()


def test_a_name_that_no_later_read_would_take(tmp_path: Path) -> None:
    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "a\0b", "n:4", initializer=mtf.zeros)

    function = mtf.function(program, mtf.SpmdMeshImpl("all:1", ""))
    function.initialize()
    with pytest.raises(SaveError, match="has a name that no variable can have"):
        CheckpointFolder(tmp_path).save(1, function.variables, {})
    assert names_in(tmp_path) == []


def test_a_folder_whose_name_is_not_utf_8(store: mtf.VariableStore, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / os.fsdecode(b"\xff[1]"), keep=1)
    for step in (1, 2):
        folder.save(step, store, {})
    newest = folder.newest_readable()
    assert newest is not None
    assert newest.step == 2
    np.testing.assert_array_equal(newest.read("v"), store["v"])


def test_old_ones_that_cannot_be_deleted_are_only_complained_of(
    store: mtf.VariableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(1, store, {})

    def refuse(path: Path) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("meshtf.checkpoint.checkpoint_folder.delete_folder", refuse)
    folder.save(2, store, {})
    assert folder.steps() == [1, 2]
    assert "step_00000002 is complete, but" in caplog.text
    assert "Permission denied" in caplog.text


def test_arguments(store: mtf.VariableStore, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    with pytest.raises(CheckpointError, match="keep must be at least 1, or None to keep all, and is 0"):
        CheckpointFolder(tmp_path, keep=0)
    with pytest.raises(CheckpointError, match="nothing to save: a store is empty until a program has run"):
        folder.save(1, mtf.VariableStore(), {})
    with pytest.raises(CheckpointError, match=r"the state \{'x': .* cannot be saved as JSON"):
        folder.save(1, store, {"x": np.zeros(2)})
    with pytest.raises(CheckpointError, match=r"would come back as \{'x': \[1, 2\]\}; use lists"):
        folder.save(1, store, {"x": (1, 2)})
    with pytest.raises(CheckpointError, match=r"would come back as \{'x': 'Infinity'\}; use lists, finite numbers"):
        folder.save(1, store, {"x": float("inf")})
    folder.save(3, store, {})
    with pytest.raises(CheckpointError, match="has no checkpoint of step 4; there are: 3"):
        folder.open(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda folder: CheckpointFolder(3), "the folder of checkpoints must be a path, and is 3"),
        (lambda folder: CheckpointFolder(None), "the folder of checkpoints must be a path, and is None"),
        (lambda folder: CheckpointFolder(b"a"), "the folder of checkpoints must be a path, and is b'a'"),
        (lambda folder: CheckpointFolder(folder, "3"), "keep must be at least 1, or None to keep all, and is '3'"),
        (lambda folder: CheckpointFolder(folder, 1.5), "keep must be at least 1, or None to keep all, and is 1.5"),
        (lambda folder: CheckpointFolder(folder / "no").open(3), "has no checkpoint of step 3; there are: none"),
        (
            lambda folder: CheckpointFolder(folder).save(mtf.VariableStore(), 3, {}),
            "save() takes a store of variables, such as step.variables, not int",
        ),
        (
            lambda folder: CheckpointFolder(folder).save(3, {"w": 1}, {}),
            "save() takes a store of variables, such as step.variables, not dict",
        ),
    ],
)
def test_arguments_that_are_wrong(call: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        call(tmp_path)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "final"

    def interrupted() -> None:
        with atomic_folder.atomic_folder(final) as folder:
            (folder / "half").touch()
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    assert names_in(tmp_path) == []
    with atomic_folder.atomic_folder(final) as folder:
        (folder / "whole").touch()
        assert not final.exists()
    assert names_in(final) == ["whole"]


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_folder_that_cannot_be_replaced_stays(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final, plain = tmp_path / "final", Path.rename
    final.mkdir()
    (final / "old").touch()

    def rename(self: Path, target: Path) -> Path:
        if self.name == ".writing-final":
            raise failure
        return plain(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(type(failure)), atomic_folder.atomic_folder(final) as folder:
        (folder / "new").touch()
    assert names_in(tmp_path) == ["final"]
    assert names_in(final) == ["old"]


def test_what_lies_deeper_in_a_folder_is_on_the_disk_before_it_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: list[str] = []
    plain = atomic_folder.synchronize

    def synchronize(path: Path) -> None:
        plain(path)
        on_disk.append("" if (tmp_path / "final").exists() else path.name)

    monkeypatch.setattr(atomic_folder, "synchronize", synchronize)
    with atomic_folder.atomic_folder(tmp_path / "final") as folder:
        (folder / "inner" / "more").mkdir(parents=True)
        (folder / "inner" / "more" / "file").touch()
    assert {"inner", "more", "file", ".writing-final"} <= set(on_disk)
