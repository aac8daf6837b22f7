"""The kernels of its own that the platform of a program has, as far as a graph is told of them.

A layer may compute something in several ways that differ in nothing but cost, such as attention. Some platforms have a
kernel for one of them. The graph carries what the mesh says, so that a layer can choose that way. The choice changes no
result beyond rounding, and every way runs on every platform.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class PlatformKernels:
    """The platform whose kernels a program may have, by XLA's name for it; and the dimensions that rules split.

    A kernel that takes a dimension whole is of no use where a layout splits it.
    """

    platform: str = ""
    split: frozenset[str] = frozenset()


NO_KERNELS = PlatformKernels()
"""Says that the platform has no kernels of its own, or that it is not known."""
