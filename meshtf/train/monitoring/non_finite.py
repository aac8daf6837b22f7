"""Finds where a NaN or an infinity began."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import meshtf as mtf
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.mesh_impl.slices import is_finite
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.train.side_program import side_program
from meshtf.train.step_programs import loss_and_gradients
from meshtf.train.training import Training

_EARLIER = """
An earlier update made it so. With Training.check_gradients = True training stops before such an update."""


@dataclasses.dataclass(frozen=True)
class _Flags:
    """Two facts of a tensor: whether it has a NaN, and whether it has any number that is not finite."""

    nan: mtf.Tensor
    non_finite: mtf.Tensor

    @classmethod
    def of(cls, x: mtf.Tensor) -> _Flags:
        return cls(mtf.reduce_any(mtf.not_equal(x, x)), mtf.reduce_any(mtf.logical_not(mtf.is_finite(x))))


def where_it_began(
    training: Training, mesh_impl: MeshImpl, variables: mtf.VariableStore, features: Mapping[str, Any]
) -> str | None:
    """Describes the first operation of a step whose result has a NaN, or else an infinity. Returns None if there is
    none.

    The step's loss and gradients are computed again from the present variables, and every result is checked in the
    order of the program. For a loop only the results after its end are checked. The optimizer assigns nothing, but the
    model may, and steps are counted. So do not use the variables afterwards.
    """
    tensors: list[mtf.Tensor] = []

    # It has the name of the training step, because random bits depend on this name.
    def train_step(**features: mtf.Tensor) -> list[tuple[mtf.Tensor, mtf.Tensor]]:
        loss, _ = loss_and_gradients(dataclasses.replace(training, num_microbatches=1), features)
        tensors.extend(t for o in loss.graph.operations for t in o.outputs if t.dtype.is_floating)
        flags = [_Flags.of(tensor) for tensor in tensors]
        return [(flag.nan, flag.non_finite) for flag in flags]

    program = side_program(train_step, training, mesh_impl, variables)
    flags = [(bool(nan), bool(non_finite)) for nan, non_finite in program(**features)]
    return _described(tensors, flags, features)


def first_non_finite_variable(variables: mtf.VariableStore) -> str | None:
    """Returns the name of a variable that holds a NaN or an infinity, or None. Each slice is checked on its device."""
    for name in variables:
        variable = variables.slices(name)
        if not variable.dtype.is_floating:
            continue
        parts = {str(variable.box(core)): piece for core, piece in variable.slices.items()}  # each box is checked once
        if not all(map(is_finite, parts.values())):
            return name
    return None


def _described(tensors: list[mtf.Tensor], flags: list[tuple[bool, bool]], features: Mapping[str, Any]) -> str | None:
    nan = next((t for t, (is_nan, _) in zip(tensors, flags, strict=True) if is_nan), None)
    non_finite = next((t for t, (_, is_non_finite) in zip(tensors, flags, strict=True) if is_non_finite), None)
    if non_finite is None:
        return None
    if nan is None:
        return f"The first infinity is in {_place(non_finite, features)}; there is no NaN."
    before = "" if non_finite is nan else f"\nAn infinity comes before it, in {_place(non_finite, features)}."
    earlier = _EARLIER if isinstance(nan.operation, mtf.Variable) else ""
    return f"The first NaN is in {_place(nan, features)}.{before}{earlier}"


def _place(x: mtf.Tensor, features: Mapping[str, Any]) -> str:
    operation = x.operation
    if isinstance(operation, InputOperation):
        return (
            f'the feature "{operation.name}" [{x.shape}] of the batch{_first_in(features.get(operation.name), x.shape)}'
        )
    kind = "variable " if isinstance(operation, mtf.Variable) else ""
    where = f"at {operation.site}" if operation.gradient_of is None else operation.where
    return f"{kind}{x!r}, {where}"


def _first_in(array: Any, shape: mtf.Shape) -> str:
    """Returns where the first NaN or infinity of a fed array is, by names of dimensions."""
    places = np.argwhere(~np.isfinite(np.asarray(array, np.float64))) if array is not None else []
    if not len(places):
        return ""
    return ", at " + ", ".join(f"{d.name} {n}" for d, n in zip(shape, places[0], strict=True))
