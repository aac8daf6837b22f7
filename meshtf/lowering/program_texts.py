"""Describes a program in texts, so that processes that must run the same program can find where their programs
differ."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.host_array import host_array
from meshtf.lowering.feeding import inputs_of
from meshtf.planning.plan import Plan, walk

if TYPE_CHECKING:
    from meshtf.lowering.lowering import Lowering

_SHOWN = 8
"""The number of elements up to which an array is written out. A larger one is described by a digest."""

_PLAIN = (bool, int, float, complex, str, type(None), tf.DType)


def program_texts(lowering: Lowering, plan: Plan) -> dict[str, str]:
    """The texts that must be the same in all processes, keyed by name, such as mesh, layouts, seed and instructions.

    Operations are described with their numbers and texts, and with the user's line. The line's folder is left out,
    since it may differ between hosts. Numbers inside a user's functions are not seen.
    """
    mesh_impl = lowering.mesh_impl
    inputs = [f"{o.name}: {o.outputs[0].shape} {o.outputs[0].dtype.name}" for o in inputs_of(plan)]
    return {
        "mesh": f"[{mesh_impl.shape}] on {', '.join(mesh_impl.devices)}",
        "layout": str(mesh_impl.layout_rules),
        "mesh options": "\n".join(
            f"{f.name}={getattr(mesh_impl.options, f.name)}" for f in dataclasses.fields(mesh_impl.options)
        ),
        "seed": str(lowering.seed),
        "inputs": "\n".join(inputs),
        "graph": "\n".join(_described(o) for o in lowering.graph.operations),
        "plan": "\n".join(_instruction_line(i) for i, _ in walk(plan.instructions)),
    }


def _instruction_line(instruction: Any) -> str:
    made = ", ".join(map(str, instruction.outputs))
    used = ", ".join(f"%{v.index}" for v in instruction.inputs)
    step = getattr(instruction, "step", getattr(instruction, "kind", ""))
    return f"{made} = {type(instruction).__name__} {step} of {used} for {instruction.operation.name}"


def _described(operation: Operation) -> str:
    outputs = ", ".join(f"[{x.shape}] {x.dtype.name}" for x in operation.outputs)
    inputs = ", ".join(x.name for x in operation.inputs)
    site = operation.site
    where = f"{os.path.basename(site.filename)}:{site.line}"
    facts = ", ".join(f"{k}={text}" for k, v in sorted(vars(operation).items()) if (text := _text(v)) is not None)
    return f"{operation.name} = {type(operation).__name__}({inputs}) {outputs}, at {where}; {facts}"


def _text(value: Any) -> str | None:
    """The text of a field of an operation; None if the text would add nothing to the others."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, np.ndarray | np.generic | tf.Tensor):
        array = host_array(value)
        if array.size <= _SHOWN:
            return f"{array.dtype.name} {array.tolist()}"
        return f"{array.dtype.name}{list(array.shape)} of digest {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"
    if isinstance(value, tuple | list) and value and not isinstance(value[0], Operation | Tensor):
        texts = [_text(x) for x in value]
        return None if None in texts else f"({', '.join(t for t in texts if t)})"
    return None
