"""Exported models in this process: any number of rows, classifiers, beams, and what cannot be exported."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gin
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.errors import SaveError
from meshtf.models import MLPClassifier
from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf.train import Training
from meshtf.train.configuration import ConfigurationError, read_configuration
from meshtf.train.data import ArrayTask, ByteVocabulary, TextTask
from meshtf.train.decoding import Decoding
from meshtf.train.decoding.encoded_text import TextLimits
from meshtf.train.decoding.programs import greatest_sizes
from meshtf.train.export import ExportedModel, check_output, exported_model
from meshtf.train.export import text_signatures as functions_of_text
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training
from tests.train.decoding.small_run import LENGTH, write_small_run

PIXELS = 4
TERMS = 2 * (3 * 16 + 4 * (16 + 8 + 24) + 64 + 8 * FUNCTION_TERMS) + 300
"""Roundings of a small language model of two layers, and of the logits of as many tokens as there are bytes."""


@pytest.fixture(scope="module")
def text_training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Attends in blocks, as models of long sequences do."""
    in_blocks = ("SelfAttention.algorithm = 'lean'", "SelfAttention.block_size = 8")
    return write_small_run(tmp_path_factory.mktemp("run"), *in_blocks)


@pytest.fixture
def classifier(tiny_training: Callable[..., Training]) -> Training:
    features = {"images": np.zeros([8, PIXELS], np.float32), "labels": np.zeros([8], np.int32)}
    shapes = {"images": mtf.Shape([("pixels", PIXELS)]), "labels": mtf.Shape([])}
    task = ArrayTask("pictures", shapes, train=features, held_out=features)
    return tiny_training(model=MLPClassifier(3, (8,)), task=task)


def test_predictions_of_any_number_of_rows(classifier: Training, tmp_path: Path) -> None:
    exported = exported_model(classifier, Decoding(), batch_size=4)
    exported.check_fits()
    exported.restorable.initialize()
    assert exported.write(tmp_path / "saved", {}) == ["predict", "serving_default"]
    check_predictions(tmp_path / "saved", exported.restorable.variables)


def test_trained_on_a_virtual_tpu(classifier: Training, tmp_path: Path) -> None:
    """Kept in slices there, and saved whole."""
    mesh_impl = mtf.TpuMeshImpl("rows:2;cols:4", "batch:rows;hidden:cols", parameter_layout="pixels:rows")
    step, random = training_step(classifier, mesh_impl), np.random.default_rng(1)
    step.initialize()
    start = step.variables["hidden_0/kernel"]
    for _ in range(3):
        images = random.normal(size=(8, PIXELS)).astype(np.float32)
        step(images=images, labels=random.integers(0, 3, 8, np.int32))
    assert np.any(step.variables["hidden_0/kernel"] != start)
    checkpoints = CheckpointFolder(tmp_path / "checkpoints")
    checkpoints.save(3, step.variables, {})
    exported = exported_model(classifier, Decoding(), batch_size=4)
    restore(checkpoints.open(3), [exported.restorable], ignore_unused=True)
    exported.write(tmp_path / "saved", {})
    check_predictions(tmp_path / "saved", step.variables)


def check_predictions(saved: Path, store: mtf.VariableStore) -> None:
    predict = tf.saved_model.load(str(saved)).signatures["predict"]
    images = np.random.default_rng(0).normal(size=(7, PIXELS)).astype(np.float32)
    hidden = np.maximum(images @ store["hidden_0/kernel"] + store["hidden_0/bias"], 0.0)
    logits = hidden @ store["logits/kernel"] + store["logits/bias"]
    wanted = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for count in (7, 4, 1, 0):
        found = predict(images=tf.constant(images[:count]))
        assert_close(found["probabilities"], wanted[:count], terms=(PIXELS, 8, 3, 2 * FUNCTION_TERMS))
        np.testing.assert_array_equal(found["classes"], logits[:count].argmax(-1))


