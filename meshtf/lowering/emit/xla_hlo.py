"""The HLO of a plan: what TensorFlow gives to XLA's compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import context

from meshtf.errors import CompilationError
from meshtf.lowering.emit._xla_emission import emit_for_xla
from meshtf.lowering.emit._xla_refusals import refusal, size_from_values
from meshtf.lowering.emit.scopes import origins
from meshtf.planning.plan import AssignVariable, Plan, ReadVariable


def hlo_of(plan: Plan, program: str) -> bytes:
    """A serialized HloModuleProto, for as many replicas as the mesh has cores. No TPU is needed, and none asked.

    Its parameters are the feeds, then the core's slices of the variables. Its results are the slices of the fetches,
    the index of the failed check, then the slices of the variables that are assigned, each aliased to its parameter.

    Raises:
      CompilationError: XLA cannot compile an operation; names it and the user's line.
    """
    signature = [tf.TensorSpec(f.output.slice_shape, f.output.dtype) for f in plan.feeds]
    with tf.init_scope(), tf.device("/device:CPU:0"):
        handles = [variable.handle for variable in _stand_ins(plan)]

        def core_program(*feeds: tf.Tensor) -> list[tf.Tensor]:
            return emit_for_xla(plan, feeds, handles)

        concrete = tf.function(core_program, jit_compile=True, autograph=False).get_concrete_function(*signature)
        try:
            # What the public `experimental_get_compiler_ir` calls, which also draws from the user's seeded random
            # numbers.
            hlo: bytes = cast("Any", context.context()).get_compiler_ir(
                device_name="",
                platform_name="CPU",
                function_name=concrete.name,
                flat_args=signature,
                captured_inputs=concrete.captured_inputs,
                stage="hlo_serialized",
            )
        except (ValueError, tf.errors.OpError) as error:
            raise CompilationError(refusal(str(error), program, origins(plan.instructions))) from None
    fault = size_from_values(hlo, program, origins(plan.instructions))
    if fault is not None:
        raise CompilationError(fault)
    return hlo


def _stand_ins(plan: Plan) -> list[tf.Variable]:
    """For each variable one of a slice's shape, which is never written, and so takes no memory."""
    values = _slices(plan)
    return [
        tf.Variable(tf.raw_ops.Empty(shape=values[name][0], dtype=values[name][1], init=False), trainable=False)
        for name in plan.variable_names
    ]


def _slices(plan: Plan) -> Mapping[str, tuple[tuple[int, ...], tf.DType]]:
    """Shape and dtype of a core's slice of each variable."""
    accesses: list[AssignVariable | ReadVariable] = [*plan.assignments, *plan.reads]
    values = {i.name: i.output if isinstance(i, ReadVariable) else i.input for i in accesses}
    return {name: (value.slice_shape, value.dtype) for name, value in values.items()}
