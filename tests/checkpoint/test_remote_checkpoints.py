"""Checkpoints on remote storage, in memory: whole or not at all, wherever a process was killed; read part by part."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshtf.checkpoint import CheckpointFolder, SavedCheckpoint
from meshtf.checkpoint._box import Box
from meshtf.checkpoint.checkpoint_paths import all_checkpoints, open_source
from meshtf.checkpoint.manifest import MANIFEST
from meshtf.errors import CheckpointError, DamagedCheckpointError, SaveError
from meshtf.files.remote import failures
from meshtf.files.remote.failures import StorageError
from meshtf.files.remote.remote_folder import RemoteFolder
from tests.files.remote.tensors import check, save, value_of


@pytest.fixture
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(failures.time, "sleep", lambda seconds: None)
    return f"memory://{request.node.name}/checkpoints"


def test_the_newest_are_kept(url: str) -> None:
    folder = CheckpointFolder(url, keep=2)
    assert folder.steps() == []
    for step in (1, 2, 5):
        save(folder, step)
    assert CheckpointFolder(url).steps() == [2, 5]
    assert sorted(path.name for path in folder.folder.glob("step_*")) == ["step_00000005"]
    check(CheckpointFolder(url), 5)
    check(CheckpointFolder(url), 2)
    assert [str(place) for place in all_checkpoints([RemoteFolder.open(url)])] == [
        f"{url}/step_00000002",
        f"{url}/step_00000005",
    ]
    assert open_source(RemoteFolder.open(url)).step == 5
    with pytest.raises(CheckpointError, match=rf"{url} has no checkpoint of step 1; there are: 2, 5"):
        folder.open(1)
    with pytest.raises(CheckpointError, match="is not the folder of a checkpoint"):
        all_checkpoints([RemoteFolder.open(f"{url}/nothing")])


def test_what_is_asked_for_is_read_and_no_more(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save(CheckpointFolder(url), 3)
    saved = CheckpointFolder(url).open(3)
    read: list[int] = []
    plain = RemoteFolder.read

    def counted(self: RemoteFolder, name: str, start: int = 0, stop: int = 0) -> bytes:
        read.append(stop - start)
        return plain(self, name, start, stop)

    monkeypatch.setattr(RemoteFolder, "read", counted)
    part = Box((1, 20, 0), (1, 3, 5))
    for _ in range(2):
        np.testing.assert_array_equal(saved.read("a", part).numpy(), value_of("a", 3)[part.slices])
    assert 0 < sum(read) <= 2 * 70 * 4  # the chunks of 70 elements that have these 15
    saved.read("half", Box((3,), (2,)))
    assert read[-1] == 64 * 2  # TensorFlow reads no part of this type


class KilledError(BaseException):
    """Stands for the end of the process at a request."""


def kill_at(request: int, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    storage = RemoteFolder.open(url)._storage
    count = itertools.count()
    for name in ("put_file", "pipe_file", "rm_file"):
        plain = getattr(type(storage), name)

        def dying(self: Any, *given: Any, plain: Any = plain, **kwargs: Any) -> Any:
            if next(count) == request:
                raise KilledError
            return plain(self, *given, **kwargs)

        monkeypatch.setattr(type(storage), name, dying)


def test_killed_at_any_request_nothing_half_written_is_taken_for_whole(url: str) -> None:
    """Also where the checkpoint of the same step is replaced, and where the oldest is deleted."""
    before, killed = RemoteFolder.open(f"{url}/before"), 0
    for step in (1, 2):
        save(CheckpointFolder(before), step)
    for request in itertools.count():
        own = f"{url}/{request}"
        for name in before.files():
            RemoteFolder.open(own).write(name, before.read(name))
        with pytest.MonkeyPatch.context() as patch:
            kill_at(request, patch, own)
            try:
                save(CheckpointFolder(own, keep=2), 2)
                save(CheckpointFolder(own, keep=2), 3)
                break
            except KilledError:
                killed += 1
        folder = CheckpointFolder(own, keep=2)
        newest = folder.newest_readable()
        assert newest is not None
        assert newest.step in (1, 2, 3)
        for step in folder.steps():
            check(folder, step)
        folder.remove_unfinished()
        assert RemoteFolder.open(own).files().keys() == {
            name for name in RemoteFolder.open(own).files() if int(name[5:13]) in folder.steps()
        }
    save(folder, 4)
    check(folder, 4)
    assert killed > 10


def test_what_is_no_checkpoint_is_never_deleted(url: str) -> None:
    folder, there = CheckpointFolder(url, keep=1), RemoteFolder.open(url)
    names = ["notes.txt", "plots/loss.png", "step_00000001_copy/variables.index", "step_1/variables.index", "a/b/c"]
    for name in [*names, "step_00000002/variables.index"]:
        there.write(name, b"precious")
    for step in (3, 4):
        save(folder, step)
    assert folder.remove_unfinished() == [there / "step_00000002"]
    assert [name for name in there.files() if not name.startswith("step_00000004/")] == sorted(names)


def test_damage_is_named_and_the_one_before_is_taken(url: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = CheckpointFolder(url, keep=None)
    for step in (1, 2, 3, 4):
        save(folder, step)
    data = "variables.data-00000-of-00001"
    there = RemoteFolder.open(url)
    content = there.read(f"step_00000004/{data}")
    there.write(f"step_00000004/{data}", content[:-1])
    there.write(f"step_00000003/{data}", bytes(reversed(content)))
    there.write(f"step_00000002/{MANIFEST}", b"{}")
    newest = CheckpointFolder(url).newest_readable()
    assert newest is not None
    assert newest.step == 1
    cut, changed, manifest = (record.getMessage() for record in caplog.records)
    assert f"checkpoint {url}/step_00000004 is damaged: {data} has {len(content) - 1} bytes instead of" in cut
    assert f'checkpoint {url}/step_00000003 is damaged: tensor "' in changed
    assert f"checkpoint {url}/step_00000002 is damaged: {MANIFEST} does not have" in manifest
    there.delete([f"step_00000001/{data}"])
    with pytest.raises(DamagedCheckpointError, match=f"{data} is missing"):
        SavedCheckpoint.open(RemoteFolder.open(f"{url}/step_00000001"))


def test_storage_that_fails_is_no_damage(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = CheckpointFolder(url)
    save(folder, 1)
    storage = type(RemoteFolder.open(url)._storage)

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionResetError("reset by peer")

    saved = CheckpointFolder(url).open(1)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "cat_file", refuse)
        for use in (lambda: saved.read("a"), CheckpointFolder(url).newest_readable, lambda: folder.open(1)):
            with pytest.raises(StorageError, match="ConnectionResetError: reset by peer"):
                use()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "put_file", refuse)
        with pytest.raises(
            SaveError, match=r"step 2 cannot be written to .*reset by peer\nA complete copy is in"
        ) as caught:
            save(folder, 2)
        assert str(folder.path(2)) in str(caught.value)
    assert folder.steps() == [1]
    SavedCheckpoint.open(folder.path(2)).verify()
