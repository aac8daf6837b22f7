"""The training program, mostly as a user runs it: in a process of its own, from another folder."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gin
import pytest
from absl import flags
from absl.testing import flagsaver

from meshtf.bin import train
from meshtf.train.configuration import OPERATIVE_CONFIG
from meshtf.train.loop import Trainer
from meshtf.train.metrics import METRICS_FILE

DIGITS = "--gin_file=digits_mlp.gin"


@dataclasses.dataclass(frozen=True)
class Finished:
    status: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def last_metrics(self) -> dict[str, float | str]:
        return self.metrics[-1]

    @property
    def metrics(self) -> list[dict[str, float | str]]:
        return [json.loads(line) for line in (self.folder / METRICS_FILE).read_text().splitlines()]


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "meshtf.bin.train", *arguments, "--model_dir=."]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], folder: Path) -> Finished:
    stdout, stderr = process.communicate(timeout=150)
    return Finished(process.returncode, stdout, stderr, folder)


def train_in(folder: Path, *arguments: str) -> Finished:
    finished = finish(start(folder, *arguments), folder)
    assert finished.status == 0, finished.stderr
    return finished


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The main job, as `make train` runs it."""
    return train_in(tmp_path_factory.mktemp("whole"), DIGITS)


def test_main_job_reaches_its_accuracy(whole_run: Finished) -> None:
    accuracy = float(whole_run.last_metrics["held_out_accuracy"])
    assert accuracy >= 0.96
    # Exact on a last batch that is not full: a whole number of the 360 examples.
    assert accuracy * 360 == pytest.approx(round(accuracy * 360), abs=1e-4)
    assert f"accuracy {accuracy:.4f} (on 360 held-out examples)" in whole_run.stdout


def test_main_job_shows_what_runs(whole_run: Finished) -> None:
    for text in (
        "MLPClassifier(num_classes=10",
        "rows:2 cols:4 (8 cores)",
        "batch:rows;hidden:cols",
        "parameters:    38,410",
        "hidden_0/kernel",
        "all_reduce",
        "models/mlp_classifier.py:",
        "train/loop.py:",
        "examples/s",
    ):
        assert text in whole_run.stdout
    assert "absl" not in whole_run.stdout
    assert "Traceback" not in whole_run.stderr


def test_metrics_are_json_lines(whole_run: Finished) -> None:
    *steps, last = whole_run.metrics
    assert [line["step"] for line in steps[:3]] == [1, 10, 20]
    assert set(steps[0]) == {"step", "loss", "examples_per_second"}
    assert float(steps[-1]["loss"]) < 0.1 * float(steps[0]["loss"])
    assert set(last) == {"step", "held_out_loss", "held_out_accuracy", "variables_sha256"}


def test_two_processes_end_in_the_same_bits(whole_run: Finished, tmp_path: Path) -> None:
    """The second is configured by what the first wrote down, which is the whole of what decides a run."""
    second = train_in(tmp_path, f"--gin_file={whole_run.folder / OPERATIVE_CONFIG}")
    assert second.last_metrics == whole_run.last_metrics
    assert [line["loss"] for line in second.metrics[:-1]] == [line["loss"] for line in whole_run.metrics[:-1]]


def test_unknown_gin_parameter_ends_the_program_with_status_2(tmp_path: Path) -> None:
    finished = finish(start(tmp_path, DIGITS, "--gin_param=Training.num_step=3"), tmp_path)
    assert finished.status == 2
    assert "meshtf-train: error: Configurable 'Training' doesn't have a parameter named 'num_step'" in finished.stderr
    assert 'did you mean "num_steps"?' in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.fixture
def _own_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with flagsaver.flagsaver():
        flags.FLAGS.unparse_flags()
        yield
    gin.clear_config()


def status_of(*arguments: str) -> int:
    """The exit status of the program, run in this process."""
    try:
        return train.main(train.parse_flags(["meshtf-train", *arguments]))
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.mark.usefixtures("_own_flags")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gin_fil=x"], "Unknown command line flag 'gin_fil'. Did you mean: gin_file ?"),
        ([], "--gin_file is needed"),
        (["digits_mlp.gin"], "unexpected argument 'digits_mlp.gin'; a configuration is given with --gin_file="),
        ([DIGITS, "--model_dir=/dev/null/run"], "the model folder /dev/null/run cannot be made: "),
        (["--gin_file=digit_mlp.gin"], 'did you mean "digits_mlp.gin"?'),
        ([DIGITS, "--gin_param=Training.layout='batch:rows;hiden:cols'"], 'did you mean "hidden"?'),
        ([DIGITS, "--gin_param=Training.layout='batch:row'"], 'did you mean "rows"?'),
        ([DIGITS, "--gin_param=Training.layout='classes:cols'"], "does not divide into 4 parts"),
        ([DIGITS, "--gin_param=Training.mesh_shape=8"], "mesh_shape must be a string, and is 8"),
        ([DIGITS, "--gin_param=Training.batch_size=0"], "batch_size must be an integer, 1 or more, and is 0"),
        ([DIGITS, "--gin_param=Training.seed=1.5"], "seed must be an integer, 0 or more, and is 1.5"),
        ([DIGITS, "--gin_param=MLPClassifier.hidden_sizes=512"], "hidden_sizes a sequence of them, such as (256,)"),
        ([DIGITS, "--gin_param=AdamWOptimizer.learning_rate='fast'"], "learning_rate must be a number or a scalar"),
        ([DIGITS, "--gin_param=Training.batch_size=2000"], "batch_size is 2000, more than there are examples"),
        ([DIGITS, "--gin_param=MLPClassifier.activation='rellu'"], "activation 'rellu' is not a function"),
        ([DIGITS, "--gin_param=Training.model=@MLPClassifier"], "Training.model is no model: <class"),
        ([DIGITS, "--gin_param=Training.optimizer='Adam'"], "Training.optimizer is no optimizer: 'Adam'"),
        ([DIGITS, "--gin_param=Training.mesh_shape='rows=2'"], "not of the form name:size"),
    ],
)
def test_a_mistake_is_a_message_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*arguments) == train.BAD_CONFIGURATION
    captured = capsys.readouterr()
    assert captured.err.startswith("meshtf-train: error: ")
    assert message in captured.err


@pytest.mark.usefixtures("_own_flags")
def test_an_empty_configuration_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.gin").touch()
    assert status_of("--gin_file=empty.gin") == train.BAD_CONFIGURATION
    assert "missing 7 required positional arguments: 'model', 'task', 'optimizer'" in capsys.readouterr().err


@pytest.mark.usefixtures("_own_flags")
def test_a_full_disk_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    Path(OPERATIVE_CONFIG).symlink_to("/dev/full")
    assert status_of(DIGITS, "--model_dir=.") == train.BAD_CONFIGURATION
    assert "error: a file cannot be read or written: [Errno 28] No space left on device" in capsys.readouterr().err


@pytest.mark.usefixtures("_own_flags")
def test_an_interrupt_is_a_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "train", interrupted)
    assert status_of(DIGITS) == train.INTERRUPTED
    assert capsys.readouterr().err == "meshtf-train: error: interrupted\n"


@pytest.mark.usefixtures("_own_flags")
def test_help_names_flags_and_configurations(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--help") == 0
    out = capsys.readouterr().out
    for text in ("--gin_file", "--gin_param", "--model_dir", "digits_mlp.gin"):
        assert text in out
