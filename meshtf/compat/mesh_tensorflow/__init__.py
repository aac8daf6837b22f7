"""Mesh TensorFlow's names, for existing programs: `import meshtf.compat.mesh_tensorflow as mtf`.

As in the original, a program builds a TensorFlow graph and a session runs it.
"""

from typing import TYPE_CHECKING

from meshtf.compat.mesh_tensorflow import (
    _convolution_gradients,
    _functions,
    beam_search,
    layers,
    optimize,
    placement_mesh_impl,
    simd_mesh_impl,
    test_utils,
    transformer,
    utils,
)
from meshtf.compat.mesh_tensorflow._convolution_gradients import *
from meshtf.compat.mesh_tensorflow._dimension import (
    Dimension,
    Shape,
    combined_dimension,
    convert_to_dimension,
    convert_to_shape,
)
from meshtf.compat.mesh_tensorflow._functions import *
from meshtf.compat.mesh_tensorflow._graph import Graph, Mesh, Tensor
from meshtf.compat.mesh_tensorflow._hooks import MtfCheckpointSaverListener, MtfRestoreHook
from meshtf.compat.mesh_tensorflow._layout import LayoutRules, TensorLayout, convert_to_layout_rules
from meshtf.compat.mesh_tensorflow._lowering import Lowering
from meshtf.compat.mesh_tensorflow._mesh_impls import MeshImpl
from meshtf.compat.mesh_tensorflow._refused import refusing
from meshtf.compat.mesh_tensorflow._variables import (
    assign,
    assign_add,
    assign_add_slice,
    assign_slice,
    assign_sub,
    assign_sub_slice,
    get_master,
    get_variable,
)
from meshtf.compat.mesh_tensorflow.operations import made_operations
from meshtf.compat.mesh_tensorflow.operations.generic_grad_operation import GenericGradOperation
from meshtf.compat.mesh_tensorflow.operations.lazy_allreduce_sum import LazyAllreduceSum
from meshtf.compat.mesh_tensorflow.operations.made_operations import *
from meshtf.compat.mesh_tensorflow.operations.operation import Operation
from meshtf.compat.mesh_tensorflow.runs.updates import Updates
from meshtf.graph.variable_dtype import VariableDType
from meshtf.mesh_impl.processor_groups import (
    pnum_to_group,
    pnum_to_processor_coordinates,
    processor_coordinates_to_pnum,
    processor_groups,
)

__all__ = [
    "Dimension",
    "GenericGradOperation",
    "Graph",
    "LayoutRules",
    "LazyAllreduceSum",
    "Lowering",
    "Mesh",
    "MeshImpl",
    "MtfCheckpointSaverListener",
    "MtfRestoreHook",
    "Operation",
    "Shape",
    "Tensor",
    "TensorLayout",
    "Updates",
    "VariableDType",
    "assign",
    "assign_add",
    "assign_add_slice",
    "assign_slice",
    "assign_sub",
    "assign_sub_slice",
    "beam_search",
    "combined_dimension",
    "convert_to_dimension",
    "convert_to_layout_rules",
    "convert_to_shape",
    "get_master",
    "get_variable",
    "layers",
    "optimize",
    "placement_mesh_impl",
    "pnum_to_group",
    "pnum_to_processor_coordinates",
    "processor_coordinates_to_pnum",
    "processor_groups",
    "simd_mesh_impl",
    "test_utils",
    "transformer",
    "utils",
]
__all__ += _convolution_gradients.__all__
__all__ += _functions.__all__
__all__ += made_operations.__all__


_SLICES = "derive from mtf.Operation, whose lower works on slices"

_REPLACEMENTS = {
    "auto_mtf": "a layout of your own, with meshtf.PlanMeshImpl to compare, or meshtf.auto_layout",
    "log_variable_sizes": "print(lowering.report())",
    "parallel": "an operation of the language: every core runs the same program",
    "NumpyConverter": "mtf.test_utils.NumpyConverter",
    "LazyLaidOutTensor": _SLICES,
    "compatible_lazy_allreduce_sums": _SLICES,
    "convert_args_to_laid_out_tensors": _SLICES,
    "import_laid_out_tensor": "mtf.import_tf_tensor of the whole tensor",
    "ImportLaidOutTensorOperation": "mtf.import_tf_tensor of the whole tensor",
    "StackedVariable": "nothing: small variables are updated together without being stacked",
}

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = refusing(__name__, __all__, _REPLACEMENTS)

# It has all names above.
from meshtf.compat.mesh_tensorflow import ops  # noqa: E402

ops_with_redefined_builtins = ops
