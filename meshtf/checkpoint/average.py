"""The mean of several checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.tensor_source import TensorSource
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError, counted

_SCALE = "_scale"
_QUANTIZED = """\
the checkpoints have {count}, the first {first}, and integers with different scales have no mean: average the \
checkpoints from which these were made, and quantize the result"""


@dataclasses.dataclass(frozen=True)
class Average:
    """A source whose tensors are the means over several sources. Its step, state and integer tensors are those of the
    last source.

    Floating and complex tensors are summed in double precision.

    Raises:
      CheckpointError: if a source does not have the same tensors as the last one. Or if there are several sources with
        quantized tensors: these are integers, each of which has a meaning only with the scale of its own source.
    """

    sources: Sequence[TensorSource]

    def __post_init__(self) -> None:
        wanted = _facts(self.sources[-1])
        for number, source in enumerate(self.sources[:-1], start=1):
            other = sorted(name for name, _ in _facts(source).items() ^ wanted.items())
            if other:
                raise CheckpointError(
                    f"checkpoint {number} of {len(self.sources)} (step {source.step}) differs from the last in its "
                    f"tensors' names, shapes or types: {', '.join(dict.fromkeys(other))}"
                )
        tensors = self.sources[-1].tensors
        quantized = [name for name, tensor in tensors.items() if tensor.dtype.is_integer and name + _SCALE in tensors]
        if quantized and len(self.sources) > 1:
            raise CheckpointError(
                _QUANTIZED.format(count=counted(len(quantized), "quantized tensor"), first=quantized[0])
            )

    @property
    def step(self) -> int:
        return self.sources[-1].step

    @property
    def state(self) -> Mapping[str, Any]:
        return self.sources[-1].state

    @property
    def tensors(self) -> Mapping[str, SavedTensor]:
        return self.sources[-1].tensors

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """Returns the mean of a tensor, or of a part of it."""
        dtype = self.tensors[name].dtype
        if not (dtype.is_floating or dtype.is_complex):
            return self.sources[-1].read(name, box)
        wide = tf.complex128 if dtype.is_complex else tf.float64
        total = tf.cast(self.sources[0].read(name, box), wide)
        for source in self.sources[1:]:
            total += tf.cast(source.read(name, box), wide)
        return tf.cast(total / len(self.sources), dtype)


def _facts(source: TensorSource) -> dict[str, str]:
    return {name: str(tensor) for name, tensor in source.tensors.items()}
