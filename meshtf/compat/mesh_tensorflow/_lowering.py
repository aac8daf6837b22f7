"""Lowers a graph into a TensorFlow graph, which a session runs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

import numpy as np
import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.compat.mesh_tensorflow._graph import Graph, graph_of
from meshtf.compat.mesh_tensorflow.operations.operation import Operation as OwnOperation
from meshtf.compat.mesh_tensorflow.runs.eager_mode import eager_mode
from meshtf.compat.mesh_tensorflow.runs.eager_run import EagerRun
from meshtf.compat.mesh_tensorflow.runs.fed_inputs import fed_inputs, inputs_of_update
from meshtf.compat.mesh_tensorflow.runs.session_runs import Lowerings, SessionRuns
from meshtf.compat.mesh_tensorflow.runs.update_groups import UpdateGroups
from meshtf.compat.mesh_tensorflow.runs.updates import Updates
from meshtf.errors import GraphError
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.lowering import lowering as language
from meshtf.lowering.make_plan import needed
from meshtf.lowering.report.report import Report
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.ops.slicewise.slicewise import SlicewiseOperation
from meshtf.ops.variables.variable import Assign, Variable

_PROGRAMS = threading.RLock()
"""The lock that a running program of any lowering holds. A process runs one program at a time; sessions run several."""

_NOT_HERE = {
    "tensors": "slices are not tensors of the session's graph; fetch whole ones with lowering.export_to_tf_tensor(x)",
    "variables": "slices are not variables of the session's; masters are: `mtf.get_master(variable)`",
    "operations": "give the operation to lowering.lowered_operation",
    "counters": "print(lowering.report()) has every collective with its bytes",
    "autostack": "small variables are updated together without being stacked",
}


class Lowering:
    """A graph on a mesh, for TensorFlow sessions.

    Exports and updates are nodes of TensorFlow's default graph. When a session runs one, the program runs on the mesh
    and returns its results to the session. Exports that depend on the same inputs are one program. An update has its
    own program, and recomputes the values that it shares with exports.

    All exports of one run have the values from before the updates. Updates that tf.group joins start from the same
    values.

    `copy_masters_to_slices` copies masters to slices. The first run does it if the program did not. On a mesh of one
    core the masters are the variables: each run copies them in before and back after.

    Args:
      graph: the graph to run.
      mesh_to_impl: the graph's mesh, with the mesh that implements it.
      autostack: ignored. Small variables are updated together without it.
      log_file: ignored. See `report`.
      seed: the seed of all random bits.

    Raises:
      LayoutError: the layout does not fit the mesh or the program.
      GraphError: there are several meshes.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> graph = old.Graph()
      >>> x = old.import_tf_tensor(old.Mesh(graph, "mesh"), np.ones([4, 8], np.float32), "batch:4 hidden:8")
      >>> mesh_impl = old.placement_mesh_impl.PlacementMeshImpl("rows:2", "batch:rows", ["", ""])
      >>> lowering = old.Lowering(graph, {x.mesh: mesh_impl})
      >>> lowering.export_to_tf_tensor(old.reduce_sum(x, reduced_dim=x.shape[1])).numpy()
      array([8., 8., 8., 8.], dtype=float32)
    """

    @says_where
    def __init__(
        self,
        graph: Graph,
        mesh_to_impl: Mapping[Mesh, MeshImpl],
        autostack: bool = True,
        log_file: str | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.graph, self._seed = graph, seed
        self._mesh_to_impl = mesh_to_impl
        self._store = VariableStore()
        self._groups = UpdateGroups()
        self._lowerings = Lowerings(self._lowering_of, self._store)
        self._are_slices_filled = False
        self._begin: tf.Tensor | None = None
        self._exported: dict[Tensor, tf.Tensor] = {}
        self._checked: set[Operation] = set()
        self._mesh_impl = self._exporting.mesh_impl
        self._runs = SessionRuns(
            self._lowerings, self._groups, graph.step_count, masters_follow=self._mesh_impl.shape.size == 1
        )
        self._eager = EagerRun(graph, self._lowerings, self._fill, masters_follow=self._mesh_impl.shape.size == 1)
        # Raises an error if the graph belongs to meshtf itself.
        graph_of(self._exporting.mesh)

    def _lowering_of(self, updates: Iterable[Operation]) -> language.Lowering:
        return language.Lowering(self.graph, self._mesh_to_impl, self._store, self._seed, effects=updates)

    @property
    def _exporting(self) -> language.Lowering:
        return self._lowerings.updating(frozenset())

    def mesh_impl(self, x: Mesh | Tensor | Operation) -> MeshImpl:
        """The mesh that implements a mesh, or the mesh of a tensor or an operation."""
        return self._mesh_impl

    def report(self, updates: Sequence[Operation] = (), fetches: Sequence[Tensor] = ()) -> Report:
        """Reports layouts, memory per core and every collective of the program that does these updates.

        See `mtf.Report`.
        """
        return self._lowerings.updating(frozenset(_assignments(updates))).report(fetches)

    @says_where
    def export_to_tf_tensor(self, x: Tensor) -> tf.Tensor:
        """The whole value of a tensor.

        With eager execution it has a value at once, else it is a node of the graph.

        Raises:
          GraphError: it is of another graph, or was made after this one was lowered.
        """
        if tf.executing_eagerly():
            with _PROGRAMS:
                return self._eager.export(x)
        if x not in self._exported:
            self._exporting.check_fetches([x])
            self._check_functions([x])
            self._runs.add_export(x)
            # A numpy_function has no known shape, but programs read the shapes of exported tensors.
            node = self._node(functools.partial(self._runs.export, tensor=x), fed_inputs([x]), x.dtype, "export")
            self._exported[x] = tf.ensure_shape(node, x.shape.to_integer_list)
        return self._exported[x]

    @says_where
    def lowered_operation(self, op: Operation | Tensor | Updates) -> tf.Operation | None:
        """The TensorFlow operation that does an assignment, or all assignments of an optimizer.

        With eager execution the first call does all assignments of the graph at once, from the same values. Later
        calls do nothing. All calls return None.

        Raises:
          GraphError: it is no assignment of this graph.
        """
        operations = _assignments([op])
        if tf.executing_eagerly():
            with _PROGRAMS:
                return self._eager.update()
        self._check_functions([x for o in operations for x in o.inputs])
        inputs = inputs_of_update(self.graph, [o.outputs[0] for o in operations])
        node = self._node(functools.partial(self._update, operations=operations), inputs, tf.int64, "update").op
        done = self._masters_follow(node, operations)
        self._groups.add(operations, node)
        return done

    def copy_masters_to_slices(self) -> tf.Operation | None:
        """Gives the slices the masters' values. Run it after initializing or restoring the masters.

        With eager execution the copy happens at once and the result is None.
        """
        if tf.executing_eagerly():
            with _PROGRAMS:
                return self._eager.begin()
        settled = [self.graph.step_count.settled()] if self.graph.step_count.node is not None else []
        return self._copied(settled)

    def _copied(self, settled: Sequence[tf.Tensor] = ()) -> tf.Operation:
        with tf.name_scope("copy_masters_to_slices"):
            stored = [
                tf.numpy_function(functools.partial(self._fill, name), [master.read_value()], tf.int64)
                for name, master in self.graph.masters.items()
            ]
            with tf.control_dependencies([*stored, *settled]):
                return tf.numpy_function(self._filled, [], tf.int64).op

    def copy_slices_to_masters(self) -> tf.Operation | None:
        """Gives the masters the slices' values. Run it before saving the masters.

        With eager execution the copy happens at once and the result is None.
        """
        if tf.executing_eagerly():
            with _PROGRAMS:
                return self._eager.copy_to_masters()
        with tf.name_scope("copy_slices_to_masters"), tf.control_dependencies([self._begun()]):
            return tf.group([self._assigned_to_master(name) for name in self.graph.masters])

    def _check_functions(self, tensors: Sequence[Tensor]) -> None:
        """Plans the program for these tensors if it has functions of the user that no plan has traced yet.

        Their errors then point to the program's own lines, and not into a session's run.
        """
        # Other operations check their operands when they are made. Only a plan traces the user's functions.
        own = {o for o in needed([t.operation for t in tensors]) if isinstance(o, SlicewiseOperation | OwnOperation)}
        if own - self._checked:
            with _PROGRAMS, eager_mode():
                self._exporting.plan_for(tensors, effects=())
            self._checked |= own

    def _masters_follow(self, node: tf.Operation, operations: Sequence[Operation]) -> tf.Operation:
        """Adds copies from slices to the masters on a mesh of one core.

        On such a mesh the masters are the variables, in files and in the session.
        """
        if self._mesh_impl.shape.size > 1:
            return node
        # Slots of optimizers are variables too, with masters of their own.
        names = [o.variable.full_name for o in operations if isinstance(o, Assign)]
        with tf.control_dependencies([node]):
            return tf.group([self._assigned_to_master(name) for name in names if name in self.graph.masters])

    def _assigned_to_master(self, name: str) -> tf.Operation:
        master = self.graph.masters[name]
        value = tf.numpy_function(functools.partial(self._value_of, name), [], master.dtype.base_dtype)
        return master.assign(tf.ensure_shape(value, master.shape), read_value=False)

    def _begun(self) -> tf.Tensor:
        """The node that each run of a session begins with. Its value is the run's number."""
        if self._begin is None:
            # Every node of a run waits for this one, so it must not wait for control dependencies of the program.
            with tf.name_scope("begin_run"), tf.control_dependencies(None):
                wanted = tf.numpy_function(self._needs_masters, [], tf.bool)
                # Not every run copies: see `_needs_masters`.
                copied = tf.cond(tf.ensure_shape(wanted, []), self._copied_in, lambda: tf.constant(0, tf.int64))
                with tf.control_dependencies([copied]):
                    self._begin = tf.numpy_function(self._locked(lambda: np.int64(self._runs.begin())), [], tf.int64)
        return self._begin

    def _copied_in(self) -> tf.Tensor:
        with tf.control_dependencies([self._copied()]):
            return tf.constant(1, tf.int64)

    def _node(self, fn: Callable[..., Any], inputs: Sequence[InputOperation], dtype: tf.DType, name: str) -> tf.Tensor:
        """Makes a node that calls a function with the run's number and the inputs' arrays by name."""

        def call(number: np.int64, *arrays: np.ndarray) -> Any:
            return fn(int(number), arrays={o.name: a for o, a in zip(inputs, arrays, strict=True)})

        begun = self._begun()
        return tf.numpy_function(self._locked(call), [begun, *map(_fed_value, inputs)], dtype, name=name)

    def _locked(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def call(*args: Any) -> Any:
            with _PROGRAMS, eager_mode():
                return fn(*args)

        return call

    def _update(self, number: int, operations: Sequence[Operation], arrays: Mapping[str, np.ndarray]) -> np.int64:
        self._runs.update(number, operations, arrays)
        return np.int64(number)

    def _needs_masters(self) -> np.bool_:
        return np.bool_(bool(self.graph.masters) and (self._mesh_impl.shape.size == 1 or not self._are_slices_filled))

    def _fill(self, name: str, value: np.ndarray) -> np.int64:
        with _PROGRAMS, eager_mode():
            # The store accepts a value only for an existing variable. So all variables are made first.
            if name not in self._store:
                variables = [cast("Variable", self.graph.variables[n]) for n in self.graph.masters]
                self._exporting.execution([v.value for v in variables], with_effects=False).initialize({})
            self._store[name] = value
        return np.int64(0)

    def _filled(self) -> np.int64:
        self._are_slices_filled = True
        return np.int64(0)

    def _value_of(self, name: str) -> np.ndarray:
        with _PROGRAMS, eager_mode():
            master = self.graph.masters[name]
            return self._store[name].astype(master.dtype.base_dtype.as_numpy_dtype)

    def __getattr__(self, name: str) -> NoReturn:
        hint = f"; {_NOT_HERE[name]}" if name in _NOT_HERE else ""
        raise AttributeError(f"a Lowering of meshtf.compat.mesh_tensorflow has no attribute {name!r}{hint}")


def _fed_value(operation: InputOperation) -> tf.Tensor:
    assert operation.value is not None
    return operation.value


def _assignments(ops: Iterable[Operation | Tensor | Updates]) -> list[Operation]:
    found: list[Operation] = []
    for op in ops:
        own = op.operations if isinstance(op, Updates) else [op.operation if isinstance(op, Tensor) else op]
        for operation in own:
            if not isinstance(operation, Assign):
                raise GraphError(
                    f"{operation!r} is no assignment: lowering.lowered_operation takes the results of mtf.assign and "
                    f"optimizer.apply_grads; a tensor's value is lowering.export_to_tf_tensor(x)"
                )
            found.append(operation)
    return found
