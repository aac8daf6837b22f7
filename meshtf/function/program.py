"""`Function`: a program that can be called, reported on, and planned for other meshes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import tensorflow as tf

from meshtf.call_sites import says_where, user_site
from meshtf.dimension import Dimension
from meshtf.errors import UsageError
from meshtf.function.feeds_by_name import feeds_by_name
from meshtf.function.program_plans import PlannedProgram, Prepared, ProgramPlans
from meshtf.function.signature import Sizes
from meshtf.graph.graph import Graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.lowering.ahead.compilation import Compilation
from meshtf.lowering.execution import Execution
from meshtf.lowering.local_inputs import input_slices, whole_inputs
from meshtf.lowering.lowering import Lowering
from meshtf.lowering.report.report import Report
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.mesh_impl import MeshImpl, check_mesh_impl
from meshtf.mesh_impl.tpu.topology import TpuTopology


class Function:
    """A program made by `mtf.function`. Calling it runs the program once and returns the results of its function.

    Examples:
      >>> two_cores = mtf.PlanMeshImpl("rows:2", "batch:rows")
      >>> program = mtf.function(lambda x: 2.0 * x, two_cores, {"x": mtf.TensorSpec("batch:4")}, name="double")
      >>> isinstance(program, mtf.Function), program.name, program.lowering.mesh_shape
      (True, 'double', Shape[rows:2])
    """

    def __init__(self, plans: ProgramPlans, sizes: Sizes | None) -> None:
        self._plans = plans
        self._sizes = sizes
        self._inputs = list(plans.tracing.signature.inputs)
        fn = plans.tracing.fn
        self.__doc__ = getattr(fn, "__doc__", None)
        self.__signature__ = inspect.signature(fn)
        if sizes is not None:
            plans.at(sizes)

    @property
    def _planned(self) -> PlannedProgram:
        """The plan for this program's sizes, or for those of the last call if they are open."""
        if self._sizes is not None:
            return self._plans.at(self._sizes)
        if self._plans.latest is None:
            names = self._plans.tracing.signature.open
            raise UsageError(
                f'program "{self.name}" has no plan yet: its inputs leave the size of {" and ".join(names)} open; '
                f"call it, or give sizes: step.at({', '.join(f'{n}=64' for n in names)})\n  at {user_site()}"
            )
        return self._plans.latest

    @property
    def lowering(self) -> Lowering:
        """The lowered program. If the inputs leave a size open, this is the program of the last call."""
        return self._planned.lowering

    @property
    def _fetches(self) -> list[Tensor]:
        return self._planned.fetches

    @property
    def _execution(self) -> Execution:
        return self._planned.execution

    @property
    def graph(self) -> Graph:
        return self.lowering.graph

    @property
    def variables(self) -> VariableStore:
        """The store of the program's variables. The first run or `initialize` makes them."""
        return self._plans.store

    @property
    def variable_layouts(self) -> dict[str, TensorLayout]:
        """The layout of each variable between steps, by name. Reading this makes no variable."""
        return self._execution.variable_layouts

    @property
    def name(self) -> str:
        return self._plans.tracing.program_name

    @property
    def results(self) -> Any:
        """The tensors that its body returned (`mtf.Tensor`), in their structure."""
        return self._planned.traced.results

    def initialize(self, values: Mapping[str, Any] | None = None) -> None:
        """Makes the variables that the store lacks, with their initial values, without running the program.

        Args:
          values: whole arrays for some of the variables, by name. No initial value is computed for these.

        Raises:
          DeviceError: if the program needs more memory than there is: see `check_memory`.
          GraphError: if a value belongs to no variable.
          ShapeError: if a value does not fit its variable.
          UsageError: if `values` is no mapping from names.

        Examples:
          >>> scaled = lambda x: x * mtf.get_variable(x.mesh, "scale", [])
          >>> step = mtf.function(scaled, mtf.SpmdMeshImpl("rows:2", "batch:rows"), {"x": mtf.TensorSpec("batch:2")})
          >>> step.initialize({"scale": 3.0})
          >>> step(x=np.ones([2], np.float32)).numpy()
          array([3., 3.], dtype=float32)
        """
        if values is None:
            values = {}
        if not isinstance(values, Mapping):
            kind = type(values).__name__
            raise UsageError(f'values must be a dict from names of variables to arrays, such as {{"w": w}}, not {kind}')
        self.check_memory()
        self._execution.initialize(values)

    def check_memory(self, besides: int = 0) -> None:
        """Checks that the memory that is left is enough for the program. The plan says how much the program needs.

        The first run makes this check as well.

        Args:
          besides: bytes that something else will take while the program runs, such as batches made ahead.

        Raises:
          DeviceError: if the program needs more, and `mtf.MeshOptions.check_memory` is on. The message says how much.
        """
        self._planned.check_memory(besides)

    def input_slices(self) -> dict[str, tuple[slice, ...]]:
        """Returns the part of each input that the cores of this process read.

        It is all of the input if one process has all cores. In a cluster, it is the process's own part of every
        dimension that the layout splits over processes. A process needs to make only this part: see `local_inputs`.
        Under "batch:cols+rows", with processes along `rows`, the cores of a process read several separate parts.
        The slice then goes from the first of these parts to the last.
        """
        return input_slices(self._execution.plan, self._local_cores)

    @property
    def _local_cores(self) -> Sequence[int]:
        mesh_impl = self.lowering.mesh_impl
        return local_cores(mesh_impl.devices) or range(mesh_impl.shape.size)  # a PlanMeshImpl has no devices

    def local_inputs(self, **parts: Any) -> dict[str, np.ndarray]:
        """Returns whole inputs for `step(**step.local_inputs(x=part))`, if this process has made only its
        `input_slices()`.

        Raises:
          FeedError: if a part has other sizes than its slices, or another dtype, or belongs to no input.
        """
        return whole_inputs(parts, self.input_slices(), self._execution.plan)

    def report(self) -> Report:
        """Returns the report: layouts, memory per core, every collective. You can print it or read it as data."""
        return self.lowering.report(self._fetches)

    @says_where
    def on(self, mesh_impl: MeshImpl, variables: VariableStore | None = None) -> Function:
        """Returns the same program on another mesh, or under another layout. Its graph is not built again.

        Args:
          mesh_impl: the mesh, its devices and the layout.
          variables: a store to share with other programs. The default is a new one.

        Raises:
          LayoutError: if the layout does not fit the program.
          GraphError: if `mesh_impl` is something else.

        Examples:
          >>> inputs = {"x": mtf.TensorSpec("batch:4 hidden:8")}
          >>> step = mtf.function(lambda x: mtf.reduce_sum(x), mtf.PlanMeshImpl("rows:2", "batch:rows"), inputs=inputs)
          >>> [step.on(mtf.PlanMeshImpl("rows:2", rule)).report().bytes_sent_per_core for rule in ("", "batch:rows")]
          [0, 4]
        """
        check_mesh_impl(mesh_impl)
        store = VariableStore() if variables is None else variables
        return Function(dataclasses.replace(self._plans, mesh_impl=mesh_impl, store=store), self._sizes)

    @says_where
    def at(self, **sizes: int) -> Function:
        """Returns the same program for one choice of the sizes that its inputs leave open. It is planned now.

        It shares the plans, the variables, the seed and the count of steps with this one.

        Args:
          sizes: the size of each open name.

        Raises:
          UsageError: a size is missing, the inputs already state it, or there are too many plans.
          LayoutError: if the layout does not fit these sizes.

        Examples:
          >>> def double(x: mtf.f32["batch hidden:8"]) -> mtf.f32["batch hidden"]:
          ...     return 2.0 * x
          >>> step = mtf.function(double, mtf.PlanMeshImpl("rows:2", "batch:rows"))
          >>> step.at(batch=64).results
          multiply [batch:64 hidden:8] float32
        """
        names = self._plans.tracing.signature.open
        for name, size in sizes.items():
            if name not in names:
                listed = f"the open sizes are: {', '.join(names)}" if names else "they state all sizes"
                raise UsageError(f'the inputs of program "{self.name}" leave no size "{name}" open; {listed}')
            Dimension(name, size)
        if missing := [name for name in names if name not in sizes]:
            raise UsageError(f'program "{self.name}" needs the size of "{missing[0]}", too: at({missing[0]}=...)')
        return Function(self._plans, tuple((name, sizes[name]) for name in names))

    def hlo(self) -> bytes:
        """Returns the program of every core of a TPU, as a serialized HloModuleProto: see `mtf.Lowering.hlo`."""
        return self.lowering.hlo(self._fetches)

    def compile(
        self,
        topology: str | TpuTopology,
        *,
        cache_dir: str | Path | None = None,
        on_wait: Callable[[float], None] | None = None,
    ) -> Compilation:
        """Compiles the program with libtpu, the TPU's own compiler. This needs no TPU, and nothing runs.

        The cores of the program's mesh, of any backend, are placed on the topology's. The compiler works in its own
        process, for seconds to minutes. If the program takes too much memory, its function is called again, to find
        out what it would take with layers that keep less for the gradient. Needs the extra `tpu`.

        Args:
          topology: a generation and its chips along each axis, as "v5e:4x4" or "v5p:2x2x4".
          cache_dir: a folder that keeps results, so that each program is compiled only once. The default is none.
          on_wait: called ten times a second while the compiler works, with the seconds that have passed.

        Raises:
          DeviceError: if it takes more memory than a core has, the mesh does not fit the topology, there is no such
            topology, or libtpu is not installed.
          CompilationError: if the compiler refuses an operation, which is named with the user's line.
        """

        planned = self._planned
        sizes = self._plans.sizes_of(planned)

        def trace(layers_keep: str) -> tuple[Mesh, Sequence[Tensor]]:
            traced = self._plans.tracing.again(sizes, layers_keep)
            return traced.mesh, traced.fetches

        return planned.lowering.compile(topology, planned.fetches, cache_dir=cache_dir, on_wait=on_wait, trace=trace)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program once.

        Raises:
          FeedError: if an input is missing, unknown, or of the wrong shape or dtype.
          DeviceError: if the program needs more memory than there is: see `check_memory`.
        """
        planned, (execution, arrays, summaries) = self._prepared(args, kwargs)
        return planned.returned(execution(arrays), summaries)

    def start(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Starts the program. Returns a function that waits for the results, and raises the errors of the call.

        On a GPU or a TPU, real or virtual, the cores work while the host continues. If you start a step or two ahead,
        the cores never wait for the host. If a check of a step fails, the steps that were started after it fail as well
        and assign nothing. A step with inputs of other sizes, or of another program with the same variables, waits for
        those before it when it starts, and raises their error. Elsewhere the step is complete when `start` returns, and
        later steps do not depend on its checks. Summaries are written when the results are waited for, if there is a
        writer then, with the writer's step at the start.

        Raises:
          FeedError, DeviceError: as for a call.
          UsageError: inside a tf.function.

        Examples:
          >>> two_cores = mtf.SpmdMeshImpl("rows:2", "batch:rows")
          >>> step = mtf.function(lambda x: 2.0 * x, two_cores, inputs={"x": mtf.TensorSpec("batch:4")})
          >>> started = [step.start(x=np.full([4], n, np.float32)) for n in range(3)]
          >>> [results().numpy()[0].item() for results in started]
          [0.0, 2.0, 4.0]
        """
        planned, (execution, arrays, summaries) = self._prepared(args, kwargs)
        wait = execution.start(arrays)
        return lambda: planned.returned(wait(), summaries)

    @property
    def has_open_sizes(self) -> bool:
        """Whether its inputs leave a size open, so that each call may have another plan."""
        return self._sizes is None

    def lowering_for(self, *args: Any, **kwargs: Any) -> tuple[Lowering, dict[str, Any]]:
        """Returns the lowered program that a call with these inputs runs, and the inputs by name. Nothing runs.

        Raises:
          FeedError: if an input is given twice, or the sizes of arrays contradict each other.
        """
        feeds = feeds_by_name(self._inputs, args, kwargs, self.name)
        return self._planned_for(feeds).lowering, feeds

    def _planned_for(self, feeds: Mapping[str, Any]) -> PlannedProgram:
        """The plan for the sizes of a call's arrays."""
        if self._sizes is not None:
            return self._plans.at(self._sizes)
        return self._plans.at(self._plans.tracing.signature.sizes_of(feeds, self.name))

    def _prepared(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[PlannedProgram, Prepared]:
        feeds = feeds_by_name(self._inputs, args, kwargs, self.name)
        planned = self._planned_for(feeds)
        return planned, planned.prepared(feeds)

    @says_where
    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        raise UsageError(f'program "{self.name}" cannot be pickled or copied; build it again with mtf.function')

    def __repr__(self) -> str:
        return f"mtf.function({self.name}) on mesh [{self._plans.mesh_impl.shape}]"
