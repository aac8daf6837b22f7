"""The plans of a program: one for each choice of the sizes that its signature leaves open."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.errors import GraphError, UsageError, counted
from meshtf.function.signature import Sizes
from meshtf.function.tracing import Traced, Tracing
from meshtf.garbage_collection import garbage_collection_paused
from meshtf.graph.tensor import Tensor
from meshtf.lowering.execution import Execution
from meshtf.lowering.feeding import Fed, check_feeds, inputs_of
from meshtf.lowering.lowering import Lowering
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.report.memory.memory_check import check_memory
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.ops.side_effects.summaries import Summary, wanted_summaries, write_summaries
from meshtf.ops.variables.variable import Variable

_LOGGER = logging.getLogger("meshtf")

_IN_TF_FUNCTION = """\
program "{name}" has variables and was built inside a tf.function, which would make them again at each trace; build \
it outside and call it inside, or give it variables=mtf.VariableStore() from outside"""

_OPEN_VARIABLE = """\
variable "{variable.full_name}" [{variable.shape}], made at {variable.site}, has dimension "{dim}", whose size the
inputs of program "{name}" leave open, but a variable has one size for all calls; state it in the annotation of an
input, as "{dim}:{size}\""""

_OTHER_VARIABLE = """\
variable "{variable.full_name}", made at {variable.site}, is {variable.spec} for {sizes}, and {first.spec} for {before}:
a variable has one shape for all calls, so it must not follow a size that the inputs of program "{name}" leave open"""

_TOO_MANY = """\
program "{name}" has {count}, for {known}, and was called for {sizes}; pad its inputs to one of these sizes, or allow
more with mtf.function(..., max_plans={more})"""


Prepared: TypeAlias = tuple[Execution, list[Fed], Sequence[Summary]]
"""The execution to run, the arrays to feed it, and the summaries that it returns after the results."""


class PlannedProgram:
    """A program whose inputs have known sizes."""

    def __init__(self, lowering: Lowering, traced: Traced) -> None:
        self.lowering = lowering
        self.traced = traced
        self.fetches = traced.fetches
        self.execution: Execution = lowering.execution(self.fetches)
        self._fits_besides: int | None = None
        self._imported_tensors: dict[InputOperation, Fed] = {}

    @property
    def name(self) -> str:
        return self.lowering.graph.name

    def check_memory(self, besides: int = 0) -> None:
        """Checks that the memory that is left is enough for the program beside this many bytes.

        An earlier call may have found it enough beside as many bytes or more. Then there is nothing to check.
        """
        if self._fits_besides is None or besides > self._fits_besides:
            lowering = self.lowering
            check_memory(self.execution.plan, lowering.mesh_impl, self.name, lowering.variables, besides)
            self._fits_besides = besides

    def prepared(self, feeds: Mapping[str, Any]) -> Prepared:
        """Checks the arrays of a call, keyed by input, and returns what is needed to run it."""
        self.check_memory()
        inputs = self.traced.inputs
        summaries, execution = wanted_summaries(self.lowering.graph), self.execution
        if summaries:
            execution = self.lowering.execution([*self.fetches, *(s.tensor for s in summaries)])
        needed = inputs_of(execution.plan)
        known = {**inputs, **{o.name: o for o in needed}}
        keeps_arrays = self.lowering.mesh_impl.takes_arrays and tf.executing_eagerly()
        checked = check_feeds([*inputs.values()], feeds, known, self.name, keeps_arrays=keeps_arrays)
        by_operation = dict(zip(inputs.values(), checked, strict=True))
        arrays = [by_operation[o] if o in by_operation else self._imported(o) for o in needed]
        return execution, arrays, summaries

    def _imported(self, operation: InputOperation) -> Fed:
        """The array of an input that was imported with a value: always the same tensor, so that cores can keep it."""
        array = self._imported_tensors.get(operation)
        if array is None or not tf.executing_eagerly():
            (array,) = check_feeds([operation], {}, {operation.name: operation}, self.name)
            if tf.executing_eagerly():
                self._imported_tensors[operation] = array
        return array

    def returned(self, results: Sequence[tf.Tensor], summaries: Sequence[Summary]) -> Any:
        """Returns the function's results, with arrays instead of its tensors. Also writes the summaries."""
        write_summaries(summaries, results[len(self.fetches) :])
        structure = self.traced.results
        if isinstance(structure, Tensor):  # the most frequent case; TensorFlow's walk takes ten times as long
            return results[0]
        fetched = iter(results)
        return tf.nest.map_structure(lambda x: next(fetched) if isinstance(x, Tensor) else x, structure)


