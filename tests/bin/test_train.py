"""The training program, mostly as a user runs it: in a process of its own, from another folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as ShownEvents

import meshtf as mtf
from meshtf.bin import eval as evaluation
from meshtf.bin import train
from meshtf.errors import CollectiveError, NonFiniteError, SaveError
from meshtf.train import RunFolder, TrainingRun
from meshtf.train.monitoring.metrics import read_metrics
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched
from tests.fresh_process import FreshProcess

DIGITS = "--gin_file=digits_mlp.gin"
TWO_CORES = ("--mesh_shape=rows:2", "--layout=batch:rows")
TINY = ("--mesh_shape=cores:1", "--layout=", "--gin_param=MLPClassifier.hidden_sizes=(8,)")


@dataclasses.dataclass(frozen=True)
class Finished:
    status: int
    stdout: str
    stderr: str
    folder: RunFolder

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder.metrics)

    def values(self, name: str) -> dict[int, float]:
        return {line["step"]: line[name] for line in self.metrics if name in line}


def start(folder: Path, *arguments: str) -> FreshProcess:
    folder.mkdir(exist_ok=True)
    return FreshProcess(["-m", "meshtf.bin.train", *arguments, "--model_dir=."], folder)


def finish(process: FreshProcess, folder: Path) -> Finished:
    ended = process.finish()
    return Finished(ended.status, ended.stdout, ended.stderr, RunFolder(folder))


def wait_for_step(process: FreshProcess, folder: Path, step: int) -> None:
    """Until the run has written down a step."""
    while process.is_running:
        lines = read_metrics(folder / "metrics.jsonl")
        if lines and lines[-1]["step"] >= step:
            return
        time.sleep(0.2)
    raise AssertionError(f"ended before step {step}: {process.finish()}")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The digits, as `meshtf-train` learns them."""
    folder = tmp_path_factory.mktemp("whole")
    finished = finish(start(folder, DIGITS, *TWO_CORES), folder)
    assert finished.status == 0, finished.stderr
    return finished


def test_the_digits_are_learnt(whole_run: Finished) -> None:
    accuracy = whole_run.values("held_out_accuracy")[300]
    assert accuracy >= 0.96
    # Exact on a last batch that is not full: a whole number of the 360 examples.
    assert accuracy * 360 == pytest.approx(round(accuracy * 360), abs=1e-9)
    assert f"accuracy {accuracy:.4f} (on 360 held-out examples)" in whole_run.stdout


def test_one_line_says_what_runs(whole_run: Finished) -> None:
    (line,) = (line for line in whole_run.stdout.splitlines() if "parameters" in line)
    for text in ("MLPClassifier on handwritten digits: 38,410 parameters", "[rows:2] (2 cores)", "[batch:rows]",
                 "KiB per core", "64 examples a step, 300 steps"):  # fmt: skip
        assert text in line
    shown = [line.split()[1] for line in whole_run.stdout.splitlines() if line.startswith("step ") and "/300" in line]
    assert shown == [f"{step}/300" for step in (1, *range(10, 301, 10))]  # as Training.log_every says
    assert "step 300/300  loss " in whole_run.stdout
    assert "examples/s" in whole_run.stdout
    assert "all_reduce" not in whole_run.stdout
    assert "Traceback" not in whole_run.stderr


def test_a_run_folder_explains_itself(whole_run: Finished) -> None:
    folder = whole_run.folder
    assert "hidden_0/kernel" in folder.report.read_text()
    assert "all_reduce" in folder.report.read_text()
    assert "Training.layout = 'batch:rows'" in folder.operative_config.read_text()
    assert json.loads(folder.versions.read_text())["command"][1] == DIGITS
    assert folder.loss_curve.read_bytes().startswith(b"\x89PNG")
    assert list(folder.tensorboard.glob("events.*"))
    assert folder.checkpoints().steps() == [300]


