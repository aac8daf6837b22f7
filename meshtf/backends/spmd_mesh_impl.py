"""A mesh of logical devices. TensorFlow runs one program per core, with its own collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Unpack, cast, final

import tensorflow as tf

from meshtf.backends._running_step import running_step
from meshtf.call_sites import says_where
from meshtf.dimension import ShapeLike
from meshtf.errors import DeviceError
from meshtf.layout import LayoutLike
from meshtf.lowering.emit.cores import SeparateCores
from meshtf.lowering.emit.program import SpmdProgram
from meshtf.lowering.processors.cores_in_one_memory import CoresInOneMemory, is_worth_tracing
from meshtf.mesh_impl.device_names import checked_devices, default_devices, local_cores, process_of, shape_on_devices
from meshtf.mesh_impl.home_device import are_virtual_cpus, home_device
from meshtf.mesh_impl.host.freed_memory import keep_freed_memory, pool_of_processors
from meshtf.mesh_impl.mesh_impl import Program, ProgramAtOnce
from meshtf.mesh_impl.mesh_options import MeshOptionKeywords, MeshOptions, checked_mesh
from meshtf.mesh_impl.slices import Slices
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.mesh_impl.zero_slices import zero_slices
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import ProcessOfCore


@final
class SpmdMeshImpl:
    """A mesh shape on devices, and the layout of tensors over it.

    Attributes:
      shape: the mesh's named shape.
      layout_rules: which dimension is split over which mesh axes.
      options: all other options of the mesh.
      devices: names of the devices, by core number (row-major over the mesh's axes).

    Examples:
      >>> mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;hidden:cols")
      >>> mesh_impl.shape, len(mesh_impl.devices)
      (Shape[rows:2 cols:2], 4)
    """

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout_rules: LayoutLike,
        devices: Sequence[str] | None = None,
        *,
        options: MeshOptions | None = None,
        **changes: Unpack[MeshOptionKeywords],
    ) -> None:
        """Makes the mesh. Every field of `mtf.MeshOptions` is a keyword, as in `parameter_layout="hidden:rows"`, and
        replaces the same field of `options`.

        By default, `devices` are the first GPUs if there are enough of them, else the first CPUs. In a cluster
        (`mtf.initialize_cluster`) each process has the same number, and the innermost axes lie within a process.

        If `shape` is text, one axis may have the size `*`, as in "data:*;model:2". Its size is then as large as the
        number of devices allows: of the given devices, or of all GPUs, or of all CPUs if there is no GPU.

        Raises:
          DeviceError: if a device does not exist or occurs twice, or if there are more or fewer devices than cores.
          LayoutError: if a rule names an axis that the mesh does not have.
          UsageError: if an option has an invalid value.
        """
        keeps_memory = changes.get("keep_freed_memory", getattr(options, "keep_freed_memory", True))
        with pool_of_processors(is_wanted=keeps_memory is True):  # starts TensorFlow, if it has not started
            shape = shape_on_devices(shape, devices)
            self.shape, self.layout_rules, self.options = checked_mesh(shape, layout_rules, options, changes)
            self.devices = (
                default_devices(self.shape, self.options.axes_over_processes)
                if devices is None
                else checked_devices(self.shape, devices)
            )
        self._process_of_core = self._checked_processes()
        if self.options.keep_freed_memory:
            keep_freed_memory()

    def _checked_processes(self) -> ProcessOfCore:
        """Returns the process of each core.

        Raises DeviceError if this process has no core, or if the options contradict the devices.
        """
        processes, planned = tuple(map(process_of, self.devices)), self.options.process_of_core(self.shape)
        if not local_cores(self.devices):
            raise DeviceError(
                f"mesh [{self.shape}] has no core in this process, and every process that makes it runs a part of it; "
                f"its devices are {', '.join(self.devices)}"
            )
        if len(set(processes)) == 1:
            return planned
        if self.options.num_processes not in (None, len(set(processes))):
            raise DeviceError(
                f"mesh [{self.shape}] is on devices of {len(set(processes))} processes, and num_processes says "
                f"{self.options.num_processes}"
            )
        return processes

    @property
    def size(self) -> int:
        """Number of cores."""
        return self.shape.size

    @property
    def ndims(self) -> int:
        """Number of mesh axes."""
        return self.shape.ndims

    @property
    def process_of_core(self) -> ProcessOfCore:
        """The process of each core's device. Within one process, the options define it."""
        return self._process_of_core

    @property
    def compiles_programs(self) -> bool:
        """False, since TensorFlow runs operations one by one, except loops for which compilation is requested."""
        return False

    @property
    def unrolls_layers(self) -> bool:
        """False, since TensorFlow starts the same operations either way."""
        return False

    @property
    def kernel_platform(self) -> str:
        """Empty: TensorFlow has only the kernels of its own operations."""
        return ""

    @property
    def takes_arrays(self) -> bool:
        """False: TensorFlow's programs take tensors."""
        return False

    @property
    def steps_ahead(self) -> int:
        """0, since TensorFlow runs a step to its end."""
        return 0

    @property
    def float32_products(self) -> str:
        """The arithmetic of float32 products. On GPUs TensorFlow's default is TF32."""
        is_tf32 = "GPU" in self.devices[0] and tf.config.experimental.tensor_float_32_execution_enabled()
        return "TF32" if is_tf32 else "float32"

    @property
    def peak_bytes(self) -> None:
        """None, since processors do not count bytes per core."""
        return None

    def check_runs(self, program: str) -> None:
        """Does nothing, since every program runs here."""

    def check_alike(self, program: str, texts: Callable[[], Mapping[str, str]]) -> None:
        """Raises ClusterError in every process of the mesh, if the texts of the program differ between processes."""
        cluster = collective_runtime().cluster
        if cluster is not None and len(set(map(process_of, self.devices))) > 1:
            cluster.check_alike(f'program "{program}"', texts(), self.options.collective_timeout_seconds)

    def zero_slices(self, name: str, slice_shape: Sequence[int], dtype: tf.DType) -> dict[int, tf.Variable]:
        """Makes a new variable: a slice for each core on its device."""
        return zero_slices(self.devices, slice_shape, dtype)

    def program(self, plan: Plan, slices: Mapping[str, Slices], *, runs_once: bool = False) -> Program:
        """The plan as one TensorFlow function, which runs the programs of all devices of this process."""
        variables, is_traced = cast("Mapping[str, Mapping[int, tf.Variable]]", slices), True
        if self.options.share_memory and are_virtual_cpus(self.devices):
            cores = CoresInOneMemory(plan, self, variables, runs_once=runs_once)
            is_traced = not runs_once or is_worth_tracing(plan)
        else:
            cores = SeparateCores(plan, self, variables)
        home = home_device(self.devices[local_cores(self.devices)[0]])
        return ProgramAtOnce(SpmdProgram(plan, cores, home, is_traced=is_traced))

    def step(self, program: str, plan: Plan) -> AbstractContextManager[None]:
        """Returns a context for a run. A process runs one program at a time, since the collectives of two would mix."""
        return running_step(program, plan)

    def hlo(self, plan: Plan, program: str) -> None:
        """Returns None, since TensorFlow runs the program without compiling it first."""

    def __repr__(self) -> str:
        return f'SpmdMeshImpl("{self.shape}", "{self.layout_rules}", devices={list(self.devices)})'
