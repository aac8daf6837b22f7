"""The evaluation program, on the folder of a run of two steps."""

from __future__ import annotations

import errno
import json
import re
import resource
import shutil
from pathlib import Path

import pytest

import meshtf as mtf
from meshtf.bin import eval as evaluation
from meshtf.bin import train
from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf.train.monitoring.metrics import read_metrics
from meshtf_programs.exit_status import ExitStatus

TERMS = (64 + 512 + 10 + 2 * FUNCTION_TERMS, 360)
"""Roundings of a loss, through two layers and the classes, and of its mean over the held-out examples."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    bindings = (
        "Training.num_steps=2",
        "Training.checkpoint_every_steps=1",
        "MLPClassifier.hidden_sizes=(8,)",
        "Training.optimizer=@MovingAverageOptimizer()",
        "MovingAverageOptimizer.optimizer=@AdamWOptimizer()",
        "MovingAverageOptimizer.decay=0.5",
    )
    parameters = (f"--gin_param={binding}" for binding in bindings)
    arguments = ("--gin_file=digits_mlp.gin", "--mesh_shape=rows:2", "--layout=batch:rows", *parameters)
    assert train.main(["meshtf-train", *arguments, f"--model_dir={path}"]) == 0
    return path


def status_of(*arguments: str) -> int:
    return evaluation.main(["meshtf-eval", *arguments])


def test_any_layout_and_batch_size_gives_the_means_that_training_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = ("--mesh_shape=rows:2;cols:2", "--layout=hidden:cols", "--gin_param=Training.batch_size=100")
    assert status_of(f"--model_dir={folder}") == ExitStatus.DONE
    assert status_of(f"--model_dir={folder}", *others) == ExitStatus.DONE
    assert "held out:      loss " in capsys.readouterr().out
    same, other = map(json.loads, (folder / "evaluations.jsonl").read_text().splitlines())
    (trained,) = (line for line in read_metrics(folder / "metrics.jsonl") if "held_out_loss" in line)
    assert (same["step"], same["num_examples"]) == (2, 360)
    assert same["time"] < other["time"]
    assert (same["loss"], same["accuracy"]) == (trained["held_out_loss"], trained["held_out_accuracy"])
    assert_close(other["loss"], same["loss"], terms=TERMS, dtype="float32")
    assert other["accuracy"] == same["accuracy"]
    assert (other["mesh_shape"], other["layout"]) == ("rows:2;cols:2", "hidden:cols")


def test_averages_of_the_weights(folder: Path) -> None:
    """Of two steps: twice as much of the second weights as of the first."""
    evaluations = folder / "evaluations.jsonl"
    evaluations.unlink(missing_ok=True)
    assert status_of(f"--model_dir={folder}", "--weights=average") == ExitStatus.DONE
    assert status_of(f"--model_dir={folder}", "--step=1", "--weights=average") == ExitStatus.DONE
    assert status_of(f"--model_dir={folder}", "--step=1") == ExitStatus.DONE
    assert status_of(f"--model_dir={folder}") == ExitStatus.DONE
    average, first_average, first, last = map(json.loads, evaluations.read_text().splitlines())
    assert_close(first_average["loss"], first["loss"], terms=TERMS, dtype="float32")
    assert last["loss"] < average["loss"] < first["loss"]
    assert [e["weights"] for e in (average, first_average, first, last)] == ["average", "average", "trained", "trained"]


def test_an_earlier_checkpoint(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On cores that count their memory."""
    monkeypatch.setattr(mtf.SpmdMeshImpl, "peak_bytes", 3 << 30)
    assert status_of(f"--model_dir={folder}", "--step=1") == ExitStatus.DONE
    out = capsys.readouterr().out
    assert f"evaluating step 1 of {folder}: handwritten digits" in out
    assert re.search(r"^peak memory:   3\.0 GiB on a core by its own count, [\d.]+ KiB by the plan$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--model_dir is needed, for example: meshtf-eval --model_dir=runs/digits_mlp"),
        (["--model_dir=/dev/null/run"], "/dev/null/run is not the folder of a run: there is no such folder"),
        (["--model_dir={folder}", "--step=7"], "has no checkpoint of step 7; there are: 1, 2"),
        (["--model_dir={folder}", "--weights=mean"], "value should be one of <trained|average>"),
        (["--model_dir={folder}", "--stp=7"], "Unknown command line flag 'stp'. Did you mean: step ?"),
        (["--model_dir={folder}", "--backend=gpu", "--mesh_shape=rows:16"], "and 8 virtual GPUs are there"),
        (["--model_dir={folder}", "--layout=batch:row"], 'did you mean "rows"?'),
        (["--model_dir={folder}", "--layout=batc:rows"], 'has no dimension "batc"; did you mean "batch"?'),
        (["--model_dir={folder}", "--gin_param=MLPClassifier.hidden_sizes=(16,)"], "hidden_0/kernel"),
        (["--model_dir={folder}", "--gin_param=Trainin.seed=1"], 'did you mean "Training"?'),
    ],
)
def test_a_mistake_is_a_message_and_status_2(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*(a.format(folder=folder) for a in arguments)) == ExitStatus.BAD_CONFIGURATION
    captured = capsys.readouterr()
    assert captured.err.startswith("meshtf-eval: error: ")
    assert re.search(r"= (None|\(\))  is from", captured.err) is None  # what the operative configuration leaves unset
    assert message in captured.err


def test_a_folder_in_which_nothing_can_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        assert status_of(f"--model_dir={folder}") == ExitStatus.BAD_FILE
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large" in capsys.readouterr().err


def test_a_run_that_may_only_be_read_is_evaluated(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, so that the refusal is made here."""

    def refuse(path: Path, content: bytes) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(evaluation, "append_to_file", refuse)
    assert status_of(f"--model_dir={folder}") == ExitStatus.DONE
    captured = capsys.readouterr()
    assert "held out:      loss " in captured.out
    assert (
        f"the result is only shown, and could not be written to {folder}/evaluations.jsonl: Read-only file system"
        in captured.out
    )
    assert not captured.err


def test_nothing_readable_is_said_so(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    for manifest in copy.glob("checkpoints/*/manifest.json"):
        manifest.write_text("{}")
    assert status_of(f"--model_dir={copy}") == ExitStatus.BAD_CONFIGURATION
    assert (
        f"none of the checkpoints in {copy}/checkpoints can be read: the ones of the steps 1, 2"
        in capsys.readouterr().err
    )


def test_help_names_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--help") == 0
    out = capsys.readouterr().out
    for name in ("model_dir", "step", "weights", "gin_param", "backend", "mesh_shape", "layout"):
        assert f"  --{name}\n" in out
    assert "gin_file" not in out
