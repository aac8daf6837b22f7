"""Paths of runs: what no run can be kept under is refused up front, and all else works entirely."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.train import RunFolder
from meshtf.train.configuration import ConfigurationError
from meshtf.train.runs.run_path import run_path


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the model folder is empty text; give a path, such as runs/mine"),
        ("  ", "the model folder is empty text"),
        ("nothing://name/run", "the model folder nothing://name/run cannot be opened: "),
        ("runs/a\nb", "has the character U+000A in it"),
        ("runs/a\0b", "has the character U+0000 in it"),
        ("runs/a\tb", "has the character U+0009 in it"),
        ("runs/\x1b[31m", "has the character U+001B in it"),
        ("runs/\u2028", "has the character U+2028 in it"),
        ("runs/\udcff", "has the character U+DCFF in it"),
        (
            "~nobody_of_this_name/run",
            'the model folder ~nobody_of_this_name/run: this machine has no user "',
        ),
    ],
)
def test_what_is_refused(path: str, message: str) -> None:
    for use in (run_path, RunFolder.made, RunFolder.existing):
        with pytest.raises(ConfigurationError) as caught:
            use(path)
        assert message in str(caught.value)


ODD_NAMES = [
    *("lr=[0.1]", "[", "]", "a*b", "a?b", "back\\slash", "\\", "sp ace", "ünï", "日本", "100%", "%d", "%(x)s", "{x}"),
    *("-dash", "--flag=1", "$x_{$", "#", "a:b", "'q\"", "a,b;c", "~", "...", ".hidden", "x" * 200),
]


def test_checkpoints_in_folders_of_odd_names_are_read_again(tmp_path: Path) -> None:
    """TensorFlow takes a path from which it reads for a pattern: "a*b" also means "axb", whose values are others."""
    program = mtf.function(lambda mesh: mtf.get_variable(mesh, "w", "h:4") * 1.0, mtf.SpmdMeshImpl("rows:2", "h:rows"))
    program.initialize()
    for number, name in enumerate([*ODD_NAMES, "axb", "[ab]/a", "[ab]"]):
        folder = CheckpointFolder(tmp_path / name)
        program.variables["w"] = np.full(4, number)
        folder.save(number, program.variables, {"name": name})
    for number, name in enumerate([*ODD_NAMES, "axb", "[ab]/a"]):
        saved = CheckpointFolder(tmp_path / name).newest_readable()
        assert saved is not None, name
        restore(saved, [program])
        assert (saved.state, program.variables["w"].tolist()) == ({"name": name}, [number] * 4)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("file/run", "the model folder file/run cannot be made: [Errno 20] Not a directory"),
        ("file", "the model folder file cannot be made: [Errno 17] File exists"),
        ("loop/run", "the model folder loop/run cannot be made: [Errno 40] Too many levels of symbolic links"),
        ("x" * 300, "cannot be made: [Errno 36] File name too long"),
        ("/proc/run", "the model folder /proc/run cannot be made: [Errno 2] No such file or directory"),
    ],
)
def test_folders_that_cannot_be_made(path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("loop").symlink_to("loop")
    with pytest.raises(ConfigurationError) as caught:
        RunFolder.made(path)
    assert message in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"is not the folder of a run|cannot be accessed"):
        RunFolder.existing(path)
