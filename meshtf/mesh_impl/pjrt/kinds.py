"""The kinds of accelerators that PJRT supports, with their names in messages."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of accelerator.

    Attributes:
      name: its name, "GPU" or "TPU".
      extra: the extra of meshtf that installs its runtime.
      virtual: the function that makes virtual ones on this machine's processors.
      counted_virtual: the text for several virtual ones in messages, with their `number`.
      counted: the text for several real ones in messages.
    """

    name: str
    extra: str
    virtual: str
    counted_virtual: str
    counted: str


TPU = Kind("TPU", "tpu", "mtf.virtual_tpu", "the virtual TPU {number}", "the TPU {number}")
GPU = Kind("GPU", "cuda13", "mtf.virtual_gpus", "{number} virtual GPUs are there", "GPUs that can be used: {number}")
