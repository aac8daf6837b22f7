"""meshtf-benchmark in this process: its runs, its folder, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshtf.bin import benchmark
from meshtf.train.quality.log_check import NOT_INSTALLED, checker_name
from meshtf_programs.exit_status import ExitStatus
from tests.bin.together import run_together

SMALL = (
    "Training.num_steps = 2",
    "Training.evaluate_every = 1",
    'Training.mesh_shape = "rows:2"',
    'Training.layout = "batch:rows"',
    "MLPClassifier.hidden_sizes = (8,)",
    'QualityTarget.benchmark = "digits"',
    'QualityTarget.metric = "accuracy"',
    "QualityTarget.value = 0.0",
)
"""Of a configuration that is no task of its own, and quicker than those that are."""
TASK = ["--task=digits_mlp.gin", *(f"--gin_param={binding}" for binding in SMALL)]


def run(out: Path, *arguments: str) -> int:
    return benchmark.main([benchmark.PROGRAM, *TASK, f"--out={out}", *arguments])


def test_three_runs_have_a_result_by_the_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "out", "--runs=3", "--seed=5") == ExitStatus.DONE
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if line.split()[1:2] in (["5"], ["6"], ["7"])]
    assert [row[:3] for row in rows] == [["0", "5", "yes"], ["1", "6", "yes"], ["2", "7", "yes"]]
    (result,) = (line for line in printed.splitlines() if line.startswith("result:"))
    assert "s to the target: the mean of 3 runs without the fastest and the slowest" in result
    assert (tmp_path / "out" / "run_2" / "result.txt").is_file()
    assert (tmp_path / "out" / "quality.png").is_file()
    assert ("3 of 3 reached the target, all right by mlperf-logging" in printed) == (checker_name() is not None)
    assert (NOT_INSTALLED in printed) == (checker_name() is None)
    assert run(tmp_path / "out") == ExitStatus.BAD_CONFIGURATION
    assert "is not empty, and results of different commands must not be mixed" in capsys.readouterr().err


def test_of_two_processes_the_first_writes_the_log_and_shows_the_result(tmp_path: Path) -> None:
    command = ["-m", "meshtf.bin.benchmark", *TASK, "--runs=1", "--out=out", "--layout=hidden:rows"]
    leader, other = run_together(2, command, tmp_path)
    assert (leader.status, other.status) == (ExitStatus.DONE, ExitStatus.DONE), leader.stderr + other.stderr
    assert ("result:" in leader.stdout, "result:" in other.stdout) == (True, False)
    log = (tmp_path / "out" / "run_0" / "result.txt").read_text()
    assert [log.count(f'"{key}"') for key in ("run_start", "eval_accuracy", "run_stop")] == [1, 1, 1]


def test_a_misspelt_task_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = [benchmark.PROGRAM, "--task=digit_resnet"]
    assert benchmark.main(given) == ExitStatus.BAD_CONFIGURATION
    assert 'did you mean "digits_resnet"' in capsys.readouterr().err
