"""The programs in several processes, as meshtf-launch starts them: results are those of one; what each fault does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.bin import checkpoint, compare, export, import_gin, plan, probe, tokenize, vocab
from meshtf.bin import compile as compile_program
from meshtf.bin.shared.run_program import run_program
from meshtf.cluster.cluster import Cluster
from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched
from tests.bin.together import run_together, started
from tests.cluster.joined_processes import JoinedProcesses
from tests.fresh_process import Finished, FreshProcess, run_fresh
from tests.own_ports import own_ports

pytestmark = pytest.mark.timeout(600)

TRAIN = [
    "-m", "meshtf.bin.train", "--gin_file=digits_mlp.gin", "--mesh_shape=rows:2;cols:2",
    "--gin_param=Training.evaluate_every=20", "--gin_param=Training.checkpoint_every_steps=20",
    "--gin_param=Training.log_every=1",
]  # fmt: skip
AS_TWO_PROCESSES = "--gin_param=Training.num_processes=2"
"""In one process: sums are taken in the order of two."""
ONE_SIDED = """\
import os
import pathlib
import signal
import time

import gin
import numpy as np

from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.train import Callback


@gin.configurable
class OneSided(Callback):
    def on_start(self, run, state):
        cluster = collective_runtime().cluster
        of = "all" if cluster is None else cluster.process_index
        images = pathlib.Path(f"images_of_{of}.npy")
        if not images.exists():
            np.save(images, next(run.trainer.batches())["images"])

    def on_step(self, run, report):
        cluster = collective_runtime().cluster
        if cluster is None or cluster.process_index == 1:
            if report.step == 30:
                run.save_checkpoint()
            if report.step == 35 and pathlib.Path("killed_at_35").exists():
                while not pathlib.Path("two/checkpoints/step_00000030").exists():
                    time.sleep(0.01)  # it is saved beside the steps
                os.kill(os.getpid(), signal.SIGKILL)
            if report.step == 40:
                run.stop("a process of two says so")
"""
"""Where there are two processes, the second alone asks for something, and dies where a file says so. Each writes down
its first training batch."""

FAILING = """\
import os

import gin

from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.train import Callback


@gin.configurable
class Failing(Callback):
    def on_step(self, run, report):
        if report.step == 30 and collective_runtime().cluster.process_index == 1:
            raise ValueError("no more of this")

    def on_checkpoint(self, run, path):
        if path.name == "step_00000040" and collective_runtime().cluster.process_index == 0:
            raise ValueError("not that one")
"""
"""Fails in one process: where all tell their callbacks, then at a moment that is each process's own."""

LAUNCH = [sys.executable, "-m", "meshtf_programs.launching.launch"]


def steps(number: int) -> str:
    return f"--gin_param=Training.num_steps={number}"


ONE_SIDED_TRAIN = [*TRAIN, "--gin_file=callbacks.gin", steps(60)]

WAITED = "waited_seconds/process_"


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def metrics(run: Path) -> list[dict[str, Any]]:
    """Without times, which no two runs share."""
    times = re.compile(f"^time$|_per_second|_seconds$|{WAITED}")
    return [{name: value for name, value in line.items() if not times.search(name)} for line in lines_of(run)]


def waits(run: Path) -> dict[int, list[float]]:
    """By step, the seconds that each process waited."""
    return {
        line["step"]: [value for name, value in line.items() if name.startswith(WAITED)]
        for line in lines_of(run)
        if "loss" in line
    }


def assert_waits_are_told(run: Path, num_processes: int, num_steps: int, first: Sequence[int]) -> None:
    """Of each step but the first of each start, of each process: more than nothing, since values travel; and on
    TensorBoard."""
    told = waits(run)
    assert [told.pop(step) for step in first] == [[]] * len(first)
    assert len(told) == num_steps - len(first)
    assert all(len(seconds) == num_processes and min(seconds) > 0 for seconds in told.values())
    for board in (run / "tensorboard").glob("*.v2"):
        assert f"{WAITED}{num_processes - 1}".encode() in board.read_bytes()


