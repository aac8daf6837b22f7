"""Running a plan on a mesh of devices: variables made at first use, the step's lock, errors in the user's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python import pywrap_tfe  # no public name tells whether a GradientTape is recording
from tensorflow.python.ops import control_flow_util  # nor whether an outer function is compiled by XLA

from meshtf.errors import NonFiniteError, UsageError
from meshtf.graph import Operation
from meshtf.lowering.emission import NO_CHECK_FAILED, EmittedProgram
from meshtf.lowering.plan import AssignVariable, Collective, Instruction, Plan, ReadVariable
from meshtf.mesh_impl.collective_runtime import step_in_progress
from meshtf.mesh_impl.step_errors import translate
from meshtf.variables import handles

if TYPE_CHECKING:
    from meshtf.lowering.lowering import Lowering

_UNDER_TAPE = """\
program "{name}" was called while a tf.GradientTape is recording, which cannot see into it.
Take gradients inside the program, with mtf.gradients, and call it outside the tape (or under tape.stop_recording())."""

_UNDER_XLA = """\
program "{name}" was called inside a tf.function(jit_compile=True), which cannot compile its collectives.
Call it eagerly, or from a tf.function without jit_compile."""


class Execution:
    """A plan that can be called. Nothing is traced and no variable is made before the first call."""

    def __init__(self, plan: Plan, lowering: Lowering) -> None:
        self.plan = plan
        self._lowering = lowering
        self._name = lowering.graph.name
        self._program: EmittedProgram | None = None

    @property
    def program(self) -> EmittedProgram:
        """The emitted program. Makes the variables that are not there yet, and gives them their initial values."""
        if self._program is None:
            store, mesh_impl = self._lowering.variables, self._lowering.mesh_impl
            ensure_variables(self.plan, self._lowering)
            self._program = EmittedProgram(self.plan, mesh_impl, handles(store, self.plan.variable_names))
        return self._program

    def __call__(self, feeds: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Runs the program once.

        Raises:
          UsageError: under a GradientTape or jit_compile, or while another thread is inside a step.
          NonFiniteError: a `check_finite` of the program found a NaN or an infinity; nothing was assigned.
          CollectiveError: a collective failed or timed out.
        """
        self._check_surroundings()
        with step_in_progress(f'program "{self._name}"'):
            program = self.program
            try:
                results, failed = program(feeds)
                self._raise_failed_check(failed)
            except tf.errors.OpError as error:
                raise translate(error, origins(self.plan.instructions)) from None
        return results

    def _raise_failed_check(self, failed: tf.Tensor) -> None:
        if not self.plan.checks:
            return
        if not tf.executing_eagerly():
            # Inside a tf.function nothing can be raised now: the assertion fails when the function runs.
            for index, check in enumerate(self.plan.checks):
                tf.debugging.assert_none_equal(failed, index, message=_check_text(check.message, check.operation))
            return
        index = int(failed)
        if index != NO_CHECK_FAILED:
            check = self.plan.checks[index]
            raise NonFiniteError(_check_text(check.message, check.operation))

    def _check_surroundings(self) -> None:
        if not pywrap_tfe.TFE_Py_TapeSetIsEmpty():
            raise UsageError(_UNDER_TAPE.format(name=self._name))
        if not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(
            tf.compat.v1.get_default_graph()
        ):
            raise UsageError(_UNDER_XLA.format(name=self._name))


def ensure_variables(plan: Plan, lowering: Lowering) -> None:
    """Makes the variables of a plan that the store lacks and computes their initial values, slice by slice."""
    from meshtf.lowering.initial_values import initialize

    store, mesh_impl = lowering.variables, lowering.mesh_impl
    missing = []
    for name in plan.variable_names:
        variable = lowering.graph.variables[name]
        if name in store:
            store.check_fits(variable, mesh_impl)  # type: ignore[arg-type]
        else:
            missing.append(variable)
    layouts = {i.name: (i.output if isinstance(i, ReadVariable) else i.input).layout for i in _accesses(plan)}
    if missing:
        initialize(missing, layouts, lowering)


def _accesses(plan: Plan) -> list[ReadVariable | AssignVariable]:
    return [*plan.assignments, *plan.reads]


def origins(instructions: Sequence[Instruction]) -> dict[str, str]:
    """For the name scope of each collective: its operation and the user's line."""
    return {
        f"collective_{number}": f"{i.operation.name}, at {i.operation.site}"
        for number, i in enumerate(instructions)
        if isinstance(i, Collective)
    }


def _check_text(message: str, operation: Operation) -> str:
    return f"{message}\n  in operation {operation.name}\n  at {operation.site}\n  nothing was assigned in this step"
