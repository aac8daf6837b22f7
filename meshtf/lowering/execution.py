"""Runs a plan on a mesh. Its program and its variables are made at first use."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import tensorflow as tf

from meshtf.call_sites import user_site
from meshtf.errors import CollectiveError, ExecutionError, GraphError, MeshtfError, UsageError, nearest
from meshtf.layout import TensorLayout
from meshtf.lowering.emit.feeds_and_fetches import NO_CHECK_FAILED
from meshtf.lowering.feeding import Fed
from meshtf.lowering.initial_values import initialize
from meshtf.lowering.make_plan import first_failure
from meshtf.lowering.program_texts import program_texts
from meshtf.lowering.slicewise_failure import slicewise_failure
from meshtf.lowering.variable_store import handles
from meshtf.mesh_impl.mesh_impl import Program, Results
from meshtf.planning.plan import Check, Plan, ReadVariable
from meshtf.tensorflow_private.surroundings import is_inside_xla, is_tape_recording

if TYPE_CHECKING:
    from meshtf.lowering.lowering import Lowering

_UNDER_TAPE = """\
program "{name}" was called while a tf.GradientTape is recording. The tape cannot see into the program.
Take gradients inside the program, with mtf.gradients, and call it outside the tape (or under tape.stop_recording()).
  at {site}"""

_UNDER_XLA = """\
program "{name}" was called inside a tf.function(jit_compile=True), which cannot compile its collectives.
Call it eagerly, or from a tf.function without jit_compile.
  at {site}"""


_T = TypeVar("_T")

_STARTED_IN_FUNCTION = """\
program "{name}" was started inside a tf.function, where nothing waits for its results; call it there instead.
  at {site}"""


class Execution:
    """A plan that can be called. Nothing is traced and no variable is made before the first call."""

    def __init__(self, make_plan: Callable[[], Plan], lowering: Lowering) -> None:
        self._make_plan = make_plan
        self._plan = make_plan()
        self._lowering = lowering
        self._name = lowering.graph.name
        self._program: Program | None = None
        self._finders: dict[Check, tuple[Plan, Program]] = {}

    @property
    def plan(self) -> Plan:
        """The plan. It is made again if another program has stored a variable in a different layout since."""
        if self._program is None and not self._has_layouts_of_store():
            self._plan = self._make_plan()
        return self._plan

    @property
    def variable_layouts(self) -> dict[str, TensorLayout]:
        """The layout in which each of the program's variables is kept between steps, by name."""
        return _stored_layouts(self.plan)

    @property
    def program(self) -> Program:
        """The emitted program. It makes the variables that do not exist yet, with their initial values."""
        if self._program is None:
            store, mesh_impl, plan = self._lowering.variables, self._lowering.device_mesh, self.plan
            mesh_impl.check_alike(self._name, functools.partial(program_texts, self._lowering, plan))
            ensure_variables(plan, self._lowering)
            self._program = mesh_impl.program(plan, handles(store, plan.variable_names))
        return self._program

    def initialize(self, values: Mapping[str, Any]) -> None:
        """Makes the variables that the store lacks, without running the program; some get these values."""
        with self._step():
            make_variables(values, self.plan, self._lowering)
            _ = self.program

    def __call__(self, feeds: Sequence[Fed]) -> list[tf.Tensor]:
        """Runs the program once.

        Raises:
          UsageError: under a GradientTape or jit_compile, or while another thread is inside a step.
          NonFiniteError: a `check_finite` of the program found a NaN or an infinity. Nothing was assigned.
          IndexRangeError: a `check_indices` of the program found an id outside of its range. Nothing was assigned.
          CollectiveError: a collective failed or timed out.
          ProcessLostError: a process of the cluster is gone. The error names it.
          ClusterError: before the first step, another process runs another program. The error says what differs first.
          ExecutionError: an operation failed. The error names it and the user's line. If it is a slicewise, the error
            names the core and its slices too.
        """
        self._check_surroundings()
        feeds = self._checked(feeds)
        return self._explained(functools.partial(self._run, feeds), feeds)

    def start(self, feeds: Sequence[Fed]) -> Callable[[], list[tf.Tensor]]:
        """Starts the program, and returns a function that waits for its results and raises the errors of a call.

        Raises:
          UsageError: inside a tf.function, or for the reasons of a call.
        """
        self._check_surroundings()
        if not tf.executing_eagerly():
            raise UsageError(_STARTED_IN_FUNCTION.format(name=self._name, site=user_site()))
        feeds = self._checked(feeds)
        has_copies = any(check.can_find for check in self.plan.checks)
        if has_copies:  # a failure is located later in the same arrays, which the user may have changed by then
            feeds = [x.copy() if isinstance(x, np.ndarray) else x for x in feeds]
        wait = self._explained(functools.partial(self._started, feeds, may_change=not has_copies), feeds)
        return functools.partial(self._explained, functools.partial(self._finished, wait, feeds), feeds)

    def _started(self, feeds: Sequence[Fed], *, may_change: bool) -> Callable[[], Results]:
        with self._step():
            return self.program.start(feeds, may_change=may_change)

    def _explained(self, run: Callable[[], _T], feeds: Sequence[Fed]) -> _T:
        try:
            return run()
        except (CollectiveError, ExecutionError) as error:
            raise slicewise_failure(error, self.plan, self._lowering, feeds) or error from None

    def _run(self, feeds: Sequence[Fed]) -> list[tf.Tensor]:
        if tf.executing_eagerly():
            return self._finished(lambda: self.program(feeds), feeds)
        with self._step():
            results, _ = self.program(feeds)
            return self._without_gradient(results)

    def _finished(self, wait: Callable[[], Results], feeds: Sequence[Fed]) -> list[tf.Tensor]:
        with self._step():
            results, failed = wait()
            if self.plan.checks and (index := int(failed)) != NO_CHECK_FAILED:
                raise self._failure(self.plan.checks[index], feeds)
        return results

    def _checked(self, feeds: Sequence[Fed]) -> Sequence[Fed]:
        """Checks the feeds before the step begins, and returns them."""
        if not self.plan.feed_checks:
            return feeds
        by_name = {f.name: x for f, x in zip(self.plan.feeds, feeds, strict=True)}
        if tf.executing_eagerly():
            if error := self.plan.refused_feed(by_name):
                raise error
            return feeds
        assertions = [check.assertion([by_name[name] for name in check.feeds]) for check in self.plan.feed_checks]
        with tf.control_dependencies(assertions):
            return [tf.identity(x) for x in feeds]

    def _failure(self, check: Check, feeds: Sequence[Fed]) -> MeshtfError:
        """The error of a check that failed. A second program finds the place of the failure, and assigns nothing
        either."""
        if not check.can_find:
            return check.failure()
        if check not in self._finders:  # they are kept, since who skips such steps may meet many
            plan = self._lowering.plan_that_finds(check)
            slices = handles(self._lowering.variables, plan.variable_names)
            self._finders[check] = plan, self._lowering.device_mesh.program(plan, slices, runs_once=True)
        plan, program = self._finders[check]
        by_name = {f.name: x for f, x in zip(self.plan.feeds, feeds, strict=True)}
        found, _ = program([by_name[f.name] for f in plan.feeds])
        return first_failure(check, plan, [x.numpy() for x in found])

    def _has_layouts_of_store(self) -> bool:
        """Whether the plan keeps each variable of the store in the layout that it has in the store."""
        store, axis_parts = self._lowering.variables, self._lowering.axis_parts
        stored = _stored_layouts(self._plan).items()
        return all(layout == store.slices(n).layout_under(axis_parts) for n, layout in stored if n in store)

    def _step(self) -> contextlib.AbstractContextManager[None]:
        return self._lowering.mesh_impl.step(self._name, self.plan)

    def _without_gradient(self, results: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The results. Their gradient raises a clear error if a tape requests it that was not seen while tracing."""
        site = user_site()

        def refuse(*_: tf.Tensor) -> NoReturn:
            raise UsageError(_UNDER_TAPE.format(name=self._name, site=site))

        @tf.custom_gradient
        def guarded(x: tf.Tensor) -> tuple[tf.Tensor, Callable[..., NoReturn]]:
            return tf.identity(x), refuse

        return [guarded(x) if x.dtype.is_floating or x.dtype.is_complex else x for x in results]

    def _check_surroundings(self) -> None:
        if is_tape_recording():
            raise UsageError(_UNDER_TAPE.format(name=self._name, site=user_site()))
        if is_inside_xla():
            raise UsageError(_UNDER_XLA.format(name=self._name, site=user_site()))


def _stored_layouts(plan: Plan) -> dict[str, TensorLayout]:
    accesses = [*plan.assignments, *plan.reads]
    return {i.name: (i.output if isinstance(i, ReadVariable) else i.input).layout for i in accesses}


def make_variables(values: Mapping[str, Any], plan: Plan, lowering: Lowering) -> None:
    """Assigns values to variables, and makes those variables of a plan that have values here but are not in the
    store."""
    store, layouts = lowering.variables, _stored_layouts(plan)
    for name in values:
        if name not in layouts and name not in store:
            known = nearest(name, layouts)
            raise GraphError(f'program "{lowering.graph.name}" has no variable "{name}"{known}\n  at {user_site()}')
    made = [name for name in layouts if name in values and name not in store]
    try:
        for name in made:
            variable = lowering.graph.variables[name]
            store.create(variable, layouts[name], lowering.device_mesh, lowering.axis_parts)  # type: ignore[arg-type]
        store.update(values)
    except BaseException:
        # A variable without its value must not stay in the store.
        for name in made:
            if name in store:
                del store[name]
        raise


def ensure_variables(plan: Plan, lowering: Lowering) -> None:
    """Makes the variables of a plan that the store lacks and computes their initial values, slice by slice."""
    store, mesh_impl = lowering.variables, lowering.device_mesh
    missing = []
    for name in plan.variable_names:
        variable = lowering.graph.variables[name]
        if name in store:
            store.check_fits(variable, lowering.mesh_shape, mesh_impl.devices)  # type: ignore[arg-type]
        else:
            missing.append(variable)
    if missing:
        initialize(missing, _stored_layouts(plan), lowering)
