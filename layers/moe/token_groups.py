"""Groups of tokens, each of which is routed by itself."""

from __future__ import annotations

import dataclasses

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.layers.transformer.context import GROUPS, BatchPart

TOKENS = "tokens"

_SINGLE = "_groups"


@dataclasses.dataclass(frozen=True)
class TokenGroups:
    """The tokens of x [token_dims, d_model] as [.., group, tokens, d_model], in their order.

    Attributes:
      token_dims: all dimensions of x but its last.
      apart: the first of them, if tokens along it belong to different layers; else none.
      group: the dimension of the groups. It has the name of the first of the others, so that the rule that splits the
        batch splits the groups too, and no token moves.
      tokens: the dimension of a group's tokens.
    """

    token_dims: mtf.Shape
    group: mtf.Dimension
    tokens: mtf.Dimension
    apart: mtf.Shape = dataclasses.field(default_factory=lambda: mtf.Shape([]))

    @classmethod
    def of(cls, token_dims: mtf.Shape, group_size: int | None, part: BatchPart | None = None) -> TokenGroups:
        """Groups of equal size: parts of a sequence or whole ones, of at most `group_size` tokens; None: each sequence.

        A sequence is what one position of the first dimension holds. In a part of a batch, a position may hold several
        sequences. A part has the groups that the whole batch has.

        Raises:
          ShapeError: there are no dimensions of tokens.
        """
        if not token_dims.dims:
            raise ShapeError(
                "a mixture of experts needs a dimension that counts tokens, and x has only that of vectors"
            )
        apart, own = (0, 1) if part is None else (1, part.together)
        batch, length = token_dims[apart], token_dims[apart + 1 :].size // own
        num_sequences = batch.size if part is None else part.num_sequences
        size = group_size_within(num_sequences, length, group_size)
        group = mtf.Dimension(batch.name, token_dims[apart:].size // size)
        return cls(token_dims, group, mtf.Dimension(TOKENS, size), token_dims[:apart])

    @classmethod
    def single(cls, token_dims: mtf.Shape) -> TokenGroups:
        """All tokens in one group, whole on every core: the group of a step of decoding, whose tokens are few."""
        return cls(token_dims, mtf.Dimension(_SINGLE, 1), mtf.Dimension(TOKENS, token_dims.size))

    @property
    def at_experts(self) -> mtf.Dimension:
        """The dimension of the groups at the experts, which a rule for `groups` splits.

        A single group is whole there, too.
        """
        return self.group if self.group.name == _SINGLE else mtf.Dimension(GROUPS, self.group.size)

    @property
    def shape(self) -> mtf.Shape:
        return self.apart + [self.group, self.tokens]

    def grouped(self, x: mtf.Tensor) -> mtf.Tensor:
        """[token_dims, d_model] -> [.., group, tokens, d_model]."""
        return x.reshape(self.shape + x.shape[-1:])

    def ungrouped(self, y: mtf.Tensor) -> mtf.Tensor:
        """[.., group, tokens, d_model] -> [token_dims, d_model]."""
        return y.reshape(self.token_dims + y.shape[-1:])

    def is_routed(self, segments: mtf.Tensor | None) -> mtf.Tensor | None:
        """The tokens that are not padding, bool [.., group, tokens]; None without segments, if all are routed."""
        if segments is None:
            return None
        is_token = mtf.not_equal(segments, 0)
        return mtf.broadcast(is_token, self.token_dims).reshape(self.shape)


def group_size_within(num_sequences: int, length: int, group_size: int | None) -> int:
    """The tokens of a group, for a batch of `num_sequences` sequences of this length; see `TokenGroups.of`."""
    wanted = length if group_size is None else group_size
    if wanted < 2 * length:
        return _largest_divisor(length, wanted)
    return length * _largest_divisor(num_sequences, wanted // length)


def _largest_divisor(n: int, limit: int) -> int:
    """The largest divisor of n that is not above the limit."""
    return next(d for d in range(min(n, limit), 0, -1) if n % d == 0)
