"""Local work by kernels that the platform has of its own, where a function of slices has a module for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.lowering.emit.core import TracedCore
from meshtf.ops.slicewise.kernel_function import EmittedFunction, KernelFunction
from meshtf.planning.plan import Compute
from meshtf.tensorflow_private.xla_operations import call_module


def compute_on(platform: str) -> Callable[[TracedCore, Compute, Sequence[tf.Tensor]], Any]:
    """The way to emit local work for a platform, by XLA's name for it; "" for any.

    An instruction with no kernel there is emitted in its plain form.
    """

    def compute(core: TracedCore, instruction: Compute, slices: Sequence[tf.Tensor]) -> Any:
        emit = instruction.emit
        if platform and isinstance(emit, EmittedFunction) and isinstance(emit.tf_fn, KernelFunction):
            module = emit.tf_fn.module(platform, [tf.TensorSpec(x.shape, x.dtype) for x in slices])
            if module is not None:
                kinds = [v.dtype for v in instruction.outputs]
                results = [tf.TensorSpec(size, dtype) for size, dtype in zip(emit.sizes, kinds, strict=True)]
                return emit.checked(call_module(slices, module, results, "TPU"))
        return emit(core, *slices)

    return compute
