"""The entry of the language: a Python function over named tensors becomes one compiled program for a mesh."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import tensorflow as tf

from meshtf.call_sites import says_where, user_site
from meshtf.dimension import Shape, ShapeLike, shape_of
from meshtf.errors import FeedError, GraphError, UsageError, counted, nearest
from meshtf.garbage_collection import garbage_collection_paused
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.graph import Graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType
from meshtf.layout import TensorLayout
from meshtf.lowering.ahead.compilation import Compilation
from meshtf.lowering.execution import Execution
from meshtf.lowering.feeding import check_feeds, inputs_of
from meshtf.lowering.local_inputs import input_slices, whole_inputs
from meshtf.lowering.lowering import Lowering
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.lowering.report.memory_check import check_memory
from meshtf.lowering.report.report import Report
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.mesh_impl.tpu.topology import TpuTopology
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.ops.side_effects.summaries import Summary, wanted_summaries, write_summaries


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class TensorSpec:
    """The named shape and the dtype of an input.

    Examples:
      >>> mtf.TensorSpec("batch:4 length:16", tf.int32).shape
      Shape[batch:4 length:16]
    """

    shape: Shape
    dtype: tf.DType

    @says_where
    def __init__(self, shape: ShapeLike, dtype: tf.DType = tf.float32) -> None:
        object.__setattr__(self, "shape", shape_of(shape))
        object.__setattr__(self, "dtype", dtype_of(dtype))


@dataclasses.dataclass(frozen=True)
class _Traced:
    """A function over tensors after its call: its inputs, and its results in their structure."""

    mesh: Mesh
    inputs: Mapping[str, InputOperation]
    results: Any

    @property
    def fetches(self) -> list[Tensor]:
        return [x for x in tf.nest.flatten(self.results) if isinstance(x, Tensor)]


class Function:
    """A program made by `mtf.function`. Calling it runs the program once and returns what its body returned.

    Examples:
      >>> two_cores = mtf.PlanMeshImpl("rows:2", "batch:rows")
      >>> program = mtf.function(lambda x: 2.0 * x, two_cores, {"x": mtf.TensorSpec("batch:4")}, name="double")
      >>> isinstance(program, mtf.Function), program.name, program.lowering.mesh_shape
      (True, 'double', Shape[rows:2])
    """

    def __init__(self, lowering: Lowering, traced: _Traced, trace: Callable[[str], _Traced]) -> None:
        self.lowering = lowering
        self._inputs = dict(traced.inputs)
        self._results = traced.results
        self._fetches = traced.fetches
        self._traced = traced
        self._trace = trace
        self._execution = lowering.execution(self._fetches)
        self._fits_memory = False

    @property
    def graph(self) -> Graph:
        return self.lowering.graph

    @property
    def variables(self) -> VariableStore:
        """The store of the program's variables. They are there once it has run or `initialize` was called."""
        return self.lowering.variables

    @property
    def variable_layouts(self) -> dict[str, TensorLayout]:
        """The layout in which each of the program's variables is kept between steps, by name. No variable is
        made for it.
        """
        return self._execution.variable_layouts

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def results(self) -> Any:
        """The tensors that its body returned (`mtf.Tensor`), in their structure."""
        return self._results

    def initialize(self, values: Mapping[str, Any] | None = None) -> None:
        """Makes the variables that the store lacks, with their initial values, without running the program.

        Args:
          values: whole arrays that some variables get instead, by name. No initial value is computed for these.

        Raises:
          DeviceError: if the program needs more memory than there is: see `check_memory`.
          GraphError: if a value belongs to no variable.
          ShapeError: if a value does not fit its variable.

        Examples:
          >>> scaled = lambda x: x * mtf.get_variable(x.mesh, "scale", [])
          >>> step = mtf.function(scaled, mtf.SpmdMeshImpl("rows:2", "batch:rows"), {"x": mtf.TensorSpec("batch:2")})
          >>> step.initialize({"scale": 3.0})
          >>> step(x=np.ones([2], np.float32)).numpy()
          array([3., 3.], dtype=float32)
        """
        self.check_memory()
        self._execution.initialize(values or {})

    def check_memory(self, besides: int = 0) -> None:
        """Compares the program's need, counted from its plan, with the memory that is left. The first run does this,
        too.

        Args:
          besides: bytes that something else will take while the program runs, such as batches made ahead.

        Raises:
          DeviceError: if it needs more, and `mtf.MeshOptions.check_memory` is on. The message says how much.
        """
        if not self._fits_memory:
            check_memory(self._execution.plan, self.lowering.mesh_impl, self.name, self.variables, besides)
            self._fits_memory = True

    def input_slices(self) -> dict[str, tuple[slice, ...]]:
        """Returns, for each input that the program reads, the part of it that the cores of this process read.

        It is all of the input if one process has all cores. In a cluster, it is the process's own part of every
        dimension that the layout splits over processes. A process need make no more: see `local_inputs`. With
        "batch:cols+rows", where processes lie along `rows`, a process's cores have several such parts. Then it is
        everything from the first to the last of them.
        """
        return input_slices(self._execution.plan, self._local_cores)

    @property
    def _local_cores(self) -> Sequence[int]:
        mesh_impl = self.lowering.mesh_impl
        return local_cores(mesh_impl.devices) or range(mesh_impl.shape.size)  # on paper there are no devices

    def local_inputs(self, **parts: Any) -> dict[str, np.ndarray]:
        """Returns whole inputs for `step(**step.local_inputs(x=part))`, if this process has made only its
        `input_slices()`.

        Raises:
          FeedError: if a part has other sizes than its slices, or belongs to no input.
        """
        return whole_inputs(parts, self.input_slices(), self._execution.plan)

    def report(self) -> Report:
        """Returns the report: layouts, memory per core, every collective. It can be printed, and read as data."""
        return self.lowering.report(self._fetches)

    def on(self, mesh_impl: MeshImpl, variables: VariableStore | None = None) -> Function:
        """Returns the same program on another mesh, or under another layout. Its graph is not built again.

        Args:
          mesh_impl: the mesh, its devices and the layout.
          variables: a store to share with other programs. The default is a new one.

        Raises:
          LayoutError: if the layout does not fit the program.

        Examples:
          >>> inputs = {"x": mtf.TensorSpec("batch:4 hidden:8")}
          >>> step = mtf.function(lambda x: mtf.reduce_sum(x), mtf.PlanMeshImpl("rows:2", "batch:rows"), inputs=inputs)
          >>> [step.on(mtf.PlanMeshImpl("rows:2", rule)).report().bytes_sent_per_core for rule in ("", "batch:rows")]
          [0, 4]
        """
        own = self.lowering
        lowering = Lowering(self.graph, {own.mesh: mesh_impl}, variables, own.seed, own.pass_options)
        return Function(lowering, self._traced, self._trace)

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
        """Compiles the program with libtpu, the TPU's own compiler, for a TPU that need not be there. Nothing runs.

        Whatever mesh the program is on, its cores are laid onto the topology's. The compiler works in a process of its
        own, for seconds to minutes. If the program takes too much memory, its function is called again, to say what it
        would take with layers that keep less for the gradient. Needs the extra `tpu`.

        Args:
          topology: a generation and its chips along each axis, as "v5e:4x4" or "v5p:2x2x4".
          cache_dir: a folder in which answers are kept, so that a program is compiled once. The default is none.
          on_wait: called ten times a second while the compiler works, with the seconds that have passed.

        Raises:
          DeviceError: if it takes more memory than a core has, the mesh does not fit the topology, there is no such
            topology, or libtpu is not installed.
          CompilationError: if the compiler refuses an operation, which is named with the user's line.
        """

        def trace(layers_keep: str) -> tuple[Mesh, Sequence[Tensor]]:
            traced = self._trace(layers_keep)
            return traced.mesh, traced.fetches

        return self.lowering.compile(topology, self._fetches, cache_dir=cache_dir, on_wait=on_wait, trace=trace)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program once.

        Raises:
          FeedError: if an input is missing, unknown, or of the wrong shape or dtype.
          DeviceError: if the program needs more memory than there is: see `check_memory`.
        """
        execution, arrays, summaries = self._prepared(args, kwargs)
        return self._returned(execution(arrays), summaries)

    def start(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Starts the program. Returns a function that waits for the results, and raises the errors of the call.

        On a TPU, real or virtual, the cores work while the host goes on. With a step or two started ahead they need not
        wait for it. Elsewhere the step is over when `start` returns. If a check of a step fails, the steps that were
        started after it fail as well and assign nothing.

        Raises:
          FeedError, DeviceError: as when it is called.
          UsageError: inside a tf.function.

        Examples:
          >>> two_cores = mtf.SpmdMeshImpl("rows:2", "batch:rows")
          >>> step = mtf.function(lambda x: 2.0 * x, two_cores, inputs={"x": mtf.TensorSpec("batch:4")})
          >>> started = [step.start(x=np.full([4], n, np.float32)) for n in range(3)]
          >>> [results().numpy()[0].item() for results in started]
          [0.0, 2.0, 4.0]
        """
        execution, arrays, summaries = self._prepared(args, kwargs)
        wait = execution.start(arrays)
        return lambda: self._returned(wait(), summaries)

    def _prepared(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Execution, list[tf.Tensor], Sequence[Summary]]:
        """Returns the execution to run, the arrays to feed it, and the summaries that it returns beside the results."""
        self.check_memory()
        feeds = self._named(args, kwargs)
        summaries, execution = wanted_summaries(self.graph), self._execution
        if summaries:
            execution = self.lowering.execution([*self._fetches, *(s.tensor for s in summaries)])
        needed = inputs_of(execution.plan)
        known = {**self._inputs, **{o.name: o for o in needed}}
        checked = check_feeds([*self._inputs.values()], feeds, known, self.name)
        by_operation = dict(zip(self._inputs.values(), checked, strict=True))
        arrays = [by_operation[o] if o in by_operation else check_feeds([o], {}, known, self.name)[0] for o in needed]
        return execution, arrays, summaries

    def _returned(self, results: Sequence[tf.Tensor], summaries: Sequence[Summary]) -> Any:
        write_summaries(summaries, results[len(self._fetches) :])
        if isinstance(self._results, Tensor):  # the most frequent case; TensorFlow's walk takes ten times as long
            return results[0]
        fetched = iter(results)
        return tf.nest.map_structure(lambda x: next(fetched) if isinstance(x, Tensor) else x, self._results)

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = list(self._inputs)
        if len(args) == 1 and isinstance(args[0], Mapping):
            raise FeedError(
                f'program "{self.name}" was given a dict; inputs are given by name, as in '
                f"step(**batch)\n  at {user_site()}"
            )
        if len(args) > len(names):
            inputs = f"{counted(len(names), 'input')} ({', '.join(names)})"
            raise FeedError(
                f'program "{self.name}" has {inputs} and was given {counted(len(args), "argument")}\n  at {user_site()}'
            )
        feeds = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in feeds:
                raise FeedError(f'program "{self.name}" was given input "{name}" twice\n  at {user_site()}')
            feeds[name] = value
        return feeds

    @says_where
    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        raise UsageError(f'program "{self.name}" cannot be pickled or copied; build it again with mtf.function')

    def __repr__(self) -> str:
        return f"mtf.function({self.name}) on mesh [{self.lowering.mesh_shape}]"


