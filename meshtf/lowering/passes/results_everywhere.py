"""Gathers a program's results over the mesh axes that cross processes, so that every process has them whole.

For example, a result [batch:8/data hidden:4] on data:4 lies in two processes of two cores. An allgather over `data` is
added for it at the program's end. Within one process, the slices of a result are simply joined when the program ends.
"""

from __future__ import annotations

import dataclasses

from meshtf.layout import TensorLayout, axes_size
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.plan import Collective, Instruction, Plan, Value, walk
from meshtf.planning.process_spans import crossing_axes


def gather_results(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan on these processes, in which each process ends with the whole fetches.

    If one axis that splits a dimension crosses processes, the dimension is gathered over all axes that split it.
    """
    plan = dataclasses.replace(plan, process_of_core=options.process_of_core)
    if not options.process_of_core:
        return plan
    index = 1 + max((v.index for i, _ in walk(plan.instructions) for v in i.outputs), default=0)
    producers = {v: i for i in plan.instructions for v in i.outputs}
    added: list[Instruction] = []
    gathered: dict[Value, Value] = {}
    for fetch in dict.fromkeys(plan.fetches):
        value = fetch
        for dim, axes in enumerate(fetch.layout.axes):
            if crossing_axes(axes, plan.mesh_shape, options.process_of_core):
                result = _whole_along(value, dim, index, plan)
                added.append(Collective(producers[fetch].operation, AllGather(axes, dim), value, result))
                value, index = result, index + 1
        gathered[fetch] = value
    fetches = tuple(gathered[fetch] for fetch in plan.fetches)
    return dataclasses.replace(plan, instructions=(*plan.instructions, *added), fetches=fetches)


def _whole_along(value: Value, dim: int, index: int, plan: Plan) -> Value:
    """Returns the value with dimension number `dim` gathered."""
    axes, sizes = list(value.layout.axes), list(value.slice_shape)
    sizes[dim] *= axes_size(axes[dim], plan.mesh_shape)
    axes[dim] = ()
    return dataclasses.replace(value, index=index, layout=TensorLayout(tuple(axes)), slice_shape=tuple(sizes))
