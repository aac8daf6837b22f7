"""The kinds of accelerators that PJRT drives, in the words of messages."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of accelerator.

    Attributes:
      name: its name, "GPU" or "TPU".
      extra: the extra of meshtf that brings its runtime.
      virtual: the function that makes virtual ones of this machine's processors.
      counted_virtual: how messages count virtual ones, with their `number`.
      counted: how messages count real ones.
    """

    name: str
    extra: str
    virtual: str
    counted_virtual: str
    counted: str


TPU = Kind("TPU", "tpu", "mtf.virtual_tpu", "the virtual TPU {number}", "the TPU {number}")
GPU = Kind("GPU", "cuda13", "mtf.virtual_gpus", "{number} virtual GPUs are there", "GPUs that can be used: {number}")