@tf.autograph.experimental.do_not_convert
@garbage_collection_paused()
@says_where
def function(
    fn: Callable[..., Any],
    mesh_impl: MeshImpl,
    inputs: Mapping[str, TensorSpec] | None = None,
    variables: VariableStore | None = None,
    seed: int = 0,
    *,
    name: str | None = None,
    variable_dtype: VariableDType | None = None,
    pass_options: PassOptions = DEFAULT_PASS_OPTIONS,
) -> Function:
    """Builds the graph of `fn` once and lowers it once, for a mesh.

    Args:
      fn: a function that takes an mtf.Tensor for each of `inputs`, by name, and the mesh if it names a parameter
        `mesh`. It returns any structure of mtf.Tensors.
      mesh_impl: the mesh, its devices and the layout.
      inputs: named shape and dtype of each input.
      variables: a store to share with other programs. The default is a new one.
      seed: the seed of the random bits and the initial values.
      name: the name of the program. The default is the function's own.
      variable_dtype: element types of its variables, unless they say otherwise.
      pass_options: the sizes from which on passes change a plan. Results do not depend on them.

    Raises:
      ShapeError, DtypeError, GraphError: for a mistake in `fn`, with its line.
      LayoutError: if the layout does not fit the program.
      UsageError: if it has variables of its own inside a tf.function, or if `seed` is no whole number of 64 bits.

    Examples:
      >>> two_cores = mtf.SpmdMeshImpl("rows:2", "batch:rows")
      >>> row_sums = lambda x: mtf.reduce_sum(x, reduced_dim="hidden")
      >>> step = mtf.function(row_sums, two_cores, inputs={"x": mtf.TensorSpec("batch:4 hidden:8")})
      >>> step(x=np.ones([4, 8], np.float32)).numpy()
      array([8., 8., 8., 8.], dtype=float32)
    """
    _check_arguments(fn, mesh_impl, inputs)
    _check_state(variables, seed)
    specs = dict(inputs or {})
    check_parameters(fn, specs)
    trace = functools.partial(_traced, fn, specs, name, variable_dtype, seed)
    traced = trace(None)
    graph = traced.mesh.graph
    if graph.variables and variables is None and tf.inside_function():
        raise UsageError(
            f'program "{graph.name}" has variables and was built inside a tf.function, each trace of which would make '
            f"them anew; build it outside and call it inside, or give it variables=mtf.VariableStore() from outside"
        )
    lowering = Lowering(graph, {traced.mesh: mesh_impl}, variables, seed, pass_options)
    return Function(lowering, traced, trace)


