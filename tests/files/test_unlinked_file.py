"""What another planted under a name is never written through."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from meshtf.checkpoint.atomic_folder import atomic_folder, delete_folder, remove_unfinished
from meshtf.files.replaced_file import replace_file, replaced_file
from meshtf.files.unlinked_file import append_to_file, create_file, open_for_lock
from meshtf.train import RunFolder
from meshtf.train.monitoring.metrics import MetricsLog


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_bytes(b"precious")
    return path


@pytest.fixture
def folder(tmp_path: Path, precious: Path) -> Path:
    """One in which links to a file stand under every name that is written."""
    path = tmp_path / "run"
    path.mkdir()
    for name in (".writing-it", ".writing-metrics.jsonl", ".writing-versions.json", ".lock", "it", "metrics.jsonl"):
        (path / name).symlink_to(precious)
    return path


def make_folder(path: Path) -> None:
    with atomic_folder(path) as temporary:
        (temporary / "new").write_bytes(b"new")


REPLACING: dict[str, Callable[[Path], object]] = {
    "a file": lambda folder: replace_file(folder / "it", b"new"),
    "a new file": lambda folder: create_file(folder / ".writing-it").close(),
    "a folder": lambda folder: make_folder(folder / "it"),
    "metrics": lambda folder: MetricsLog(folder / "metrics.jsonl").write(1, {"loss": 1.0}),
    "versions": lambda folder: RunFolder(folder).write_versions(),
    "what is unfinished": remove_unfinished,
    "what is deleted": lambda folder: delete_folder(folder / "it"),
}


@pytest.mark.parametrize("what", REPLACING)
def test_links_are_replaced_and_not_written_through(folder: Path, precious: Path, what: str) -> None:
    REPLACING[what](folder)
    assert precious.read_bytes() == b"precious"
    assert not (folder / ".writing-it").exists() or what in ("a new file", "metrics", "versions", "what is deleted")


REFUSING: dict[str, Callable[[Path], object]] = {
    "adding": lambda folder: append_to_file(folder / "it", b"new"),
    "a lock": lambda folder: open_for_lock(folder / ".lock"),
    "the lock of a run": lambda folder: RunFolder(folder).lock(),
}


@pytest.mark.parametrize("what", REFUSING)
def test_links_are_refused_where_content_is_kept(folder: Path, precious: Path, what: str) -> None:
    with pytest.raises(OSError, match="it is a symbolic link, and meshtf does not write through links"):
        REFUSING[what](folder)
    assert precious.read_bytes() == b"precious"


def test_a_link_to_a_folder_keeps_what_is_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "precious").touch()
    for name in (".writing-it", ".deleting-it", ".replaced-it", "it"):
        (tmp_path / name).symlink_to(tmp_path / "own")
    make_folder(tmp_path / "it")
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it", "own"]
    assert (tmp_path / "own" / "precious").exists()
    assert not (tmp_path / "it").is_symlink()


def test_a_stray_file_in_place_of_a_folder_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / ".writing-it").touch()
    (tmp_path / ".replaced-other").touch()
    make_folder(tmp_path / "it")
    assert (tmp_path / "it" / "new").exists()
    (tmp_path / ".writing-it").touch()
    (tmp_path / ".deleting-it").symlink_to("nowhere")
    assert len(remove_unfinished(tmp_path)) == 2


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "it")
    with pytest.raises(OSError, match=r"."):
        append_to_file(tmp_path / "it", b"new")
    with pytest.raises(OSError, match="it is not a regular file"):
        open_for_lock(tmp_path / "it")
    replace_file(tmp_path / "it", b"new")
    assert (tmp_path / "it").read_bytes() == b"new"


def test_a_new_file_has_the_rights_that_the_user_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "it", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "it").stat().st_mode) == 0o640


def test_two_that_write_the_same_file_do_not_mix(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced_file(tmp_path / "it")).write(b"first")
        replace_file(tmp_path / "it", b"second")
        with pytest.raises(OSError, match="another process also writes it"):
            stack.close()
    assert (tmp_path / "it").read_bytes() == b"second"
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"old")
    with contextlib.suppress(KeyboardInterrupt), replaced_file(tmp_path / "it") as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert (tmp_path / "it").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1