def test_a_table_has_every_metric_at_the_end(whole_run: Finished) -> None:
    assert "\x1b" not in whole_run.stdout
    header = next(line for line in whole_run.stdout.splitlines() if line.startswith("  metric "))
    assert header.split() == ["metric", "first", "last", "least", "step", "greatest", "step"]
    accuracies = whole_run.values("held_out_accuracy")
    row = next(line for line in whole_run.stdout.splitlines() if line.startswith("  held out: accuracy "))
    first, last, least, _, greatest, _ = (float(cell) for cell in row.split()[3:])
    assert (first, last) == (pytest.approx(accuracies[100], rel=1e-3), pytest.approx(accuracies[300], rel=1e-3))
    assert least <= min(first, last)
    assert greatest >= max(first, last)


def test_metrics_are_json_lines(whole_run: Finished) -> None:
    losses, held_out = whole_run.values("loss"), whole_run.values("held_out_loss")
    assert list(losses)[:3] == [1, 10, 20]
    assert list(held_out) == [100, 200, 300]
    assert losses[300] < 0.1 * losses[1]
    assert set(whole_run.metrics[1]) == {"step", "time", "loss", "adam/learning_rate", "examples_per_second"}


SLOW = """\
import time

import gin

from meshtf.train import Callback


@gin.configurable
class Slow(Callback):
    def __init__(self, after):
        self.after = after

    def on_step(self, run, report):
        if report.step > self.after:
            time.sleep(0.5)
"""
"""Else a run might end before a busy machine lets a test see that it has come as far as that."""


