"""Trainings of every model and configuration of meshtf, made small; and which rows each process makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.models import TextClassifier
from meshtf.train import Trainer
from meshtf.train.data import (
    ArrayTask,
    ByteVocabulary,
    Concatenate,
    LanguageModel,
    MaskedLanguageModel,
    Pack,
    Pad,
    SpanCorruption,
    TextTask,
)
from meshtf.train.data._tokenized_text import TokenizedText
from meshtf.train.data.sources.document import Document
from meshtf.train.task import Task
from meshtf.train.training import Training
from tests.models.transformers import KINDS, WITH_EXPERTS, configured

STEPS, SEED = 2, 3
VOCABULARY = ByteVocabulary(extra_ids=6)
CLASSIFIER = "text_classifier"
"""A model without a configuration: BERT's layers, by which texts are classified."""

_LENGTH, _SPANS, _CLASSES = 24, {"inputs": 24, "targets": 10}, 4
_MOST_HELD_OUT = 100
_TINY = ("d_model = 32", "AttentionConfig.num_heads = 4", "AttentionConfig.d_kv = 8", "FeedForward.d_ff = 64")
_SMALLER: dict[str, tuple[str, ...]] = {
    "lm_tiny": (*_TINY, "TransformerStack.num_layers = 2", f"VocabularyEmbedding.vocab_size = {VOCABULARY.size}"),
    "resnet50": (f"ResNet50.num_classes = {_CLASSES}", "ResNet50.stage_sizes = (1, 1)", "ResNet50.width = 4"),
    "digits_mlp": (f"MLPClassifier.num_classes = {_CLASSES}", "MLPClassifier.hidden_sizes = (16,)"),
}
_SMALLER |= {
    f"resnet{layers}": (f"ResNet.num_classes = {_CLASSES}", "ResNet.stage_sizes = (1, 1)", "ResNet.width = 4")
    for layers in (18, 34, 101, 152)
}
_SMALLER |= dict.fromkeys(
    ("vit_s16", "vit_b16", "deit_s16"),
    (
        *("d_model = 32", "d_ff = 64", "num_heads = 4", "AttentionConfig.d_kv = 8", "TransformerStack.num_layers = 2"),
        *(f"VisionTransformer.num_classes = {_CLASSES}", "VisionTransformer.patch_size = 4"),
    ),
)
_SMALLER["moe_tiny"] = (*_SMALLER["lm_tiny"], "TransformerStack.num_layers = 1", "MixtureOfExperts.d_ff = 16")
_ARRAYS = {
    "MLPClassifier": ("images", "pixels:12"),
    **dict.fromkeys(("ResNet", "ResNet50", "VisionTransformer"), ("images", "height:8 width:8 channels:3")),
    CLASSIFIER: ("inputs", f"length:{_LENGTH}"),
}
_EXPERTS = ("num_layers = 1", "num_experts = 4", "group_size = 8")
_CHOICES = {
    "qwen3_30b_a3b": ("TopNRouter.num_choices = 2",),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), ("num_choices = 2", "num_groups = 2", "num_chosen_groups = 1")),
}
"""Of those whose tokens go to more experts than there are here."""


@dataclasses.dataclass(frozen=True)
class Texts:
    """A source of words of different lengths."""

    count: int = 500

    def documents(self) -> Iterator[Document]:
        random = np.random.default_rng(0)
        for number, length in enumerate(random.integers(1, 40, self.count).tolist()):
            yield Document(f"text {number}", bytes(random.integers(97, 123, length).astype(np.uint8)))


