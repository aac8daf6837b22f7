"""Pictures of layouts."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import rich.console

import meshtf as mtf
from meshtf.errors import LayoutError, UsageError


def test_each_block_and_who_holds_it() -> None:
    picture = mtf.visualize_layout("batch:8 hidden:6", "rows:2;cols:2", "hidden:cols", show=False)
    assert [(b.bounds, b.cores) for b in picture.blocks] == [(((0, 8), (0, 3)), (0, 2)), (((0, 8), (3, 6)), (1, 3))]
    assert "batch all, hidden 3:6" in str(picture)


def test_axes_in_their_order() -> None:
    picture = mtf.visualize_layout("batch:4", "rows:2;cols:2", "batch:cols+rows", show=False)
    assert [b.cores for b in picture.blocks] == [(0,), (2,), (1,), (3,)]


def test_an_override_counts() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.with_layout(mtf.placeholder(mesh, "batch:4 d:4"), "d:rows")
    picture = mtf.visualize_layout(x, "rows:2", "batch:rows", show=False)
    assert picture.title == "with_layout: batch:4 d:4/rows on mesh rows:2"


def test_the_layout_of_a_mesh_implementation() -> None:
    picture = mtf.visualize_layout("batch:4", mtf.SpmdMeshImpl("rows:2", "batch:rows"), show=False)
    assert len(picture.blocks) == 2


def test_a_scalar_and_a_large_mesh() -> None:
    scalar = mtf.visualize_layout("", "rows:16;cols:16", "", show=False)
    assert [(b.bounds, len(b.cores)) for b in scalar.blocks] == [((), 256)]
    assert "0-255" in str(scalar)
    large = mtf.visualize_layout("a:256 b:4", "rows:16;cols:16", "a:rows+cols", show=False)
    assert "and 192 more" in str(large)


def test_it_is_printed_in_colour(capsys: pytest.CaptureFixture[str]) -> None:
    mtf.visualize_layout("batch:4", "rows:2", "batch:rows")
    assert "batch 2:4" in capsys.readouterr().out
    stream = io.StringIO()
    console = rich.console.Console(file=stream, force_terminal=True, color_system="truecolor")
    mtf.visualize_layout("batch:4", "rows:2", "batch:rows", show=False).print(console)
    assert "\x1b[30;48;2;" in stream.getvalue()


@pytest.mark.parametrize("shape", ["", "batch:8", "batch:8 hidden:6", "a:2 batch:8 hidden:6"])
def test_a_png(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "layout.png"
    mtf.visualize_layout(shape, "rows:2;cols:2", "batch:rows;hidden:cols", path=path, show=False)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_more_than_two_dimensions_are_panels_whose_axes_are_true(tmp_path: Path) -> None:
    layout = "batch:a;length:b;d_model:c"
    picture = mtf.visualize_layout("batch:8 length:6 d_model:4", "a:2;b:3;c:2", layout, show=False)
    assert picture.panels == {"d_model 0:2": [0, 2, 4, 6, 8, 10], "d_model 2:4": [1, 3, 5, 7, 9, 11]}
    for numbers in picture.panels.values():  # no two blocks of a panel in one place
        assert len({picture.blocks[number].bounds[:2] for number in numbers}) == len(numbers)
    many = mtf.visualize_layout("a:2 b:2 c:8 d:4", "w:2;x:2;y:8;z:4", "a:w;b:x;c:y;d:z", show=False)
    assert len(many.panels) == 32
    many.save(tmp_path / "many.png")
    assert mtf.visualize_layout("a:2 b:2 c:8", "w:2;x:2", "a:w;b:x", show=False).panels == {"": [0, 1, 2, 3]}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"there is no folder {tmp_path}/gone"):
        mtf.visualize_layout("batch:4", "rows:2", "batch:rows", path=tmp_path / "gone" / "x.png", show=False)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install meshtf\[plots\]"):
        mtf.visualize_layout("batch:4", "rows:2", "batch:rows", path=tmp_path / "x.png", show=False)


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(LayoutError, match=r"with a mesh shape a layout is needed"):
        mtf.visualize_layout("batch:4", "rows:2")
    with pytest.raises(LayoutError, match=r'"batch" of size 1 does not divide into 2 parts'):
        mtf.visualize_layout("batch:1", "rows:2", "batch:rows")
    with pytest.raises(LayoutError, match=r'mesh axis "row"'):
        mtf.visualize_layout("batch:4", "rows:2", "batch:row")
