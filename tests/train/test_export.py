"""Exported models in this process: any number of rows, classifiers, beams, and what cannot be exported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.errors import SaveError
from meshtf.models import MLPClassifier
from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf.train import Training
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ArrayTask, ByteVocabulary, TextTask
from meshtf.train.decoding import Decoding
from meshtf.train.export import check_output, exported_model
from meshtf.train.step_programs import training_step
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


def test_beams(text_training: Training, tmp_path: Path) -> None:
    decoding = Decoding(method="beam", beam_size=2, max_new_tokens=2)
    exported = exported_model(text_training, decoding)
    exported.restorable.initialize()
    exported.write(tmp_path / "saved", {})
    model = tf.saved_model.load(str(tmp_path / "saved"))
    found = model.signatures["generate"](ids=tf.constant([[70, 71], [72, 0]]), seed=tf.constant(0))
    assert found["ids"].shape == [2, 2, LENGTH]
    assert np.all(np.diff(found["scores"], axis=1) <= 0)
    scores = model.signatures["score"](ids=found["ids"][:, 0])["log_likelihoods"].numpy()
    assert_close(scores[0, 2:].sum(), found["log_likelihoods"][0, 0], terms=TERMS)
    assert_close(scores[1, 1:].sum(), found["log_likelihoods"][1, 0], terms=TERMS)
    served = model.signatures["serving_default"](ids=tf.constant([[70, 71], [72, 0]]))
    np.testing.assert_array_equal(served["ids"], found["ids"], "of the seed 0")
    texts = model.signatures["generate_text"](texts=tf.constant(["DE", "F"]))
    vocabulary = ByteVocabulary()
    expected = [[vocabulary.decode(row) for row in rows] for rows in found["ids"].numpy()]
    assert [[text.decode() for text in rows] for rows in texts["texts"].numpy()] == expected
    assert expected[0][0].startswith("DE")
    np.testing.assert_array_equal(texts["scores"], found["scores"])
    (one,) = model.signatures["generate_text"](texts=tf.constant(["F"]))["texts"].numpy()
    assert list(one) == list(texts["texts"].numpy()[1]), "as a row of a batch, as TensorFlow Serving puts them together"
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"ids has more tokens than {LENGTH}, the greatest"):
        model.signatures["score"](ids=tf.zeros([1, LENGTH + 1], tf.int32))


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


def test_a_folder_that_cannot_be_written(classifier: Training) -> None:
    exported = exported_model(classifier, Decoding())
    exported.restorable.initialize()
    with pytest.raises(SaveError, match="/dev/null/saved cannot be written"):
        exported.write(Path("/dev/null/saved"), {})


def test_the_mesh_of_the_training_does_not_matter(classifier: Training) -> None:
    on_many: Any = dataclasses.replace(classifier, mesh_shape="rows:4096", layout="batch:rows")
    assert exported_model(on_many, Decoding()).restorable.lowering.mesh_impl.size == 1