@dataclasses.dataclass(frozen=True)
class _WithoutPadding(ByteVocabulary):
    """Every id from 0 on is a token."""

    @property
    def padding_id(self) -> int:
        return -1


@pytest.mark.long
def test_a_vocabulary_whose_first_id_is_a_token(text_training: Training, tmp_path: Path) -> None:
    assert isinstance(text_training.task, TextTask)
    task = dataclasses.replace(text_training.task, vocabulary=_WithoutPadding())
    exported = exported_model(dataclasses.replace(text_training, task=task), Decoding(max_new_tokens=2))
    exported.restorable.initialize()
    exported.write(tmp_path / "saved", {})
    model = tf.saved_model.load(str(tmp_path / "saved"))
    ids = tf.constant([[70, 0], [72, -1]])
    likelihoods = model.signatures["score"](ids=ids)["log_likelihoods"].numpy()
    assert likelihoods[0, 1] < 0
    assert likelihoods[1, 1] == 0
    found = model.signatures["serving_default"](ids=ids)
    np.testing.assert_array_equal(found["ids"][0, :2], [70, 0])
    assert found["lengths"][0] >= 3
    after = found["ids"].numpy()[1, found["lengths"][1] :]
    assert np.all(after == -1)


@dataclasses.dataclass(frozen=True)
class _PaddedWithEnds(ByteVocabulary):
    """As many tokenizers of GPT-2 have it."""

    @property
    def padding_id(self) -> int:
        return self.end_id


def test_an_end_within_a_text_is_a_token_where_padding_is_the_same_id(
    text_training: Training, text_export: ExportedModel, text_signatures: dict[str, Any]
) -> None:
    sizes = dataclasses.replace(greatest_sizes(text_training), batch=2)
    signatures = functions_of_text(text_export.programs, TextLimits.of(sizes, BEAMS), _PaddedWithEnds())
    found = {name: tf.function(signatures[name][0], autograph=False) for name in ("score", "serving_default")}
    ids, others = tf.constant([[70, 1, 72, 73], [72, 73, 1, 1]]), tf.constant([[70, 1, 72, 73], [72, 73, 0, 0]])
    scores = found["score"](ids)["log_likelihoods"].numpy()
    wanted = text_signatures["score"](ids=others)["log_likelihoods"].numpy()
    assert_close(scores, wanted, terms=TERMS)
    assert np.all(wanted[0, 1:] < 0)
    again = found["serving_default"](ids)
    np.testing.assert_array_equal(again["ids"][0, 0, :4], ids[0])
    np.testing.assert_array_equal(again["lengths"], text_signatures["serving_default"](ids=others)["lengths"])


def test_beams(text_signatures: dict[str, Any]) -> None:
    found = text_signatures["generate"](ids=tf.constant([[70, 71], [72, 0]]), seed=tf.constant(0))
    assert found["ids"].shape == [2, 2, LENGTH]
    assert np.all(np.diff(found["scores"], axis=1) <= 0)
    scores = text_signatures["score"](ids=found["ids"][:, 0])["log_likelihoods"].numpy()
    assert_close(scores[0, 2:].sum(), found["log_likelihoods"][0, 0], terms=TERMS)
    assert_close(scores[1, 1:].sum(), found["log_likelihoods"][1, 0], terms=TERMS)
    served = text_signatures["serving_default"](ids=tf.constant([[70, 71], [72, 0]]))
    np.testing.assert_array_equal(served["ids"], found["ids"], "of the seed 0")
    texts = text_signatures["generate_text"](texts=tf.constant(["DE", "F"]))
    vocabulary = ByteVocabulary()
    expected = [[vocabulary.decode(row) for row in rows] for rows in found["ids"].numpy()]
    assert [[text.decode() for text in rows] for rows in texts["texts"].numpy()] == expected
    assert expected[0][0].startswith("DE")
    np.testing.assert_array_equal(texts["scores"], found["scores"])
    (one,) = text_signatures["generate_text"](texts=tf.constant(["F"]))["texts"].numpy()
    assert list(one) == list(texts["texts"].numpy()[1]), "as a row of a batch, as TensorFlow Serving puts them together"
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"ids has more tokens than {LENGTH}, the greatest"):
        text_signatures["score"](ids=tf.zeros([1, LENGTH + 1], tf.int32))


