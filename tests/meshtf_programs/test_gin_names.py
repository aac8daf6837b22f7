from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from meshtf_programs.command_lines.plan import answer
from meshtf_programs.gin_names import CONFIGURABLES, UnknownNameError, check_names
from meshtf_programs.packaged_configurations import packaged_folder, recipes
from tests.fresh_process import run_fresh

LINES = """\
import meshtf.train
include "lm_tiny.gin"
Training.seed = 1
encoder/Training.sed = 2
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_they_are_those_that_gin_knows() -> None:
    program = "from tests.meshtf_programs.configurables import configurables_text as t; print(t(), end='')"
    finished = run_fresh(["-c", program], Path(__file__).parents[2])
    assert finished.stdout == CONFIGURABLES.read_text(), "`make configurables` writes them anew"


def test_no_configuration_of_meshtfs_own_has_a_wrong_name() -> None:
    for file in packaged_folder().glob("*.gin"):
        check_names([file.name], [])
    for recipe in recipes():
        check_names(["lm_tiny.gin"], ["Training.seed = 1"], recipe)


def test_a_wrong_name_is_told_with_its_line_in_less_time_than_tensorflow_takes(tmp_path: Path) -> None:
    (tmp_path / "mine.gin").write_text(LINES)
    program = "import atexit, sys; from meshtf_programs.start import plan; sys.argv[0] = 'meshtf-plan'\n"
    program += "atexit.register(lambda: print({'meshtf', 'tensorflow', 'numpy'} & {*sys.modules}))\nplan()"
    ended = subprocess.run([sys.executable, "-c", program, "--gin_file=mine.gin"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "set()\n")
    assert ended.stderr.startswith(
        "meshtf-plan: error: mine.gin:4: Configurable 'Training' doesn't have a parameter named 'sed'\n"
        "Training has the parameters activation_dtype, "
    )
    assert ended.stderr.endswith('; did you mean "seed"?\n')


@pytest.mark.parametrize("text", [
    "import mine\nMyModel.width = 3",  # whose module may have it
    "include 's3://bucket/theirs.gin'\nNothing.width = 3",
    "Training.seed = = 3\nNothing.width = 3",  # which is wrong before it
    "a = %b",
    "include 'mine.gin'",
])  # fmt: skip
def test_what_is_not_certain_is_left_to_reading(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.gin").write_text(text)
    check_names(["mine.gin"], [])


def test_a_runs_own_modules_may_have_any_configurable() -> None:
    check_names([], ["MyModel.width = 3", "Training.optimizer = @MyOptimizer()"])
    Path("mine.gin").write_text("MyModel.width = 3\n")
    assert answer(["meshtf-plan", "--model_dir=run", "--gin_file=mine.gin"]) is None
    with pytest.raises(UnknownNameError, match=r"--gin_param='Training.sed = 3': .*\n.*did you mean .seed"):
        check_names([], ["Training.sed = 3"])
