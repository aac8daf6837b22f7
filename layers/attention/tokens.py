"""The facts about tokens that attention needs in addition to their vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import meshtf as mtf
from meshtf.errors import DtypeError

LENGTH, MEMORY_LENGTH, D_KV = "length", "memory_length", "d_kv"


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The positions of tokens, and the segments to which they belong.

    A field is None if it is unknown. The mask must then not need it.

    Each field is int32 over `length` (queries), over `memory_length` (memory), or over neither (the one query of a
    decoding step), and over any other dimensions of q and k, such as `batch`. Tensors without `batch` make masks
    without it.

    Attributes:
      positions: the index in the sequence, or the position in the segment. Only differences within a segment matter, so
        both give the same result; the index needs no `batch`.
      segments: 0 for padding, which no token sees. Tokens see their own segment.
      is_prefix: 1 for tokens that their whole segment sees, under a mask that `sees_prefix`.

    Examples:
      >>> h, segments = mtf.ones(mesh, "batch:4 length:16 d_model:8"), mtf.ones(mesh, "batch:4 length:16", tf.int32)
      >>> tokens = mtf.layers.Tokens.along(h, segments)
      >>> tokens.positions.shape, tokens.segments.shape
      (Shape[length:16], Shape[batch:4 length:16])
    """

    positions: mtf.Tensor | None = None
    segments: mtf.Tensor | None = None
    is_prefix: mtf.Tensor | None = None

    def __post_init__(self) -> None:
        for name, tensor in self.given().items():
            if not tensor.dtype.is_integer:
                raise DtypeError(
                    f"Tokens: {name} [{tensor.shape}] must be integers, not {tensor.dtype.name}; convert with mtf.cast"
                )

    @classmethod
    def along(cls, x: mtf.Tensor, segments: mtf.Tensor | None = None, is_prefix: mtf.Tensor | None = None) -> Tokens:
        """Tokens whose position is their index along the `length` of x.

        Raises:
          ShapeError: x has no `length`.
        """
        return cls(mtf.range(x.mesh, x.shape[LENGTH]), segments, is_prefix)

    def as_memory(self) -> Tokens:
        """The same tokens as a memory: `length` becomes `memory_length`."""
        return self.map(as_memory)

    def map(self, fn: Callable[[mtf.Tensor], mtf.Tensor]) -> Tokens:
        """The tokens with `fn` applied to every tensor that is given."""
        return Tokens(**{name: fn(tensor) for name, tensor in self.given().items()})

    def given(self) -> dict[str, mtf.Tensor]:
        """The tensors that are not None, by their names."""
        fields = {"positions": self.positions, "segments": self.segments, "is_prefix": self.is_prefix}
        return {name: tensor for name, tensor in fields.items() if tensor is not None}


def distance_ahead(query_positions: mtf.Tensor, memory_positions: mtf.Tensor) -> mtf.Tensor:
    """How far the memory's tokens are ahead of the queries: [dimensions of the queries, then the memory's]."""
    shape = query_positions.shape + [d for d in memory_positions.shape if not query_positions.shape.has(d)]
    return mtf.sub(memory_positions, query_positions, output_shape=shape)


def is_index(positions: mtf.Tensor | None, name: str) -> bool:
    """Whether it is known while the graph is built that positions are 0, 1, 2, .. along the dimension of this name."""
    return positions is not None and positions.shape.dimension_names == [name] and mtf.is_range(positions)


def as_memory(x: mtf.Tensor) -> mtf.Tensor:
    """x with its `length` renamed to `memory_length`, if it has one."""
    return x.rename({LENGTH: MEMORY_LENGTH}) if x.shape.has(LENGTH) else x


def as_sequence(x: mtf.Tensor) -> mtf.Tensor:
    """x with its `memory_length` renamed to `length`, if it has one."""
    return x.rename({MEMORY_LENGTH: LENGTH}) if x.shape.has(MEMORY_LENGTH) else x
