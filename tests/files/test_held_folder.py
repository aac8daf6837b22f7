from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from meshtf.files.held_folder import HeldFolder


def test_folders_of_processes_that_were_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of others that run, nor of one that has just begun, nor what only has such a name."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, new, other = (tmp_path / name for name in ("own_left", "own_new", "other_left"))
    for folder in (left, new, other):
        folder.mkdir()
        (folder / "x").touch()
    (tmp_path / "own_file").touch()
    (tmp_path / "own_link").symlink_to(other)
    used = HeldFolder("own_")
    for path in (left, used.path, other, tmp_path / "own_file", tmp_path / "own_link"):
        os.utime(path, (0, 0), follow_symlinks=False)
    held = HeldFolder("own_")
    assert {*tmp_path.iterdir()} == {
        held.path, used.path, new, other, tmp_path / "own_file", tmp_path / "own_link",
    }  # fmt: skip
    assert (other / "x").exists()
    used.remove()
    held.remove()
    assert not used.path.exists()
    assert not held.path.exists()