def _traced(
    fn: Callable[..., Any],
    specs: Mapping[str, TensorSpec],
    name: str | None,
    variable_dtype: VariableDType | None,
    seed: int,
    layers_keep: str | None,
) -> _Traced:
    """Calls a function in a new graph."""
    graph = Graph(name or getattr(fn, "__name__", "program").strip("<>"), variable_dtype, layers_keep=layers_keep)
    graph.seed = seed
    mesh = Mesh(graph)
    operations = {n: InputOperation(mesh, s.shape, s.dtype, n) for n, s in specs.items()}
    arguments: dict[str, Any] = {n: o.outputs[0] for n, o in operations.items()}
    if "mesh" in inspect.signature(fn).parameters and "mesh" not in specs:
        arguments["mesh"] = mesh
    with graph:
        results = fn(**arguments)
    for leaf in tf.nest.flatten(results):
        if isinstance(leaf, tf.Tensor | tf.Variable | np.ndarray | Operation):
            raise GraphError(f"{graph.name} returned {_described(leaf)}; it must return mtf.Tensors")
    return _Traced(mesh, operations, results)


def _described(leaf: object) -> str:
    """Describes an object that a body returned in place of a tensor of the language."""
    if isinstance(leaf, Operation):
        return f"the operation {leaf.name}, not its outputs"
    package = "NumPy" if isinstance(leaf, np.ndarray) else "TensorFlow"
    return f"an array of {package}, {type(leaf).__name__}, known before it runs"


