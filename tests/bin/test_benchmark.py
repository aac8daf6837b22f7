"""meshtf-benchmark in this process: its runs, its folder, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshtf.bin import benchmark
from meshtf.train.quality.log_check import NOT_INSTALLED, checker_name
from meshtf.train.runs.run_folder import RunFolder
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


@pytest.mark.parametrize(("arguments", "message"), [
    (["--layout=btch:rows"], 'has no dimension "btch"; did you mean "batch"?'),
    (["--gin_param=QualityTarget.metric = 'acuracy'"], "It has loss, accuracy"),
    (["--runs=2", f"--seed={2**63 - 1}"], "--runs=2: each seed must be less than 2^63"),
    (["--out=s3://bucket/out"], "--out=s3://bucket/out must be a folder of this machine"),
])  # fmt: skip
def test_a_mistake_leaves_no_folder(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the same command without the mistake has an empty folder."""
    monkeypatch.chdir(tmp_path)
    given = [benchmark.PROGRAM, *TASK, *arguments]
    assert benchmark.main(given) == ExitStatus.BAD_CONFIGURATION
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_has_one_command_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder(tmp_path).lock():
        assert run(tmp_path) == ExitStatus.BAD_CONFIGURATION
    message = f"another training is running in {tmp_path}; wait until it ends, or give another --out."
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_misspelt_task_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = [benchmark.PROGRAM, "--task=digit_resnet"]
    assert benchmark.main(given) == ExitStatus.BAD_CONFIGURATION
    assert 'did you mean "digits_resnet"' in capsys.readouterr().err
