"""Loops, branches and recomputation: operations with blocks of operations inside."""

from meshtf.control_flow.cond import cond
from meshtf.control_flow.custom_gradient import custom_gradient
from meshtf.control_flow.layer_stacks.layer_stack import layer_stack
from meshtf.control_flow.layer_stacks.layers_abreast import LayersAbreast, layers_abreast
from meshtf.control_flow.loops.pipeline_steps import PipelineSteps
from meshtf.control_flow.loops.scan import scan
from meshtf.control_flow.loops.serialize_training_step import serialize_training_step
from meshtf.control_flow.loops.while_loop import while_loop
from meshtf.control_flow.recompute_grad import recompute_grad
from meshtf.control_flow.recompute_policy import RecomputePolicy
from meshtf.control_flow.vmap import vmap

__all__ = [
    "LayersAbreast",
    "PipelineSteps",
    "RecomputePolicy",
    "cond",
    "custom_gradient",
    "layer_stack",
    "layers_abreast",
    "recompute_grad",
    "scan",
    "serialize_training_step",
    "vmap",
    "while_loop",
]
