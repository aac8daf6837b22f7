"""meshtf: tensors whose dimensions have names, laid out over a mesh of processors, as one SPMD TensorFlow program."""

from __future__ import annotations

import importlib
from types import ModuleType

from meshtf import errors, optimize
from meshtf.autodiff import gradients
from meshtf.control_flow import *  # noqa: F403
from meshtf.control_flow import __all__ as _control_flow
from meshtf.dimension import Dimension, Shape, combined_dimension, convert_to_dimension, convert_to_shape
from meshtf.function import Function, TensorSpec, function
from meshtf.graph import Graph, Mesh, Operation, Tensor, VariableDType, current_graph, variable_scope
from meshtf.layout import LayoutRules, TensorLayout, convert_to_layout_rules
from meshtf.lowering.lowering import Lowering
from meshtf.mesh_impl.spmd_mesh_impl import SpmdMeshImpl
from meshtf.mesh_impl.virtual_cpus import virtual_cpus
from meshtf.ops import *  # noqa: F403
from meshtf.ops import __all__ as _operations
from meshtf.variables import VariableStore
from meshtf.visualize import visualize_layout

_LAZY = ("layers", "models", "testing")


def __getattr__(name: str) -> ModuleType:
    """`mtf.layers`, `mtf.models` and `mtf.testing`, imported when they are first asked for."""
    if name in _LAZY:
        return importlib.import_module(f"meshtf.{name}")
    raise AttributeError(f"module 'meshtf' has no attribute {name!r}{errors.nearest(name, __all__)}")


__all__ = [
    "Dimension",
    "Function",
    "Graph",
    "LayoutRules",
    "Lowering",
    "Mesh",
    "Operation",
    "Shape",
    "SpmdMeshImpl",
    "Tensor",
    "TensorLayout",
    "TensorSpec",
    "VariableDType",
    "VariableStore",
    "combined_dimension",
    "convert_to_dimension",
    "convert_to_layout_rules",
    "convert_to_shape",
    "current_graph",
    "errors",
    "function",
    "gradients",
    "optimize",
    "variable_scope",
    "virtual_cpus",
    "visualize_layout",
    *_control_flow,
    *_operations,
]
