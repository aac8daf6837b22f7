"""A trained model as a SavedModel, which plain TensorFlow loads and runs without meshtf.

A SavedModel has TensorFlow functions and ordinary variables. The program has fixed shapes. A signature takes any number
of rows, and runs the program batch after batch.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint.atomic_folder import atomic_folder
from meshtf.errors import LayoutWarning, SaveError
from meshtf.files.unicode_text import is_unicode
from meshtf.mesh_impl.host.host_memory import host_memory
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train._saved_model_program import SavedModelProgram, batch_after_batch, within_range
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import GraphVocabulary, Vocabulary
from meshtf.train.decoding.encoded_text import TextLimits
from meshtf.train.decoding.options import Decoding
from meshtf.train.decoding.programs import (
    GENERATE,
    INPUTS,
    LOG_LIKELIHOODS,
    SCORE,
    TARGETS,
    generation_program,
    greatest_sizes,
    scoring_program,
    vocabulary_of,
)
from meshtf.train.decoding.sequences import RESULTS
from meshtf.train.decoding.step_decoder import TextModel
from meshtf.train.layouts.without_pipelines import without_pipelines
from meshtf.train.training import Training
from meshtf_programs.strict_json import json_text

WEIGHTS = "targets_weights"
"""The feed of `score` that is 1 for tokens and 0 for padding."""

PREDICT = "predict"
GENERATE_TEXT, TEXTS = "generate_text", "texts"
DEFAULT = "serving_default"
"""The signature that a server calls by default."""

FACTS = "export.json"

_GIB = 2**30

_NO_SIGNATURE = """\
{model} can be exported neither as a model of text (it has no incremental_decoder, or its task no text) nor as a
classifier (it has no predict)."""

_TOO_LARGE = """\
{model} does not fit one core: it takes {needed:.3g} GiB, including {variables:.3g} GiB of variables, and {limit}.
A SavedModel is for one device; nothing was restored or written."""

_NOT_IN_A_SAVED_MODEL = """\
Decoding.{name} has no effect on a SavedModel, which returns all sequences, each with its likelihood as a whole."""

_PATTERN = frozenset("*?[]\\")
_A_PATTERN = """\
a SavedModel in {path} could not be loaded: TensorFlow takes a path with {signs} for a pattern. Give another folder."""


_NO_UTF_8 = """\
a SavedModel in {path} cannot be written: TensorFlow takes only paths in UTF-8. Give another folder."""


@runtime_checkable
class Classifier(Protocol):
    """A model that predicts classes of examples."""

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """Returns results [batch, ...] by name, from features [batch, ...] by name."""
        ...


Signature = tuple[Callable[..., dict[str, tf.Tensor]], list[tf.TensorSpec]]
"""A function to save, and the specifications of its arguments."""


@dataclasses.dataclass(frozen=True)
class ExportedModel:
    """A model's programs for one core, by signature. They are planned, and no weights have been restored.

    Attributes:
      name: the name of the model.
      programs: the programs. The first has all variables of the model and no other.
      signatures: returns the functions to save, once the variables exist.
    """

    name: str
    programs: Mapping[str, SavedModelProgram]
    signatures: Callable[[Mapping[str, SavedModelProgram]], dict[str, Signature]]

    @property
    def restorable(self) -> mtf.Function:
        """A program into which a checkpoint can be restored."""
        return next(iter(self.programs.values())).program

    def check_fits(self, max_gib: float | None = None) -> None:
        """Checks the model's memory on one core against a limit, and against the memory that the machine has left.

        Raises:
          ConfigurationError: if it is too much. The message says how much.
        """
        memories = [program.memory for program in self.programs.values()]
        needed, variables = (
            max(sizes) / _GIB for sizes in zip(*((m.total, m.variables) for m in memories), strict=True)
        )
        memory = host_memory()
        available = memory.available / _GIB
        limit = f"{memory.limit} {available:.3g} GiB"
        if max_gib is not None and max_gib < available:
            available, limit = max_gib, f"the limit is {max_gib:.3g} GiB"
        if needed > available:
            message = _TOO_LARGE.format(model=self.name, needed=needed, variables=variables, limit=limit)
            raise ConfigurationError(message)

    def write(self, folder: Path, facts: Mapping[str, Any]) -> list[str]:
        """Writes a SavedModel, and the facts about it in export.json. Returns the names of its signatures.

        Raises:
          SaveError: if it cannot be written.
        """
        module = tf.Module()
        module.parameters = {name: v for p in self.programs.values() for name, v in p.variables.items()}
        traced = {
            name: tf.function(body, input_signature=specs, autograph=False).get_concrete_function()
            for name, (body, specs) in self.signatures(self.programs).items()
        }
        try:
            with atomic_folder(folder) as temporary:
                tf.saved_model.save(module, str(temporary), signatures=traced)
                (temporary / FACTS).write_text(json_text({"model": self.name, **facts}, indent=2) + "\n")
        except (OSError, tf.errors.OpError) as error:
            raise SaveError(f"{folder} cannot be written: {error}") from error
        return list(traced)


def check_output(path: Path) -> None:
    """Raises ConfigurationError for a path that TensorFlow cannot write to, or reads as a glob pattern, and so could
    not load from.
    """
    if not is_unicode(str(path.absolute())):
        raise ConfigurationError(_NO_UTF_8.format(path=path.absolute()))
    if signs := sorted(_PATTERN.intersection(str(path.absolute()))):
        raise ConfigurationError(_A_PATTERN.format(path=path.absolute(), signs=" ".join(signs)))


def exported_model(training: Training, decoding: Decoding, batch_size: int = 1) -> ExportedModel:
    """Builds a training's model on one core.

    Args:
      training: the training with the model and the sizes. Its mesh and layout do not matter.
      decoding: the options of the signature `generate`. Its batch size does not matter.
      batch_size: how many rows one run of the program takes.

    Raises:
      ConfigurationError: if the model is neither a model of text nor a classifier, or if the options do not fit it.
    """
    name, mesh_impl = type(training.model).__name__, mtf.SpmdMeshImpl("cores:1", "", compile_loops=False)
    if isinstance(training.model, TextModel) and training.task.vocabulary is not None:
        _check_has_effect(decoding)
        sizes = dataclasses.replace(greatest_sizes(training), batch=batch_size)
        limits = TextLimits.of(sizes, decoding)
        sizes = dataclasses.replace(sizes, targets=limits.length)
        score = scoring_program(training, mesh_impl, sizes)
        generate = generation_program(training, mesh_impl, sizes, decoding, score.variables)
        programs = {
            SCORE: SavedModelProgram.of(score, [LOG_LIKELIHOODS]),
            GENERATE: SavedModelProgram.of(generate, RESULTS),
        }
        vocabulary = vocabulary_of(training)
        return ExportedModel(name, programs, lambda made: text_signatures(made, limits, vocabulary))
    model = without_pipelines(training.model)
    if isinstance(model, Classifier):
        return ExportedModel(name, {PREDICT: _prediction(training, model, mesh_impl, batch_size)}, predictions)
    raise ConfigurationError(_NO_SIGNATURE.format(model=name))


def _check_has_effect(decoding: Decoding) -> None:
    for name in ("num_results", "logprobs"):
        if getattr(decoding, name) is not None:
            raise ConfigurationError(_NOT_IN_A_SAVED_MODEL.format(name=name))


def text_signatures(
    programs: Mapping[str, SavedModelProgram], limits: TextLimits, vocabulary: Vocabulary
) -> dict[str, Signature]:
    """Returns the signatures of a model of text.

    - `score` and `generate` take ids [rows, tokens] of any lengths that fit, with padding at the end of each row.
    - `serving_default` is `generate` with the seed 0.
    - `generate_text` is `serving_default` from texts to texts. It needs a vocabulary that works in a graph.
    """
    length, inputs_length, padding_id = limits.length, limits.greatest.inputs, vocabulary.padding_id
    ids, seed = tf.TensorSpec([None, None], tf.int32, "ids"), tf.TensorSpec([], tf.int32, "seed")
    inputs = [] if inputs_length is None else [tf.TensorSpec([None, None], tf.int32, INPUTS)]

    def score(ids: tf.Tensor, inputs: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        targets = _padded(ids, length, "ids", padding_id)
        is_token = tf.range(length) < _lengths(targets, padding_id)[:, tf.newaxis]
        feeds = {TARGETS: tf.where(is_token, targets, 0), WEIGHTS: tf.cast(is_token, tf.float32)}
        if inputs is not None and inputs_length is not None:
            feeds[INPUTS] = _padded(inputs, inputs_length, INPUTS, padding_id)
        feeds = within_range(programs[SCORE], feeds, {TARGETS: "ids"})
        found = batch_after_batch(programs[SCORE], feeds, tf.constant(0))[LOG_LIKELIHOODS]
        return {LOG_LIKELIHOODS: found[:, : tf.shape(ids)[1]], "log_likelihood": tf.reduce_sum(found, axis=1)}

    @tf.function(autograph=False)  # two signatures share it
    def generate(first: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        feeds = {}
        if inputs_length is None:
            targets = _padded(first, length, "ids", padding_id)
        else:
            feeds[INPUTS] = _padded(first, inputs_length, INPUTS, padding_id)
            targets = tf.fill([tf.shape(first)[0], length], padding_id)
        lengths = _lengths(targets, padding_id)
        is_token = tf.range(length) < lengths[:, tf.newaxis]
        feeds[TARGETS] = tf.where(is_token, targets, 0)
        weights = {WEIGHTS: tf.cast(is_token, tf.float32)}
        feeds = within_range(programs[SCORE], feeds | weights, {TARGETS: "ids"})
        del feeds[WEIGHTS]
        feeds["lengths"] = lengths
        feeds["ends"] = tf.minimum(feeds["lengths"] + limits.new_tokens, length)
        # The loop begins at the shortest prompt. Padding rows of the last batch must not make it begin earlier.
        found = batch_after_batch(programs[GENERATE], feeds, seed, {"lengths": length})
        is_given = tf.range(length) < found["lengths"][..., tf.newaxis]
        return {**found, "ids": tf.where(is_given, found["ids"], padding_id)}

    def serve(first: tf.Tensor) -> dict[str, tf.Tensor]:
        return generate(first, tf.constant(0))

    def generate_text(texts: tf.Tensor) -> dict[str, tf.Tensor]:
        assert isinstance(vocabulary, GraphVocabulary)
        rows = vocabulary.encode_in_graph(texts)
        if inputs_length is not None:
            ends = tf.fill([tf.shape(texts)[0], 1], vocabulary.end_id)
            rows = tf.concat([rows, tf.RaggedTensor.from_tensor(ends)], axis=1)
        found = generate(rows.to_tensor(padding_id), tf.constant(0))
        return {TEXTS: vocabulary.decode_in_graph(found["ids"]), "scores": found["scores"]}

    first = inputs or [ids]
    made: dict[str, Signature] = {
        SCORE: (score, [ids, *inputs]),
        GENERATE: (generate, [*first, seed]),
        DEFAULT: (serve, first),
    }
    if isinstance(vocabulary, GraphVocabulary):
        made[GENERATE_TEXT] = (generate_text, [tf.TensorSpec([None], tf.string, TEXTS)])
    return made


def predictions(programs: Mapping[str, SavedModelProgram]) -> dict[str, Signature]:
    """Returns the signature `predict` of examples [rows, ..]. It is also `serving_default`."""
    program = programs[PREDICT]
    specs = [tf.TensorSpec([None, *spec.shape[1:]], spec.dtype, name) for name, spec in program.inputs.items()]

    def predict(*features: tf.Tensor) -> dict[str, tf.Tensor]:
        feeds = within_range(program, dict(zip(program.inputs, features, strict=True)))
        return batch_after_batch(program, feeds, tf.constant(0))

    return {PREDICT: (predict, specs), DEFAULT: (predict, specs)}


def _prediction(training: Training, model: Classifier, mesh_impl: MeshImpl, batch_size: int) -> SavedModelProgram:
    names: list[str] = []

    def predict(**features: mtf.Tensor) -> dict[str, mtf.Tensor]:
        with training.kept_weights():
            results = model.predict(features)
        names.extend(results)
        return {name: mtf.export(x, name) for name, x in results.items()}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LayoutWarning)
        program = mtf.function(
            predict,
            mesh_impl,
            inputs=training.task.inputs(mtf.Dimension("batch", batch_size)),
            variable_dtype=training.variable_dtype,
        )
    return SavedModelProgram.of(program, names)


def _lengths(ids: tf.Tensor, padding_id: int) -> tf.Tensor:
    """The number of tokens of each row. Padding is behind them, and the same id inside a text is a token."""
    places = tf.range(1, ids.shape[1] + 1)
    return tf.reduce_max(tf.where(tf.not_equal(ids, padding_id), places, 0), axis=1)


def _padded(ids: tf.Tensor, length: int, name: str, padding_id: int) -> tf.Tensor:
    """Pads ids to [rows, length] at the end of the rows. If they are longer, TensorFlow raises InvalidArgumentError."""
    count = tf.shape(ids)[1]
    assertion = tf.debugging.Assert(
        count <= length, [f"{name} has more tokens than {length}, the greatest length:", count]
    )
    with tf.control_dependencies([assertion]):
        padded = tf.pad(ids, [[0, 0], [0, tf.maximum(length - count, 0)]], constant_values=padding_id)
    return tf.ensure_shape(padded, [None, length])
