"""The program of one step: rows read tokens into a paged cache, and some of them choose their next token."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention.caches.pages import PageView
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.models import IncrementalDecoder
from meshtf.serving.row_choice import choice_specs, chosen_tokens
from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding.programs import greatest_sizes, text_program
from meshtf.train.decoding.step_decoder import token_logits
from meshtf.train.layouts.without_pipelines import without_pipelines
from meshtf.train.training import Training

_NO_DECODER = """\
only language models such as TransformerLM can be served, and the model is {model}. meshtf-decode and meshtf-export also
take models that have an encoder."""


@dataclasses.dataclass(frozen=True)
class StepSizes:
    """The sizes of a step.

    Attributes:
      tokens: the number of tokens that are read.
      rows: the number of generations that may choose a token.
      length: the greatest length of a text.
      pages: the number of pages of one text.
      page_size: the number of positions of a page.
      num_pages: the number of pages of the cache.
      num_likeliest: the number of the most likely tokens to return.
      vocab_size: the number of token ids.
    """

    tokens: int
    rows: int
    length: int
    pages: int
    page_size: int
    num_pages: int
    num_likeliest: int
    vocab_size: int

    @property
    def specs(self) -> dict[str, mtf.TensorSpec]:
        """The inputs of the program."""
        batch = ("batch", self.tokens)
        return {
            "tokens": mtf.TensorSpec([batch], tf.int32),
            "positions": mtf.TensorSpec([batch], tf.int32),
            "table": mtf.TensorSpec([batch, ("pages", self.pages)], tf.int32),
            "wanted": mtf.TensorSpec([("batch", self.rows)], tf.int32),
            **choice_specs(self.rows, self.length, self.vocab_size),
        }

    def empty(self) -> dict[str, np.ndarray]:
        """Inputs of a step that reads nothing."""
        arrays = {
            name: np.zeros(spec.shape.to_integer_list, spec.dtype.as_numpy_dtype) for name, spec in self.specs.items()
        }
        for name in ("positions", "table", "wanted", "history", "banned", "form"):
            arrays[name].fill(-1)
        for name in ("repetition", "inverse_temperature", "top_k"):
            arrays[name].fill(1)
        return arrays


def step_program(
    training: Training, mesh_impl: MeshImpl, sizes: StepSizes, variables: mtf.VariableStore | None = None
) -> mtf.Function:
    """Builds the program of a step. The cache is its variables `pages/0`, `pages/1` and so on.

    Raises:
      ConfigurationError: if the model is no language model.
      GraphError: if the model cannot read prompts in parts.
      LayoutError: if the layout does not fit the program.
    """
    has_encoder = greatest_sizes(training).inputs is not None
    make = None if has_encoder else getattr(without_pipelines(training.model), "incremental_decoder", None)
    training = _with_floating_cache(training)

    def step(
        tokens: mtf.Tensor, positions: mtf.Tensor, table: mtf.Tensor, wanted: mtf.Tensor, **choice: mtf.Tensor
    ) -> dict[str, mtf.Tensor]:
        decoder = make({}) if make is not None else None
        if not isinstance(decoder, IncrementalDecoder):
            raise ConfigurationError(_NO_DECODER.format(model=type(training.model).__name__))
        pages = PageView.of(table, positions, sizes.page_size)
        caches = _caches(decoder, tokens.mesh, sizes, training.variable_dtype.activation_dtype or tf.float32)
        logits, new = decoder.step_in_pages(tokens, positions, pages, caches, wanted)
        for old, after in zip(caches, new, strict=True):
            mtf.assign(old, after)
        found = chosen_tokens(token_logits(logits, decoder), choice, decoder.vocab, sizes.num_likeliest)
        return found

    return text_program(step, training, mesh_impl, sizes.specs, name="serve", variables=variables)


def _with_floating_cache(training: Training) -> Training:
    """The training without `Quantization.cache`: pages keep keys and values in the dtype of activations."""
    if training.quantization is None:
        return training
    return dataclasses.replace(training, quantization=dataclasses.replace(training.quantization, cache=None))


def _caches(decoder: IncrementalDecoder, mesh: mtf.Mesh, sizes: StepSizes, dtype: tf.DType) -> list[mtf.Tensor]:
    like = decoder.start_pages(mesh, sizes.num_pages * sizes.page_size, dtype)
    return [
        mtf.get_variable(mesh, f"pages/{n}", x.shape, x.dtype, initializer=mtf.zeros, trainable=False)
        for n, x in enumerate(like)
    ]
