"""Loops, branches and recomputation: operations with blocks of operations inside."""

from meshtf.control_flow.associative_scan import associative_scan
from meshtf.control_flow.cond import cond
from meshtf.control_flow.custom_gradient import custom_gradient
from meshtf.control_flow.layer_stacks.layer_stack import layer_stack
from meshtf.control_flow.layer_stacks.vectorized_layers import VectorizedLayers, vectorized_layers
from meshtf.control_flow.loops.pipeline_steps import PipelineSteps
from meshtf.control_flow.loops.scan import scan
from meshtf.control_flow.loops.serialize_training_step import serialize_training_step
from meshtf.control_flow.loops.while_loop import while_loop
from meshtf.control_flow.recompute_grad import recompute_grad
from meshtf.control_flow.recompute_policy import RecomputePolicy
from meshtf.control_flow.vmap import vmap

__all__ = [
    "PipelineSteps",
    "RecomputePolicy",
    "VectorizedLayers",
    "associative_scan",
    "cond",
    "custom_gradient",
    "layer_stack",
    "recompute_grad",
    "scan",
    "serialize_training_step",
    "vectorized_layers",
    "vmap",
    "while_loop",
]