def wait_until(is_true: Callable[[], bool], seconds: float = 200.0) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.fixture(scope="module")
def trained_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration of `ONE_SIDED_TRAIN`, in which one process has trained `one`."""
    folder = tmp_path_factory.mktemp("trained_alone")
    (folder / "one_sided.py").write_text(ONE_SIDED)
    callbacks = "Training.callbacks = [@OneSided(), @BestCheckpoint(), @EarlyStopping()]"
    (folder / "callbacks.gin").write_text(f"import one_sided\n{callbacks}\n")
    ended = run_fresh([*ONE_SIDED_TRAIN, AS_TWO_PROCESSES, "--model_dir=one"], folder, timeout_seconds=400)
    assert ended.status == ExitStatus.DONE, ended.stderr
    return folder


@pytest.fixture(scope="module")
def trained_together(trained_alone: Path) -> tuple[list[Finished], list[Finished]]:
    """Two processes that have trained `two` in that folder until one was killed, and two that have gone on."""
    run = [*ONE_SIDED_TRAIN, "--model_dir=two"]
    (trained_alone / "killed_at_35").touch()
    killed = run_together(2, run, trained_alone)
    (trained_alone / "killed_at_35").unlink()
    return killed, run_together(2, run, trained_alone)


def test_training_in_two_processes_is_that_of_one(
    trained_alone: Path, trained_together: tuple[list[Finished], list[Finished]]
) -> None:
    """Though one of them is killed: the others end, and the next start goes on."""
    tmp_path, ((survivor, killed), (leader, other)) = trained_alone, trained_together
    assert killed.status == -signal.SIGKILL
    assert survivor.status == ExitStatus.COLLECTIVE_FAILED, survivor.stderr
    assert "process 1 (127.0.0.1:" in survivor.stderr
    assert "The same command resumes from the checkpoint of step 30" in survivor.stderr
    assert (leader.status, other.status) == (ExitStatus.DONE, ExitStatus.DONE), leader.stderr + other.stderr
    assert "resumed:       from step 30" in leader.stdout
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert two == one
    images, *parts = (np.load(tmp_path / f"images_of_{of}.npy") for of in ("all", 0, 1))
    half = len(images) // 2
    np.testing.assert_array_equal(parts[0], np.concatenate([images[:half], np.zeros_like(images[half:])]))
    np.testing.assert_array_equal(parts[1], np.concatenate([np.zeros_like(images[:half]), images[half:]]))
    assert_waits_are_told(tmp_path / "two", num_processes=2, num_steps=40, first=(1, 31))
    assert waits(tmp_path / "one")[40] == []
    assert one[-1]["variables_sha256"] in leader.stdout
    assert "step 40: stopping early: a process of two says so" in leader.stdout
    kept = [sorted(path.name for path in (tmp_path / run / "checkpoints").iterdir()) for run in ("one", "two")]
    assert kept[0] == kept[1]
    assert "step_00000030" in kept[1]
    assert "cluster:       2 processes, 2 cores each (127.0.0.1:" in leader.stdout
    assert other.stdout == ""
    files = {path.name for path in (tmp_path / "two").iterdir()}
    assert files == {path.name for path in (tmp_path / "one").iterdir()}
    boards = [list((tmp_path / run / "tensorboard").iterdir()) for run in ("one", "two")]
    assert 2 * len(boards[0]) == len(boards[1]), "one of each start"


@pytest.mark.long
@pytest.mark.usefixtures("trained_together")
def test_two_processes_evaluate_as_training_did(trained_alone: Path) -> None:
    tmp_path = trained_alone
    evaluated = run_together(2, ["-m", "meshtf.bin.eval", "--model_dir=two", "--trust_config"], tmp_path)
    assert [each.status for each in evaluated] == [ExitStatus.DONE] * 2, evaluated[1].stderr
    (evaluation,) = map(json.loads, (tmp_path / "two" / "evaluations.jsonl").read_text().splitlines())
    assert evaluation["loss"] == metrics(tmp_path / "one")[-1]["held_out_loss"]
    listed = run_together(2, ["-m", "meshtf.bin.checkpoint", "list", "two"], tmp_path)
    assert ["step_00000040" in each.stdout for each in listed] == [True, False]


def test_configurations_that_differ_are_told_by_their_binding(tmp_path: Path) -> None:
    addresses = tuple(f"127.0.0.1:{port}" for port in own_ports(2))
    started = [
        FreshProcess(
            [*TRAIN, f"--gin_param=AdamWOptimizer.learning_rate = 0.00{i + 1}"],
            tmp_path,
            environment={MESHTF_LAUNCH: Launched(i, addresses, "token", None).to_text()},
        )
        for i in range(2)
    ]
    for ended in [process.finish() for process in started]:
        assert ended.status == ExitStatus.BAD_CONFIGURATION, ended.stderr
        assert "the configuration differs between process 0 and process 1, in its binding " in ended.stderr
        assert "AdamWOptimizer.learning_rate. The first difference:\n" in ended.stderr
        assert "  process 0: 0.001\n  process 1: 0.002\n" in ended.stderr


def run_with_a_failing_callback(folder: Path) -> list[Finished]:
    (folder / "failing.py").write_text(FAILING)
    (folder / "failing.gin").write_text("import failing\nTraining.callbacks = [@Failing()]\n")
    ended = run_together(2, [*TRAIN, "--gin_file=failing.gin", steps(100_000), "--model_dir=two"], folder)
    assert all(each.stderr.count("\n") < 12 for each in ended), ended
    return ended


@pytest.mark.long
def test_a_callback_that_fails_in_one_process_ends_all_at_once(tmp_path: Path) -> None:
    leader, failing = run_with_a_failing_callback(tmp_path)
    assert (leader.status, failing.status) == (ExitStatus.COLLECTIVE_FAILED, ExitStatus.FAILED), leader.stderr
    assert "callback Failing failed in on_step after step 30: ValueError: no more of this" in failing.stderr
    assert "process 1 (127.0.0.1:" in leader.stderr
    assert "has failed: callback Failing failed in on_step after step 30: ValueError: no more of this" in leader.stderr
    assert "The same command resumes from the checkpoint of step 30" in leader.stderr


@pytest.mark.long
def test_a_callback_that_fails_at_a_moment_of_its_process_ends_all_at_once(tmp_path: Path) -> None:
    run_with_a_failing_callback(tmp_path)
    failing, other = run_with_a_failing_callback(tmp_path)
    assert (failing.status, other.status) == (ExitStatus.FAILED, ExitStatus.COLLECTIVE_FAILED), other.stderr
    assert "process 0 (127.0.0.1:" in other.stderr
    assert "has failed: callback Failing failed in on_checkpoint after step " in other.stderr
    assert "The same command resumes from the checkpoint of step " in other.stderr


def look_up(cluster: Cluster) -> int:
    """The status of a program in which process 1 alone feeds an id that is outside of its range."""
    rows = mtf.Dimension("rows", 4)
    step = mtf.function(
        lambda ids: mtf.reduce_sum(mtf.check_indices(ids, 10, message="a token")),
        mtf.SpmdMeshImpl("all:4", "rows:all"),
        {"ids": mtf.TensorSpec([rows], tf.int32)},
    )

    def run() -> int:
        for token in (9, 9 + cluster.process_index):
            step(ids=np.array([0, 0, token, 0], np.int32))
        return ExitStatus.DONE

    return run_program(CommandLine("look_up", "looks up", "look_up", []), lambda _: run, ["look_up"])


def test_an_id_outside_of_its_range_in_the_rows_of_one_process_ends_the_others_at_once() -> None:
    with JoinedProcesses(2, heartbeat_timeout_seconds=30) as processes:
        processes.start(look_up)
        assert processes.answers() == [ExitStatus.COLLECTIVE_FAILED, ExitStatus.FAILED]
        waiting, failing = processes.stderr(0), processes.stderr(1)
    fact = "a token outside of 0 to 9 in "
    assert fact in failing
    assert "process 1 (127.0.0.1:" in waiting
    assert f"has failed: {fact}" in waiting


@pytest.mark.long
def test_one_process_that_is_asked_to_stop_stops_all_after_the_same_step(tmp_path: Path) -> None:
    leader, asked = started(2, [*TRAIN, steps(100_000), "--model_dir=two"], tmp_path)
    wait_until((tmp_path / "two" / "checkpoints" / "step_00000020").exists)
    asked.terminate()
    ended = [leader.finish(100), asked.finish(100)]
    assert [each.status for each in ended] == [143, 143], ended
    assert "SIGTERM: stopped after step" in ended[0].stdout
    last = metrics(tmp_path / "two")[-1]["step"]
    assert (tmp_path / "two" / "checkpoints" / f"step_{last:08d}").exists()


@pytest.mark.parametrize(("number", "cores", "message"), [
    (3, None, "has 4 cores, and there are 3 processes, which take equal parts of it"),
    (2, 1, "has 4 cores, and 2 processes with --cores_per_process=1 have 2.\nGive --cores_per_process=2"),
])  # fmt: skip
def test_cores_that_do_not_fit_the_mesh(number: int, cores: int | None, message: str, tmp_path: Path) -> None:
    (ended,) = [
        FreshProcess(TRAIN, tmp_path, environment={MESHTF_LAUNCH: text}).finish()
        for text in [Launched(0, tuple(f"127.0.0.1:{4000 + i}" for i in range(number)), "", cores).to_text()]
    ]
    assert ended.status == ExitStatus.BAD_CONFIGURATION
    assert message in ended.stderr


@pytest.mark.parametrize(
    "program",
    [checkpoint, compare, compile_program, export, import_gin, plan, probe, tokenize, vocab],
    ids=lambda program: program.PROGRAM,
)
def test_a_program_without_a_mesh_is_left_to_process_0(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which says that there is no such flag, for all."""
    for index, status in enumerate((ExitStatus.BAD_CONFIGURATION, ExitStatus.DONE)):
        monkeypatch.setenv(MESHTF_LAUNCH, Launched(index, ("127.0.0.1:1", "127.0.0.1:2"), "").to_text())
        assert program.main([program.PROGRAM, "--no_such_flag"]) == status
        assert ("no_such_flag" in capsys.readouterr().err) == (index == 0)
    monkeypatch.setenv(MESHTF_LAUNCH, "by hand")
    assert program.main([program.PROGRAM]) == ExitStatus.BAD_CONFIGURATION
    error = capsys.readouterr().err
    assert error.startswith(f"{program.PROGRAM}: error: MESHTF_LAUNCH: it is not as meshtf-launch writes it")


