"""What the sublayers of a stack know of the tokens beside their vectors."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionMask, BeamSlots, PositionBias, Tokens


@dataclasses.dataclass(frozen=True)
class Memory:
    """What cross-attention attends to.

    Attributes:
      x: an encoder's output, [.., length, d_model].
      tokens: over its `length`.
    """

    x: mtf.Tensor
    tokens: Tokens


BATCH = "batch"
GROUPS = "groups"
"""What layers call the groups of a batch's tokens where they are at the experts."""


@dataclasses.dataclass(frozen=True)
class BatchPart:
    """Of a layer in a pipeline: tokens [stage, batch, length], or [stage, batch, sequences, length].

    Along the first dimension they belong to different layers, and each of these has a part of the batch.

    Attributes:
      num_sequences: of the whole batch.
      together: sequences, neighbours in the batch, that one position of `batch` holds.
    """

    num_sequences: int
    together: int = 1


@dataclasses.dataclass(frozen=True)
class Context:
    """Of the tokens of one call of a stack.

    Attributes:
      mask: who sees whom in self-attention; a sublayer may narrow it to a window.
      tokens: those of x. In a step of decoding they have no `length`, and are one token's.
      positions: int32, of each token in its own sequence, [.., length]: what rotary embeddings turn by. None where no
        sublayer asks.
      is_training: whether dropout drops.
      bias: by positions, the same in all layers.
      memory: of cross-attention.
      part: which part of a batch the tokens are, in a pipeline.
      max_length: where tokens are read before others are decoded: positions of the longest sequence, for which their
        state has room. None for no more than are read.
      slots: in a step of a beam search whose states stay where they are: where each hypothesis has its own.
    """

    mask: AttentionMask
    tokens: Tokens
    positions: mtf.Tensor | None = None
    is_training: bool = False
    bias: PositionBias | None = None
    memory: Memory | None = None
    part: BatchPart | None = None
    max_length: int | None = None
    slots: BeamSlots | None = None

    @property
    def is_bidirectional(self) -> bool:
        """Whether tokens see what is ahead of them."""
        return not self.mask.is_causal or self.mask.sees_prefix


@dataclasses.dataclass(frozen=True)
class DecodingSpace:
    """The room that there is while tokens are decoded one by one.

    Attributes:
      mesh: of the program.
      batch_dims: of the sequences, such as [batch], or [batch, beam].
      max_length: positions of the longest sequence.
      dtype: of activations.
      beam: of the batch dimensions, that of a beam search. After each step a state that has it is put in the order of
        the hypotheses. One that has `beam_slots` in its place stays as it is, and the step's `Context.slots` tells
        where each hypothesis has its own. None where sequences stay, or all states are put in order.
    """

    mesh: mtf.Mesh
    batch_dims: mtf.Shape
    max_length: int
    dtype: tf.DType = tf.float32
    beam: mtf.Dimension | None = None
