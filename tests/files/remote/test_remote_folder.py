"""Folders of remote storage, in memory: what is there is found, what fails is tried again, and no secret is told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshtf.files.remote import failures
from meshtf.files.remote.failures import ATTEMPTS, StorageError, persistent, without_secrets
from meshtf.files.remote.remote_folder import RemoteFolder, is_remote, place_of
from meshtf_programs.user_paths import user_path


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> RemoteFolder:
    return RemoteFolder.open(f"memory://{request.node.name}/run/")


def test_files_come_back(folder: RemoteFolder, tmp_path: Path) -> None:
    assert (folder.files(), folder.has("x"), folder.name) == ({}, False, "run")
    folder.write("x", b"0123456789")
    (tmp_path / "local").write_bytes(b"abc")
    (folder / "inner").upload(tmp_path / "local", "y")
    assert folder.files() == {"inner/y": 3, "x": 10}
    assert (folder.read("x"), folder.read("x", 2, 5), (folder / "inner").read("y")) == (b"0123456789", b"234", b"abc")
    assert (folder.glob("*"), folder.glob("**/y"), folder.glob("z*")) == (["x"], ["inner/y"], [])
    folder.download("inner/y", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"abc"
    before = folder.version("x")
    folder.write("x", b"other")
    assert folder.version("x") != before
    folder.copy("x", "inner/z")
    folder.delete(["x", "was never there"])
    assert folder.files() == {"inner/y": 3, "inner/z": 5}
    for use in (folder.read, folder.size, folder.version):
        with pytest.raises(FileNotFoundError, match=r"reading memory://.*/run/x"):
            use("x")
    with pytest.raises(StorageError, match=r"received 3 bytes instead of 90"):
        folder.read("inner/y", 0, 90)


def test_which_paths_are_remote(tmp_path: Path) -> None:
    assert [p for p in ("s3://b/x", "memory://x", "file:///x", "runs/x", "~", "C:x", "") if is_remote(p)] == [
        "s3://b/x",
        "memory://x",
    ]
    assert place_of(f"file://{tmp_path}") == user_path(tmp_path) == tmp_path
    with pytest.raises(StorageError, match=r"nothing://b cannot be opened: .*Give a path, or an address that fsspec"):
        place_of("nothing://b")


@pytest.mark.parametrize(("url", "library", "extra"), [("s3://b", "s3fs", "s3"), ("gs://b", "gcsfs", "gcs")])
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, url: str, library: str, extra: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StorageError, match=rf"{library}, which is not installed: pip install 'meshtf\[{extra}\]'"):
        RemoteFolder.open(url)


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = [error] * times

    def request() -> str:
        if left:
            raise left.pop()
        return "answer"

    return request


def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures.time, "sleep", lambda seconds: None)
    assert persistent("reading x", failing(ATTEMPTS - 1, RuntimeError("SlowDown"))) == "answer"
    with pytest.raises(StorageError, match=r"reading x failed: RuntimeError: SlowDown") as caught:
        persistent("reading x", failing(ATTEMPTS, RuntimeError("SlowDown")))
    assert caught.value.errno == errno.EIO
    with pytest.raises(StorageError, match="PermissionError: Access Denied") as caught:
        persistent("reading x", failing(1, PermissionError("Access Denied")))
    assert caught.value.errno == errno.EACCES
    with pytest.raises(FileNotFoundError):
        persistent("reading x", failing(1, FileNotFoundError("x")))


def test_no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures.time, "sleep", lambda seconds: None)
    assert (
        without_secrets("s3://me:word@b/x, https://h/p?X-Amz-Signature=12 and a@b") == "s3://b/x, https://h/p and a@b"
    )
    said = OSError("GET https://me:word@host/x?token=12 timed out")
    with pytest.raises(StorageError) as caught:
        persistent("reading ftp://me:word@host/x", failing(ATTEMPTS, said))
    assert "word" not in str(caught.value)
    assert "token" not in str(caught.value)
    assert str(RemoteFolder("s3://me:word@b/x", None, "b/x")) == "s3://b/x"
    assert "word" not in repr(RemoteFolder("s3://me:word@b/x", None, "b/x"))


def test_a_write_that_is_cut_short_is_found(folder: RemoteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = folder._storage.pipe_file
    monkeypatch.setattr(folder._storage, "pipe_file", lambda path, content: whole(path, content[:-1]))
    with pytest.raises(StorageError, match=r"run/x has 3 bytes after 4 were written"):
        folder.write("x", b"1234")
