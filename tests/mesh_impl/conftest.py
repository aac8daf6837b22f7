"""Runs small per-core programs on real virtual CPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.mesh_impl.spmd._bound_collectives import BoundCollectives
from meshtf.mesh_impl.spmd.spmd_collectives import DeviceMesh, SpmdCollectives


@dataclasses.dataclass
class PerCoreProgram:
    """One traced function of `(core, collectives, *slices)`, and how to call it on every core."""

    mesh: SpmdMeshImpl
    axes: Sequence[tuple[str, ...]]
    body: Callable[..., Sequence[Any]]
    permutations: Sequence[tuple[int, ...]] = ()
    traces: int = 0

    def __post_init__(self) -> None:
        mesh = DeviceMesh(
            self.mesh.shape, self.mesh.devices, self.mesh.options.collective_timeout_seconds, self.mesh.process_of_core
        )
        self.collectives = SpmdCollectives(mesh, self.axes, self.permutations)
        self._function: Any = None

    def emit(self, *values: Any) -> list[tf.Tensor]:
        """The program on every core, given `[cores, ..]` values; results `[cores, ..]`, joined on one device."""
        values = [tf.convert_to_tensor(value) for value in values]
        if self._function is None:
            self._function = self._trace([tf.TensorSpec(value.shape[1:], value.dtype) for value in values])
        results = []
        for core, device in enumerate(self.mesh.devices):
            slices = [value[core] for value in values]
            with tf.device(device):
                results.append(self._function(tf.constant(core), *slices, *self.collectives.arguments(core)))
        with tf.device(self.mesh.devices[0]):
            return [tf.stack(result) for result in zip(*results, strict=True)]

    def __call__(self, *values: Any) -> list[np.ndarray]:
        step = tf.function(lambda: self.emit(*values), autograph=False)
        return [result.numpy() for result in step()]

    def trace(self, *values: Any) -> None:
        """Traces the program, and runs nothing."""
        tf.function(lambda: self.emit(*values), autograph=False).get_concrete_function()

    @property
    def op_count(self) -> int:
        return len(self._function.get_concrete_function().graph.get_operations())

    def _trace(self, specs: Sequence[tf.TensorSpec]) -> Any:
        def per_core(core: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
            self.traces += 1
            bound: BoundCollectives = self.collectives.bind(arguments[len(specs) :])
            return list(self.body(core, bound, *arguments[: len(specs)]))

        signature = [tf.TensorSpec([], tf.int32), *specs, *self.collectives.signature()]
        options: Any = {"_noinline": True}
        return tf.function(per_core, autograph=False, input_signature=signature, experimental_attributes=options)


@pytest.fixture(autouse=True)
def _no_grappler() -> Iterator[None]:
    """Optimizing the program anew on each core would take most of the tests' time."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture
def program() -> type[PerCoreProgram]:
    return PerCoreProgram
