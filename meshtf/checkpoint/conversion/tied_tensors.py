"""Tied tensors, which a file may hold twice, such as an embedding that is also the table for logits.

Transformers ties two tensors if the configuration says so, unless the file has both and they differ. If the file has
only the copy, the copy is used as the original.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.tensor_source import OfAnother, TensorSource
from meshtf.checkpoint.manifest import SavedTensor

_PART_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True)
class WithoutCopies(OfAnother):
    """A source without copies: a tensor is left out if it equals the tensor to which it is tied.

    Attributes:
      names: the name of each tensor in the source.
      tensors: their shapes and dtypes.
    """

    names: Mapping[str, str]
    tensors: Mapping[str, SavedTensor]

    @classmethod
    def of(cls, source: TensorSource, tied: Mapping[str, str], prefix: str) -> WithoutCopies:
        """Compares the values of each pair, part by part.

        Args:
          source: the source of the tensors.
          tied: the original of each copy.
          prefix: a prefix that names in the source may have or lack.
        """
        names = {name: name for name in source.tensors}
        known = {*tied, *tied.values()}
        for copy, original in tied.items():
            whole = {prefix + name if prefix + name in known else name: name for name in names}
            if copy not in whole:
                continue
            if original not in whole:
                names[original] = names.pop(whole[copy])
            elif _are_equal(source, names[whole[copy]], names[whole[original]]):
                del names[whole[copy]]
        found = source.tensors
        return cls(source, names, {name: found[own] for name, own in names.items()})

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        return self.source.read(self.names[name], box)


def _are_equal(source: TensorSource, first: str, second: str) -> bool:
    """Whether two tensors hold the same bytes."""
    one, other = source.tensors[first], source.tensors[second]
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    rows = one.shape[0] if one.shape else 1
    step = max(1, _PART_BYTES * rows // max(1, one.num_bytes))
    boxes = [
        Box((begin, *(0 for _ in one.shape[1:])), (min(step, rows - begin), *one.shape[1:]))
        for begin in range(0, rows, step)
    ]
    return all(
        source.read(first, box).numpy().tobytes() == source.read(second, box).numpy().tobytes()
        for box in (boxes if one.shape else [Box.whole(one.shape)])
    )
