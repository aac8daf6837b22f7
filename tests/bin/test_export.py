"""meshtf-export, and what another process that has no meshtf reads from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshtf.bin import decode, export
from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf_programs.exit_status import ExitStatus
from tests.train.decoding.small_run import LENGTH, write_small_run

# Run with -I: the interpreter sees neither this folder nor PYTHONPATH; and meshtf, if it is installed, is refused.
PLAIN_TENSORFLOW = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "meshtf":
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
import json
import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
ids = tf.constant(json.loads(sys.argv[2]))
signatures = model.signatures
try:
    refused = signatures["score"](ids=tf.where(ids == ids[1, 2], 999, ids))
except tf.errors.InvalidArgumentError as error:
    refused = str(error)
seeds = [signatures["generate"](ids=ids, seed=tf.constant(seed)) for seed in (1, 1, 2)]
print(json.dumps({
    "names": sorted(signatures),
    "refused": str(refused),
    "scores": signatures["score"](ids=ids)["log_likelihood"].numpy().tolist(),
    "each": signatures["score"](ids=ids)["log_likelihoods"].numpy().tolist(),
    "ids": [found["ids"].numpy().tolist() for found in seeds],
    "lengths": seeds[0]["lengths"].numpy().tolist(),
    "dtypes": [variable.dtype.name for variable in model.parameters.values()],
    "modules": [name for name in sys.modules if name.startswith("meshtf")],
}))
"""

PROMPTS = ("ab", "cdef", "x", "yz")
TERMS = 2 * (3 * 32 + 4 * (32 + 8 + 24) + 64 + 8 * FUNCTION_TERMS) + 300
"""Roundings of a small language model of two layers, and of the logits of as many tokens as there are bytes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    write_small_run(path)
    return path


def status_of(*arguments: str) -> int:
    return export.main(["meshtf-export", *arguments])


@pytest.mark.long
def test_plain_tensorflow_computes_the_same(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In floats; test_quantize.py has a quantized run."""
    check_drawn_texts(folder, tmp_path / "saved", capsys)


def check_drawn_texts(folder: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Exports a run. Returns what a process without meshtf computes."""
    options = ("--method=sample", "--top_k=20", "--max_length=10", "--max_new_tokens=5")
    rows, found = found_by_plain_tensorflow(folder, output, capsys, *options)
    first, again, other = found["ids"]
    assert first == again != other, "the seed alone decides what is drawn"
    for row, ids, length in zip(rows, first, found["lengths"], strict=True):
        assert len(row) < length <= min(len(row) + 5, 10)
        assert not any(ids[length:])
    return found


def found_by_plain_tensorflow(
    folder: Path, output: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[list[list[int]], dict[str, Any]]:
    """Exports a run. Returns the ids of the prompts, and what a process without meshtf computes from them, having
    compared its scores with those of meshtf-decode."""
    assert status_of(f"--model_dir={folder}", f"--output={output}", "--batch_size=3", *options) == ExitStatus.DONE
    assert "signatures:    score, generate, serving_default" in capsys.readouterr().out
    assert json.loads((output / "export.json").read_text())["step"] == 3
    assert decode.main(["meshtf-decode", f"--model_dir={folder}", "--score", "--format=jsonl", *prompt_flags()]) == 0
    expected = [json.loads(line)["log_likelihood"] for line in capsys.readouterr().out.splitlines()]

    rows = [[ord(c) + 2 for c in prompt] for prompt in PROMPTS]
    padded = json.dumps([row + [0] * (4 - len(row)) for row in rows])
    command = [sys.executable, "-I", "-c", PLAIN_TENSORFLOW, str(output), padded]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=output.parent)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["names"], found["modules"]) == (["generate", "generate_text", "score", "serving_default"], [])
    assert "outside of 0 to 257: 999 in row 1 at position 2" in found["refused"]
    assert_close(found["scores"], expected, terms=TERMS, dtype="float32")
    assert_close(np.sum(found["each"], axis=1), expected, terms=TERMS, dtype="float32")
    assert all(ids[: len(row)] == row for row, ids in zip(rows, found["ids"][0], strict=True))
    return rows, found


def prompt_flags() -> list[str]:
    return [f"--prompt={prompt}" for prompt in PROMPTS]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output=x"], "--model_dir is needed, for example: meshtf-export --model_dir=runs/lm_tiny"),
        (["--model_dir={folder}"], "--output is needed"),
        (["--model_dir={folder}", "--output={folder}"], "is there already; give another, or remove it"),
        (["--model_dir={folder}", "--output=s3://me:word@b/x"], "--output=s3://b/x must be a folder of this machine"),
        (["--model_dir={folder}", "--output=x", "--alpha=1"], "--alpha has no effect with --method=greedy"),
        (
            ["--model_dir={folder}", "--output=x", f"--max_length={LENGTH + 1}"],
            "but the model was trained on sequences",
        ),
        (
            ["--model_dir={folder}", "--output=x", "--max_gib=0.000001"],
            "GiB of variables, and the limit is 1e-06 GiB.",
        ),
    ],
)
def test_a_mistake_is_a_message_and_status_2(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*(a.format(folder=folder) for a in arguments)) == ExitStatus.BAD_CONFIGURATION
    captured = capsys.readouterr()
    assert captured.err.startswith("meshtf-export: error: ")
    assert message in captured.err


def test_a_classifier_has_a_batch_of_one_row_or_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "operative_config.gin").write_text('include "digits_mlp.gin"\n')
    given = [f"--model_dir={tmp_path}", f"--output={tmp_path / 'x'}", "--trust_config"]
    assert status_of(*given, "--batch_size=0") == ExitStatus.BAD_CONFIGURATION
    assert "Decoding.batch_size must be an integer, 1 or more, or None, and is 0" in capsys.readouterr().err
