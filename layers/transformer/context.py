"""The facts about tokens that the sublayers of a stack need in addition to their vectors."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionMask, BeamSlots, PositionBias, Tokens
from meshtf.layers.attention.caches.pages import PageView


@dataclasses.dataclass(frozen=True)
class Memory:
    """The memory to which cross-attention attends.

    Attributes:
      x: an encoder's output, [.., length, d_model].
      tokens: its tokens, over `length`.
    """

    x: mtf.Tensor
    tokens: Tokens


BATCH = "batch"
GROUPS = "groups"
"""The name of the dimension of a batch's groups of tokens where they are at the experts."""


@dataclasses.dataclass(frozen=True)
class BatchPart:
    """The part of a batch that a layer in a pipeline sees: tokens [stage, batch, length], or [stage, batch, sequences,
    length].

    Along the first dimension, tokens belong to different layers, and each layer has a part of the batch.

    Attributes:
      num_sequences: the sequences of the whole batch.
      together: the sequences that one position of `batch` holds. They are neighbours in the batch.
    """

    num_sequences: int
    together: int = 1


@dataclasses.dataclass(frozen=True)
class Context:
    """The facts about the tokens of one call of a stack.

    Attributes:
      mask: who sees whom in self-attention; a sublayer may narrow it to a window.
      tokens: the tokens of x. In a step of decoding they are one token's, without `length`.
      positions: int32 [.., length], the position of each token in its own sequence, for rotary embeddings. None if no
        sublayer needs it.
      is_training: whether to apply dropout.
      bias: makes a bias from positions, the same in all layers.
      memory: the memory of cross-attention.
      part: the part of a batch to which the tokens belong, in a pipeline.
      max_length: the number of positions for which `fill` makes room in the state; None for only those that it reads.
      lengths: int32 [..], the length of each sequence, for rotary embeddings that depend on it; None: that of `length`.
      slots: the places of each hypothesis's keys and values, in a step of a beam search whose caches stay in place.
      depth: float32 [], 0 in the first layer and 1 in the last, in training with dropout that grows.
      pages: where rows have their keys and values, in a step whose caches lie in pages.
    """

    mask: AttentionMask
    tokens: Tokens
    positions: mtf.Tensor | None = None
    is_training: bool = False
    bias: PositionBias | None = None
    memory: Memory | None = None
    part: BatchPart | None = None
    max_length: int | None = None
    lengths: mtf.Tensor | None = None
    slots: BeamSlots | None = None
    depth: mtf.Tensor | None = None
    pages: PageView | None = None

    @property
    def is_bidirectional(self) -> bool:
        """Whether tokens see what is ahead of them."""
        return not self.mask.is_causal or self.mask.sees_prefix


@dataclasses.dataclass(frozen=True)
class DecodingSpace:
    """The room for state while tokens are decoded one by one.

    Attributes:
      mesh: the program's mesh.
      batch_dims: the sequences' dimensions, such as [batch], or [batch, beam].
      max_length: the number of positions of the longest sequence.
      dtype: the dtype of activations.
      beam: the batch dimension of a beam search. After each step, state tensors that have it are reordered as the
        hypotheses are. State tensors that have `beam_slots` instead stay as they are, and the step's `Context.slots`
        says where each hypothesis has its own. None if sequences keep their order, or all state is reordered.
      is_paged: whether the state has the positions of all sequences in pages: `max_length` is their number, and there
        are no batch dimensions.
    """

    mesh: mtf.Mesh
    batch_dims: mtf.Shape
    max_length: int
    dtype: tf.DType = tf.float32
    beam: mtf.Dimension | None = None
    is_paged: bool = False
