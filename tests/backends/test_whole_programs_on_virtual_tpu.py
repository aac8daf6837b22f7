"""Whole programs on the virtual TPU, as users start them, against virtual CPUs: trained, resumed, carried to and fro,
evaluated, asked for text, and exported."""

from __future__ import annotations

import dataclasses
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import gin
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.bin import decode, export, train
from meshtf.bin import eval as evaluation
from meshtf.errors import LayoutWarning
from meshtf.testing import assert_close, terms_of
from meshtf.train import RunFolder, Training
from meshtf.train.decoding.programs import greatest_sizes, scoring_program
from meshtf.train.decoding.step_decoder import TextModel
from meshtf.train.export import Classifier
from meshtf.train.monitoring.metrics import read_metrics

PROGRAMS = {"train": train, "eval": evaluation, "decode": decode, "export": export}
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


Mesh = tuple[str, str]
"""Its shape, and the layout of a program on it."""

OF_TEXT = (
    ("rows:2;cols:4", "batch:rows;heads:cols;d_ff:cols"),
    ("x:2;y:2;z:2", "batch:x;heads:y;d_ff:y;vocab:z"),
    ("rows:4;cols:2", "batch:rows;d_model:cols"),
)
OF_EXPERTS = (
    ("all:8", "batch:all;experts:all"),
    ("rows:4;cols:2", "batch:rows;experts:rows;heads:cols;d_ff:cols;vocab:cols"),
    ("x:2;y:2;z:2", "batch:x+y;experts:y;heads:z;d_ff:z"),
)
OF_IMAGES = (
    ("rows:2;cols:4", "batch:rows;filters:cols"),
    ("rows:2;cols:4", "batch:cols;height:rows"),
    ("all:8", "batch:all"),
)


@dataclasses.dataclass(frozen=True)
class Whole:
    """A configuration, the meshes that it is trained on, and whether it continues text."""

    configuration: str
    meshes: tuple[Mesh, Mesh, Mesh]
    decodes: bool = False


WHOLE_PROGRAMS = {
    "lm_tiny": Whole('include "lm_tiny.gin"' + TEXT + SMALL, OF_TEXT, True),
    "moe_tiny": Whole('include "moe_tiny.gin"' + TEXT + SMALL + "MixtureOfExperts.d_ff = 64", OF_EXPERTS, True),
    "bert": Whole('include "bert.gin"' + TEXT + PUBLISHED + BERT, OF_TEXT),
    "t5": Whole('include "t5_1_1.gin"' + TEXT + PUBLISHED + T5, OF_TEXT),
    "resnet": Whole(RESNET, OF_IMAGES),
}


@dataclasses.dataclass(frozen=True)
class Runs:
    """Runs of `run.gin` in this folder, each in one of its own."""

    capture: pytest.CaptureFixture[str]

    def done(self, program: str, *flags: str) -> str:
        """What a program prints."""
        gin.clear_config()
        self.capture.readouterr()
        status = PROGRAMS[program].main([f"meshtf-{program}", *flags])
        printed = self.capture.readouterr()
        assert status == 0, printed.err
        return printed.out

    def train(self, folder: str, mesh: Mesh, *flags: str) -> dict[int, float]:
        """The losses, by step."""
        on_mesh = (f"--mesh_shape={mesh[0]}", f"--layout={mesh[1]}")
        self.done("train", "--gin_file=run.gin", f"--model_dir={folder}", *on_mesh, *flags)
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


def drawn(spec: mtf.TensorSpec) -> np.ndarray:
    """Tokens or classes, the weights of tokens, or images."""
    generator, sizes = np.random.default_rng(0), spec.shape.to_integer_list
    if spec.dtype.is_integer:
        return generator.integers(1, 4, sizes, spec.dtype.as_numpy_dtype)
    return np.ones(sizes, np.float32) if len(sizes) == 2 else generator.normal(size=sizes).astype(np.float32)


