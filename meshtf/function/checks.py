"""Checks of the arguments of `mtf.function`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from meshtf.annotations.tensor_annotation import TensorAnnotation
from meshtf.contracts.hints import name_of
from meshtf.errors import GraphError, UsageError, nearest
from meshtf.function.tensor_spec import TensorSpec
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.mesh_impl import check_mesh_impl, is_mesh_impl
from meshtf.number_checks import is_seed


def check_arguments(fn: object, mesh_impl: object, inputs: object) -> None:
    if is_mesh_impl(fn) and callable(mesh_impl):
        raise GraphError(
            "the function comes first: mtf.function(fn, mesh_impl); @mtf.function(mesh_impl) decorates one"
        )
    if not callable(fn):
        raise GraphError(f"the first argument must be a function over mtf.Tensors, not {type(fn).__name__}")
    if mesh_impl is None:
        raise GraphError(
            f"{name_of(fn)} needs a mesh: write mtf.function({name_of(fn)}, mesh_impl), or decorate it with "
            f"@mtf.function(mesh_impl)"
        )
    check_mesh_impl(mesh_impl)
    if inputs is not None and not isinstance(inputs, Mapping):
        raise GraphError(f"inputs must be a dict from names to mtf.TensorSpecs, not {type(inputs).__name__}")
    for name, spec in (inputs or {}).items():
        if not isinstance(spec, TensorSpec | TensorAnnotation):
            raise GraphError(
                f'input "{name}" must be an mtf.TensorSpec, not {type(spec).__module__}.{type(spec).__name__}'
            )


def check_state(variables: object, seed: object, max_plans: object) -> None:
    if variables is not None and not isinstance(variables, VariableStore):
        raise UsageError(f"variables must be an mtf.VariableStore, not {type(variables).__name__}")
    if not is_seed(seed):
        raise UsageError(f"seed must be a whole number of 64 bits, and is {seed!r}")
    if not isinstance(max_plans, int) or isinstance(max_plans, bool) or max_plans < 1:
        raise UsageError(f"max_plans must be a whole number of at least 1, and is {max_plans!r}")


def check_parameters(fn: Callable[..., Any], specs: Iterable[str]) -> None:
    """Raises GraphError unless a function's parameters are the names of its inputs, and perhaps `mesh`."""
    try:
        parameters = inspect.signature(fn).parameters
    except ValueError:
        raise GraphError(f"{fn!r} does not name its parameters; give a function written in Python") from None
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    names = list(specs)
    for name in names:
        if name not in parameters:
            raise GraphError(f'inputs names "{name}", which {name_of(fn)} does not take{nearest(name, parameters)}')
        if parameters[name].kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise GraphError(f'{name_of(fn)} takes "{name}" by position alone, and inputs are given by name')
    missing = _unnamed(parameters, names)
    if missing == "self":
        raise GraphError(f"{name_of(fn)} is a method; give that of an object: mtf.function(x.{name_of(fn)}, mesh_impl)")
    if missing:
        raise GraphError(
            f'{name_of(fn)} takes "{missing}", which inputs does not name'
            f"{nearest(missing, names) or f'; name it there, or annotate it: {missing}: {EXAMPLE}'}"
        )


EXAMPLE = 'mtf.f32["batch:64 hidden:8"]'


def _unnamed(parameters: Mapping[str, inspect.Parameter], names: Container[str]) -> str:
    """The first required parameter that is no input; empty if there is none."""
    must = (n for n, p in parameters.items() if p.default is inspect.Parameter.empty)
    return next((n for n in must if n not in names and n != "mesh"), "")
