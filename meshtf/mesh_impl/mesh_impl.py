"""The protocol of backends: everything that lowering needs from a mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import GraphError
from meshtf.layout import LayoutRules
from meshtf.mesh_impl.mesh_options import MeshOptions
from meshtf.mesh_impl.slices import Slices
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import ProcessOfCore

Results: TypeAlias = tuple[list[tf.Tensor], tf.Tensor]
"""The results of a run: the fetches as whole tensors, and the index in `plan.checks` of the failed check, or -1."""


class Program(Protocol):
    """A plan on a mesh, ready to run."""

    def __call__(self, feeds: Sequence[tf.Tensor | np.ndarray]) -> Results:
        """Runs the program once. It reads and assigns the slices of the variables with which it was made.

        Args:
          feeds: whole arrays, in the order of `plan.feeds`.

        Returns:
          The fetches as whole tensors, and the index in `plan.checks` of the failed check, or -1. If a check failed,
          nothing was assigned. Inside a tf.function, where the index cannot be read, a failed check raises
          InvalidArgumentError.
        """
        ...

    def start(self, feeds: Sequence[tf.Tensor | np.ndarray], *, may_change: bool = True) -> Callable[[], Results]:
        """Starts a run, outside of a tf.function, and returns a function that waits for its results.

        If a check fails after this has returned, runs that were started later also assign nothing, and fail with the
        same check.

        Args:
          feeds: whole arrays, in the order of `plan.feeds`.
          may_change: whether the caller may write to NumPy arrays in `feeds` as soon as this returns.
        """
        ...


@dataclasses.dataclass(frozen=True)
class ProgramAtOnce:
    """A Program whose `start` returns only when the run is complete."""

    run: Callable[[Sequence[tf.Tensor | np.ndarray]], Results]

    def __call__(self, feeds: Sequence[tf.Tensor | np.ndarray]) -> Results:
        return self.run(feeds)

    def start(self, feeds: Sequence[tf.Tensor | np.ndarray], *, may_change: bool = True) -> Callable[[], Results]:
        results = self.run(feeds)
        return lambda: results


def is_mesh_impl(x: object) -> bool:
    """Whether it is an implementation of a mesh: it has layout rules."""
    return hasattr(x, "layout_rules")


def check_mesh_impl(x: object) -> None:
    """Checks that it is an implementation of a mesh.

    Raises:
      GraphError: it is not.
    """
    if not is_mesh_impl(x):
        raise GraphError(
            f"mesh_impl must be an mtf.SpmdMeshImpl, GpuMeshImpl, TpuMeshImpl or PlanMeshImpl, not {type(x).__name__}"
        )


class MeshImpl(Protocol):
    """A mesh's named shape, the layout of tensors over it, and the backend that runs programs there.

    A backend is one class with these members. Planning reads only the first three, so that the plan and its report do
    not depend on the backend. Cores are numbered row-major over the mesh: the last axis is fastest. A plan may divide
    an axis of the mesh into parts. Then `plan.mesh_shape` has the parts instead of the axis, and core numbers stay.
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def layout_rules(self) -> LayoutRules: ...

    @property
    def options(self) -> MeshOptions: ...

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of each core, by core number; empty for a mesh without devices.

        Programs that share variables have the same devices. Raises DeviceError if required devices are missing.
        """
        ...

    @property
    def process_of_core(self) -> ProcessOfCore:
        """The process of each core, identical in all processes; empty if one process has all cores."""
        ...

    @property
    def compiles_programs(self) -> bool:
        """Whether XLA compiles every program as a whole, so that no loop is compiled separately."""
        ...

    @property
    def unrolls_layers(self) -> bool:
        """Whether unrolled layers are faster than a loop, so that loops over few enough layers are unrolled."""
        ...

    @property
    def kernel_platform(self) -> str:
        """The platform whose kernels programs may use, by XLA's name for it; "" if it has none."""
        ...

    @property
    def steps_ahead(self) -> int:
        """How many runs of a program to start before waiting for the results of the first, so that cores never wait.

        It is 0 if `start` returns only when the run is complete.
        """
        ...

    @property
    def takes_arrays(self) -> bool:
        """Whether programs take NumPy arrays directly. The arrays may change once a run has started."""
        ...

    @property
    def float32_products(self) -> str:
        """The arithmetic of float32 products: "float32", or the name of a faster and less precise one."""
        ...

    @property
    def peak_bytes(self) -> int | None:
        """The most bytes that a core of this process has held at once; None if the devices do not count them."""
        ...

    def check_runs(self, program: str) -> None:
        """Raises UsageError for the program of this name if the mesh cannot run programs. Called before any work."""
        ...

    def check_alike(self, program: str, texts: Callable[[], Mapping[str, str]]) -> None:
        """Raises ClusterError if another process of the mesh has different texts for the program of this name.

        Called before the program first runs.
        """
        ...

    def zero_slices(self, name: str, slice_shape: Sequence[int], dtype: tf.DType) -> Slices:
        """Makes a new variable: a slice of zeros for each core of this process, in memory that the core reads."""
        ...

    def program(self, plan: Plan, slices: Mapping[str, Slices], *, runs_once: bool = False) -> Program:
        """Makes a program that runs the plan on the mesh.

        Args:
          plan: the instructions of each core.
          slices: the slices of each variable of the plan, made by `zero_slices`.
          runs_once: whether the program runs only once, so that compiling costs more than it saves.
        """
        ...

    def step(self, program: str, plan: Plan) -> AbstractContextManager[None]:
        """A context for making variables, and for running the program of this name.

        It refuses a second thread if a process runs only one step at a time. It converts errors of the runtime, to name
        the operation and the user's line.
        """
        ...

    def hlo(self, plan: Plan, program: str) -> bytes | None:
        """The program as a serialized HloModuleProto, if the backend compiles programs when lowering; else None.

        Raises CompilationError if the compiler refuses an operation.
        """
        ...