def program_to_export(training: Training, mesh_impl: mtf.TpuMeshImpl) -> tuple[str, mtf.Function, set[str]]:
    """The name of a signature, what it is to compute, on a mesh, and of what."""
    model, inputs = training.model, training.task.inputs(training.batch)
    if isinstance(model, TextModel):
        sizes = greatest_sizes(training)
        return "score", scoring_program(training, mesh_impl, sizes), {*sizes.features, "targets_weights"}
    assert isinstance(model, Classifier)

    def predict(**features: mtf.Tensor) -> dict[str, mtf.Tensor]:
        return model.predict(features)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LayoutWarning)  # rules for dimensions of targets alone
        return "predict", mtf.function(predict, mesh_impl, inputs=inputs), set(inputs)


def check_exported(folder: str, mesh: Mesh, runs: Runs) -> None:
    """What meshtf-export writes gives the values of the trained model, as it is on the virtual TPU."""
    saved, run = Path(folder, "saved"), RunFolder.existing(folder)
    gin.clear_config()
    training = run.read_training()
    signature_name, program, names = program_to_export(training, mtf.TpuMeshImpl(*mesh))
    run.restore(program)
    features = {name: drawn(spec) for name, spec in training.task.inputs(training.batch).items() if name in names}
    expected = program(**features)
    runs.done("export", f"--model_dir={folder}", f"--output={saved}", f"--batch_size={training.batch_size}")
    model = tf.saved_model.load(str(saved))  # which its signatures do not keep
    signature = model.signatures[signature_name]
    given = {("ids" if name == "targets" else name): x for name, x in features.items()}
    found = signature(**{name: tf.constant(given[name]) for name in signature.structured_input_signature[1]})
    numbers = [name for name, x in expected.items() if x.dtype.is_floating]
    assert numbers
    for number in numbers:
        assert_close(found[number], expected[number], terms=terms_of(program._execution.plan), what=number)


@pytest.fixture(scope="module", autouse=True)
def _photographs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where Python finds it: a module is imported once, whatever the folder of a run."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "photographs.py").write_text(PHOTOGRAPHS)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(folder)
        yield


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "number"), [(name, i % 3) for i, name in enumerate(WHOLE_PROGRAMS)])
def test_whole_programs(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Losses are those of virtual CPUs to 1e-5, on another mesh, too, and of a resumed run the same to the bit.

    Each on two of its three meshes: `tests/xla` has every layout of every model.
    """
    monkeypatch.chdir(tmp_path)
    chosen = WHOLE_PROGRAMS[name]
    mesh, other = chosen.meshes[number], chosen.meshes[number - 1]
    Path("run.gin").write_text(chosen.configuration + SCHEDULE)
    Path("text.txt").write_text("".join(f"line {n} of {n * n} to be read\n" for n in range(300)))
    runs = Runs(capsys)
    ours, theirs = runs.train("tpu", mesh, *TPU), runs.train("cpus", mesh)
    assert sorted(theirs) == list(range(1, STEPS + 1))
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert runs.train(cut("tpu", "resumed"), mesh, *TPU) == ours
    assert digest("resumed") == digest("tpu")
    assert runs.train(cut("tpu", "to_cpus"), other) == pytest.approx(theirs, rel=1e-5)
    assert runs.train(cut("cpus", "to_tpu"), other, *TPU) == pytest.approx(theirs, rel=1e-5)

    if chosen.decodes:
        assert runs.decoded("tpu", *TPU) == runs.decoded("cpus", "--backend=cpu")
    evaluated = runs.evaluated("tpu", *TPU, "--mesh_shape=a:2;b:2", "--layout=batch:a")
    assert evaluated == pytest.approx(runs.evaluated("tpu", "--mesh_shape=one:1", "--layout="), rel=1e-3)  # of 4 digits
    check_exported("tpu", mesh, runs)
