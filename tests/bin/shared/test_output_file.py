"""An output that is also an input is refused, under any of its names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshtf.bin.shared.output_file import (
    check_folder_can_be_made,
    check_is_no_device,
    check_overwrites_no_input,
)
from meshtf_programs.command_lines.shared.command_line import FlagError


def test_an_output_that_is_read_is_refused(tmp_path: Path) -> None:
    text, link, hard = (tmp_path / name for name in ("text", "link", "hard"))
    text.write_text("a\n")
    link.symlink_to(text)
    os.link(text, hard)
    for output in (text, link, hard):
        with pytest.raises(FlagError, match=r"--output=.* would overwrite .*text, which --files reads; give another"):
            check_overwrites_no_input(str(output), "--files", [tmp_path / "gone", text])


@pytest.mark.parametrize("output", [None, "other", "gone", "/dev/null"])
def test_other_outputs_are_not(tmp_path: Path, output: str | None) -> None:
    for name in ("text", "other"):
        (tmp_path / name).write_text("a\n")
    check_overwrites_no_input(output and str(tmp_path / output), "--files", ["/dev/null", str(tmp_path / "text")])


def test_a_folder_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_folder_can_be_made(tmp_path / "new" / "folder", "--output")
    with pytest.raises(NotADirectoryError, match=r"--output would be below a file: .*file"):
        check_folder_can_be_made(tmp_path / "file" / "new" / "folder", "--output")


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    """A superuser could rename a file to /dev/null, and then no program of the machine would have the device."""
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.touch()
    for output in (None, str(file), str(tmp_path), str(tmp_path / "new")):
        check_is_no_device(output, "--html")
    for output in (str(pipe), "/dev/null", "/dev/stdout"):
        with pytest.raises(FlagError, match=f"--html={output} is a device or a pipe, whose place the file would take"):
            check_is_no_device(output, "--html")
