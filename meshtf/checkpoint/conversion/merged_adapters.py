"""Merges low-rank adapters into their kernels, part by part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.tensor_source import OfAnother
from meshtf.checkpoint.manifest import SavedTensor

A, B, SCALE = "_lora_a", "_lora_b", "_lora_scale"


@dataclasses.dataclass(frozen=True)
class MergedAdapters(OfAnother):
    """A `TensorSource` in which kernel + lora_scale · lora_a · lora_b replaces these four tensors."""

    @property
    def tensors(self) -> Mapping[str, SavedTensor]:
        return {name: tensor for name, tensor in self.source.tensors.items() if not self._is_adapter(name)}

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """A tensor, or a part of it, in the type of the kernel. The sum is computed in float64."""
        value = self.source.read(name, box)
        if name + A not in self.source.tensors:
            return value
        part = box or Box.whole(self.source.tensors[name].shape)
        a, b = self._factor(name + A, part, is_first=True), self._factor(name + B, part, is_first=False)
        added = np.tensordot(a, b, axes=1) * self.source.read(name + SCALE).numpy().astype(np.float64)
        return tf.cast(tf.constant(value.numpy().astype(np.float64) + added), value.dtype)

    def _factor(self, name: str, part: Box, *, is_first: bool) -> np.ndarray:
        """The piece of a factor that a part of the product needs."""
        shape = self.source.tensors[name].shape
        own = len(shape) - 1  # its dimensions beside the rank, which are the product's first or last ones
        if is_first:
            box = Box((*part.start[:own], 0), (*part.size[:own], shape[-1]))
        else:
            first = len(part.start) - own
            box = Box((0, *part.start[first:]), (shape[0], *part.size[first:]))
        return self.source.read(name, box).numpy().astype(np.float64)

    def _is_adapter(self, name: str) -> bool:
        """Whether a tensor is an adapter's, or an optimizer's state of one."""
        return any(ending in name and name.partition(ending)[0] in self.source.tensors for ending in (A, B, SCALE))