def test_a_run_killed_and_stopped_and_resumed_ends_in_the_same_bits(whole_run: Finished, tmp_path: Path) -> None:
    """Killed wherever it is after step 70, asked to stop after step 150; configured by what the whole run wrote."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "slow.gin").write_text("import slow\nTraining.callbacks = [@Slow()]\n")
    command = (
        f"--gin_file={whole_run.folder.operative_config}",
        "--gin_param=Training.log_every=1",
        "--gin_param=Training.checkpoint_every_steps=30",
    )
    killed = start(tmp_path, *command, "--gin_file=slow.gin", "--gin_param=Slow.after=70")
    wait_for_step(killed, tmp_path, 70)
    killed.kill()
    assert finish(killed, tmp_path).status == -signal.SIGKILL

    stopped = start(tmp_path, *command, "--gin_file=slow.gin", "--gin_param=Slow.after=150")
    wait_for_step(stopped, tmp_path, 150)
    stopped.terminate()
    ended = finish(stopped, tmp_path)
    last = ended.metrics[-1]["step"]
    assert ended.status == 143, ended.stderr
    assert "SIGTERM: this step is finished, a checkpoint is written" in ended.stderr
    assert (
        f"SIGTERM: stopped after step {last}. The same command resumes from the checkpoint of step {last}"
        in ended.stdout
    )
    assert last < 300

    resumed = finish(start(tmp_path, *command), tmp_path)
    assert resumed.status == 0, resumed.stderr
    assert f"resumed:       from step {last}" in resumed.stdout
    losses = resumed.values("loss")
    assert list(losses) == list(range(1, 301))
    assert {step: losses[step] for step in whole_run.values("loss")} == whole_run.values("loss")
    assert resumed.values("held_out_loss") == whole_run.values("held_out_loss")
    assert resumed.values("variables_sha256") == whole_run.values("variables_sha256")
    shown = ShownEvents(str(resumed.folder.tensorboard), tensor_size_guidance={"scalars": 0}).Reload()
    assert [event.step for event in shown.Tensors("loss")] == list(range(1, 301))


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    gin.clear_config()


def status_of(*arguments: str) -> int:
    """The exit status of the program, run in this process."""
    return train.main(["meshtf-train", *arguments])


def test_a_layout_that_was_found_is_kept_by_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time on cores that count their memory."""
    folder = RunFolder(tmp_path / "run")
    command = (DIGITS, "--layout=auto", "--mesh_shape=rows:2", *TINY[2:], f"--model_dir={folder.path}")
    search = ("--machine=v5e", "--search_operations=300")
    assert status_of(*command, *search, "--gin_param=Training.num_steps=2") == 0
    out = capsys.readouterr().out
    assert "layout of train_step on v5e" in out
    assert "it reached its limit of 300 planned operations, " in out
    (layout,) = re.findall(r"Training.layout = '.*'", folder.operative_config.read_text())
    assert "auto" not in layout
    assert "peak memory: " not in out.partition("held out: ")[0].partition("variables: ")[2]
    monkeypatch.setattr(mtf.SpmdMeshImpl, "peak_bytes", 3 << 30)
    assert status_of(*command, "--gin_param=Training.num_steps=3") == 0
    text = capsys.readouterr().out
    assert f"as the run has chosen it, Training.mesh_shape = 'rows:2'; {layout}" in text
    assert "resumed:       from step 2" in text
    assert re.search(
        r"^peak memory:   3\.0 GiB on a core by its own count, [\d.]+ KiB by the plan$", text, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gin_fil=x"], "Unknown command line flag 'gin_fil'. Did you mean: gin_file ?"),
        ([], "--gin_file is needed, for example: meshtf-train --gin_file=digits_mlp.gin"),
        (["digits_mlp.gin"], "unexpected argument 'digits_mlp.gin': meshtf-train --gin_file=NAME"),
        ([DIGITS, "--backend=tpu", "--mesh_shape=rows:8;cols:4"], "has 32 cores, and the virtual TPU 8"),
        ([DIGITS, "--backend=tpu", "--virtual=0"], "mtf.virtual_tpu(0): a virtual TPU has from 1 to 4,096 cores"),
        ([DIGITS, "--backend=gpu", "--virtual=0"], "mtf.virtual_gpus(0): a process has from 1 to 4,096 virtual GPUs"),
        ([DIGITS, "--machine=v5e"], "--machine has no effect without --layout=auto"),
        ([DIGITS, "--search_seconds=9"], "--search_seconds has no effect without --layout=auto"),
        ([DIGITS, "--virtual=8"], "--virtual=8 is only for --backend=gpu and --backend=tpu, but the backend is cpu"),
        ([DIGITS, "--backend=gpu", "--mesh_shape=rows:4;cols:4"], "has 16 cores, and 8 virtual GPUs are there"),
        ([DIGITS, "--backend=cuda"], "flag --backend=cuda: value should be one of <cpu|gpu|tpu>"),
        ([DIGITS, "--model_dir=/dev/null/run"], "the model folder /dev/null/run cannot be made: "),
        (["--gin_file=digit_mlp.gin"], 'did you mean "digits_mlp.gin"?'),
        ([DIGITS, "--gin_param=Training.num_step=3"], 'did you mean "num_steps"?'),
        ([DIGITS, "--layout=batch:rows;hiden:cols"], 'did you mean "hidden"?'),
        ([DIGITS, "--layout=batch:row"], 'did you mean "rows"?'),
        ([DIGITS, "--layout=classes:rows+cols"], "does not divide into 8 parts"),
        ([DIGITS, "--mesh_shape=rows=2"], "not of the form name:size"),
        ([DIGITS, "--gin_param=Training.mesh_shape=8"], "mesh_shape must be a string, and is 8"),
        ([DIGITS, "--gin_param=Training.batch_size=0"], "batch_size must be an integer, 1 or more, and is 0"),
        ([DIGITS, "--gin_param=Training.seed=1.5"], "seed must be an integer, 0 or more, and is 1.5"),
        (
            [DIGITS, "--gin_param=MLPClassifier.hidden_sizes=512"],
            "MLPClassifier.hidden_sizes must be a list, each an integer, and is 512",
        ),
        ([DIGITS, "--gin_param=AdamWOptimizer.learning_rate='fast'"], "learning_rate must be a number"),
        ([DIGITS, "--gin_param=Training.model=@MLPClassifier"], "Training.model is no model: <class"),
        ([DIGITS, "--gin_param=Training.optimizer='Adam'"], "Training.optimizer is no optimizer: 'Adam'"),
        ([DIGITS, "--gin_param=Training.task='digits'"], "Training.task is no task: 'digits'"),
    ],
)
def test_a_mistake_is_a_message_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*arguments) == ExitStatus.BAD_CONFIGURATION
    captured = capsys.readouterr()
    assert captured.err.startswith("meshtf-train: error: ")
    assert message in captured.err


