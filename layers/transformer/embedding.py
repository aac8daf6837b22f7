"""Embeds ids, positions and types of tokens as the input of a stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.field_checks import check_above_zero, check_fractions, check_kinds, check_not_negative, check_sizes
from meshtf.layers.attention import learned_positions, sinusoidal_positions
from meshtf.layers.dense import dense
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.transformer.dropout import dropped
from meshtf.layers.transformer.norms import Norm


class PositionEmbedding(Protocol):
    """Makes vectors for positions: int32 [..] -> [.., d_model], or a shape that broadcasts to it."""

    @property
    def max_length(self) -> int | None:
        """The number of positions; None if there is no limit."""
        ...

    def __call__(self, positions: mtf.Tensor, d_model: mtf.Dimension) -> mtf.Tensor: ...


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class LearnedPositions:
    """A variable `positions` [max_length + offset, d_model].

    Attributes:
      max_length: the number of positions.
      stddev: the standard deviation of the initial values.
      offset: the number of rows before that of position 0 (2 in RoBERTa, BART and OPT).
    """

    max_length: int
    stddev: float = 0.02
    offset: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.offset, int) or self.offset < 0:
            raise ValueError(f"LearnedPositions: offset counts rows, at least 0, and is {self.offset!r}")
        check_kinds(self)
        check_sizes(self, "max_length")
        check_not_negative(self, "stddev")

    @language_function
    def __call__(self, positions: mtf.Tensor, d_model: mtf.Dimension) -> mtf.Tensor:
        return learned_positions(positions, self.max_length, d_model, stddev=self.stddev, offset=self.offset)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class SinusoidalPositions:
    """Sines and cosines (Vaswani et al. 2017).

    Attributes:
      max_wavelength: the limit of wavelengths, divided by 2 pi.
      is_interleaved: whether sines and cosines alternate; if not, all sines come first (Marian).
    """

    max_wavelength: float = 10000.0
    is_interleaved: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "max_wavelength")

    @property
    def max_length(self) -> None:
        return None

    @language_function
    def __call__(self, positions: mtf.Tensor, d_model: mtf.Dimension) -> mtf.Tensor:
        return sinusoidal_positions(positions, d_model, self.max_wavelength, is_interleaved=self.is_interleaved)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class TokenEmbedding:
    """dropout(norm(vector of the id + vector of the position + vector of the type)).

    Attributes:
      vocabulary: the vocabulary of the ids.
      positions: makes the vectors of positions, if given.
      num_token_types: the number of token types (BERT), or 0 for none. Their vectors are a variable `token_types`
        [token_types, d_model]. If no types are given, all tokens have type 0.
      norm: normalizes the sum, if given.
      dropout_rate: the share of the result that is dropped.
      dropout_broadcast_dims: names of dimensions along which elements are dropped together.
      d_embedding: if given, the size of the vectors that are summed; a dense layer `projection` then makes vectors of
        size d_model (ELECTRA).
      name: the scope of all variables except the vocabulary's; by default the vocabulary's scope. If two embeddings
        share a vocabulary but have different names, each has its own positions and norm (BART).
    """

    vocabulary: VocabularyEmbedding
    positions: PositionEmbedding | None = None
    num_token_types: int = 0
    norm: Norm | None = None
    dropout_rate: float = 0.0
    dropout_broadcast_dims: Sequence[str] = ()
    d_embedding: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "d_embedding")
        check_not_negative(self, "num_token_types")
        check_fractions(self, "dropout_rate")

    @property
    def max_length(self) -> int | None:
        """The greatest length of sequences; None if there is no limit."""
        return None if self.positions is None else self.positions.max_length

    @language_function
    def __call__(
        self,
        ids: mtf.Tensor,
        positions: mtf.Tensor,
        d_model: mtf.Dimension,
        *,
        is_training: bool,
        token_types: mtf.Tensor | None = None,
        are_checked: bool = False,
    ) -> mtf.Tensor:
        """The vectors of tokens [.., length, d_model], from ids int32 [.., length], their positions and their types.

        Set `are_checked` if the tensor from which the ids were made is checked; see `VocabularyEmbedding.checked`.
        """
        summed = self.summed(d_model)
        x = self.vocabulary.ids_to_embedding(ids, summed, are_checked=are_checked)
        with mtf.variable_scope(self.name or self.vocabulary.name):
            if self.positions is not None:
                x += self.positions(positions, summed).astype(x.dtype)
            if self.num_token_types:
                types = mtf.zeros_like(ids)
                if token_types is not None:
                    types = mtf.check_indices(token_types, self.num_token_types, message="a token type")
                x += self._type_vectors(types, summed).astype(x.dtype)
            if self.norm is not None:
                x = self.norm(x, summed)
            x = dropped(x, self.dropout_rate, self.dropout_broadcast_dims, is_training=is_training)
            if self.d_embedding is None:
                return x
            return dense(x, [d_model], [summed], kernel_initializer=self.vocabulary.initializer, name="projection")

    def summed(self, d_model: mtf.Dimension) -> mtf.Dimension:
        """The dimension of the vectors that are summed: that of the vocabulary's table."""
        return d_model if self.d_embedding is None else mtf.Dimension("d_embedding", self.d_embedding)

    def _type_vectors(self, types: mtf.Tensor, d_model: mtf.Dimension) -> mtf.Tensor:
        dim = mtf.Dimension("token_types", self.num_token_types)
        table = mtf.get_variable(types.mesh, "token_types", [dim, d_model], initializer=mtf.RandomNormal(stddev=0.02))
        return table[dim, types]
