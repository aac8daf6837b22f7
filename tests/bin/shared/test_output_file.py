"""An output that is also an input is refused, under any of its names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshtf.bin.shared.output_file import check_folder_can_be_made, check_overwrites_no_input
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
