"""Emits local work as the platform's own kernels, if the work has a module for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from meshtf.lowering.emit.core import TracedCore
from meshtf.planning.plan import Compute, HasModule
from meshtf.tensorflow_private.xla_operations import call_module

LocalCompute: TypeAlias = Callable[[TracedCore, Compute, Sequence[tf.Tensor]], Any]
"""Emits local work, and returns the slice, or the slices, of its outputs."""


def compute_on(platform: str) -> LocalCompute:
    """The function that emits local work for a platform, given by XLA's name; "" for any platform.

    An instruction with no kernel there is emitted in its plain form.
    """

    def compute(core: TracedCore, instruction: Compute, slices: Sequence[tf.Tensor]) -> Any:
        emit = instruction.emit
        if platform and isinstance(emit, HasModule):
            module = emit.module(platform, [tf.TensorSpec(x.shape, x.dtype) for x in slices])
            if module is not None:
                results = [tf.TensorSpec(v.slice_shape, v.dtype) for v in instruction.outputs]
                return call_module(slices, module, results, "TPU")
        return emit(core, *slices)

    return compute