BEYOND = 258
"""The first id that is in no vocabulary of bytes."""


@pytest.mark.parametrize("token", [BEYOND, -(2**31)])
def test_a_token_of_no_vocabulary_is_refused_by_every_signature(text_signatures: dict[str, Any], token: int) -> None:
    """With the id, its row and its position; what is padding and what is in the vocabulary passes."""
    ids = tf.constant([[70, 71, 72], [72, 0, 0], [73, token, 74]])
    others = {"score": {}, "generate": {"seed": tf.constant(0)}, "serving_default": {}}
    wanted = rf"ids has an? (id|target) outside of 0 to {BEYOND - 1}: {token} in row 2 at position 1"
    for name, more in others.items():
        with pytest.raises(tf.errors.InvalidArgumentError, match=wanted):
            text_signatures[name](ids=ids, **more)
        text_signatures[name](ids=tf.where(ids == token, BEYOND - 1, ids), **more)


BEAMS = Decoding(method="beam", beam_size=2, max_new_tokens=2)


@pytest.fixture(scope="module")
def text_export(text_training: Training) -> ExportedModel:
    exported = exported_model(text_training, BEAMS, batch_size=2)
    exported.restorable.initialize()
    return exported


@pytest.fixture(scope="module")
def text_signatures(text_export: ExportedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return written_signatures(text_export, tmp_path_factory.mktemp("saved"))


def written_signatures(exported: ExportedModel, folder: Path) -> dict[str, Any]:
    exported.write(folder / "saved", {})
    model = tf.saved_model.load(str(folder / "saved"))
    return {"model": model, **model.signatures}  # which live as long as their model


OF_TEXT = """
include "{size}.gin"
include "size_tiny.gin"
import meshtf.train.data
Training.model = @{model}()
Training.task = @TextTask()
Training.optimizer = @AdamWOptimizer()
Training.mesh_shape = "one:1"
Training.layout = ""
Training.num_steps = 1
Training.batch_size = 2
AdamWOptimizer.learning_rate = 0.01
TextTask.vocabulary = @ByteVocabulary()
TextTask.source = @TextFiles()
TextTask.objective = @{objective}()
TextTask.length = 16
TextFiles.patterns = "nowhere/*.txt"
ByteVocabulary.extra_ids = 20
vocab_size = 278
"""


def of_text(folder: Path, **names: str) -> Training:
    gin.clear_config()
    (folder / "run.gin").write_text(OF_TEXT.format(**names))
    read_configuration([folder / "run.gin"], [])
    training = configured_training()
    gin.clear_config()
    return training


@pytest.mark.long
def test_ids_of_an_encoder_are_refused_too(tmp_path: Path) -> None:
    training = of_text(tmp_path, size="t5_1_1", model="EncoderDecoder", objective="SpanCorruption")
    exported = exported_model(training, Decoding(max_new_tokens=2), batch_size=2)
    exported.restorable.initialize()
    signatures = written_signatures(exported, tmp_path)
    right, wrong = tf.constant([[5, 1, 0], [6, 7, 1]]), tf.constant([[5, 1, 0], [6, 278, 1]])
    of_inputs = "inputs has an id outside of 0 to 277: 278 in row 1 at position 1"
    with pytest.raises(tf.errors.InvalidArgumentError, match=of_inputs):
        signatures["generate"](inputs=wrong, seed=tf.constant(0))
    with pytest.raises(tf.errors.InvalidArgumentError, match=of_inputs):
        signatures["serving_default"](inputs=wrong)
    with pytest.raises(tf.errors.InvalidArgumentError, match=of_inputs):
        signatures["score"](ids=right, inputs=wrong)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"ids has .* 278 in row 1 at position 1"):
        signatures["score"](ids=wrong, inputs=right)
    assert np.all(signatures["score"](ids=right, inputs=right)["log_likelihood"].numpy() < 0)


