"""Whole programs on the virtual TPU, as users start them, against virtual CPUs: trained, resumed, carried to and fro,
evaluated, asked for text, and exported."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import gin
import pytest

from meshtf.bin import decode, train
from meshtf.bin import eval as evaluation
from meshtf.train.monitoring.metrics import read_metrics

PROGRAMS = {"train": train, "eval": evaluation, "decode": decode}
TPU = ("--backend=tpu", "--virtual=8")
STEPS = 4
SCHEDULE = f"""
Training.num_steps = {STEPS}
Training.log_every = 1
Training.checkpoint_every_steps = 2
Training.checkpoint_every_minutes = None
Training.evaluate_every = None
"""

TEXT = """
import meshtf.train.data
Training.task = @TextTask()
TextTask.source = @TextFiles()
TextFiles.patterns = "text.txt"
TextFiles.document = "line"
TextTask.vocabulary = @ByteVocabulary()
TextTask.length = 32
TextTask.held_out = 0.25
TextTask.num_evaluation_examples = 20
Training.batch_size = 16
"""
SMALL = """
d_model = 32
AttentionConfig.num_heads = 4
AttentionConfig.d_kv = 8
TransformerStack.num_layers = 2
FeedForward.d_ff = 64
"""
PUBLISHED = """
include "size_tiny.gin"
Training.optimizer = @AdamWOptimizer()
AdamWOptimizer.learning_rate = 0.01
ByteVocabulary.extra_ids = 20
vocab_size = 278
"""
T5 = """
Training.model = @EncoderDecoder()
TextTask.objective = @SpanCorruption()
dropout_rate = 0.1
"""
BERT = """
Training.model = @MaskedLM()
TextTask.objective = @MaskedLanguageModel()
"""
RESNET = """
include "resnet50.gin"
import photographs
Training.task = @photographs()
ResNet50.num_classes = 4
ResNet50.stage_sizes = (1, 1)
ResNet50.width = 4
Training.batch_size = 16
Training.optimizer = @SgdOptimizer()
SgdOptimizer.learning_rate = 0.1
"""
PHOTOGRAPHS = """
import gin
import numpy as np
import meshtf as mtf
from meshtf.train.data import ArrayTask

@gin.configurable
def photographs():
    labels = np.arange(80, dtype=np.int32) % 4
    images = np.random.default_rng(0).normal(size=[80, 16, 16, 3]) + labels[:, None, None, None] / 4
    features = {"images": images.astype(np.float32), "labels": labels}
    shapes = {"images": mtf.convert_to_shape("height:16;width:16;channels:3"), "labels": mtf.Shape([])}
    parts = [{name: x[part] for name, x in features.items()} for part in (slice(60), slice(60, None))]
    return ArrayTask("photographs", shapes, *parts)
"""


@dataclasses.dataclass(frozen=True)
class Whole:
    """A configuration, the mesh that it is trained on, and whether it continues text."""

    configuration: str
    mesh: tuple[str, str]
    decodes: bool = False


WHOLE_PROGRAMS = {
    "lm_tiny": Whole(
        'include "lm_tiny.gin"' + TEXT + SMALL, ("rows:4;cols:2", "batch:rows;heads:cols;d_ff:cols"), True
    ),
    "moe_tiny": Whole(
        'include "moe_tiny.gin"' + TEXT + SMALL + "MixtureOfExperts.d_ff = 64", ("all:8", "batch:all;experts:all"), True
    ),
    "bert": Whole('include "bert.gin"' + TEXT + PUBLISHED + BERT, ("rows:2;cols:4", "batch:rows;heads:cols;d_ff:cols")),
    "t5": Whole('include "t5_1_1.gin"' + TEXT + PUBLISHED + T5, ("rows:2;cols:4", "batch:rows;heads:cols;d_ff:cols")),
    "resnet": Whole(RESNET, ("rows:2;cols:4", "batch:rows;filters:cols")),
}


@dataclasses.dataclass(frozen=True)
class Runs:
    """Runs of `run.gin` in this folder, each in one of its own."""

    mesh: tuple[str, str]
    capture: pytest.CaptureFixture[str]

    def done(self, program: str, *flags: str) -> str:
        """What a program prints."""
        gin.clear_config()
        self.capture.readouterr()
        status = PROGRAMS[program].main([f"meshtf-{program}", *flags])
        printed = self.capture.readouterr()
        assert status == 0, printed.err
        return printed.out

    def train(self, folder: str, *flags: str) -> dict[int, float]:
        """The losses, by step."""
        mesh_shape, layout = self.mesh
        mesh = (f"--mesh_shape={mesh_shape}", f"--layout={layout}")
        self.done("train", "--gin_file=run.gin", f"--model_dir={folder}", *mesh, *flags)
        return {line["step"]: line["loss"] for line in read_metrics(Path(folder, "metrics.jsonl")) if "loss" in line}

    def decoded(self, folder: str, *flags: str) -> str:
        """The text with which a prompt goes on."""
        printed = self.done("decode", f"--model_dir={folder}", "--prompt=line 1", "--max_new_tokens=8", *flags)
        _, _, text = printed.partition("\n")
        assert text.startswith("line 1"), printed
        return text

    def evaluated(self, folder: str, *flags: str) -> float:
        printed = self.done("eval", f"--model_dir={folder}", *flags)
        loss = re.search(r"held out: +loss ([0-9.e-]+)", printed)
        assert loss is not None, printed
        return float(loss[1].rstrip("."))


def digest(folder: str) -> str:
    return read_metrics(Path(folder, "metrics.jsonl"))[-1]["variables_sha256"]


def cut(folder: str, new: str) -> str:
    """A copy of a run as it was when its first checkpoint was written."""
    shutil.copytree(folder, new)
    first, *later = sorted(Path(new, "checkpoints").glob("step_*"))
    assert later, first
    for checkpoint in later:
        shutil.rmtree(checkpoint)
    return new


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WHOLE_PROGRAMS)
def test_whole_programs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Losses are those of virtual CPUs to 1e-5, and of a resumed run the same to the bit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    chosen = WHOLE_PROGRAMS[name]
    Path("run.gin").write_text(chosen.configuration + SCHEDULE)
    Path("photographs.py").write_text(PHOTOGRAPHS)
    Path("text.txt").write_text("".join(f"line {n} of {n * n} to be read\n" for n in range(300)))
    runs = Runs(chosen.mesh, capsys)
    ours, theirs = runs.train("tpu", *TPU), runs.train("cpus")
    assert sorted(theirs) == list(range(1, STEPS + 1))
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert runs.train(cut("tpu", "resumed"), *TPU) == ours
    assert digest("resumed") == digest("tpu")
    assert runs.train(cut("tpu", "to_cpus")) == pytest.approx(theirs, rel=1e-5)
    assert runs.train(cut("cpus", "to_tpu"), *TPU) == pytest.approx(theirs, rel=1e-5)

    if chosen.decodes:
        assert runs.decoded("tpu", *TPU) == runs.decoded("cpus", "--backend=cpu")
    evaluated = runs.evaluated("tpu", *TPU, "--mesh_shape=a:2;b:2", "--layout=batch:a")
    assert evaluated == pytest.approx(runs.evaluated("tpu", "--mesh_shape=one:1", "--layout="), rel=1e-3)  # of 4 digits