@dataclasses.dataclass
class ProgramPlans:
    """Makes and keeps the plans of a program on one mesh. All share its variables, its seed and its count of steps.

    Attributes:
      may_have_variables: whether the store outlives the traces of a tf.function.
      latest: the plan that was used last; None if there is none yet.
    """

    tracing: Tracing
    mesh_impl: MeshImpl
    store: VariableStore
    seed: int
    pass_options: PassOptions
    max_plans: int
    may_have_variables: bool = True

    def __post_init__(self) -> None:
        self._plans: dict[Sizes, PlannedProgram] = {}
        self.latest: PlannedProgram | None = None

    @says_where
    def at(self, sizes: Sizes) -> PlannedProgram:
        """The plan for these sizes. It is made at the first call.

        Raises:
          UsageError: there are `max_plans` plans for other sizes.
          GraphError: a variable has a dimension of an open size.
          LayoutError: the layout does not fit these sizes.
        """
        planned = self._plans.get(sizes)
        if planned is None:
            planned = self._planned(sizes)
        self.latest = planned
        return planned

    def sizes_of(self, planned: PlannedProgram) -> Sizes:
        """The sizes that a plan of this program is for."""
        return next(sizes for sizes, own in self._plans.items() if own is planned)

    @garbage_collection_paused()
    def _planned(self, sizes: Sizes) -> PlannedProgram:
        name, count = self.tracing.program_name, len(self._plans)
        if count >= self.max_plans:
            known = ", ".join(map(_shown, self._plans))
            raise UsageError(
                _TOO_MANY.format(
                    name=name, count=counted(count, "plan"), known=known, sizes=_shown(sizes), more=2 * count
                )
            )
        traced = self.tracing.at(sizes)
        self._check_variables(traced, sizes)
        if traced.mesh.graph.variables and not self.may_have_variables:
            raise UsageError(_IN_TF_FUNCTION.format(name=name))
        lowering = Lowering(traced.mesh.graph, {traced.mesh: self.mesh_impl}, self.store, self.seed, self.pass_options)
        planned = self._plans[sizes] = PlannedProgram(lowering, traced)
        if count:
            _LOGGER.warning(
                'program "%s" is planned for %s, too: plan %d of at most %d',
                name,
                _shown(sizes),
                count + 1,
                self.max_plans,
            )
        return planned

    def _check_variables(self, traced: Traced, sizes: Sizes) -> None:
        name, open_dims = self.tracing.program_name, self.tracing.signature.open_dimensions
        for key, variable in traced.mesh.graph.variables.items():
            assert isinstance(variable, Variable)
            for dim in variable.shape:
                if dim.name in open_dims:
                    fact = _OPEN_VARIABLE.format(variable=variable, dim=dim.name, size=dim.size, name=name)
                    raise GraphError(fact)
            for before, plan in self._plans.items():
                first = plan.lowering.graph.variables.get(key)
                if isinstance(first, Variable) and not first.spec.is_alike(variable.spec):
                    shown = {"sizes": _shown(sizes), "before": _shown(before)}
                    raise GraphError(_OTHER_VARIABLE.format(variable=variable, first=first, name=name, **shown))


def _shown(sizes: Sizes) -> str:
    return " ".join(f"{name}:{size}" for name, size in sizes) or "its inputs"
