"""Runs the programs of one session run.

Exports see the variables' values from before the run, in whatever order nodes run.

A session runs the fetched nodes in its own order, and no node can find out which others it runs. So each run has a
number. The first node that needs a program of the mesh runs it, and other nodes of the same run find its results. For
example, `session.run([loss, accuracy, update])` with one batch runs two programs: one for both exports and one for the
update. The exports' program runs first, whichever node comes first.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from types import FrameType

import numpy as np
import tensorflow as tf

from meshtf.compat.mesh_tensorflow.runs.fed_inputs import fed_inputs
from meshtf.compat.mesh_tensorflow.runs.step_count import StepCount
from meshtf.compat.mesh_tensorflow.runs.update_groups import UpdateGroups
from meshtf.errors import UsageError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.host_array import host_array
from meshtf.lowering.lowering import Lowering
from meshtf.lowering.make_plan import needed
from meshtf.lowering.variable_store import VariableStore
from meshtf.ops.variables.variable import Assign, ReadVariable

_KEPT_RUNS = 16
"""The number of runs whose results are kept: as many as threads may run a session at a time."""

_TWO_UPDATES = """\
one run of the session asks for updates that depend on one another, of {first} and of {second}, and no order is \
said: put them into one tf.group, so that all start from the same values, or run one after the other"""

_PART_OF_A_GROUP = """\
a run of the session asked for {asked} of {all} updates that tf.group holds together, and all were done: run the \
group, or give the operations to no group"""

_DIFFERENT_INPUTS = """\
on a mesh of one core, updates of one tf.group need different placeholders or iterators: give all gradients to one \
optimizer.apply_grads, which makes one update of them, or use a mesh of more cores"""


@dataclasses.dataclass
class _Run:
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    exports: dict[Tensor, np.ndarray] = dataclasses.field(default_factory=dict)
    done: list[frozenset[Operation]] = dataclasses.field(default_factory=list)
    asked: set[Operation] = dataclasses.field(default_factory=set)
    before: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    is_checked: bool = False


class Lowerings:
    """One `meshtf.Lowering` for each set of assignments that happen together, all on one store of variables.

    Attributes:
      store: the store of the variables' values.
    """

    def __init__(self, make: Callable[[frozenset[Operation]], Lowering], store: VariableStore) -> None:
        self._make, self.store = make, store
        self._made: dict[frozenset[Operation], Lowering] = {}

    def updating(self, operations: frozenset[Operation]) -> Lowering:
        """The lowering that does these assignments."""
        if operations not in self._made:
            self._made[operations] = self._make(operations)
        return self._made[operations]


class SessionRuns:
    """The runs of sessions of one lowering.

    Args:
      lowerings: the lowerings by the assignments that they do.
      groups: the groups of assignments that happen together.
      step_count: the number of steps. Each run that updates advances it.
      masters_follow: whether the masters take the new values after each update, and not after a whole group.
    """

    def __init__(
        self, lowerings: Lowerings, groups: UpdateGroups, step_count: StepCount, *, masters_follow: bool = False
    ) -> None:
        self._lowerings = lowerings
        self._step_count = step_count
        self._masters_follow = masters_follow
        self._groups = groups
        self._exports: list[tuple[Tensor, frozenset[str]]] = []
        self._runs: collections.OrderedDict[int, _Run] = collections.OrderedDict()

    def add_export(self, tensor: Tensor) -> None:
        """Registers a tensor. From now on it is computed together with the exports that depend on the same inputs."""
        self._exports.append((tensor, frozenset(o.name for o in fed_inputs([tensor]))))

    def begin(self) -> int:
        """Begins a run and returns its number."""
        if _threads_in_a_session() == 1:  # all other runs have ended
            for run in self._runs.values():
                self._check_whole(run)
        number = next(reversed(self._runs), -1) + 1
        self._runs[number] = _Run()
        # Nothing tells when a session's run ends, so old runs are dropped by number.
        while len(self._runs) > _KEPT_RUNS:
            self._check_whole(self._runs.popitem(last=False)[1])
        return number

    def export(self, number: int, tensor: Tensor, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """The value that an exported tensor had before the run's updates."""
        run = self._runs[number]
        if tensor not in run.exports:
            with self._as_before(run):
                self._compute(run, frozenset(arrays), arrays)
        return run.exports[tensor]

    def update(self, number: int, operations: Collection[Operation], arrays: Mapping[str, np.ndarray]) -> None:
        """Does some assignments and those that a tf.group joins with them, once in a run."""
        run = self._runs[number]
        run.asked.update(operations)
        run.arrays.update(arrays)
        group = self._groups.of(operations)
        if group in run.done:
            return
        lowering = self._lowerings.updating(group)
        inputs = {o.name for o in fed_inputs([o.outputs[0] for o in group])}
        if not inputs <= set(run.arrays):
            if self._masters_follow:
                raise UsageError(_DIFFERENT_INPUTS)
            return  # another node of the group has the missing inputs
        self._check_independent(run, group)
        fed = {name: run.arrays[name] for name in inputs}
        with self._as_before(run):
            # Exports see the values from before the update. So the exports whose inputs are all present run now.
            for names in {names for _, names in self._exports if names <= inputs}:
                self._compute(run, names, fed)
        if any(not names <= inputs for _, names in self._exports):  # their turn may come after this
            changed = {o.variable.full_name for o in group if isinstance(o, Assign)} - run.before.keys()
            run.before |= {name: self._lowerings.store[name] for name in changed if name in self._lowerings.store}
        lowering.run([], fed)
        if not run.done:
            self._step_count.advance()
        run.done.append(group)

    def _as_before(self, run: _Run) -> AbstractContextManager[None]:
        """A context in which variables have their values from before the run."""
        return with_values(self._lowerings.store, run.before)

    def _compute(self, run: _Run, names: frozenset[str], arrays: Mapping[str, np.ndarray]) -> None:
        """Computes all exports that depend on exactly these inputs.

        It is always the same program, so always the same bits.
        """
        tensors = list(dict.fromkeys(t for t, own in self._exports if own == names))
        if tensors and tensors[0] not in run.exports:
            values = self._lowerings.updating(frozenset()).run(tensors, {name: arrays[name] for name in names})
            run.exports.update({t: host_array(v) for t, v in zip(tensors, values, strict=True)})

    def _check_independent(self, run: _Run, group: frozenset[Operation]) -> None:
        # An update that reads what another one of the same run changed would depend on their order, which no session
        # promises.
        changed = {o.variable for done in run.done for o in done if isinstance(o, Assign)}
        before = needed(list(group))
        reads = {o for o in before if o in changed} | {
            o.variable for o in before if isinstance(o, Assign | ReadVariable)
        }
        if changed & reads:
            first = ", ".join(sorted(v.full_name for v in changed)[:3])
            second = ", ".join(sorted(o.variable.full_name for o in group if isinstance(o, Assign))[:3])
            raise UsageError(_TWO_UPDATES.format(first=first, second=second))

    def _check_whole(self, run: _Run) -> None:
        if run.is_checked:
            return
        run.is_checked = True
        for group in run.done:
            if not group <= run.asked:
                raise UsageError(_PART_OF_A_GROUP.format(asked=len(group & run.asked), all=len(group)))


@contextlib.contextmanager
def with_values(store: VariableStore, values: Mapping[str, np.ndarray]) -> Iterator[None]:
    """Gives variables these values inside the context, and their own values back after it."""
    after = {name: store[name] for name in values}
    for name, value in values.items():
        store[name] = value
    try:
        yield
    finally:
        for name, value in after.items():
            store[name] = value


def _threads_in_a_session() -> int:
    """Counts the Python threads that are inside `Session.run` now."""
    return sum(map(_is_in_a_session, sys._current_frames().values()))


def _is_in_a_session(frame: FrameType | None) -> bool:
    run = tf.compat.v1.Session.run.__code__
    while frame is not None and frame.f_code is not run:
        frame = frame.f_back
    return frame is not None
