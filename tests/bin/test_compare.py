"""meshtf-compare, over runs as they may be: of different lengths and metrics, damaged, or still without any."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from meshtf.bin import compare
from meshtf.train.monitoring.comparison import MISSING_MATPLOTLIB, distinct_labels
from meshtf.train.monitoring.loss_curve import FEW, smoothed
from meshtf_programs.exit_status import ExitStatus

CONFIGURATION = "Training.num_steps = {num_steps}\nTraining.callbacks = [@EarlyStopping()]\nTraining.seed = 0\n"
LINES = [
    {"step": 1, "loss": 2.5},
    {"step": 10, "loss": 0.5, "examples_per_second": 100.0, "experts/load": [0.5, 0.5]},
    {"step": 10, "held_out_loss": 0.75, "held_out_[b]": 3},
    {"step": 20, "loss": 0.25, "examples_per_second": 300.0},
    {"step": 20, "held_out_loss": 1.5},
]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def write_run(name: str, lines: Sequence[Any], num_steps: int = 20) -> None:
    folder = Path(name)
    folder.mkdir(parents=True)
    (folder / "operative_config.gin").write_text(CONFIGURATION.format(num_steps=num_steps))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def status_of(*arguments: str) -> int:
    return compare.main(["meshtf-compare", *arguments])


def cells(text: str, name: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"  {name} "))
    return [cell.strip() for cell in line.removeprefix(f"  {name}").split("  ") if cell.strip()]


def test_odd_names_of_runs_and_metrics_are_in_the_legend() -> None:
    """A warning, as of a legend without a line, is an error here."""
    for name in ("_a", "_$b_{$"):
        write_run(name, [*LINES, {"step": 20, "held_out_$c_{$": 1.0}])
    assert status_of("_a", "_$b_{$") == ExitStatus.DONE
    assert Path("compare.png").read_bytes().startswith(b"\x89PNG")


def test_runs_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    write_run("runs/a", LINES)
    write_run("runs/b", LINES[:2], num_steps=10)
    assert status_of("runs/a", "runs/b") == ExitStatus.DONE
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert cells(out, "steps") == ["20", "10"]
    assert cells(out, "loss") == ["0.25", "0.5"]
    assert cells(out, "held out: loss") == ["1.5", "-"]
    assert cells(out, "  least, at step") == ["0.75, 10", "-"]
    assert cells(out, "  greatest, at step") == ["1.5, 20", "-"]
    assert cells(out, "held out: [b]") == ["3", "-"]
    assert cells(out, "examples per second, median") == ["200", "100"]
    assert cells(out, "Training.num_steps") == ["20", "10"]
    assert "Training.seed" not in out  # the same in both
    assert "Training.callbacks" not in out
    assert out.endswith("curves:        compare.png\n")
    assert Path("compare.png").read_bytes().startswith(b"\x89PNG")


def test_names_and_layouts_are_divided_where_they_have_joints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    option = "corrupted/meshtf.train.TextTask.objective"
    for name, rate in (("runs/a", "0.001"), ("runs/one_of_a_long_name_with_many_words", "@WarmUpSchedule()")):
        write_run(name, LINES)
        layout = f"'batch:rows;heads:cols;d_ff:cols;vocab:cols' # {rate}"
        with Path(name, "operative_config.gin").open("a") as file:
            file.write(f"AdamWOptimizer.learning_rate = {rate}\nTraining.layout = {layout}\n{option} = @A{rate[0]}()\n")
    assert status_of("runs/a", "runs/one_of_a_long_name_with_many_words", "--output=") == ExitStatus.DONE
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("AdamWOptimizer.learning_rate  ") for line in lines)
    assert any(line.startswith("corrupted/meshtf.train.  ") for line in lines)
    assert any(line.startswith("TextTask.objective") for line in lines)
    for word in ("batch:rows;", "heads:cols;", "d_ff:cols;", "vocab:cols'"):
        assert sum(line.count(word) for line in lines) == 2, word


def test_what_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    write_run("a", LINES)
    write_run("damaged", LINES)
    with Path("damaged/metrics.jsonl").open("a") as file:
        file.write('{"step": 30, "lo')
    write_run("empty", [])
    write_run("folder", [])
    Path("folder/metrics.jsonl").unlink()
    Path("folder/metrics.jsonl").mkdir()
    write_run("words", [{"step": 1, "loss": "low"}, {"step": 2, "held_out_loss": [1]}])
    assert status_of("a", "damaged", "empty", "folder", "words", "--output=c.png") == ExitStatus.DONE
    out = capsys.readouterr().out
    assert "damaged/metrics.jsonl: 1 of 6 lines is damaged, and skipped\n" in out
    assert "empty has no metrics yet\n" in out
    assert out.count("folder/metrics.jsonl cannot be read: ") == 1
    assert Path("c.png").exists()


def test_a_narrow_terminal_gets_several_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for name in "abc":
        write_run(name, LINES)
    assert status_of("a", "b", "c", "--output=") == ExitStatus.DONE
    out = capsys.readouterr().out
    assert out.count("  steps ") == 3
    assert max(map(len, out.splitlines())) <= 60
    assert not list(Path.cwd().glob("*.png"))


def test_without_matplotlib_a_word_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write_run("a", LINES)
    write_run("b", LINES)
    assert status_of("a", "b") == ExitStatus.DONE
    assert capsys.readouterr().out.endswith(MISSING_MATPLOTLIB + "\n")


MISTAKES: list[tuple[list[str], str]] = [
    ([], "give at least two runs to compare, not 0: meshtf-compare RUN"),
    (["a"], "give at least two runs to compare, not 1: meshtf-compare RUN"),
    (["a", "a"], "a is given twice"),
    (["a", "./a/../a"], "./a/../a is given twice, as a before"),
    (["a", "link"], "link is given twice, as a before"),
    (["a", "gone"], "gone is not the folder of a run: there is no such folder."),
    (["a", "."], ". is not the folder of a run: it has no operative_config.gin."),
    (["a", "a/metrics.jsonl"], "is not the folder of a run"),
    (["a", "b", "--output=x.txt"], "--output=x.txt does not end in .png"),
    (["a", "b", "--output=gone/x.png"], "--output=gone/x.png is in a folder that is not there"),
    (["a", "b", "--output=x.png", "--output=y.png"], "--output is given 2 times, but takes one value"),
    (["a", "b", "--flagfile=bytes"], "'utf-8' codec can't decode byte 0x80"),
    (["a", "b", "--ouput=x.png"], "Unknown command line flag 'ouput'. Did you mean: output ?"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_a_message_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run("a", LINES)
    write_run("b", LINES)
    Path("link").symlink_to("a")
    Path("bytes").write_bytes(b"\x80")
    assert status_of(*arguments) == ExitStatus.BAD_CONFIGURATION
    error = capsys.readouterr().err
    assert error.startswith("meshtf-compare: error: ")
    assert message in error


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["x/run", "y/run"], ["x/run", "y/run"]),
        (["1/x/run", "2/x/run", "2/x/other"], ["1/x/run", "2/x/run", "2/x/other"]),
    ],
)
def test_labels_tell_runs_apart(paths: list[str], labels: list[str]) -> None:
    assert distinct_labels([Path("/") / path for path in paths]) == labels


def test_smoothing_calms_and_does_not_lag() -> None:
    assert smoothed([3.0] * 100) == pytest.approx([3.0] * 100, rel=100 * 2**-52)
    calm = smoothed([float(step % 2) for step in range(200)])
    assert all(0.45 < value < 0.55 for value in calm[40:-40])
    falling = [float(-step) for step in range(200)]
    # Of the weights 0.8 ** distance those that the ends cut off are less than 0.8 ** 80.
    assert smoothed(falling)[80:120] == pytest.approx(falling[80:120], abs=200 * 0.8**80)
    assert smoothed(falling[:FEW]) == falling[:FEW]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--help") == ExitStatus.DONE
    assert "meshtf-compare RUN RUN ... [--output=FILE]" in capsys.readouterr().out
