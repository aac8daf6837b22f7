"""Copies of remote files: brought once, and again when they have changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshtf.files.remote.failures import StorageError
from meshtf.files.remote.local_copies import local_copies, local_copy
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.files.remote.working_folder import PassingFolder, lasting_folder


def test_they_are_those_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteFolder.open("memory://copies/texts")
    for name in ("b.txt", "a.txt", "inner/c.txt", "d.csv"):
        remote.write(name, name.encode())
    found = local_copies("memory://copies/texts/*.txt", tmp_path)
    assert [(path.name, path.read_text()) for path in found] == [("a.txt", "a.txt"), ("b.txt", "b.txt")]
    assert local_copies("memory://copies/texts/nothing*", tmp_path) == []
    assert [path.name for path in local_copies("memory://copies/**/c.txt", tmp_path)] == ["c.txt"]
    for name in ("data[1].txt", "data1.txt"):
        remote.write(name, name.encode())
    assert [path.name for path in local_copies("memory://copies/texts/data[1].txt", tmp_path)] == ["data[1].txt"]
    assert [path.name for path in local_copies("memory://copies/texts/data[12].txt", tmp_path)] == ["data1.txt"]
    monkeypatch.setattr(RemoteFolder, "download", lambda *_: pytest.fail("it is here already"))
    assert local_copy("memory://copies/texts/a.txt", tmp_path) == found[0]
    monkeypatch.undo()
    remote.write("a.txt", b"changed")
    assert local_copy("memory://copies/texts/a.txt", tmp_path).read_bytes() == b"changed"
    with pytest.raises(FileNotFoundError, match=r"memory://copies/texts/e\.txt"):
        local_copy("memory://copies/texts/e.txt", tmp_path)
    assert not list(tmp_path.rglob(".bringing-*"))


def test_none_is_outside_of_the_folder_of_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteFolder, "glob", lambda *_: ["../../../x.txt"])
    with pytest.raises(
        StorageError, match=r"memory://copies/\.\./\.\./\.\./x\.txt is not copied, because its name contains \.\."
    ):
        local_copies("memory://copies/**/*.txt", tmp_path)


def test_folders_have_no_secrets_and_passing_ones_pass(tmp_path: Path) -> None:
    one, other = (RemoteFolder(f"s3://{user}@b/x", None, "b/x") for user in ("me:word", "you:word"))
    assert lasting_folder(tmp_path, one) == lasting_folder(tmp_path, other)
    assert "word" not in str(lasting_folder(tmp_path, one))
    passing = PassingFolder()
    path = passing.path
    (path / "x").touch()
    del passing
    assert not path.exists()
