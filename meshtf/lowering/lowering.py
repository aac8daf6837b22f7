"""Lowers a graph on a mesh to plans, which are emitted and run.

The steps, in order:

    lay out    each tensor gets a layout, by rules and overrides (`planning/layouts/`)
    plan       each operation lowers itself to instructions (`make_plan.py`)
    pass       passes make the plan cheaper (`passes/`)
    run        the mesh makes a program of the plan when it is first called (`execution.py`)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import tensorflow as tf

from meshtf.axis_parts import AxisParts
from meshtf.call_sites import says_where, user_site
from meshtf.dimension import Shape
from meshtf.errors import FeedError, GraphError, LayoutError, LayoutWarning, MeshtfError, UsageError, nearest
from meshtf.garbage_collection import garbage_collection_paused
from meshtf.graph.graph import Graph
from meshtf.graph.mesh import Mesh, check_mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.lowering.ahead.changes import Change
from meshtf.lowering.ahead.compilation import Compilation
from meshtf.lowering.ahead.compile_ahead import ToCompile, compile_for
from meshtf.lowering.ahead.planned_mesh import PlannedMesh
from meshtf.lowering.emit.xla.hlo import hlo_of
from meshtf.lowering.evaluation import register_evaluation
from meshtf.lowering.execution import Execution
from meshtf.lowering.feeding import check_feeds, inputs_of
from meshtf.lowering.make_plan import assignments_before, effects_with, make_plan, needed
from meshtf.lowering.passes.gathered_reductions import gathered_reductions
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.lowering.passes.updates.weight_update_sharding import ShardedUpdates, sharded_updates
from meshtf.lowering.report.report import Report, Updates
from meshtf.lowering.variable_store import StoreLayouts, VariableStore
from meshtf.mesh_impl.home_device import have_one_home
from meshtf.mesh_impl.mesh_impl import MeshImpl, check_mesh_impl
from meshtf.mesh_impl.mesh_options import MeshOptions
from meshtf.mesh_impl.tpu.ahead_compiler import Waiting
from meshtf.mesh_impl.tpu.compile_cache import CompileCache
from meshtf.mesh_impl.tpu.topology import TpuTopology
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.ops.variables.program_step import count_step
from meshtf.planning.layouts.divided_layouts import parts_that_help
from meshtf.planning.layouts.layout_table import LayoutTable, warn_unused_rules
from meshtf.planning.layouts.rules_by_place import RuleSet
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.plan import Check, Plan
from meshtf.planning.stored_variables import Storage
from meshtf.thresholds import MOST_INSTRUCTIONS
from meshtf_programs.user_paths import user_path

register_evaluation()


class Lowering:
    """A graph on a mesh. The constructor lays out every tensor and checks the layouts. Plans are made later, and
    nothing runs.

    Args:
      graph: the graph to run.
      mesh_to_impl: the graph's mesh, and its implementation.
      variables: holds the slices of the variables; a new store by default.
      seed: the seed of the program's random bits.
      pass_options: the sizes from which on passes change a plan.
      effects: the assignments, prints and checks that take place; all of the graph's by default. If there are any,
        steps are counted too.

    Raises:
      LayoutError: the layout does not fit the mesh or the program. It names the tensor, the dimension, the rule and the
        line.
      GraphError: `mesh_to_impl` is no dict from a mesh of the graph to its implementation.

    Examples:
      >>> y = mtf.reduce_sum(x, reduced_dim="batch")
      >>> lowering = mtf.Lowering(mesh.graph, {mesh: mtf.PlanMeshImpl("rows:2", "batch:rows")})
      >>> [c.kind for c in lowering.report([y]).collectives]
      ['all_reduce']
    """

    @garbage_collection_paused()
    @says_where
    def __init__(
        self,
        graph: Graph,
        mesh_to_impl: Mapping[Mesh, MeshImpl],
        variables: VariableStore | None = None,
        seed: int = 0,
        pass_options: PassOptions = DEFAULT_PASS_OPTIONS,
        *,
        effects: Iterable[Operation] | None = None,
    ) -> None:
        if not isinstance(mesh_to_impl, Mapping):
            given = type(mesh_to_impl).__name__
            raise GraphError(f"mesh_to_impl must be a dict such as {{mesh: mtf.SpmdMeshImpl(...)}}, not {given}")
        if len(mesh_to_impl) != 1:
            raise LayoutError(
                f"a lowering has one mesh, not {len(mesh_to_impl)}; give all tensors one mesh, which may "
                f"have the axes of several, and mtf.with_layout those that the layout rules place wrongly"
            )
        ((self.mesh, self.mesh_impl),) = mesh_to_impl.items()
        check_mesh(self.mesh)
        check_mesh_impl(self.mesh_impl)
        if not isinstance(graph, Graph):
            raise GraphError(f"the first argument must be an mtf.Graph, not {type(graph).__name__}")
        if self.mesh.graph is not graph:
            raise GraphError(
                f'mesh "{self.mesh.name}" belongs to another graph ("{self.mesh.graph.name}") than "{graph.name}", '
                f"which is being lowered; give the mesh of its tensors"
            )
        self.graph = graph
        self.variables = VariableStore() if variables is None else variables
        self.seed = seed
        self.pass_options = pass_options
        counts = count_step(self.mesh)
        self._storage = StoreLayouts(self.variables, self._options.parameter_layout_rules)
        wanted = None if effects is None else set(effects)
        wanted = {*wanted, *counts} if wanted else wanted
        self._effects = [o for o in graph.operations if o.has_side_effect and (wanted is None or o in wanted)]
        own_parts = self._options.parts_of_axes(self.mesh_shape)
        self._lay_out(own_parts or self.variables.axis_parts(graph.variables, self.mesh_shape))
        kinds = {
            "layout rule": self.mesh_impl.layout_rules,
            "parameter layout rule": self._options.parameter_layout_rules,
            "activation layout rule": self._options.activation_layout_rules,
        }
        warn_unused_rules(kinds, graph.operations)
        # Only when all tensors have layouts is it known which updates cannot be divided. If parts of an axis help, all
        # layouts are computed again on the mesh with these parts.
        undivided = self._sharded.undivided
        if undivided and not self.axis_parts and (axis_parts := parts_that_help(undivided, self.mesh_shape)):
            self._lay_out(axis_parts)
        self._executions: dict[tuple[tuple[Tensor, ...], bool], Execution] = {}
        self._peeks: dict[tuple[Tensor, ...], Execution] = {}
        self._reports: dict[tuple[Tensor, ...], Report] = {}
        self._ahead: dict[tuple[Tensor, ...], ToCompile] = {}
        self._hlo: dict[tuple[tuple[Tensor, ...], bool], bytes | None] = {}
        graph.note_lowering(self)

    def _lay_out(self, axis_parts: AxisParts) -> None:
        """Lays out every tensor on the mesh with these axes taken apart."""
        self.axis_parts = axis_parts
        self._layouts, self._sharded = self._laid_out_by_rules(), ShardedUpdates()
        if self._options.shard_weight_update and self._effects:
            operations = needed(self._effects)
            pending_sums = PendingSums(operations, (), self._layouts)
            self._sharded = sharded_updates(operations, self._layouts, pending_sums, self._storage, self.pass_options)
            self._layouts.choose(self._sharded.layouts)
            self._layouts.kept.update(self._sharded.kept)

    def _laid_out_by_rules(self) -> LayoutTable:
        mesh_shape = self.axis_parts.taken_apart(self.mesh_shape)
        rules, activations = self.mesh_impl.layout_rules, self._options.activation_layout_rules
        rule_set = RuleSet.of_variables(rules, activations, self.graph.variables.values())
        layouts = LayoutTable(mesh_shape, rule_set, self.axis_parts, self._options.max_padding)
        layouts.resolve(self.graph.operations)
        return layouts

    def on(self, mesh_impl: MeshImpl, variables: VariableStore | None = None) -> Lowering:
        """The same graph on another mesh or under another layout, with a new store by default."""
        return Lowering(self.graph, {self.mesh: mesh_impl}, variables, self.seed, self.pass_options)

    @property
    def planned_fetches(self) -> tuple[Tensor, ...]:
        """The fetches of the program that was planned first; if there is an `mtf.function`, its fetches."""
        return next((fetches for fetches, _ in self._executions), ())

    @property
    def layouts(self) -> LayoutTable:
        """The layout of every tensor of the program, with the layout's origin."""
        return self._layouts

    def layout_text(self, x: Tensor) -> str:
        """A tensor's layout as reports write it: `batch:64/rows hidden:32`. Empty if the tensor was made after the
        lowering."""
        if x not in self._layouts:
            return ""
        return self.axis_parts.layout_joined(self._layouts[x]).to_string(x.shape)

    @property
    def mesh_shape(self) -> Shape:
        """The mesh's named shape, as the user wrote it."""
        return self.mesh_impl.shape

    @property
    def device_mesh(self) -> MeshImpl:
        """The mesh to run on. Raises UsageError if nothing can run on it."""
        self.mesh_impl.check_runs(self.graph.name)
        return self.mesh_impl

    @property
    def _options(self) -> MeshOptions:
        return self.mesh_impl.options

    @property
    def plan(self) -> Plan:
        """The plan that does the graph's assignments, and returns nothing."""
        return self.execution(()).plan

    def plan_for(self, fetches: Sequence[Tensor], *, effects: Sequence[Operation] | None = None) -> Plan:
        """The plan that returns these tensors. `effects` are its assignments, prints and checks; None: the lowering's
        own."""
        return self._finished(self._layouts, self._storage, self._effects if effects is None else effects, fetches)

    def plan_that_finds(self, check: Check) -> Plan:
        """The plan that returns where a check of another plan failed, and assigns nothing."""
        effects = effects_with(check, self.graph)
        return self._finished(self._layouts, self._storage, effects, (), finds_failures=True, assigns=False)

    @garbage_collection_paused()
    def _finished(
        self,
        layouts: LayoutTable,
        storage: Storage,
        effects: Sequence[Operation],
        fetches: Sequence[Tensor],
        *,
        finds_failures: bool = False,
        assigns: bool = True,
    ) -> Plan:
        return make_plan(
            layouts,
            storage,
            effects,
            fetches,
            self.seed,
            dataclasses.replace(
                self.pass_options,
                gradient_sum_dtype=self._options.gradient_sum_dtype,
                gathers_weights_again=self._options.parameter_layout is not None,
                bucket_bytes=self._options.bucket_bytes,
                compiles_programs=self.mesh_impl.compiles_programs,
                refuses_compiled_loops=self._refuses_compiled_loops,
                most_instructions=MOST_INSTRUCTIONS if self._unrolls_layers else 0,
                computes_on_one_device=self._computes_on_one_device,
                process_of_core=self.mesh_impl.process_of_core,
            ),
            finds_failures=finds_failures,
            assigns=assigns,
        )

    @property
    def _unrolls_layers(self) -> bool:
        return self.mesh_impl.unrolls_layers and self._options.unroll_layers

    @property
    def _computes_on_one_device(self) -> bool:
        """Whether all cores compute on one device, like the virtual CPUs of one process.

        A mesh on paper has no devices, so the cores of one process are taken for virtual CPUs. Cores of several
        processes are not, so that the program is the one that these processes would run.
        """
        if self.mesh_impl.compiles_programs or len(set(self.mesh_impl.process_of_core)) > 1:
            return False
        return not self.mesh_impl.devices or have_one_home(self.mesh_impl.devices)

    @property
    def _refuses_compiled_loops(self) -> str:
        """The reason why the mesh compiles no loop by itself, or an empty text.

        A mesh on paper has no devices, so its cores are taken for virtual CPUs.
        """
        if self.mesh_impl.compiles_programs:
            return ""  # loops are compiled with the program, for devices that need not exist yet
        if not self._options.compile_loops:
            return "compile_loops=False"
        if self._options.share_memory and all("CPU" in d.upper() for d in self.mesh_impl.devices):
            return ""
        return "its cores are not virtual CPUs that share their memory"

    @tf.autograph.experimental.do_not_convert
    def run(
        self, fetches: Tensor | str | Sequence[Tensor | str], feeds: Mapping[Tensor | str, Any] | None = None
    ) -> tf.Tensor | list[tf.Tensor]:
        """Executes the graph's assignments once, and returns the whole fetches.

        A fetch is a tensor, or a name that `mtf.export` gave to one. The key of a feed is the input's tensor or its
        name.

        Raises:
          FeedError: an input is missing, unknown, or of the wrong shape or dtype.
          GraphError: no tensor was exported under a name.
        """
        is_one = isinstance(fetches, Tensor | str)
        listed = [fetches] if is_one or not isinstance(fetches, Iterable) else list(fetches)
        results = self._run(listed, feeds or {}, with_effects=True)
        return results[0] if is_one else results

    @tf.autograph.experimental.do_not_convert
    def export_to_tf_tensor(self, t: Tensor | str, feeds: Mapping[Tensor | str, Any] | None = None) -> tf.Tensor:
        """Computes `t` alone from the variables' present values. It never assigns.

        The graph's assignments do not take place. So a `read_variable` that follows an assignment returns the present
        value.
        """
        (value,) = self._run([t], feeds or {}, with_effects=False)
        return value

    @says_where
    def execution(self, fetches: Sequence[Tensor], *, with_effects: bool = True) -> Execution:
        """The execution of the program that returns these fetches, made once."""
        fetches = _listed(fetches)
        key = (fetches, with_effects)
        if key not in self._executions:
            self.check_fetches(fetches)
            make_plan = functools.partial(self.plan_for, tuple(fetches), effects=None if with_effects else ())
            execution = Execution(make_plan, self)
            self._hlo[key] = self.mesh_impl.hlo(execution.plan, self.graph.name)
            self._executions[key] = execution
        return self._executions[key]

    @says_where
    def peek(self, fetches: Sequence[Tensor]) -> Execution:
        """The execution that returns these tensors as the next step computes them, and assigns nothing. It is made
        once.

        Unlike an execution without effects, it computes the values that the step assigns before it reads them.
        """
        fetches = key = _listed(fetches)
        if key not in self._peeks:
            self.check_fetches(fetches)
            effects = assignments_before([t.operation for t in fetches])
            parts = (self._layouts, self._storage, effects, key)
            self._peeks[key] = Execution(functools.partial(self._finished, *parts, assigns=False), self)
        return self._peeks[key]

    def check_fetches(self, fetches: Sequence[Tensor]) -> None:
        """GraphError for a tensor of another graph, inside a block, or made after the graph was lowered."""
        for tensor in fetches:
            if check_tensor(tensor, "fetch").graph is not self.graph:
                raise GraphError(
                    f'{tensor} belongs to another graph than program "{self.graph.name}"; fetch tensors that the '
                    f"program computes"
                )
            self.graph.check_in_reach(tensor)
            if tensor not in self._layouts:
                raise GraphError(
                    f"{tensor} was made after the graph was lowered, at {tensor.operation.site}; make all tensors, "
                    f"then call mtf.Lowering"
                )

    def hlo(self, fetches: Sequence[Tensor] = (), *, with_effects: bool = True) -> bytes:
        """Compiles the program that returns these fetches to a serialized HloModuleProto, for every core of a TPU.

        Raises UsageError if the mesh does not compile programs. An mtf.TpuMeshImpl does.
        """
        self.execution(fetches, with_effects=with_effects)
        hlo = self._hlo[(tuple(fetches), with_effects)]
        if hlo is None:
            raise UsageError(
                f'program "{self.graph.name}" was lowered for an mtf.{type(self.mesh_impl).__name__}, which does not '
                f"compile it to HLO; give an mtf.TpuMeshImpl\n  at {user_site()}"
            )
        return hlo

    @says_where
    def compile(
        self,
        topology: str | TpuTopology,
        fetches: Sequence[Tensor] = (),
        *,
        cache_dir: str | Path | None = None,
        on_wait: Callable[[float], None] | None = None,
        trace: Callable[[str], tuple[Mesh, Sequence[Tensor]]] | None = None,
    ) -> Compilation:
        """Compiles the program that returns these fetches with the TPU's own compiler: see `mtf.Function.compile`.

        `trace` traces the program again with layers that keep no more than its argument for the gradient, and returns
        the new program's mesh and fetches. It is called to find out whether the program would then fit.
        """
        chosen = TpuTopology.of(topology)
        fetches = key = _listed(fetches)
        chosen.places(self.mesh_shape)  # checks that the mesh fits, before minutes are spent
        if key not in self._ahead:
            plan = gathered_reductions(self.execution(fetches).plan)
            hlo = hlo_of(plan, self.graph.name, self.mesh_impl.options.product_precision)
            plan_with = functools.partial(self._plan_with, key, trace)
            self._ahead[key] = ToCompile(self.graph.name, plan, hlo, self.mesh_shape, plan_with)
        waiting = Waiting(None if cache_dir is None else CompileCache(user_path(cache_dir)), on_wait)
        return compile_for(self._ahead[key], chosen, waiting)

    def _plan_with(
        self,
        fetches: Sequence[Tensor],
        trace: Callable[[str], tuple[Mesh, Sequence[Tensor]]] | None,
        change: Change,
    ) -> Plan | None:
        options, mesh = self._options, self.mesh
        if change.parameter_layout is not None:
            options = dataclasses.replace(options, parameter_layout=change.parameter_layout)
        mesh_impl = cast("MeshImpl", PlannedMesh(self.mesh_shape, self.mesh_impl.layout_rules, options))
        # A user's function that cannot be called a second time may raise anything.
        with warnings.catch_warnings(), contextlib.suppress(Exception if change.layers_keep else MeshtfError):
            warnings.simplefilter("ignore", LayoutWarning)
            if change.layers_keep is not None:
                if trace is None:
                    return None
                mesh, fetches = trace(change.layers_keep)
            other = Lowering(mesh.graph, {mesh: mesh_impl}, None, self.seed, self.pass_options)
            return other.plan_for(fetches)
        return None

    @garbage_collection_paused()
    def brief_report(self, fetches: Sequence[Tensor] = ()) -> Report:
        """The report without the table of tensors and without the memory that undivided updates would take.

        That memory is left out because it takes a second plan of the program.
        """
        return Report.of(
            self.plan_for(fetches),
            self._layouts,
            self.graph.name,
            fetches=fetches,
            parameter_rules=self._options.parameter_layout_rules,
            updates=Updates(self._trained, self._sharded.reasons),
        )

    @garbage_collection_paused()
    @says_where
    def report(self, fetches: Sequence[Tensor] = ()) -> Report:
        """Layouts, memory per core and every collective of the program that returns these fetches."""
        fetches = key = _listed(fetches)
        if key not in self._reports:
            self._reports[key] = self._reported(fetches)
        return self._reports[key]

    def _reported(self, fetches: Sequence[Tensor]) -> Report:
        return Report.of(
            self.execution(fetches).plan,
            self._layouts,
            self.graph.name,
            operations=needed([*self._effects, *(t.operation for t in fetches)]),
            fetches=fetches,
            parameter_rules=self._options.parameter_layout_rules,
            updates=self._updates(fetches),
        )

    def _updates(self, fetches: Sequence[Tensor]) -> Updates:
        if not self._sharded.layouts:
            return Updates(self._trained, self._sharded.reasons)
        layouts = self._laid_out_by_rules()
        storage = StoreLayouts(VariableStore(), self._options.parameter_layout_rules)
        return Updates(self._trained, self._sharded.reasons, self._finished(layouts, storage, self._effects, fetches))

    @property
    def _trained(self) -> set[str]:
        """The names of the weights."""
        return {name for name, variable in self.graph.variables.items() if variable.trainable}  # type: ignore[attr-defined]

    def __str__(self) -> str:
        """The report of the program that does the graph's assignments, and returns nothing."""
        return str(self.report())

    def _run(
        self, fetches: Sequence[Tensor | str], feeds: Mapping[Tensor | str, Any], *, with_effects: bool
    ) -> list[tf.Tensor]:
        if not isinstance(feeds, Mapping):
            raise FeedError(
                f"feeds must be a dict from inputs to arrays, such as {{x: array}}, not {type(feeds).__name__}\n"
                f"  at {user_site()}"
            )
        execution = self.execution([self._fetched(f) for f in fetches], with_effects=with_effects)
        by_name = {k.operation.name if isinstance(k, Tensor) else k: v for k, v in feeds.items()}
        inputs = inputs_of(execution.plan)
        known = {o.name: o for o in self.graph.operations if isinstance(o, InputOperation)}
        return execution(check_feeds(inputs, by_name, known, self.graph.name))

    @says_where
    def _fetched(self, fetch: Tensor | str) -> Tensor:
        exports = self.graph.exports
        if not isinstance(fetch, str):
            return check_tensor(fetch, "fetch")
        if fetch not in exports:
            known = nearest(fetch, exports) or f"; there are: {', '.join(exports) or 'none'}"
            raise GraphError(f'no tensor was exported as "{fetch}" (mtf.export) in program "{self.graph.name}"{known}')
        return exports[fetch]


def _listed(fetches: object) -> tuple[Any, ...]:
    """Returns the fetches of a list as a tuple.

    Raises:
      GraphError: they are no list, such as one tensor by itself.
    """
    if isinstance(fetches, Tensor) or not isinstance(fetches, Iterable):
        raise GraphError(f"fetches must be a list of tensors, such as [y], not {type(fetches).__name__}")
    return tuple(fetches)
