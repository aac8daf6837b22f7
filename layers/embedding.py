"""Embeddings of ids, and logits over a vocabulary. The vocabulary may be split, and need not divide."""

from __future__ import annotations

import dataclasses
import math
from typing import overload

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.field_checks import check_above_zero, check_kinds, check_sizes
from meshtf.layers._operands import DimensionLike, checked_operand
from meshtf.layers.initializers import DenseInitializer, Initializer, NormalInitializer, VarianceScalingInitializer
from meshtf.takes_mesh import method_takes_mesh, takes_mesh

MASKED_LOGIT = -1e9
"""The logit of padding in a vocabulary. It is finite, and its exponential is 0 beside any real logit's."""

_IDS_ADVICE = """\
to ignore some ids, give the embedding `weights` that are 0 there; \
with check_ids=False nothing is checked, and the vector of an id outside the vocabulary is zeros"""


def padded_vocab_size(vocab_size: int, multiple: int = 128) -> int:
    """The smallest multiple of `multiple` that holds `vocab_size` ids.

    Raises:
      GraphError: one of the two is not a positive integer.

    Examples:
      >>> mtf.layers.padded_vocab_size(50257)
      50304
    """
    for name, value in (("vocab_size", vocab_size), ("multiple", multiple)):
        if not isinstance(value, int) or value < 1:
            raise GraphError(f"padded_vocab_size: {name} must be a positive integer, and is {value!r}")
    return -(-vocab_size // multiple) * multiple


@takes_mesh
def embedding_weights(
    mesh: mtf.Mesh,
    vocab_dim: DimensionLike,
    output_dim: DimensionLike,
    *,
    vocab_size: int | None = None,
    initializer: Initializer | None = None,
    name: str = "embedding",
) -> mtf.Tensor:
    """The variable of this name [vocab_dim, output_dim], with a vector for each id.

    Args:
      mesh: the mesh of the variable. May be left out.
      vocab_dim: the dimension of the ids. A layout may split it.
      output_dim: the dimension of the vectors.
      vocab_size: how many ids there are, if `vocab_dim` is padded. The rows after them start at zero, and are not
        saved.
      initializer: by default normal with standard deviation 1.
      name: the variable's name.

    Raises:
      ShapeError: `vocab_size` is not in 1 .. size of `vocab_dim`.

    Examples:
      >>> vocab = mtf.Dimension("vocab", mtf.layers.padded_vocab_size(1000))
      >>> weights = mtf.layers.embedding_weights(vocab, mtf.Dimension("d_model", 8), vocab_size=1000)
      >>> weights.shape, mesh.graph.variables["embedding"].unpadded_shape
      (Shape[vocab:1024 d_model:8], Shape[vocab:1000 d_model:8])
    """
    shape = mtf.Shape([vocab_dim, output_dim])
    unpadded = shape.resize_dimension(shape[0].name, _true_size(shape[0], vocab_size))
    chosen = initializer or mtf.RandomNormal(stddev=1.0)
    return mtf.get_variable(mesh, name, shape, initializer=chosen, unpadded_shape=unpadded)


@language_function
def embedding(
    indices: mtf.Tensor,
    vocab_dim: DimensionLike,
    output_dim: DimensionLike,
    *,
    vocab_size: int | None = None,
    initializer: Initializer | None = None,
    weights: mtf.Tensor | None = None,
    check_ids: bool = True,
    name: str = "embedding",
) -> mtf.Tensor:
    """The vectors of ids: [...] int32 -> [..., output_dim], in the activation type of variables.

    Args:
      indices: int32 or int64. A step with one that is negative, or not below `vocab_size`, raises IndexRangeError: see
        `mtf.check_indices`.
      vocab_dim: the dimension of the ids. A layout may split it.
      output_dim: the dimension of the vectors.
      vocab_size: how many ids there are, if `vocab_dim` is padded; see `embedding_weights`.
      initializer: by default normal with standard deviation 1.
      weights: a tensor over dimensions of the ids. Where it is 0, the id may be any number, and has a vector of zeros
        if it is outside the vocabulary.
      check_ids: whether ids are checked. If not, an id outside the vocabulary has a vector of zeros.
      name: the variable's name.

    Raises:
      ShapeError: `vocab_size` is not in 1 .. size of `vocab_dim`.
      DtypeError: the ids are not int32 or int64.

    Examples:
      >>> ids = mtf.zeros(mesh, "batch:4 length:16", tf.int32)
      >>> mtf.layers.embedding(ids, "vocab:128", "d_model:8").shape
      Shape[batch:4 length:16 d_model:8]
    """
    _checked_type(indices)
    table = embedding_weights(
        indices.mesh, vocab_dim, output_dim, vocab_size=vocab_size, initializer=initializer, name=name
    )
    vocab = table.shape[0]
    size = _true_size(vocab, vocab_size)
    if check_ids:
        _check_ids(indices, size, weights)
    return _looked_up(table, indices, vocab, size)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class VocabularyEmbedding:
    """One table [vocab, d_model] that turns ids into vectors and vectors into logits.

    A model with tied embeddings uses one table. A model without has two, under two names. The dimension `vocab` is
    padded to a multiple, so that it can be split. Logits of the padding are `MASKED_LOGIT`, without a gradient, so
    softmax, top-k and sampling never choose them. Checkpoints and parameter counts show the true size.

    Attributes:
      vocab_size: how many ids there are.
      multiple: the number of which `vocab` is a multiple.
      initializer: the table's, as for a dense layer that sums over d_model; by default normal of standard deviation 1.
      scale_embeddings: whether vectors are multiplied by sqrt(d_model) (Vaswani et al. 2017); or another factor.
      scale_logits: whether logits are divided by sqrt(d_model) (T5 with a tied table); or another factor.
      logit_cap: if given, logits become logit_cap · tanh(logits / logit_cap) (Gemma 2).
      use_output_bias: whether logits have a bias [vocab], zero at first (BERT).
      check_ids: whether an id outside the vocabulary raises IndexRangeError; if not, its vector is zeros.
      d_embedding: if given, the table is [vocab, d_embedding] (OPT). `projection_in` [d_embedding, d_model] multiplies
        its vectors, and `projection_out` [d_model, d_embedding] multiplies the vectors from which logits are made.
      name: the scope of `weights` [vocab, d_model], `bias` [vocab], and the projections.

    Examples:
      >>> vocabulary, d_model = mtf.layers.VocabularyEmbedding(vocab_size=1000), mtf.Dimension("d_model", 8)
      >>> h = vocabulary.ids_to_embedding(mtf.zeros(mesh, "length:16", tf.int32), d_model)
      >>> h.shape, vocabulary.hidden_to_logits(h).shape
      (Shape[length:16 d_model:8], Shape[length:16 vocab:1024])
    """

    vocab_size: int
    multiple: int = 128
    initializer: DenseInitializer | None = None
    scale_embeddings: bool | float = False
    scale_logits: bool | float = False
    logit_cap: float | None = None
    use_output_bias: bool = False
    check_ids: bool = True
    d_embedding: int | None = None
    name: str = "embedding"

    def __post_init__(self) -> None:
        check_kinds(self, GraphError)
        check_sizes(self, "vocab_size", "multiple", "d_embedding", error=GraphError)
        check_above_zero(self, "logit_cap", error=GraphError)

    @property
    def vocab(self) -> mtf.Dimension:
        """The padded dimension of logits."""
        return mtf.Dimension("vocab", padded_vocab_size(self.vocab_size, self.multiple))

    @overload
    def weights(self, mesh: mtf.Mesh, d_model: mtf.Dimension) -> mtf.Tensor: ...
    @overload
    def weights(self, d_model: mtf.Dimension) -> mtf.Tensor: ...
    @method_takes_mesh
    def weights(self, mesh: mtf.Mesh, d_model: mtf.Dimension) -> mtf.Tensor:
        """The table, [vocab, d_model], or [vocab, d_embedding]. The mesh may be left out."""
        make = self.initializer or NormalInitializer(stddev=1.0)
        width = self._width(d_model)
        summed, new = mtf.Shape([width]), mtf.Shape([self.vocab])
        with mtf.variable_scope(self.name):
            return embedding_weights(
                mesh, self.vocab, width, vocab_size=self.vocab_size, initializer=make(summed, new), name="weights"
            )

    @language_function
    def ids_to_embedding(
        self, ids: mtf.Tensor, d_model: mtf.Dimension, *, weights: mtf.Tensor | None = None, are_checked: bool = False
    ) -> mtf.Tensor:
        """The vectors of ids: [...] int32 -> [..., d_model].

        `weights` are as for `checked`. Set `are_checked` if the tensor from which the ids were made has been `checked`.
        """
        _checked_type(ids)
        if not are_checked:
            self.checked(ids, weights)
        vectors = _looked_up(self.weights(ids.mesh, d_model), ids, self.vocab, self.vocab_size)
        if self.d_embedding is not None:
            vectors = self._projected(vectors, d_model, "projection_in")
        return _scaled(vectors, self.scale_embeddings, math.sqrt(d_model.size))

    @language_function
    def checked(self, ids: mtf.Tensor, weights: mtf.Tensor | None = None) -> mtf.Tensor:
        """The ids. A step with an id outside the vocabulary raises IndexRangeError, unless `check_ids` is False.

        `weights` have the dimensions of the ids or some of them. Where they are 0, an id may be any number.
        """
        return _check_ids(ids, self.vocab_size, weights) if self.check_ids else ids

    @language_function
    def hidden_to_logits(self, x: mtf.Tensor, d_model: mtf.Dimension | None = None) -> mtf.Tensor:
        """The logits: [..., d_model] -> [..., vocab], in the dtype of x. `d_model` is x's last dimension by default."""
        summed = x.shape[d_model] if d_model is not None else x.shape[-1]
        weights = self.weights(x.mesh, summed).astype(x.dtype)
        # Scaling x and not the logits costs d_model products per token and not vocab products.
        x = _scaled(x, self.scale_logits, summed.size**-0.5)
        if self.d_embedding is not None:
            x, summed = self._projected(x, self._width(summed), "projection_out", summed), self._width(summed)
        logits = mtf.einsum([x, weights], output_shape=x.shape - [summed] + [self.vocab])
        if self.use_output_bias:
            logits += self._output_bias(x.mesh).astype(x.dtype)
        if self.logit_cap is not None:
            logits = mtf.tanh(logits * (1.0 / self.logit_cap)) * self.logit_cap
        # The mask comes last, so that neither bias nor cap changes the padding's logits.
        return mask_padded_logits(logits, self.vocab, self.vocab_size)

    def _width(self, d_model: mtf.Dimension) -> mtf.Dimension:
        return d_model if self.d_embedding is None else mtf.Dimension("d_embedding", self.d_embedding)

    def _projected(
        self, x: mtf.Tensor, new: mtf.Dimension, name: str, summed: mtf.Dimension | None = None
    ) -> mtf.Tensor:
        """x times a variable [summed, new]; `summed` is x's last dimension by default."""
        summed = summed or x.shape[-1]
        make = VarianceScalingInitializer()(mtf.Shape([summed]), mtf.Shape([new]))
        with mtf.variable_scope(self.name):
            kernel = mtf.get_variable(x.mesh, name, [summed, new], initializer=make)
        return mtf.einsum([x, kernel.astype(x.dtype)], output_shape=x.shape - [summed] + [new])

    def _output_bias(self, mesh: mtf.Mesh) -> mtf.Tensor:
        unpadded = mtf.Shape([(self.vocab.name, self.vocab_size)])
        with mtf.variable_scope(self.name):
            return mtf.get_variable(mesh, "bias", [self.vocab], initializer=mtf.zeros, unpadded_shape=unpadded)


@language_function
def mask_padded_logits(logits: mtf.Tensor, vocab_dim: DimensionLike, vocab_size: int) -> mtf.Tensor:
    """Logits [..., vocab_dim], with `MASKED_LOGIT` or the dtype's own limit from `vocab_size` on.

    Raises:
      ShapeError: the logits lack `vocab_dim`, or `vocab_size` is not in 1 .. its size.

    Examples:
      >>> logits = mtf.zeros(mesh, "vocab:4")
      >>> value(mtf.layers.mask_padded_logits(logits, "vocab", vocab_size=3)) == 0.0
      array([ True,  True,  True, False])
    """
    vocab = logits.shape[logits.shape.axis(vocab_dim)]
    if _true_size(vocab, vocab_size) == vocab.size:
        return logits
    is_entry = mtf.range(logits.mesh, vocab, tf.int32) < vocab_size
    # Half the limit: the logarithm of a sum can be subtracted from it without overflow.
    masked = max(MASKED_LOGIT, float(logits.dtype.min) / 2)
    return mtf.where(is_entry, logits, masked, output_shape=logits.shape)


def _looked_up(weights: mtf.Tensor, ids: mtf.Tensor, vocab_dim: mtf.Dimension, vocab_size: int) -> mtf.Tensor:
    if vocab_size < vocab_dim.size:
        # Without this, an id outside the vocabulary would train the padding.
        ids = mtf.where(ids < vocab_size, ids, -1)
    return mtf.gather(weights, ids, vocab_dim)


def _scaled(x: mtf.Tensor, scale: bool | float, by_default: float) -> mtf.Tensor:
    if scale is False:
        return x
    return x * (by_default if scale is True else scale)


def _checked_type(ids: mtf.Tensor) -> None:
    if checked_operand(ids, "the ids").dtype not in (tf.int32, tf.int64):
        raise DtypeError(f"ids must be int32 or int64, not {ids.dtype.name}; convert with mtf.cast")


def _check_ids(ids: mtf.Tensor, vocab_size: int, weights: mtf.Tensor | None) -> mtf.Tensor:
    return mtf.check_indices(ids, vocab_size, weights=weights, message="an id", advice=_IDS_ADVICE)


def _true_size(vocab_dim: mtf.Dimension, vocab_size: int | None) -> int:
    if vocab_size is None:
        return vocab_dim.size
    if not 1 <= vocab_size <= vocab_dim.size:
        raise ShapeError(f"vocab_size is {vocab_size}, and must be from 1 to the size of [{vocab_dim}]")
    return vocab_size