@pytest.mark.long
def test_the_launcher_starts_again_what_was_killed_and_ends_in_the_same_bits(tmp_path: Path) -> None:
    alone = run_fresh([*TRAIN, steps(300), AS_TWO_PROCESSES, "--model_dir=one"], tmp_path, timeout_seconds=400)
    assert alone.status == ExitStatus.DONE, alone.stderr
    options = ["--processes=2", "--cores_per_process=2", "--max_restarts=3"]
    command = [*LAUNCH, *options, "--", sys.executable, *TRAIN, steps(300), "--model_dir=two"]
    job = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until((tmp_path / "two" / "checkpoints" / "step_00000040").exists)
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    out, err = job.communicate(timeout=400)
    assert job.returncode == ExitStatus.DONE, err
    assert "meshtf-launch: start 1 of 3 again in 1 s" in err
    assert "[0] resumed:       from step" in out
    assert metrics(tmp_path / "two") == metrics(tmp_path / "one")


@pytest.mark.long
def test_the_launcher_trains_on_a_virtual_tpu_whose_cores_are_in_two_processes(tmp_path: Path) -> None:
    train = [*TRAIN, steps(40), "--backend=tpu"]
    alone = run_fresh([*train, "--virtual=4", "--model_dir=one"], tmp_path, timeout_seconds=400)
    assert alone.status == ExitStatus.DONE, alone.stderr
    command = [*LAUNCH, "--processes=2", "--", sys.executable, *train, "--virtual=2", "--model_dir=two"]
    job = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert job.returncode == ExitStatus.DONE, job.stderr
    assert "[0] cluster:       2 processes, 2 cores each (127.0.0.1:" in job.stdout
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert [line["step"] for line in two] == [line["step"] for line in one]
    losses = [[line["loss"] for line in run if "loss" in line] for run in (one, two)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert two[-1]["held_out_loss"] == pytest.approx(one[-1]["held_out_loss"], rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["while they start", "while they train", "again and again"])
def test_a_machine_that_stands_still_for_a_while_ends_no_run(moment: str, tmp_path: Path) -> None:
    processes = started(2, [*TRAIN, steps(60), "--model_dir=two"], tmp_path)
    if moment == "while they train":
        wait_until((tmp_path / "two" / "checkpoints" / "step_00000020").exists)
    for _ in range(4 if moment == "again and again" else 1):
        time.sleep(3)
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        time.sleep(14)  # longer than a process may be silent
        for process in processes:
            process.send_signal(signal.SIGCONT)
    ended = [process.finish(400) for process in processes]
    assert [each.status for each in ended] == [ExitStatus.DONE] * 2, ended
