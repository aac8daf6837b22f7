"""The options of the passes: all that they need besides the plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.planning.process_spans import ProcessOfCore
from meshtf.thresholds import (
    ADDED_IN_PLACE_BYTES,
    COMPILED_ITERATIONS,
    FUSED_UPDATE_ELEMENTS,
    OPERATION_BYTES,
    OPERATION_FLOPS,
    SMALL_ELEMENTS,
)


@dataclasses.dataclass(frozen=True)
class PassOptions:
    """The user's choices, and the sizes above which a change is worth its cost. `meshtf.thresholds` has the reasons.

    Attributes:
      gradient_sum_dtype: the dtype in which gradients are summed over cores. None: each in its own.
      gathers_weights_again: whether weights that are kept split are gathered again for each use.
      bucket_bytes: bytes of the largest bucket of small collectives. 0: each collective travels alone.
      compiles_programs: whether the program is compiled as a whole, and its loops with it.
      refuses_compiled_loops: why no loop is compiled by itself, as words that follow its name. Empty: loops may be.
      most_instructions: the most instructions of a program whose loops over layers are unrolled. 0: they stay loops.
      computes_on_one_device: whether all cores are virtual CPUs of one process, which compute on its first device.
      process_of_core: the process of each core. Empty if one process has all cores.
      assigns: whether the plan assigns variables.
      trained: shapes of the trained variables, by name.
      smallest_divided_update: elements of the smallest variable whose update cores divide among themselves.
      smallest_fused_update: if the largest slice of an update has this many elements, all updates of the program become
        one instruction each.
      least_compiled_iterations: the least number of iterations of a compiled loop.
      smallest_added_in_place: bytes of the smallest slice of a stack of gradients that is added layer by layer.
      largest_bucket_member: bytes of the largest slice that travels with others within a process.
      light_flops: the most FLOPs of light work: it may wait for a bucket to fill, and collectives never wait for it.
      most_bytes_ahead: the bytes of a core's slices in collectives by which computing and communicating may run ahead
        of each other. It bounds memory.
    """

    gradient_sum_dtype: tf.DType | None = None
    gathers_weights_again: bool = False
    bucket_bytes: int = 0
    compiles_programs: bool = False
    refuses_compiled_loops: str = ""
    most_instructions: int = 0
    computes_on_one_device: bool = False
    process_of_core: ProcessOfCore = ()
    assigns: bool = True
    trained: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    smallest_divided_update: int = SMALL_ELEMENTS
    smallest_fused_update: int = FUSED_UPDATE_ELEMENTS
    least_compiled_iterations: int = COMPILED_ITERATIONS
    smallest_added_in_place: int = ADDED_IN_PLACE_BYTES
    largest_bucket_member: int = OPERATION_BYTES
    light_flops: int = OPERATION_FLOPS
    most_bytes_ahead: int = 64 << 20


DEFAULT_PASS_OPTIONS = PassOptions()
