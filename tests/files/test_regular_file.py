"""Only regular files are read, none without end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from meshtf.files.regular_file import open_regular, read_regular


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder": (Path.mkdir, "it is a folder, not a regular file"),
    "a pipe": (os.mkfifo, "it is a named pipe, not a regular file"),
    "a socket": (make_socket, "it is a socket, not a regular file"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "it is a device, not a regular file"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
    "a link to itself": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "nothing": (lambda path: None, "No such file or directory"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_not_opened(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    make, words = KINDS[kind]
    make(Path("it"))
    with pytest.raises(OSError, match=r".") as caught:
        open_regular(Path("it"))
    assert caught.value.strerror == words


def test_links_are_followed_where_they_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 4) == b"text"
    with pytest.raises(OSError, match="it is a symbolic link, not a regular file"):
        open_regular(tmp_path / "link", follows_links=False)


def test_no_more_is_read_than_there_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    with pytest.raises(OSError, match="it has 4 bytes, and the limit is 3"):
        read_regular(tmp_path / "file", 3)
    os.truncate(tmp_path / "file", 2**42)
    with pytest.raises(OSError, match="it has 4,398,046,511,104 bytes, and the limit is 10"):
        read_regular(tmp_path / "file", 10)
