"""meshtf-checkpoint: what each command prints, and what it ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.bin import checkpoint
from meshtf.bin.checkpoint import main
from meshtf.checkpoint import CheckpointFolder, SavedCheckpoint
from meshtf.errors import SaveError
from tests.fresh_process import run_fresh

BAD_USAGE, BAD_FILE = 2, 4


class Ended:
    """A command that has ended: its status, and what it printed."""

    def __init__(self, status: int, captured: pytest.CaptureResult[str]) -> None:
        self.status, self.out, self.err = status, captured.out, captured.err


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program in this process."""

    def run(*arguments: object) -> Ended:
        status = main(["meshtf-checkpoint", *map(str, arguments)])
        return Ended(status, capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder, with checkpoints of steps 1, 2 and 3, in which variables are that number times a pattern."""

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        return [
            mtf.get_variable(mesh, "dense/kernel", "a:4 b:2", initializer=mtf.zeros),
            mtf.get_variable(mesh, "dense/bias", "b:2", initializer=mtf.zeros),
        ]

    function = mtf.function(program, mtf.SpmdMeshImpl("all:2", "a:all"))
    function.initialize()
    run = tmp_path_factory.mktemp("run")
    folder = CheckpointFolder(run / "checkpoints", keep=None)
    for step in (1, 2, 3):
        function.variables["dense/kernel"] = step * np.arange(8).reshape(4, 2)
        folder.save(step, function.variables, {"position": step * 10})
    return run


def step_folder(saved: Path, step: int) -> Path:
    return saved / "checkpoints" / f"step_{step:08d}"


@pytest.fixture
def damaged(saved: Path, tmp_path: Path) -> Path:
    """A copy of step 2 with a byte changed."""
    import shutil

    copy = tmp_path / "step_00000002"
    shutil.copytree(step_folder(saved, 2), copy)
    data = copy / "variables.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[9] ^= 4
    data.write_bytes(content)
    return copy


def test_list(run: Run, saved: Path) -> None:
    ended = run("list", saved)
    assert ended.status == 0
    titles, *lines = ended.out.splitlines()
    assert titles.split() == ["checkpoint", "step", "tensors", "size", "written"]
    assert [line.split()[:5] for line in lines] == [
        [str(step_folder(saved, step)), str(step), "2", "40", "B"] for step in (1, 2, 3)
    ]
    (step_folder(saved, 3) / "variables.index").rename(saved / "away")
    ended = run("list", saved)
    (saved / "away").rename(step_folder(saved, 3) / "variables.index")
    assert ended.status == 1
    assert "step_00000003 is damaged: variables.index is missing" in ended.out.splitlines()[3]


def test_show(run: Run, saved: Path) -> None:
    assert run("show", saved).out.splitlines() == [
        "step:     3",
        'state:    {"position": 30}',
        "tensors:  2 of 2, 40 B",
        "  tensor        shape   type       size",
        "  dense/bias    [2]     float32   8 B",
        "  dense/kernel  [4, 2]  float32  32 B",
    ]
    lines = run("show", step_folder(saved, 1), "--pattern=ker").out.splitlines()
    assert (lines[0], lines[2], len(lines)) == ("step:     1", "tensors:  1 of 2, 32 B", 5)
    ended = run("show", saved, "--pattern=(")
    assert (ended.status, "--pattern=( is no regular expression" in ended.err) == (BAD_USAGE, True)


def test_compare(run: Run, saved: Path) -> None:
    same = run("compare", saved, step_folder(saved, 3))
    assert (same.status, same.out) == (0, "equal:               2 tensors\n")
    other = run("compare", step_folder(saved, 1), step_folder(saved, 3))
    assert other.status == 1
    assert other.out.splitlines() == [
        "  different values  elements that differ  largest difference",
        "  dense/kernel                    7 of 8                  14",
        "the runs' states differ",
        "equal:               1 tensor",
    ]
    assert run("compare", step_folder(saved, 1), saved, "--tolerance=14").status == 0


def test_verify(run: Run, saved: Path, damaged: Path) -> None:
    assert run("verify", saved).out.splitlines() == [f"{step_folder(saved, step)} is whole" for step in (1, 2, 3)]
    ended = run("verify", damaged, step_folder(saved, 1))
    assert ended.status == 1
    assert f'checkpoint {damaged} is damaged: tensor "dense/' in ended.out
    assert f"{step_folder(saved, 1)} is whole" in ended.out


def test_damaged_checkpoints_are_no_input(run: Run, saved: Path, damaged: Path, tmp_path: Path) -> None:
    for arguments in (
        ["compare", damaged, saved],
        ["average", step_folder(saved, 1), damaged, f"--output={tmp_path / 'out'}"],
        ["convert", damaged, f"--output={tmp_path / 'out.npz'}"],
    ):
        ended = run(*arguments)
        assert (ended.status, ended.out) == (1, "")
        assert f"meshtf-checkpoint: error: checkpoint {damaged} is damaged: " in ended.err
    assert [path.name for path in tmp_path.iterdir()] == [damaged.name]


def test_average(run: Run, saved: Path, tmp_path: Path) -> None:
    ended = run("average", step_folder(saved, 1), step_folder(saved, 2), f"--output={tmp_path / 'mean'}")
    assert ended.status == 0
    assert ended.out == f"{tmp_path / 'mean'} is the mean of 2 checkpoints, of steps 1, 2\n"
    mean = SavedCheckpoint.open(tmp_path / "mean")
    mean.verify()
    np.testing.assert_array_equal(mean.read("dense/kernel"), 1.5 * np.arange(8).reshape(4, 2))
    assert run("average", saved, f"--output={tmp_path / 'all'}").out.endswith("of 3 checkpoints, of steps 1, 2, 3\n")
    assert run("show", tmp_path / "all").out.startswith("step:     3\n")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_convert(run: Run, saved: Path, tmp_path: Path, suffix: str) -> None:
    file, back = tmp_path / f"file{suffix}", tmp_path / "back"
    ended = run("convert", saved, f"--output={file}")
    assert (ended.status, ended.out) == (0, f"{file} has the 2 tensors of {saved}, step 3\n")
    assert run("convert", file, f"--output={back}").status == 0
    assert run("compare", back, saved).out == "equal:               2 tensors\n"
    assert run("show", file).out == run("show", back).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst", "x"], 'there is no command "lst"; did you mean "list"?; there are: list, show, compare'),
        (["show", "x", "--patern=a"], "Unknown command line flag 'patern'. Did you mean: pattern ?"),
        (["list", "x", "--pattern=a"], "list does not take --pattern: meshtf-checkpoint list FOLDER..."),
        (
            ["compare", "x"],
            "compare takes other arguments than these 1: meshtf-checkpoint compare CHECKPOINT CHECKPOINT",
        ),
        (["convert", "x"], "convert needs --output: meshtf-checkpoint convert CHECKPOINT --output=OUTPUT"),
        (["compare", "x", "y", "--tolerance=much"], "flag --tolerance=much"),
        (["compare", "x", "y", "--tolerance=nan"], "--tolerance must be a finite number, and is nan"),
        (["compare", "x", "y", "--tolerance=1", "--tolerance=2"], "--tolerance is given 2 times, but takes one value"),
        (["import", "x", "y", "--rules="], "--rules is empty"),
        (["import", "x", "y", "--dtype="], "flag --dtype=: value should be one of <float32|float16|bfloat16>"),
        (["show", ""], "a path is empty: meshtf-checkpoint show CHECKPOINT [--pattern=EXPRESSION]"),
        (["--output=x"], 'there is no command ""'),
    ],
)
def test_bad_usage(run: Run, arguments: list[str], message: str) -> None:
    ended = run(*arguments)
    assert (ended.status, ended.out) == (BAD_USAGE, "")
    assert f"meshtf-checkpoint: error: {message}" in ended.err
    assert ended.err.endswith("See meshtf-checkpoint --help.\n")


def test_a_file_of_flags_that_is_no_text(run: Run, tmp_path: Path) -> None:
    (tmp_path / "flags").write_bytes(b"\x80")
    ended = run("show", "x", f"--flagfile={tmp_path / 'flags'}")
    assert (ended.status, "'utf-8' codec can't decode byte 0x80" in ended.err) == (BAD_USAGE, True)


def test_what_is_not_there(run: Run, tmp_path: Path) -> None:
    for command in ("list", "show", "verify"):
        ended = run(command, tmp_path)
        assert ended.status == BAD_USAGE
        assert f"{tmp_path} is not the folder of a checkpoint, such as step_00001000, and contains none" in ended.err
    ended = run("show", tmp_path / "no.npz")
    assert (ended.status, "no.npz cannot be read as an .npz file: No such file or directory" in ended.err) == (
        BAD_USAGE,
        True,
    )


def test_outputs_that_cannot_be_written(
    run: Run,
    saved: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = run("convert", saved, f"--output={tmp_path / 'a.txt'}")
    assert (ended.status, "a.txt ends in .txt, which no format uses" in ended.err) == (BAD_USAGE, True), ended.err
    (tmp_path / "there").mkdir()
    ended = run("convert", saved, f"--output={tmp_path / 'there'}")
    assert (ended.status, "already exists; give another output" in ended.err) == (BAD_USAGE, True)
    ended = run("convert", saved, f"--output={tmp_path / 'no' / 'file.npz'}")
    assert (ended.status, "cannot be written: No such file or directory" in ended.err) == (BAD_FILE, True)

    def full(*_: object) -> None:
        raise SaveError("No space left on device")

    monkeypatch.setattr(checkpoint, "write_to", full)
    assert run("average", saved, "--output=x").status == BAD_FILE


def test_help(run: Run) -> None:
    ended = run("--help")
    assert ended.status == 0
    for word in [*checkpoint.WORK, "--output", "--pattern", "--tolerance", "Exit status:", "step_00001000"]:
        assert word in ended.out
    assert run().status == BAD_USAGE
    assert run("compare", "--help").out == ended.out
    assert max(map(len, ended.out.splitlines())) <= 120


def test_as_a_program(saved: Path) -> None:
    """In a process of its own, which has one device, fewer than saved it."""
    done = run_fresh(["-m", "meshtf.bin.checkpoint", "verify", str(step_folder(saved, 1))])
    assert (done.status, done.stdout) == (0, f"{step_folder(saved, 1)} is whole\n")
