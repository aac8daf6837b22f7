"""Embeds ids, positions and types of tokens as the input of a stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers.attention import learned_positions, sinusoidal_positions
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.transformer.dropout import dropped
from meshtf.layers.transformer.norms import Norm


class PositionEmbedding(Protocol):
    """Makes vectors for positions: int32 [..] -> [.., d_model], or a shape that broadcasts to it."""

    @property
    def max_length(self) -> int | None:
        """The number of positions; None if there is no end to them."""
        ...

    def __call__(self, positions: mtf.Tensor, d_model: mtf.Dimension) -> mtf.Tensor: ...


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class LearnedPositions:
    """A variable `positions` [max_length, d_model] with a vector for each position."""

    max_length: int
    stddev: float = 0.02

    @language_function
    def __call__(self, positions: mtf.Tensor, d_model: mtf.Dimension) -> mtf.Tensor:
        return learned_positions(positions, self.max_length, d_model, stddev=self.stddev)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class SinusoidalPositions:
    """Sines and cosines of positions (Vaswani et al. 2017)."""

    max_wavelength: float = 10000.0

    @property
    def max_length(self) -> None:
        return None

    @language_function
    def __call__(self, positions: mtf.Tensor, d_model: mtf.Dimension) -> mtf.Tensor:
        return sinusoidal_positions(positions, d_model, self.max_wavelength)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class TokenEmbedding:
    """dropout(norm(vector of the id + vector of the position + vector of the type)).

    Its variables are in the scope of the vocabulary.

    Attributes:
      vocabulary: the vocabulary of the ids.
      positions: makes the vectors of positions, if given.
      num_token_types: the number of types' vectors, if not 0, in a variable `token_types` [token_types,
        d_model]; tokens of no stated type are of type 0 (BERT).
      norm: normalizes the sum, if given.
      dropout_rate: the share of the result that is dropped.
      dropout_broadcast_dims: names of dimensions along which elements are dropped together.
    """

    vocabulary: VocabularyEmbedding
    positions: PositionEmbedding | None = None
    num_token_types: int = 0
    norm: Norm | None = None
    dropout_rate: float = 0.0
    dropout_broadcast_dims: Sequence[str] = ()

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

        `are_checked` says that the tensor from which the ids were made is checked; see `VocabularyEmbedding.checked`.
        """
        x = self.vocabulary.ids_to_embedding(ids, d_model, are_checked=are_checked)
        with mtf.variable_scope(self.vocabulary.name):
            if self.positions is not None:
                x += mtf.cast(self.positions(positions, d_model), x.dtype)
            if self.num_token_types:
                types = mtf.zeros_like(ids)
                if token_types is not None:
                    types = mtf.check_indices(token_types, self.num_token_types, message="a token type")
                x += mtf.cast(self._type_vectors(types, d_model), x.dtype)
            if self.norm is not None:
                x = self.norm(x, d_model)
            return dropped(x, self.dropout_rate, self.dropout_broadcast_dims, is_training=is_training)

    def _type_vectors(self, types: mtf.Tensor, d_model: mtf.Dimension) -> mtf.Tensor:
        dim = mtf.Dimension("token_types", self.num_token_types)
        table = mtf.get_variable(types.mesh, "token_types", [dim, d_model], initializer=mtf.RandomNormal(stddev=0.02))
        return mtf.gather(table, types, dim)
