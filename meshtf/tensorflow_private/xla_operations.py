"""Operations of XLA, for functions that XLA compiles.

Public alternatives that are not sufficient: from `gen_xla_ops`, `tf.raw_ops` has only `XlaConcatND`, `XlaSplitND` and
the operations for sparse cores. `tf.xla` does not exist. Plain operations do not replace them either:

- `xla_call_module`: TensorFlow's graph optimizers rewrite the body of a called function, which changes last bits. XLA
  compiles the collectives of `tf.raw_ops` (`CrossReplicaSum`, `AllToAll`) only for TPUs, and they lack dtypes.
- `xla_replica_id`: no other operation returns the number of the core, in one program for all cores.
- `xla_optimization_barrier`: `tf.control_dependencies` do not reach the module that XLA compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

_MODULE_VERSION = 9
"""The version of the module format for `xla_call_module`."""


def call_module(
    arguments: Sequence[tf.Tensor], module: str | bytes, results: Sequence[tf.TensorSpec], platform: str
) -> Sequence[tf.Tensor]:
    """Runs a StableHLO module.

    Args:
      arguments: the arguments of the module's function `main`.
      module: the module as text, or serialized.
      results: the results' shapes and dtypes.
      platform: the platform for which XLA compiles it, such as CPU. A program that is only exported as HLO may run on
        another platform.
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
    """The same tensors, behind a barrier: none is available before all are computed, and XLA moves nothing across."""
    return list(cast("Any", gen_xla_ops).xla_optimization_barrier(input=list(tensors)))