@dataclasses.dataclass(frozen=True)
class Small:
    """A model by the name of its configuration, a batch, and what is asked for beside.

    Attributes:
      parameters: bindings of the model's configuration.
      options: of the training.
      is_divided: whether the batch is divided among processes, as it is where the first axis of its rule is the mesh's.
    """

    name: str
    batch_size: int
    mesh_shape: str = "rows:2"
    layout: str = "batch:rows"
    parameters: tuple[str, ...] = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_divided: bool = True

    @property
    def axes_of_batch(self) -> Sequence[str]:
        """Over which it is split."""
        return mtf.convert_to_layout_rules(self.layout).axes("batch")

    def training(self, num_processes: int | None = None) -> Training:
        return Training(
            model=_model(self.name, self.parameters),
            task=_task(KINDS.get(self.name, self.name), self.batch_size),
            optimizer=mtf.optimize.AdamWOptimizer(1e-2),
            mesh_shape=self.mesh_shape,
            layout=self.layout,
            batch_size=self.batch_size,
            num_steps=STEPS,
            seed=SEED,
            num_processes=num_processes,
            **self.options,
        )

    def __str__(self) -> str:
        more = [*self.parameters, *(f"{name}={value}" for name, value in self.options.items())]
        return " ".join([self.name, str(self.batch_size), f'"{self.mesh_shape}"', f'"{self.layout}"', *more])


@dataclasses.dataclass(frozen=True)
class Made:
    """The rows of text that were made at once: their places among all examples, in order."""

    is_for_training: bool
    places: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a process saw of a training: the loss of each step, the means over held-out examples, and the rows made."""

    losses: list[float]
    held_out: dict[str, float]
    made: list[Made]


def trained(small: Small, num_processes: int | None = None) -> Trained:
    """Takes the first steps, and evaluates; all as a run does."""
    made: list[Made] = []
    with pytest.MonkeyPatch.context() as patch:
        _note_rows(patch, made)
        trainer = Trainer(small.training(num_processes))
        trainer.check()
        trainer.begin()
        batches = trainer.batches()
        losses = [float(trainer.train_step(**next(batches))["loss"]) for _ in range(STEPS)]
        evaluation = trainer.evaluate()
    assert evaluation is not None
    evaluation.check()
    return Trained(losses, evaluation.means, made)


def _note_rows(patch: pytest.MonkeyPatch, made: list[Made]) -> None:
    features_of = TextTask._features

    def noted(task: TextTask, text: TokenizedText, rows: Any, indices: Any, places: Any, seed: int) -> Any:
        made.append(Made(text is task._text.train, tuple(places.tolist())))
        return features_of(task, text, rows, indices, places, seed)

    patch.setattr(TextTask, "_features", noted)


def _model(name: str, parameters: tuple[str, ...]) -> Any:
    if name == CLASSIFIER:
        bert = _model("bert", parameters)
        return TextClassifier(bert.d_model, bert.embedding, bert.stack, _CLASSES)
    if name in _SMALLER:
        return configured(name, *_SMALLER[name], *parameters, sizes="")
    experts = (*_EXPERTS, *([f"targets_vocab_size = {VOCABULARY.size}"] if name.startswith("gshard") else []))
    own = (*experts, *_CHOICES.get(name, ())) if name in WITH_EXPERTS else ()
    return configured(name, f"vocab_size = {VOCABULARY.size}", *own, *parameters)


def _task(kind: str, batch_size: int) -> Task:
    if kind in _ARRAYS:
        return _arrays(*_ARRAYS[kind])
    objective, arrangement, length = {
        "TransformerLM": (LanguageModel(), Concatenate(), _LENGTH),
        "MaskedLM": (MaskedLanguageModel(), Pad(), _LENGTH),
        "EncoderDecoder": (SpanCorruption(), Pack(), _SPANS),
    }[kind]
    most = min(_MOST_HELD_OUT, 2 * batch_size + 1)  # the last batch has one example, in one process
    return TextTask(Texts(), VOCABULARY, objective, length, arrangement, 0.3, most)


def _arrays(name: str, shape: str) -> ArrayTask:
    """Random images or texts, and labels."""
    random, named = np.random.default_rng(1), mtf.convert_to_shape(shape)
    assert named is not None

    def features(count: int) -> dict[str, np.ndarray]:
        sizes = [count, *named.to_integer_list]
        drawn = random.integers(2, VOCABULARY.size, sizes).astype(np.int32)
        values = drawn if name == "inputs" else (drawn / VOCABULARY.size).astype(np.float32)
        return {name: values, "labels": random.integers(0, _CLASSES, count).astype(np.int32)}

    return ArrayTask("random arrays", {name: named, "labels": mtf.Shape([])}, features(150), features(33))
