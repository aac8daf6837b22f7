"""Which cores would make the same of a plan, so that one of them can make it for all."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from meshtf.mesh_impl.home_device import home_device
from meshtf.planning import core_positions
from meshtf.planning.plan import Plan


def alike_cores(plan: Plan, devices: Mapping[int, str]) -> dict[int, int]:
    """By core, an earlier one that is at home on the same device and assigns and fetches the same slices. A core that
    has no such one is not there; none is, where cores communicate, which takes all of them.

    Args:
      plan: of a program.
      devices: by core, of the cores in this process.
    """
    if plan.collectives:
        return {}
    layouts = [*(i.input.layout for i in plan.assignments), *(value.layout for value in plan.fetches)]
    differing = tuple(dict.fromkeys(axis for layout in layouts for axis in itertools.chain(*layout.axes)))
    found: dict[int, int] = {}
    first: dict[tuple[str, int], int] = {}
    for core, device in devices.items():
        place = home_device(device), core_positions.position(core, differing, plan.mesh_shape)
        if first.setdefault(place, core) != core:
            found[core] = first[place]
    return found
