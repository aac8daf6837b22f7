"""Of each family: a folder of Transformers is decoded as there, fine-tuned on a text file, evaluated, exported, opened.

Models and tokenizers are made by Transformers itself, which is large: `pip install 'meshtf[test-transformers]'`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshtf.checkpoint.checkpoint_paths import open_source
from tests.checkpoint.conversion.imported_models import MODELS, interpreted
from tests.checkpoint.conversion.test_importing import features
from tests.fresh_process import Finished, run_fresh

DECODERS = ("deepseek_v2", "deepseek_v3", "gpt_oss", "mixtral", "olmo2", "qwen3", "qwen3_moe")
"""As in with_transformers.py."""
STORED = {path.name for path in MODELS.iterdir()} - {"bert_classifier"}  # whose labels are in no text file
NAMES = sorted({*STORED, *DECODERS, "modernbert"})
ENCODERS = ("bert", "modernbert")
SCRIPT = Path(__file__).parent / "with_transformers.py"
Ask = Callable[..., dict[str, Any]]

FINE_TUNING = """
import meshtf.train.data

Training.task = @TextTask()
TextTask.source = @TextFiles()
TextFiles.patterns = "text.txt"
TextFiles.document = "line"
TextTask.held_out = 0.2
Training.optimizer = @AdamWOptimizer()
AdamWOptimizer.learning_rate = 1e-2
Training.mesh_shape = "rows:1"
Training.layout = "batch:rows"
Training.batch_size = 8
Training.num_steps = 3
"""
DECODER = """
TextTask.objective = @LanguageModel()
TextTask.length = 16
"""
BOTH = """
TextTask.objective = @SpanCorruption()
TextTask.length = {"inputs": 16, "targets": 12}
"""
ENCODER = """
TextTask.objective = @MaskedLanguageModel()
TextTask.length = 16
"""
OBJECTIVES = {"t5": BOTH, "t5_1_1": BOTH, "switch_transformers": BOTH, **dict.fromkeys(ENCODERS, ENCODER)}
PROMPTS, NEW_TOKENS = ("The data are", "a", "Rows of text"), 6
"""As in with_transformers.py."""


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Transformers, in a process beside this one."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package}, of the extra test-transformers, is not installed")
    process = subprocess.Popen([sys.executable, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    orders, answers = process.stdin, process.stdout
    assert orders is not None
    assert answers is not None

    def answer(**order: str) -> dict[str, Any]:
        print(json.dumps(order), file=orders, flush=True)
        given: dict[str, Any] = json.loads(answers.readline())
        assert "error" not in given, given["error"]
        return given

    with process:
        yield answer
        process.kill()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of a page of the project's."""
    lines = (Path(__file__).parents[3] / "docs" / "data.md").read_text().splitlines()
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(line for line in lines if len(line) > 20) + "\n")
    return path


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_fine_tuned_and_opened_where_it_came_from(name: str, ask: Ask, text: Path, tmp_path: Path) -> None:
    known = ask(make=name, folder=str(tmp_path / name), text=str(text))
    (tmp_path / "text.txt").write_text(text.read_text())
    (tmp_path / "fine_tuning.gin").write_text(FINE_TUNING + OBJECTIVES.get(name, DECODER))

    run("checkpoint", tmp_path, "import", "--format=huggingface", name, "imported")
    is_same(known, tmp_path / "imported")
    if known["continued"]:
        prompts = [f"--prompt={prompt}" for prompt in PROMPTS]
        flags = (f"--max_new_tokens={NEW_TOKENS}", "--format=jsonl")
        found = run("decode", tmp_path, "--model_dir=imported", *prompts, *flags).stdout
        assert [json.loads(line)["ids"] for line in found.splitlines()] == known["continued"]
    files = ("--gin_file=imported/model.gin", "--gin_file=fine_tuning.gin")
    run("train", tmp_path, *files, "--model_dir=run")
    run("eval", tmp_path, "--model_dir=run")
    decode = ("decode", tmp_path, "--model_dir=run", "--prompt=The data are", "--max_new_tokens=4")
    if name in ENCODERS:
        assert "MaskedLM cannot be decoded" in run(*decode, status=2).stderr
        run("export", tmp_path, "--model_dir=run", "--output=saved")
    else:
        assert run(*decode).stdout
    run("checkpoint", tmp_path, "export", "--format=huggingface", "run", "exported")
    opened = ask(open=str(tmp_path / "exported"))
    assert opened["loading"] == {}

    run("checkpoint", tmp_path, "import", "--format=huggingface", "exported", "again")
    tuned, again = open_source(tmp_path / "run"), open_source(tmp_path / "again")
    for tensor in again.tensors:
        np.testing.assert_array_equal(again.read(tensor), tuned.read(tensor), err_msg=tensor)
    is_same(opened, tmp_path / "again")
    assert not np.allclose(opened["logits"], known["logits"], atol=1e-3), "it has learnt something"


def run(program: str, folder: Path, *flags: str, status: int = 0) -> Finished:
    code = (
        f"import sys; from meshtf.bin import {program}; sys.exit({program}.main(['meshtf-{program}', *sys.argv[1:]]))"
    )
    finished = run_fresh(["-c", code, *flags], folder)
    assert finished.status == status, finished.stderr
    return finished


def is_same(known: dict[str, Any], folder: Path) -> None:
    """Whether the logits here are those of Transformers."""
    fed = {name: np.array(ids, np.int32) for name, ids in known.items() if name.endswith("input_ids")}
    logits = np.array(known["logits"], np.float32)
    model_type = json.loads((folder / "original" / "config.json").read_text())["model_type"]
    if model_type == "bert":
        fed["token_type_ids"] = np.zeros_like(fed["input_ids"])
    given = {"inputs": fed["input_ids"]} if model_type == "modernbert" else features(fed)
    is_decoder = "@TransformerLM()" in (folder / "model.gin").read_text()
    begun = ["TransformerLM.starts_prompts = True"] * is_decoder  # what was fed has a begin token
    found = interpreted(folder, given, lambda model, x: model.logits(x, False), parameters=begun)
    np.testing.assert_allclose(found[..., : logits.shape[-1]], logits, rtol=1e-5, atol=1e-5 * np.abs(logits).max())
