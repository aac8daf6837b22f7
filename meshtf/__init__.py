"""meshtf: tensors whose dimensions have names, laid out over a mesh of processors, as one SPMD TensorFlow program."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from meshtf import control_flow, errors, ops, optimize
from meshtf.annotations.element_types import (
    bf16,
    bool_,
    c64,
    c128,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
)
from meshtf.autodiff import gradients
from meshtf.backends.gpu_mesh_impl import GpuMeshImpl
from meshtf.backends.plan_mesh_impl import PlanMeshImpl
from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.backends.tpu_mesh_impl import TpuMeshImpl
from meshtf.cluster.initialize_cluster import initialize_cluster
from meshtf.contracts.checked import checked
from meshtf.control_flow import *
from meshtf.dimension import Dimension, Shape, combined_dimension, convert_to_dimension, convert_to_shape
from meshtf.function.function import function
from meshtf.function.program import Function
from meshtf.function.tensor_spec import TensorSpec
from meshtf.graph.graph import Graph, current_graph, variable_scope
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType
from meshtf.layout import LayoutRules, TensorLayout, convert_to_layout_rules
from meshtf.lowering.lowering import Lowering
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.mesh_options import MeshOptions
from meshtf.mesh_impl.pjrt.virtual_cores import virtual_gpus, virtual_tpu
from meshtf.mesh_impl.processor_groups import (
    pnum_to_group,
    pnum_to_processor_coordinates,
    processor_coordinates_to_pnum,
    processor_groups,
)
from meshtf.mesh_impl.virtual_cpus import virtual_cpus
from meshtf.ops import *
from meshtf.visualize import visualize_layout

_LAZY = ("checkpoint", "costs", "debug", "layers", "models", "quantization", "testing")

_OF_THE_SEARCH = ("LayoutChoice", "MeshLayout", "PricedLayout", "SearchEnd", "SearchProgress", "auto_layout")

if TYPE_CHECKING:
    from meshtf import checkpoint as checkpoint
    from meshtf import costs as costs
    from meshtf import debug as debug
    from meshtf import layers as layers
    from meshtf import models as models
    from meshtf import quantization as quantization
    from meshtf import testing as testing
    from meshtf.layout_search import LayoutChoice, MeshLayout, PricedLayout, SearchEnd, SearchProgress, auto_layout

    __version__: str
else:  # a type checker that saw this function would accept every name

    def __getattr__(name: str) -> Any:
        """Imports `mtf.checkpoint`, `mtf.costs`, `mtf.layers` and so on, and `mtf.auto_layout`, on first use.

        Reads `mtf.__version__` from the installed package.
        """
        if name == "__version__":
            return importlib.metadata.version("meshtf")
        if name in _LAZY or name in _OF_THE_SEARCH:
            gin = importlib.import_module("gin")  # a locked gin refuses new configurables, such as layers
            with gin.unlock_config():
                if name in _LAZY:
                    return importlib.import_module(f"meshtf.{name}")
                return getattr(importlib.import_module("meshtf.layout_search"), name)
        errors.unknown_name("meshtf", [*__all__, *_LAZY])(name)


__all__ = [
    "Dimension",
    "Function",
    "GpuMeshImpl",
    "Graph",
    "LayoutChoice",
    "LayoutRules",
    "Lowering",
    "Mesh",
    "MeshLayout",
    "MeshOptions",
    "Operation",
    "PlanMeshImpl",
    "PricedLayout",
    "SearchEnd",
    "SearchProgress",
    "Shape",
    "SpmdMeshImpl",
    "Tensor",
    "TensorLayout",
    "TensorSpec",
    "TpuMeshImpl",
    "VariableDType",
    "VariableStore",
    "auto_layout",
    "bf16",
    "bool_",
    "c64",
    "c128",
    "checked",
    "combined_dimension",
    "convert_to_dimension",
    "convert_to_layout_rules",
    "convert_to_shape",
    "current_graph",
    "errors",
    "f16",
    "f32",
    "f64",
    "function",
    "gradients",
    "i8",
    "i16",
    "i32",
    "i64",
    "initialize_cluster",
    "optimize",
    "pnum_to_group",
    "pnum_to_processor_coordinates",
    "processor_coordinates_to_pnum",
    "processor_groups",
    "u8",
    "variable_scope",
    "virtual_cpus",
    "virtual_gpus",
    "virtual_tpu",
    "visualize_layout",
]
__all__ += control_flow.__all__
__all__ += ops.__all__
