"""The phases of a collective on a torus: along one axis of the torus after the other.

An allreduce of a tensor on a torus of 32 x 16 chips has three. A reduce-scatter goes along the first axis, an allreduce
of a 32nd of the bytes along the second, and an allgather along the first (Ying et al. 2018, "Image Classification at
Supercomputer Scale").

While one half of the bytes goes along the first axis, the other half begins on the second. So all links are busy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from meshtf.costs.placement import Extent


@dataclasses.dataclass(frozen=True, slots=True)
class TorusPhase:
    """A part of a collective along one axis of the torus.

    Attributes:
      kind: "reduce_scatter", "all_reduce" or "all_gather".
      extent: the chips along the axis.
      share: the bytes that each group of chips along this axis works on, as a share of the whole tensor.
    """

    kind: str
    extent: Extent
    share: float

    @property
    def received(self) -> float:
        """The bytes that each chip receives, as a share of the whole tensor."""
        passes = 2 if self.kind == "all_reduce" else 1
        return passes * self.share * (self.extent.chips - 1) / self.extent.chips

    def __str__(self) -> str:
        return f"{self.kind} along {self.extent.chips}"


def torus_phases(kind: str, extents: Sequence[Extent]) -> tuple[TorusPhase, ...]:
    """Returns the phases of a collective whose groups extend along these axes of a torus, for bytes that begin on the
    first.

    There are none for a kind that does not go axis by axis, such as "all_to_all".
    """
    if kind not in ("reduce_scatter", "all_gather", "all_reduce") or not extents:
        return ()
    shares = [1.0]
    for extent in extents[:-1]:
        shares.append(shares[-1] / extent.chips)
    steps = [*zip(extents, shares, strict=True)]
    if kind == "reduce_scatter":
        return tuple(TorusPhase(kind, *step) for step in steps)
    if kind == "all_gather":
        return tuple(TorusPhase(kind, *step) for step in reversed(steps))
    outer = steps[:-1]
    return (
        *(TorusPhase("reduce_scatter", *step) for step in outer),
        TorusPhase("all_reduce", *steps[-1]),
        *(TorusPhase("all_gather", *step) for step in reversed(outer)),
    )


def phases_text(kind: str, extents: Sequence[Extent]) -> str:
    """Returns `reduce_scatter along 32, all_reduce along 16, all_gather along 32`, or "" if there is only one phase."""
    phases = torus_phases(kind, extents)
    return ", ".join(map(str, phases)) if len(phases) > 1 else ""
