"""The platform-specific kernels that a graph may use.

A layer such as attention may have several implementations that differ only in cost. Some platforms have a kernel for
one of them. The mesh tells the graph its platform, so that a layer can choose that implementation. The choice changes
no result beyond rounding, and every implementation runs on every platform.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class PlatformKernels:
    """The platform whose kernels a program may use, by XLA's name for it, and the dimensions that rules split.

    A kernel that needs a dimension whole is useless if a layout splits the dimension.
    """

    platform: str = ""
    split: frozenset[str] = frozenset()

    @property
    def is_cuda(self) -> bool:
        """Whether the platform is that of NVIDIA's GPUs."""
        return self.platform == "cuda"


NO_KERNELS = PlatformKernels()
"""The value for a platform that is unknown or has no kernels of its own."""