def test_an_empty_configuration_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.gin").touch()
    assert status_of("--gin_file=empty.gin") == ExitStatus.BAD_CONFIGURATION
    assert (
        "no gin file and no --gin_param gives Training.model, Training.task, Training.optimizer"
        in capsys.readouterr().err
    )


@contextlib.contextmanager
def no_space() -> Iterator[None]:
    """No file grows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files_of(folder: str) -> dict[Path, bytes]:
    """What a run has written, but for the lock."""
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_resume_that_is_refused_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder with all that paths may have in them, which trains, resumes and is evaluated as any other."""
    folder = "runs/lr=[0.1] $x_{ \\ ü% *?"
    run = (DIGITS, *TINY, f"--model_dir={folder}")
    steps = [f"--gin_param=Training.num_steps={n}" for n in range(4)]
    assert status_of(*run, steps[1]) == ExitStatus.DONE
    capsys.readouterr()
    assert status_of(*run, steps[2], "--gin_param=AdamWOptimizer.weight_decay=0.2", "--report") == ExitStatus.DONE
    out = capsys.readouterr().out
    for told in (
        f"resumed:       from step 1, {folder}/checkpoints/step_00000001",
        "  changed:     AdamWOptimizer.weight_decay: 0.1 -> 0.2\n",
        "  changed:     Training.num_steps: 1 -> 2\n",
        'program "train_step" on 1 core',
    ):
        assert told in out
    other_model = "--gin_param=MLPClassifier.hidden_sizes=(9,)"
    assert evaluation.main(["meshtf-eval", f"--model_dir={folder}", other_model]) == ExitStatus.BAD_CONFIGURATION
    message = capsys.readouterr().err
    assert "Leave out the --gin_param that changes it" in message
    assert "warm_start" not in message
    assert evaluation.main(["meshtf-eval", f"--model_dir={folder}"]) == ExitStatus.DONE
    before = files_of(folder)
    for refused, message in (
        ("digits.num_held_out=300", "examples to train on: 1,437 examples then, 1,497 now\n  held-out examples: 360"),
        ("Training.seed=7", "holds another run, at step 2:\n  Training.seed was 0 and is 7"),
        ("Training.batch_size=32", "Training.batch_size was 64 and is 32"),
        ("MLPClassifier.hidden_sizes=(9,)", "hidden_0/kernel"),
        ("Training.batch_size=1000000000000", "needs more memory than there is"),
    ):
        for num_steps in steps[2:]:  # of a run that is finished, and of one that goes on
            assert status_of(*run, num_steps, f"--gin_param={refused}") == ExitStatus.BAD_CONFIGURATION
            error = capsys.readouterr().err
            assert message in error
            assert ("Nothing was started or changed. Give the old values" in error) == ("kernel" in message)
            assert "warm_start" not in error
            assert files_of(folder) == before
    with no_space():
        assert status_of(*run, steps[3]) == ExitStatus.BAD_FILE
    assert f"[Errno 27] File too large: {f'{folder}/versions.json'!r}" in capsys.readouterr().err
    assert files_of(folder) == before
    in_other_data = ("--gin_param=digits.num_held_out=300", "--allow_changed_data")
    assert status_of(*run, steps[3], *in_other_data) == ExitStatus.DONE
    assert "changed data:  since the checkpoint of step 2\n  examples to train on: 1,437" in capsys.readouterr().out
    assert status_of(*run, steps[1], "--from_scratch") == ExitStatus.DONE
    assert f"from scratch:  the run that was here is now in {folder}/superseded_1" in capsys.readouterr().out
    assert evaluation.main(["meshtf-eval", f"--model_dir={folder}/superseded_1"]) == ExitStatus.DONE
    assert "evaluating step 3 of " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model_dir="], "--model_dir is empty"),
        (["--model_dir=gz://bucket/run"], "gz://bucket/run cannot be opened: "),
        (["--model_dir=~nobody_of_this_name/run"], "this machine has no user"),
        (["--gin_param=Training.batch_size=1000000000000"], "1 core with the batches made ahead, and "),
        (["--gin_param=digits.num_held_out=1797"], "digits.num_held_out must be from 1 to 1796, and is 1797"),
        (["--gin_param=Training.check_memory=1"], "Training.check_memory must be True or False, and is 1"),
    ],
)
def test_what_is_refused_leaves_no_folder(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(DIGITS, *TINY, *arguments) == ExitStatus.BAD_CONFIGURATION
    assert message in capsys.readouterr().err
    assert not list(Path().iterdir())


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", "report.txt"])
def test_what_stands_in_the_way_is_found_before_the_first_step(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = Path("run") / name
    place.mkdir(parents=True) if place.suffix else (place.parent.mkdir(), place.touch())
    assert status_of(DIGITS, *TINY, "--model_dir=run") == ExitStatus.BAD_FILE
    captured = capsys.readouterr()
    assert f"run/{name}" in captured.err
    assert "step " not in captured.out


def test_a_label_out_of_range_is_told_with_its_step_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(DIGITS, *TINY, "--gin_param=MLPClassifier.num_classes=8") == ExitStatus.FAILED
    error = capsys.readouterr().err
    assert 'step 1: a target outside of 0 to 7 in input "labels" [batch:64] int32: ' in error
    assert "Traceback" not in error
    assert "There is no checkpoint yet" in error


def test_a_dry_run_goes_through_everything_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    callbacks = "--gin_param=Training.callbacks=[@EarlyStopping(), @TensorBoard(), @Profile()]"
    assert status_of(DIGITS, *TINY, callbacks, "--dry_run") == ExitStatus.DONE
    out = capsys.readouterr().out
    assert "dry run: everything works; nothing is left behind\n  a batch        loss 2." in out
    assert list(Path.cwd().iterdir()) == []


def test_what_is_for_one_process_is_refused_in_each_of_a_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, before anything waits for the others: no process is at these addresses."""
    for index in (0, 1):
        launched = Launched(index, ("127.0.0.1:1", "127.0.0.1:2"), "")
        monkeypatch.setenv(MESHTF_LAUNCH, launched.to_text())
        assert status_of(DIGITS, *TINY, "--dry_run") == ExitStatus.BAD_CONFIGURATION
        error = capsys.readouterr().err
        assert "--dry_run is for one process, and this is one of several" in error
        assert "--gin_param=Training.num_processes=N" in error
        assert status_of(DIGITS, "--layout=auto", "--search_seconds=60") == ExitStatus.BAD_CONFIGURATION
        error = capsys.readouterr().err
        assert "--search_seconds is for one process" in error
        assert "Give --search_operations" in error
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), 130),
        (NonFiniteError("not finite"), 3),
        (SaveError("not saved"), 4),
        (OSError(30, "Read-only file system"), 4),
        (CollectiveError("timed out"), 5),
    ],
)
def test_what_went_wrong_is_a_message_and_a_status(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(TrainingRun, "run", fails)
    assert status_of(DIGITS, *TINY) == status
    assert (str(error) or "interrupted") in capsys.readouterr().err


def test_help_names_flags_statuses_and_configurations(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--help") == 0
    out = capsys.readouterr().out
    flags = ("gin_file", "gin_param", "model_dir", "backend", "mesh_shape", "layout", "report")
    for text in (*(f"  --{name}\n" for name in flags), "digits_mlp.gin", "143: SIGTERM", "Examples:"):
        assert text in out
    assert max(map(len, out.splitlines())) <= 120