def test_ids_and_positions_of_a_prediction_are_refused(tmp_path: Path) -> None:
    """Whatever the model looks up, as in training: tokens, and their positions of a table."""
    training = of_text(tmp_path, size="bert", model="MaskedLM", objective="MaskedLanguageModel")
    exported = exported_model(training, Decoding(), batch_size=2)
    exported.restorable.initialize()
    (body, specs), *_ = exported.signatures(exported.programs).values()
    predict = tf.function(body, input_signature=specs, autograph=False)
    shapes = {spec.name: [3, *spec.shape[1:]] for spec in specs}
    right = {name: np.ones(shape, np.int32) for name, shape in shapes.items()}
    predict(*map(tf.constant, right.values()))
    for name, bad in (("inputs", 278), ("inputs", -1), ("inputs_position", 10**6)):
        given = {key: x.copy() for key, x in right.items()}
        given[name][2, 5] = bad
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{name} has .* {bad} in row 2 at position 5"):
            predict(*map(tf.constant, given.values()))


def test_what_a_model_looks_up_beyond_what_it_is_fed_is_refused(tiny_training: Callable[..., Training]) -> None:
    """Where only the program itself knows the index."""

    class Model:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            return {"loss": features["x"]}

        def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            looked_up = mtf.check_indices(features["label"] * 2, 9, message="a double")
            return {"doubles": mtf.cast(looked_up, tf.float32)}

    features = {"x": np.zeros([8], np.float32), "label": np.zeros([8], np.int32)}
    task = ArrayTask("doubles", dict.fromkeys(features, mtf.Shape([])), train=features, held_out=features)
    exported = exported_model(tiny_training(model=Model(), task=task), Decoding())
    (program,) = exported.programs.values()
    (signature, _), *_ = exported.signatures({"predict": program}).values()
    called = tf.function(signature)
    np.testing.assert_array_equal(called(tf.constant([1, 4]))["doubles"], [2, 8])
    with pytest.raises(tf.errors.InvalidArgumentError, match="a double outside of 0 to 8"):
        called(tf.constant([1, 5]))


def test_what_does_not_fit(text_training: Training) -> None:
    exported = exported_model(text_training, Decoding())
    needed = max(program.memory.total for program in exported.programs.values()) / 2**30
    with pytest.raises(ConfigurationError, match=rf"it takes {needed:.3g} GiB, .* limit is {needed / 2:.3g} GiB"):
        exported.check_fits(needed / 2)
    exported.check_fits(needed)


def test_a_model_without_a_signature(tiny_training: Callable[..., Training]) -> None:
    with pytest.raises(ConfigurationError, match=r"TinyModel can be exported neither as a model of text"):
        exported_model(tiny_training(), Decoding())


@pytest.mark.parametrize("name", ["lr=[0.1]", "a*b", "a?b", "back\\slash", "[in]/saved"])
def test_a_path_that_tensorflow_takes_for_a_pattern(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="could not be loaded: TensorFlow takes a path with"):
        check_output(tmp_path / name)
    check_output(tmp_path / "100% {ü} $x")


def test_a_path_that_is_not_utf_8(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written: TensorFlow takes only paths in UTF-8"):
        check_output(tmp_path / os.fsdecode(b"m\xfcller"))


def test_a_folder_that_cannot_be_written(classifier: Training) -> None:
    exported = exported_model(classifier, Decoding())
    exported.restorable.initialize()
    with pytest.raises(SaveError, match="/dev/null/saved cannot be written"):
        exported.write(Path("/dev/null/saved"), {})


def test_the_mesh_of_the_training_does_not_matter(classifier: Training) -> None:
    on_many: Any = dataclasses.replace(classifier, mesh_shape="rows:4096", layout="batch:rows")
    assert exported_model(on_many, Decoding()).restorable.lowering.mesh_impl.size == 1
