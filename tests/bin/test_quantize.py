"""meshtf-quantize: the run that it writes is read by the other programs, and says what it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.bin import decode, quantize
from meshtf.quantization import Quantization
from meshtf.train import RunFolder
from meshtf.train.configuration import ConfigurationError
from meshtf.train.evaluation import Evaluator
from meshtf.train.step_programs import training_step
from meshtf.train.trainer import mesh_of
from meshtf_programs.exit_status import ExitStatus
from tests.bin.test_export import check_drawn_texts, found_by_plain_tensorflow, prompt_flags
from tests.train.decoding.small_run import write_small_run

TEXT = "\n".join(f"line {number} of the text" for number in range(40))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose task has text: the evaluation needs some."""
    path = tmp_path_factory.mktemp("run")
    (path / "a.txt").write_text(TEXT)
    write_small_run(path, *of_text_in(path), "Decoding.top_k = 40")
    return path


def of_text_in(path: Path) -> list[str]:
    """The bindings of its text."""
    files = f'TextFiles.patterns = "{path}/*.txt"', 'TextFiles.document = "line"'
    return [*files, "TextTask.held_out = 0.5", "TextTask.num_evaluation_examples = 4"]


def status_of(*arguments: object) -> int:
    return quantize.main(["meshtf-quantize", *map(str, arguments)])


def test_the_written_run_is_scored_and_exported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """int4 by groups and static int8: plain TensorFlow computes from the SavedModel what meshtf-decode does."""
    run = tmp_path / "int4"
    flags = (f"--model_dir={folder}", f"--output_dir={run}", "--format=int4", "--group_size=9", "--cache=int8")
    flags = (*flags, "--activations=static", "--calibration_batches=2")
    assert status_of(*flags, "--dry_run") == ExitStatus.DONE
    assert not run.exists()
    assert "groups:        of 8 in 6 kernels, since 9 does not divide the summed dimension" in capsys.readouterr().out
    assert status_of(*flags) == ExitStatus.DONE
    told = capsys.readouterr().out
    before, after = told_bytes(told)
    checkpoint = RunFolder.existing(run).checkpoint()
    assert after == sum(np.prod(t.shape, dtype=int) * t.dtype.size for t in checkpoint.tensors.values()) < before
    assert "the ranges of 6 kernels are observed over 2 training batches" in told
    first, second = map(float, re.findall(r"perplexity: +([\d.]+) before, ([\d.]+) after", told)[0])
    assert abs(second / first - 1) > 1e-3, "4 bits change the result"
    configuration = (run / "operative_config.gin").read_text()
    assert "Quantization.weights = 'int4'" in configuration
    assert "Decoding.top_k = 40" in configuration

    assert check_drawn_texts(run, tmp_path / "saved", capsys)["dtypes"].count("int8") == 6

    with pytest.raises(ConfigurationError, match="keeps the kernels in int4, which cannot be trained"):
        training_step(RunFolder.existing(run).read_training(), mtf.PlanMeshImpl("rows:2", "batch:rows"))
    assert status_of(f"--model_dir={run}", f"--output_dir={tmp_path / 'again'}") == ExitStatus.BAD_CONFIGURATION
    assert "is quantized already: its Training.quantization keeps the kernels in int4" in capsys.readouterr().err


@pytest.mark.long
def test_an_exported_run_continues_texts_as_decode_does(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, greedy = tmp_path / "int8", "--max_new_tokens=8"
    flags = (f"--model_dir={folder}", f"--output_dir={run}", "--cache=int8", "--activations=static")
    assert status_of(*flags) == ExitStatus.DONE
    capsys.readouterr()
    rows, found = found_by_plain_tensorflow(run, tmp_path / "saved", capsys, greedy)
    assert decode.main(["meshtf-decode", f"--model_dir={run}", "--format=jsonl", *prompt_flags(), greedy]) == 0
    added = [json.loads(line)["ids"] for line in capsys.readouterr().out.splitlines()]
    for row, ids, continuation in zip(rows, found["ids"][0], added, strict=True):
        assert continuation
        assert ids[len(row) : len(row) + len(continuation)] == continuation


def test_ranges_that_training_has_not_found_are_observed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a run without a step, and of a kernel whose input was never finite. Floating kernels need none."""
    aware = "Training.quantization_aware = @QuantizationAware()", "QuantizationAware.quantization = @Quantization()"
    static = "Quantization.activations = 'static'"
    training = write_small_run(tmp_path, *of_text_in(folder), *aware, static)
    before = Evaluator(training, mesh_of(training)).step
    before.initialize()
    observed = quantize.static_ranges(before, training, 1, Quantization().takes)
    assert len(observed) == 6
    assert all((found > 0).all() for found in observed.values())
    told = "the ranges of 6 kernels are observed over 1 training batch, since its training has found none"
    assert told in capsys.readouterr().out
    first, *others = observed
    for name in others:
        before.variables[f"{name}/input_range"] = np.full_like(observed[name], 2.0)
    mixed = quantize.static_ranges(before, training, 1, Quantization().takes)
    assert "the ranges of 1 kernel are observed" in capsys.readouterr().out
    assert mixed[first] == observed[first]
    assert all((mixed[name] == 2.0).all() for name in others)
    some = quantize.static_ranges(before, training, 1, Quantization(floating=[first]).takes)
    assert "the ranges of 5 kernels are those of training" in capsys.readouterr().out
    assert set(some) == set(others)


def told_bytes(text: str) -> tuple[int, int]:
    words = next(line for line in text.splitlines() if line.startswith("bytes:")).split()
    return int(words[1].replace(",", "")), int(words[3].replace(",", ""))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model_dir={folder}"], "--output_dir is needed"),
        (["--model_dir={folder}", "--output_dir={folder}"], "is there already; give another, or remove it"),
        (["--model_dir={folder}", "--output_dir=s3://me:word@b/x"], "=s3://b/x must be a folder of this machine"),
        (["--model_dir={folder}", "--output_dir=x", "--format=int3"], "value should be one of <int8|int4|float8_e4m3>"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [each.format(folder=folder) for each in arguments]
    assert status_of(*given) == ExitStatus.BAD_CONFIGURATION
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_told_before_any_work(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = folder / "operative_config.gin" / "quantized"
    assert status_of(f"--model_dir={folder}", f"--output_dir={output}") == ExitStatus.BAD_FILE
    printed = capsys.readouterr()
    assert "--output_dir would be below a file" in printed.err
    assert "quantizing" not in printed.out


def test_a_model_without_kernels_is_told() -> None:
    program = mtf.function(
        lambda x: x * mtf.get_variable(x.mesh, "w", []), mtf.PlanMeshImpl("all:1", ""), {"x": mtf.TensorSpec("n:2")}
    )
    with pytest.raises(ConfigurationError, match="the model has no kernel to quantize: none of its floating"):
        quantize.check_has_kernels(program, program)
