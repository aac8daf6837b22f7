"""Operations of XLA, in a function that XLA compiles.

Public ways that do not do: `tf.raw_ops` has none of `gen_xla_ops` but `XlaConcatND`, `XlaSplitND` and those of sparse
cores. `tf.xla` does not exist. Plain operations in place of each:

- `xla_call_module`: TensorFlow's graph optimizers see into a function that is called, and change its last bits. The
  collectives of `tf.raw_ops` that XLA compiles (`CrossReplicaSum`, `AllToAll`) do so for TPUs alone, and lack dtypes.
- `xla_replica_id`: nothing else tells a core its number inside of one program for all cores.
- `xla_optimization_barrier`: nothing of `tf.control_dependencies` is left in what XLA compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

_MODULE_VERSION = 9
"""The version of the format in which `xla_call_module` takes modules."""


def call_module(
    arguments: Sequence[tf.Tensor], module: str | bytes, results: Sequence[tf.TensorSpec], platform: str
) -> Sequence[tf.Tensor]:
    """Runs a StableHLO module.

    Args:
      arguments: the arguments of the module's function `main`.
      module: the module as text, or serialized.
      results: the results' shapes and dtypes.
      platform: the platform for which XLA compiles it, such as CPU. A program that is only handed on as HLO may have
        another one.
    """
    return cast("Any", gen_xla_ops).xla_call_module(
        arguments,
        version=_MODULE_VERSION,
        module=module,
        Sout=[result.shape for result in results],
        Tout=[result.dtype for result in results],
        platforms=[platform],
        disabled_checks=["platform"],
    )


def replica_id() -> tf.Tensor:
    """The number of the core that runs the program: int32 scalar."""
    return cast("tf.Tensor", gen_xla_ops.xla_replica_id())


def tied_together(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same tensors, none of which is there before all are made: XLA moves nothing from one side to the other."""
    return list(cast("Any", gen_xla_ops).xla_optimization_barrier(input=list(tensors)))
