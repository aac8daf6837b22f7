"""The HLO of a plan, which TensorFlow passes to XLA's compiler."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from meshtf.errors import CompilationError
from meshtf.lowering.emit.scopes import origins
from meshtf.lowering.emit.xla.emission import assigned_names, emit_for_xla
from meshtf.lowering.emit.xla.oversized import oversized, says_oversized
from meshtf.lowering.emit.xla.refusals import refusal, size_from_values
from meshtf.planning.plan import AssignVariable, Plan, ReadVariable
from meshtf.tensorflow_private import xla_modules

_PRODUCTS = ("dot", "convolution")
_NO_HLO = "its HLO takes more than the 2 GiB in which one can be handed over"


def hlo_of(plan: Plan, program: str, product_precision: str | None = None, platform: str = "") -> bytes:
    """Compiles a plan to a serialized HloModuleProto, with one replica for each core. No TPU is needed or contacted.

    Its parameters are the feeds, in the layouts that they have in the plan; the index of a check that failed in an
    earlier run, or -1; and the core's slices of the variables. Its results are the slices of the fetches, the index of
    the failed check, then the slices of the variables that are assigned, each aliased to its parameter.

    Args:
      plan: the instructions of each core.
      program: the program's name, for messages.
      product_precision: the precision of its products, one of `mesh_options.PRODUCT_PRECISIONS`; None: "default".
      platform: XLA's name of the platform that runs the program, whose own kernels the program may use; "": any
        platform, without such kernels.

    Raises:
      CompilationError: XLA cannot compile an operation, which is named with the user's line; or the program is itself
        too large.
    """
    signature = [tf.TensorSpec(f.output.slice_shape, f.output.dtype) for f in plan.feeds]
    first = len(signature) + 1
    signature.append(tf.TensorSpec([], tf.int32))
    # Variables are arrays here too. As TensorFlow variables, a core's slices would take memory on this machine.
    signature += [tf.TensorSpec(shape, dtype) for shape, dtype in kept_slices(plan).values()]
    with tf.init_scope(), tf.device("/device:CPU:0"):

        def core_program(*given: tf.Tensor) -> list[tf.Tensor]:
            return emit_for_xla(plan, given[: first - 1], given[first:], given[first - 1], platform)

        concrete = tf.function(core_program, jit_compile=True, autograph=False).get_concrete_function(*signature)
        try:
            hlo = xla_modules.hlo_of(concrete, signature)
        except (ValueError, tf.errors.OpError) as error:
            if says_oversized(str(error)):
                raise CompilationError(oversized(str(error), program, "XLA", plan)) from None
            raise CompilationError(refusal(str(error), program, origins(plan.instructions))) from None
    if not hlo:  # TensorFlow returns this if it cannot serialize the module
        raise CompilationError(oversized(_NO_HLO, program, "XLA", plan))
    fault = size_from_values(hlo, program, origins(plan.instructions))
    if fault is not None:
        raise CompilationError(fault)
    return _canonical(hlo, plan, first, xla_modules.PRECISIONS[product_precision or "default"])


def _canonical(hlo: bytes, plan: Plan, first: int, precision: int) -> bytes:
    """Normalizes a program: its bytes no longer depend on what TensorFlow traced before, and it uses nothing that
    StableHLO lacks. New slices of variables alias the old ones, which are the parameters from number `first` on.
    Products get this `precision`."""
    module = xla_modules.parsed_hlo(hlo)
    for number, name in enumerate(assigned_names(plan)):
        module.input_output_alias.entries.add(
            output_shape_index=[len(plan.fetches) + 1 + number],
            parameter_number=first + plan.variable_names.index(name),
            kind=xla_modules.MAY_ALIAS,
        )
    for number, computation in enumerate(module.computations):
        computation.name = f"computation_{number}"  # TensorFlow's name counts the functions of the process
        if computation.id == module.entry_computation_id:
            module.name = module.entry_computation_name = computation.name
        kinds = {instruction.id: instruction.shape.element_type for instruction in computation.instructions}
        for instruction in computation.instructions:
            if instruction.opcode == "copy":  # TensorFlow adds it to results
                instruction.opcode = "reshape"
            is_float8 = any(kinds[operand] == xla_modules.FLOAT8 for operand in instruction.operand_ids)
            if instruction.opcode in _PRODUCTS and not is_float8:  # a float8 product's precision is its module's
                instruction.precision_config.operand_precision[:] = [precision] * len(instruction.operand_ids)
    module.id = 0
    return module.SerializeToString(deterministic=True)


def kept_slices(plan: Plan) -> Mapping[str, tuple[tuple[int, ...], tf.DType]]:
    """Shape and dtype of a core's slice of each variable, in the order of `plan.variable_names`."""
    accesses: list[AssignVariable | ReadVariable] = [*plan.assignments, *plan.reads]
    values = {i.name: i.output if isinstance(i, ReadVariable) else i.input for i in accesses}
    return {name: (values[name].slice_shape, values[name].dtype) for name in plan.variable_names}
