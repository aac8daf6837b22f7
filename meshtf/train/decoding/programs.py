"""The two programs of decoding: one continues prompts, and one scores text."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import LayoutWarning
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.decoding.beam_search import beam_search
from meshtf.train.decoding.begun_prompts import BegunPrompts
from meshtf.train.decoding.generation import generate
from meshtf.train.decoding.options import BEAM, RANK, Decoding
from meshtf.train.decoding.prompts import Prompts
from meshtf.train.decoding.scoring import token_log_likelihoods
from meshtf.train.decoding.sequences import Sequences
from meshtf.train.decoding.step_decoder import PromptStarter, StepDecoder, TextModel
from meshtf.train.decoding.stops import Stops
from meshtf.train.layouts.without_pipelines import text_by_text
from meshtf.train.training import Training

INPUTS, TARGETS, TARGETS_START = "inputs", "targets", "targets_start"
SCORE, GENERATE = "score", "generate"
LOG_LIKELIHOODS = "log_likelihoods"

_NO_TEXT = """\
{model} cannot be decoded: it does not predict text token by token (it has no incremental_decoder).
TransformerLM and EncoderDecoder do. For other models, meshtf-eval evaluates held-out examples, and meshtf-export
exports the ones that have a predict, such as MaskedLM."""


_ONE_PROGRAM = """\
Decoding.{kind} works only in meshtf-decode: there the host decides before each token which ones may come next. This
program makes all tokens in one loop."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a program's batches.

    Attributes:
      batch: how many sequences a batch has.
      targets: their length, in tokens.
      inputs: the length of the inputs, if the model has an encoder.
      prompts: the length of the longest prompt, which is how many tokens are read. The default is `targets`.
    """

    batch: int
    targets: int
    inputs: int | None = None
    prompts: int | None = None

    @property
    def features(self) -> dict[str, mtf.TensorSpec]:
        """The specifications of the sequences of ids [batch, length], by name."""
        lengths = {TARGETS: self.targets} | ({} if self.inputs is None else {INPUTS: self.inputs})
        return {
            name: mtf.TensorSpec([("batch", self.batch), ("length", length)], tf.int32)
            for name, length in lengths.items()
        }

    @property
    def one_each(self) -> mtf.Shape:
        return mtf.Shape([("batch", self.batch)])


def greatest_sizes(training: Training) -> Sizes:
    """Returns the sizes on which a model is trained.

    Raises:
      ConfigurationError: if the model is not one of text.
    """
    specs = training.task.inputs(training.batch)
    if not isinstance(training.model, TextModel) or TARGETS not in specs or training.task.vocabulary is None:
        raise ConfigurationError(_NO_TEXT.format(model=type(training.model).__name__))
    sizes = {name: specs[name].shape.get_dim_by_name("length").size for name in (TARGETS, INPUTS) if name in specs}
    return Sizes(training.batch_size, sizes[TARGETS], sizes.get(INPUTS))


def vocabulary_of(training: Training) -> Vocabulary:
    """Returns the vocabulary of a training that has `greatest_sizes`."""
    vocabulary = training.task.vocabulary
    assert vocabulary is not None
    return vocabulary


def scoring_program(
    training: Training, mesh_impl: MeshImpl, sizes: Sizes, variables: mtf.VariableStore | None = None
) -> mtf.Function:
    """Builds a program that scores text. It has all variables of the model, and no other.

    Its inputs are `targets`, `targets_weights` and perhaps `inputs`, each [batch, length]. Its result
    "log_likelihoods", float32 [batch, length], has a value for each target.
    """
    features = sizes.features
    features["targets_weights"] = mtf.TensorSpec(features[TARGETS].shape, tf.float32)

    def score(**given: mtf.Tensor) -> dict[str, mtf.Tensor]:
        return {LOG_LIKELIHOODS: token_log_likelihoods(text_model(training), given)}

    return text_program(score, training, mesh_impl, features, name=SCORE, variables=variables)


def generation_program(
    training: Training,
    mesh_impl: MeshImpl,
    sizes: Sizes,
    decoding: Decoding,
    variables: mtf.VariableStore | None = None,
) -> mtf.Function:
    """Builds a program that continues prompts. It returns the fields of `Sequences`, by name.

    Inputs:
    - `targets` [batch, length]: the prompts;
    - `lengths` [batch]: the lengths of the prompts;
    - `ends` [batch]: where the sequences end at the latest;
    - `inputs`, if the model has an encoder.

    Random tokens depend on the seed and on the number of the prompt, counted over all runs of the program.

    Raises:
      ConfigurationError: if a stop is not in the vocabulary, or the method does not support it.
    """
    stops = decoding.stops(vocabulary_of(training))

    def continued(**given: mtf.Tensor) -> dict[str, mtf.Tensor]:
        prompts = Prompts(given.pop(TARGETS), given.pop("lengths"), given.pop("ends"), sizes.prompts)
        return decoded(text_model(training), given, prompts, decoding, stops).by_name()

    return text_program(
        continued,
        training,
        mesh_impl,
        generation_inputs(sizes),
        name=GENERATE,
        variables=variables,
        seed=decoding.seed,
    )


def generation_inputs(sizes: Sizes) -> dict[str, mtf.TensorSpec]:
    """Returns the inputs of a program that continues prompts."""
    return sizes.features | {name: mtf.TensorSpec(sizes.one_each, tf.int32) for name in ("lengths", "ends")}


def decoded(
    model: TextModel,
    features: dict[str, mtf.Tensor],
    prompts: Prompts,
    decoding: Decoding,
    stops: Stops,
) -> Sequences:
    """Prompts continued as the options say."""
    if isinstance(model, PromptStarter) and not model.starts_prompts:
        begun = BegunPrompts.of(prompts, model.start_id)
        decoder = model.incremental_decoder({**features, TARGETS_START: begun.start})
        return begun.whole(_continued(decoder, begun.rest, decoding, stops))
    return _continued(model.incremental_decoder(features), prompts, decoding, stops)


def _continued(decoder: StepDecoder, prompts: Prompts, decoding: Decoding, stops: Stops) -> Sequences:
    if decoding.constraint is not None:
        raise ConfigurationError(_ONE_PROGRAM.format(kind=decoding.constraint.kind))
    penalties = decoding.penalties
    if decoding.method == BEAM:
        size, rules = decoding.beam_size, decoding.rules
        return beam_search(decoder, prompts, stops.ids, beam_size=size, rules=rules, penalties=penalties)
    # A text that is cut at a stop has the likelihoods of the tokens that are left.
    num_likeliest = 0 if decoding.logprobs is None and stops.texts else decoding.logprobs
    num_samples = decoding.num_samples if decoding.method == RANK else None
    return generate(
        decoder,
        prompts,
        decoding.sampling,
        stops,
        penalties=penalties,
        num_samples=num_samples,
        num_likeliest=num_likeliest,
    )


def text_model(training: Training) -> TextModel:
    """Returns the model of a training that has `greatest_sizes`, in a form in which texts do not change each other."""
    model = text_by_text(training.model)
    assert isinstance(model, TextModel)
    return model


def text_program(
    body: Callable[..., dict[str, mtf.Tensor]],
    training: Training,
    mesh_impl: MeshImpl,
    inputs: dict[str, mtf.TensorSpec],
    **options: Any,
) -> mtf.Function:
    """Builds a program whose results are exported under their names, so that they can be fetched one by one."""

    def kept(**given: mtf.Tensor) -> dict[str, mtf.Tensor]:
        with training.kept_weights():
            return body(**given)

    return exporting_program(kept, mesh_impl, inputs, variable_dtype=training.variable_dtype, **options)


def exporting_program(
    body: Callable[..., dict[str, mtf.Tensor]],
    mesh_impl: MeshImpl,
    inputs: dict[str, mtf.TensorSpec],
    **options: Any,
) -> mtf.Function:
    """Builds the program of `text_program` from a body that reads weights in whatever forms they are kept."""

    def named(**given: mtf.Tensor) -> dict[str, mtf.Tensor]:
        return {name: mtf.export(x, name) for name, x in body(**given).items()}

    with warnings.catch_warnings():
        # The program may lack dimensions of the training step, which has already checked the rules.
        warnings.simplefilter("ignore", LayoutWarning)
        return mtf.function(named, mesh_impl, inputs=inputs, **options)
