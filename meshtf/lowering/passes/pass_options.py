"""The options of the passes: all that they need besides the plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.planning.process_spans import ProcessOfCore


@dataclasses.dataclass(frozen=True)
class PassOptions:
    """The user's choices, and the sizes from which on a change is worth its cost.

    Attributes:
      gradient_sum_dtype: the dtype in which gradients are summed over cores. None: each in its own.
      gathers_weights_again: whether weights that are kept split are gathered anew for each use.
      bucket_bytes: bytes of the largest bucket of small collectives. 0: each travels alone.
      compiles_programs: whether the program is compiled as a whole, and its loops with it.
      compile_loops: whether loops that ask for it are compiled.
      computes_on_one_device: whether all cores are virtual CPUs of one process, which compute on its first device.
      computes_on_processors: whether all cores are processors, on which TensorFlow executes operation by operation.
      process_of_core: the process of each core. Empty if one process has all cores.
      assigns: whether the plan assigns variables.
      trained: shapes of the trained variables, by name.
      smallest_divided_update: elements of the smallest variable whose update cores divide among themselves. Below, a
        second collective costs more than it saves.
      smallest_fused_update: elements of the largest slice from which on a program's updates become one instruction
        each, small ones too.
      least_compiled_iterations: how many a loop that is compiled must have. In decoding with a small Transformer,
        compiling takes about as much processor time as 130 iterations then save on one core, and 210 on eight virtual
        CPUs: with so many, it has paid after four to seven runs.
      smallest_added_in_place: bytes of the smallest slice of a stack of gradients that is added layer by layer: below,
        so many small additions cost more than the memory is worth.
      largest_bucket_member: bytes of the largest slice that travels with others within a process: copying a larger one
        costs more than a start saves.
      light_flops: the most FLOPs of light work: it may wait for a bucket to fill, and collectives never wait for it.
      most_bytes_ahead: how many bytes of a core's slices in collectives computing and communicating may be ahead of
        each other.
    """

    gradient_sum_dtype: tf.DType | None = None
    gathers_weights_again: bool = False
    bucket_bytes: int = 0
    compiles_programs: bool = False
    compile_loops: bool = True
    computes_on_one_device: bool = False
    computes_on_processors: bool = False
    process_of_core: ProcessOfCore = ()
    assigns: bool = True
    trained: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    smallest_divided_update: int = 1 << 14
    smallest_fused_update: int = 1 << 12
    least_compiled_iterations: int = 32
    smallest_added_in_place: int = 1 << 16
    largest_bucket_member: int = 1 << 17
    light_flops: int = 1 << 20
    most_bytes_ahead: int = 64 << 20


DEFAULT_PASS_OPTIONS = PassOptions()
