"""Modules that gin files import: where they are found, and that they may be the first to use what is a configurable."""

from __future__ import annotations

from pathlib import Path

import gin
import pytest

from meshtf.train.configuration import read_configuration
from tests.fresh_process import run_fresh

USES_LAYERS_LATE = """
import gin
import meshtf as mtf

@gin.configurable
def late():
    from meshtf.layers.moe import MixtureOfExperts
    import meshtf.models.masked_lm
    return mtf.layers.dense, mtf.models, MixtureOfExperts
"""

READS_AND_CALLS = """
from pathlib import Path
from meshtf.train.configuration import read_configuration
read_configuration([Path("configurations/mine.gin")], [])
from late import late
late()
"""

LOCKED_BY_GIN = """
import gin
import meshtf as mtf
gin.parse_config_files_and_bindings([], [])
assert callable(mtf.layers.dense)
"""

CELL = """
import gin
@gin.configurable
def cell(size=1): return size, {number}
"""

NOTEBOOK = """
import importlib
import sys
import gin
from meshtf.train import configuration
sys.ps1 = "In : "
read_configuration = importlib.reload(configuration).read_configuration
written = {cell!r}
for number in (1, 2):
    exec(written.format(number=number))
    read_configuration([], ["cell.size = 3"])
    exec(written.format(number=number + 10))
assert gin.get_configurable("cell")() == (3, 12), gin.get_configurable("cell")()
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "nothing"))  # and takes away, after the test, what imports have added


def test_a_module_is_found_beside_the_gin_file_and_in_the_current_folder(tmp_path: Path) -> None:
    for name, folder in (("beside_gin", tmp_path / "configurations"), ("in_current", tmp_path)):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(f"import gin\n@gin.configurable\ndef of_{name}(x=1): return x\n")
    file = tmp_path / "configurations" / "mine.gin"
    file.write_text("import beside_gin\nimport in_current\nof_beside_gin.x = 2\nof_in_current.x = 3\n")
    read_configuration([file], [])
    assert gin.get_configurable("of_beside_gin")() == 2
    assert gin.get_configurable("of_in_current")() == 3


def test_an_include_is_found_beside_the_file_that_includes(tmp_path: Path) -> None:
    folder = tmp_path / "configurations"
    folder.mkdir()
    (folder / "mine.gin").write_text("include 'other.gin'")
    (folder / "other.gin").write_text("size = 3")
    read_configuration([folder / "mine.gin"], [])
    assert gin.query_parameter("%size") == 3


def test_a_model_may_be_the_first_to_use_a_layer_when_all_is_read(tmp_path: Path) -> None:
    (tmp_path / "configurations").mkdir()
    (tmp_path / "configurations" / "mine.gin").write_text("import late\n")
    (tmp_path / "configurations" / "late.py").write_text(USES_LAYERS_LATE)
    done = run_fresh(["-c", READS_AND_CALLS], tmp_path)
    assert done.status == 0, done.stderr


def test_layers_are_there_when_gin_was_locked_without_us(tmp_path: Path) -> None:
    done = run_fresh(["-c", LOCKED_BY_GIN], tmp_path)
    assert done.status == 0, done.stderr


def test_a_cell_of_a_notebook_may_run_twice(tmp_path: Path) -> None:
    """In a module that is imported anew, since meshtf asks when it is imported whether a person types."""
    done = run_fresh(["-c", NOTEBOOK.format(cell=CELL)], tmp_path)
    assert done.status == 0, done.stderr
