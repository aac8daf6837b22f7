"""The one protocol of backends: everything that lowering needs of a mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import LayoutRules
from meshtf.mesh_impl.mesh_options import MeshOptions
from meshtf.mesh_impl.slices import Slices
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import ProcessOfCore

Results: TypeAlias = tuple[list[tf.Tensor], tf.Tensor]
"""The results of a program's run: the whole fetches, and the index in `plan.checks` of the check that failed, or -1."""


class Program(Protocol):
    """A plan on a mesh, ready to be run."""

    def __call__(self, feeds: Sequence[tf.Tensor | np.ndarray]) -> Results:
        """Runs it once: reads and assigns the slices of the variables it was made with.

        Args:
          feeds: arrays, whole, in the order of `plan.feeds`.

        Returns:
          The fetches, whole, and the index in `plan.checks` of the check that failed, or -1. Where a check failed,
          nothing was assigned. Inside a tf.function, where nobody can look at the index, a failed check is an
          InvalidArgumentError.
        """
        ...

    def start(self, feeds: Sequence[tf.Tensor | np.ndarray], *, may_change: bool = True) -> Callable[[], Results]:
        """Starts a run, outside of a tf.function, and returns a function that waits for its results.

        If a check fails, the runs that were started after it assign nothing either, and fail with the same check.

        Args:
          feeds: arrays, whole, in the order of `plan.feeds`.
          may_change: whether somebody may write to NumPy arrays among them as soon as this returns.
        """
        ...


@dataclasses.dataclass(frozen=True)
class ProgramAtOnce:
    """A Program that runs to its end before anything else is done."""

    run: Callable[[Sequence[tf.Tensor | np.ndarray]], Results]

    def __call__(self, feeds: Sequence[tf.Tensor | np.ndarray]) -> Results:
        return self.run(feeds)

    def start(self, feeds: Sequence[tf.Tensor | np.ndarray], *, may_change: bool = True) -> Callable[[], Results]:
        results = self.run(feeds)
        return lambda: results


class MeshImpl(Protocol):
    """A mesh's named shape, the layout of tensors over it, and the backend that runs programs there.

    A backend is one class with these members. Planning asks for the first three alone, so that the plan and its report
    do not depend on the backend. Cores count the mesh row-major: the last axis is fastest. A plan may have an axis of
    the mesh in parts. Then `plan.mesh_shape` has the parts in the axis's place, and cores keep their numbers.
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def layout_rules(self) -> LayoutRules: ...

    @property
    def options(self) -> MeshOptions: ...

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of each core, by core number; empty on paper. Programs that share variables have the same devices.

        Raises DeviceError if devices are needed and not there.
        """
        ...

    @property
    def process_of_core(self) -> ProcessOfCore:
        """The process that each core is in, the same in all processes; empty where one process has all cores."""
        ...

    @property
    def compiles_programs(self) -> bool:
        """Whether XLA compiles every program as a whole, so that no loop is compiled by itself."""
        ...

    @property
    def unrolls_layers(self) -> bool:
        """Whether layers are faster one by one than in a loop, so that loops over few enough of them are unrolled."""
        ...

    @property
    def kernel_platform(self) -> str:
        """The platform, by XLA's name for it, whose own kernels programs may have; "" if it has none."""
        ...

    @property
    def steps_ahead(self) -> int:
        """How many runs of a program are started before the results of the first are waited for, so that no core waits
        for the host: 0 where a run is over when it has been started."""
        ...

    @property
    def takes_arrays(self) -> bool:
        """Whether its programs are fed NumPy arrays as they are, which may change once a run has been started."""
        ...

    @property
    def float32_products(self) -> str:
        """The arithmetic of products of float32, in words: "float32", or what is faster and less exact."""
        ...

    @property
    def peak_bytes(self) -> int | None:
        """The most bytes that a core of this process has held at once, as the devices count them; None where they do
        not."""
        ...

    def check_runs(self, program: str) -> None:
        """UsageError, for the program of this name, where the mesh runs nothing: asked before anything is made."""
        ...

    def check_alike(self, program: str, texts: Callable[[], Mapping[str, str]]) -> None:
        """Called before a program of this name first runs: ClusterError where other processes, whose cores the mesh
        has, too, have other texts of it."""
        ...

    def zero_slices(self, name: str, slice_shape: Sequence[int], dtype: tf.DType) -> Slices:
        """A new variable: for each core of this process a slice, zero, where the core's work finds it."""
        ...

    def program(self, plan: Plan, slices: Mapping[str, Slices], *, runs_once: bool = False) -> Program:
        """Makes a program of the plan, to be run on the mesh.

        Args:
          plan: the instructions of each core.
          slices: the slices of each of the plan's variables, as `zero_slices` made them.
          runs_once: whether the program runs only once, so that compiling costs more than it saves.
        """
        ...

    def step(self, program: str, plan: Plan) -> AbstractContextManager[None]:
        """Held while variables are made and while a program runs, by its name.

        Refuses a second thread where one process runs one step at a time, and puts the errors of the runtime into the
        user's terms: the operation of the plan, and the line.
        """
        ...

    def hlo(self, plan: Plan, program: str) -> bytes | None:
        """A serialized HloModuleProto, where programs are compiled when they are lowered; None where they are not.

        CompilationError where the compiler refuses an operation.
        """
        ...
