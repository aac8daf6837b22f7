"""The part of attention that depends on the tokens' positions: who sees whom, and with what bias."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.field_checks import check_kinds
from meshtf.layers.attention.mask import AttentionMask, check_segments
from meshtf.layers.attention.tokens import Tokens


class PositionBias(Protocol):
    """Makes the bias of logits from positions as in `Tokens`: a tensor over their dimensions and perhaps heads.

    It is called once for each place that makes logits, for example once per block. Variables are made before.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> learned: mtf.layers.PositionBias = mtf.layers.RelativePositionBias.make(config, is_bidirectional=False)
      >>> query, memory = mtf.range(mesh, ("length", 6)), mtf.range(mesh, ("memory_length", 6))
      >>> learned(query, memory).shape
      Shape[heads:2 length:6 memory_length:6]
    """

    def __call__(self, query_positions: mtf.Tensor, memory_positions: mtf.Tensor, /) -> mtf.Tensor: ...


@dataclasses.dataclass(frozen=True)
class AttentionPattern:
    """A mask and a bias, with the tokens that they are evaluated for.

    Attributes:
      mask: who sees whom.
      query: the tokens that see.
      memory: the tokens that are seen, over `memory_length`.
      bias: added to the logits; None for none.

    Raises:
      GraphError: the queries have segments, and the memory has none.

    Examples:
      >>> source, target = mtf.ones(mesh, "batch:4 length:6", tf.int32), mtf.ones(mesh, "batch:4 length:9", tf.int32)
      >>> of_source = mtf.layers.Tokens(segments=source).as_memory()
      >>> mtf.layers.AttentionPattern(query=mtf.layers.Tokens(segments=target), memory=of_source).memory.segments
      rename_dimension [batch:4 memory_length:6] int32
    """

    mask: AttentionMask = dataclasses.field(default_factory=AttentionMask)
    query: Tokens = dataclasses.field(default_factory=Tokens)
    memory: Tokens = dataclasses.field(default_factory=Tokens)
    bias: PositionBias | None = None

    def __post_init__(self) -> None:
        check_kinds(self, GraphError)
        # Here and not where scores are made: attention in blocks gives the memory segments if it pads it.
        check_segments(self.query, self.memory)

    @classmethod
    def within(cls, tokens: Tokens, mask: AttentionMask, bias: PositionBias | None = None) -> AttentionPattern:
        """The pattern of self-attention: the tokens, over `length`, are the memory too."""
        return cls(mask, tokens, tokens.as_memory(), bias)
