"""Tensors of four-bit numbers in blocks of 32, each block with a power of 2 (OCP Microscaling Formats, MXFP4).

A number is value · 2^(scale - 127), and bfloat16 holds it exactly. Each byte has two values, the lower half first:

    NAME_blocks  uint8 [experts, outputs, blocks, 16]
    NAME_scales  uint8 [experts, outputs, blocks]
    NAME         bfloat16 [experts, blocks * 32, outputs], as it is read
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.tensor_source import OfAnother, TensorSource, described
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError

QUANTIZATION = "quantization_config"
_METHOD = "mxfp4"
_BLOCKS, _SCALES = "_blocks", "_scales"
_BLOCK, _BYTES, _BIAS = 32, 16, 127
_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_VALUES = np.array([*_POSITIVE, *(-value for value in _POSITIVE)], np.float32)
_UNFIT = """\
the weights have {name}_blocks {blocks}, and {scales}; MXFP4 has uint8 [experts, outputs, blocks, 16], and \
{name}_scales uint8 [experts, outputs, blocks]; download the files again"""


@dataclasses.dataclass(frozen=True)
class Mxfp4Source(OfAnother):
    """A source in which blocks and their scales are one tensor of bfloat16.

    Attributes:
      tensors: the shapes and dtypes.
    """

    tensors: Mapping[str, SavedTensor]

    @classmethod
    def of(cls, source: TensorSource) -> Mxfp4Source:
        """Finds all pairs of blocks and scales. Raises CheckpointError if a pair does not fit together."""
        tensors = dict(source.tensors)
        for name in [n.removesuffix(_BLOCKS) for n in source.tensors if n.endswith(_BLOCKS)]:
            blocks, scales = tensors.pop(name + _BLOCKS), tensors.pop(name + _SCALES, None)
            _check(name, blocks, scales)
            experts, outputs, count, _ = blocks.shape
            tensors[name] = described((experts, count * _BLOCK, outputs), tf.bfloat16)
        return cls(source, tensors)

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        if name in self.source.tensors:
            return self.source.read(name, box)
        part = box or Box.whole(self.tensors[name].shape)
        (expert, first, output), (experts, inputs, outputs) = part.start, part.size
        begin, end = first // _BLOCK, -(-(first + inputs) // _BLOCK)
        within = Box((expert, output, begin), (experts, outputs, end - begin))
        scales = self.source.read(name + _SCALES, within).numpy().astype(np.int32) - _BIAS
        pairs = Box((*within.start, 0), (*within.size, _BYTES))
        numbers = _numbers(self.source.read(name + _BLOCKS, pairs).numpy(), scales)
        own = numbers[:, :, first - begin * _BLOCK :][:, :, :inputs]
        return tf.cast(tf.constant(own.transpose(0, 2, 1)), tf.bfloat16)


def without_blocks(configuration: Mapping[str, Any], source: TensorSource) -> tuple[dict[str, Any], TensorSource]:
    """The configuration and tensors of a model, with bfloat16 tensors instead of four-bit blocks, if it has any.

    An export writes an ordinary model, so the configuration no longer mentions the blocks.

    Raises:
      CheckpointError: if blocks and scales do not fit together.
    """
    said = configuration.get(QUANTIZATION)
    is_in_blocks = isinstance(said, Mapping) and said.get("quant_method") == _METHOD
    if not is_in_blocks or not any(name.endswith(_BLOCKS) for name in source.tensors):
        return dict(configuration), source
    return {key: value for key, value in configuration.items() if key != QUANTIZATION}, Mxfp4Source.of(source)


def _numbers(pairs: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """float32 [experts, outputs, blocks * 32], from uint8 [experts, outputs, blocks, 16] and int32 [experts, outputs,
    blocks]."""
    halves = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(*pairs.shape[:3], _BLOCK)
    return np.ldexp(_VALUES[halves], exponents[..., None]).reshape(*pairs.shape[:2], -1)


def _check(name: str, blocks: SavedTensor, scales: SavedTensor | None) -> None:
    is_fit = scales is not None and scales.dtype == blocks.dtype == tf.uint8
    if not is_fit or scales is None or blocks.shape != (*scales.shape, _BYTES) or len(scales.shape) != 3:
        told = "no scales" if scales is None else f"{name}{_SCALES} {scales}"
        raise CheckpointError(_UNFIT.format(name=name, blocks=blocks, scales=told))