def _check_arguments(fn: object, mesh_impl: object, inputs: object) -> None:
    if not callable(fn):
        raise GraphError(f"the first argument must be a function over mtf.Tensors, not {type(fn).__name__}")
    if not hasattr(mesh_impl, "layout_rules"):
        raise GraphError(
            f"mesh_impl must be an mtf.SpmdMeshImpl, TpuMeshImpl or PlanMeshImpl, not {type(mesh_impl).__name__}"
        )
    if inputs is not None and not isinstance(inputs, Mapping):
        raise GraphError(f"inputs must be a dict from names to mtf.TensorSpecs, not {type(inputs).__name__}")
    for name, spec in (inputs or {}).items():
        if not isinstance(spec, TensorSpec):
            raise GraphError(
                f'input "{name}" must be an mtf.TensorSpec, not {type(spec).__module__}.{type(spec).__name__}'
            )


def _check_state(variables: object, seed: object) -> None:
    if variables is not None and not isinstance(variables, VariableStore):
        raise UsageError(f"variables must be an mtf.VariableStore, not {type(variables).__name__}")
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not -(2**63) <= seed < 2**63:
        raise UsageError(f"seed must be a whole number of 64 bits, and is {seed!r}")


def check_parameters(fn: Callable[..., Any], specs: Mapping[str, TensorSpec]) -> None:
    """Raises GraphError unless a function's parameters are the names of its inputs, and perhaps `mesh`."""
    try:
        parameters = inspect.signature(fn).parameters
    except ValueError:
        raise GraphError(f"{fn!r} does not name its parameters; give a function written in Python") from None
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for name in specs:
        if name not in parameters:
            raise GraphError(f'inputs names "{name}", which {fn.__name__} does not take{nearest(name, parameters)}')
    for name, parameter in parameters.items():
        if name not in specs and name != "mesh" and parameter.default is inspect.Parameter.empty:
            raise GraphError(f'{fn.__name__} takes "{name}", which inputs does not name{nearest(name, specs)}')
